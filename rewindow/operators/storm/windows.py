"""Windows that fire as in Apache Storm, for comparison.

Example:
    windows = storm_windows(
        {"clicks": clicks}, time, StormWindows(length="1 h", slide="15 min"), {"n": ("count", "*")}
    )
    windows.fired.show()

One task processes all tuples sequentially in the order of their arrival, so this is for small
recordings. Replays use `event_windows`. Without event time, `storm_windows({"clicks": clicks},
None, ...)`, the arrival is the time, as in a topology without a timestamp field.

Rules: E16, X38
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rewindow.names import quoted_column
from rewindow.operators.columns import floor_div
from rewindow.operators.durations import NonNegativeUs
from rewindow.operators.event_time import watermarks as marks
from rewindow.operators.event_time.lateness import NULL_TS, ON_TIME, arrived_us, timestamp_us
from rewindow.operators.event_time.settings import EventTime, StreamTime
from rewindow.operators.event_time_windows.aggregates import aggregate_spec
from rewindow.operators.event_time_windows.firing import (
    END,
    FIRED,
    STREAM,
    TUPLES,
    firing_columns,
)
from rewindow.operators.setting_errors import refusal
from rewindow.operators.storm.arrivals import ArrivalMachine, machine_of
from rewindow.operators.storm.machine import EXPIRED, Membership, StormMachine, StormRules
from rewindow.sequences import map_values
from rewindow.spark.columns import aliased, bigint, named_columns, renamed_columns, union_all
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER = "_stream"
_AT = "_at_us"
_TS = "_ts_ms"
_TICK = "_tick"
_ROLE = "_role"
_WINDOW = "_window"
_MS = 1_000
_BATCH = 10_000


class StormWindows(BaseModel):
    """Windows (end - length, end] of Storm, or windows that count tuples.

    Exactly one length must be set, and at most one slide.

    Attributes:
        length, length_tuples: length of a window, in time or in tuples.
        slide, slide_tuples: distance of the ends of consecutive windows; by default one tuple.

    Example:
        StormWindows(length="10 s", slide="5 s")

    Raises:
        InputError: a setting is wrong.

    Rules: E19
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    length_us: NonNegativeUs | None = Field(None, alias="length")
    length_tuples: int | None = None
    slide_us: NonNegativeUs | None = Field(None, alias="slide")
    slide_tuples: int | None = None

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("Storm windows", error, type(self)) from error

    @field_validator("length_us", "slide_us")
    @classmethod
    def _check_duration(cls, value: int | None) -> int | None:
        if value is not None and value < _MS:
            raise ValueError("length and slide must be 1 ms or more")
        return value

    @model_validator(mode="after")
    def _check_one(self) -> StormWindows:
        if (self.length_us is None) == (self.length_tuples is None):
            raise ValueError("set either length or length_tuples")
        if self.slide_us is not None and self.slide_tuples is not None:
            raise ValueError("set slide or slide_tuples or neither, but not both")
        for count in (self.length_tuples, self.slide_tuples):
            if count is not None and count < 1:
                raise ValueError(f"a count of tuples must be 1 or more, not {count}")
        return self

    def rules(self, time: EventTime | None) -> StormRules:
        """Returns the rules for the machine, in whole milliseconds.

        Without event time, windows are over arrivals.

        Rules: E16, E17
        """
        return StormRules(
            streams=0 if time is None else len(time.streams),
            lag_ms=0 if time is None else time.lag_us // _MS,
            length_ms=(self.length_us or 0) // _MS,
            length_tuples=self.length_tuples or 0,
            slide_ms=(self.slide_us or 0) // _MS,
            slide_tuples=self.slide_tuples or int(self.slide_us is None),
        )


@dataclass(frozen=True)
class StormResult:
    """The windows that Storm would have fired.

    Attributes:
        fired: as `Windows.fired`, except that windows are (begin, end]; `pane` is the number of the
            window over all keys.
        members: a row for each tuple in a window that fired: the columns of `recording_keys` and
            keys, `stream STRING`, `window_end_us BIGINT` (inclusive), `pane INT`, `fired_us
            BIGINT`, and `role STRING`: `new`, `again` if the tuple was in the window before too, or
            `expired` if it was removed since the evaluation before, which may have been empty.
        outcomes: `stream STRING`, the columns of `recording_keys` and keys, `outcome STRING`,
            `tuples BIGINT`: on_time, late, null_ts, pending, and two outcomes that only Storm has:
            `hidden_by_scan` and `lost_tie`. Over arrivals: on_time, pending, and between_windows
            for a tuple that was in no window.

    Rules: E9, E10, E12
    """

    fired: DataFrame
    members: DataFrame
    outcomes: DataFrame


def storm_windows(
    frames: Mapping[str, DataFrame],
    time: EventTime | None,
    windows: StormWindows,
    aggregates: Mapping[str, tuple[str, str]],
    *,
    keys: Sequence[str] = (),
    start_us: int = 0,
    end_us: int | None = None,
    recording_keys: Sequence[str] = (),
) -> StormResult:
    """Returns the windows that Storm would have fired, and the outcome of each tuple.

    Args:
        frames: the tuples of each declared stream.
        time: streams, lag, ticks; `max_ahead` and `idle_timeout` do not exist in Storm and are
            ignored. None for a topology without a timestamp field: then the arrival is the time
            (`arrived_at`), and no tuple is late.
        windows: length and slide of the windows.
        aggregates: as for `event_windows`.
        keys: columns to group by inside windows.
        start_us: start of the machine; the first tick is one interval later. Over arrivals it is
            one slide later, and its window contains all earlier tuples, however short windows are.
        end_us: end of the recording, after which there are no ticks. By default, the tick after the
            last tuple is the last one.
        recording_keys: columns whose values are separate recordings.

    Raises:
        InputError: an aggregate, a column or a timestamp is invalid.

    Rules: E1 to E16
    """
    # Storm works tuple by tuple, so one task processes all of them in the order of arrival, with a
    # separate machine for each recording. Spark only sorts before and aggregates after.
    rules = windows.rules(time)
    time = time or _timer(windows, frames)
    own = [*recording_keys, *keys]
    aggregate = aggregate_spec(next(iter(frames.values())), aggregates)
    parts = aliased(aggregate.parts)
    of_streams = []
    for number, (name, stream) in enumerate(time.streams.items()):
        at_us = arrived_us(frames[name], name, time.arrived_at)
        event_us = timestamp_us(
            frames[name],
            name,
            stream.event_at,
            unit=stream.unit,
        )
        about = [
            F.lit(name).alias(STREAM), F.lit(number).alias(_NUMBER), at_us.alias(_AT),
            floor_div(event_us, _MS).alias(_TS),
            F.greatest(marks.tick_of(time, at_us, start_us), F.lit(1)).alias(_TICK),
        ]  # fmt: skip
        of_streams.append(frames[name].select(*named_columns(own), *about, *parts))
    every = union_all(of_streams)
    order = [*map(quoted_column, recording_keys), _AT, _NUMBER, *aggregate.parts]
    tagged = every.limit(0).select(
        *named_columns(own),
        STREAM,
        *aggregate.parts,
    )
    added = {_ROLE: "string", _WINDOW: "int", END: "bigint", FIRED: "bigint"}
    tagged = tagged.withColumns(map_values(F.lit(None).cast, added))
    walk = _walk(
        rules,
        list(recording_keys),
        tagged.columns,
        clock=_Clock(start_us, time.watermark_interval_us, end_us),
    )
    passed = every.repartition(1).sortWithinPartitions(*order).mapInArrow(walk, tagged.schema)
    members = passed.where(F.col(FIRED).isNotNull())
    columns = named_columns(own)
    results = aliased(aggregate.results)
    found = (
        members.where(F.col(_ROLE) != EXPIRED).groupBy(*columns, _WINDOW, END, FIRED).agg(*results)
    )
    length_us = windows.length_us
    begin = bigint(None) if length_us is None else F.col(END) - length_us
    named = firing_columns(
        begin,
        F.col(END),
        F.col(_WINDOW),
        kind=F.lit(ON_TIME),
        fired_us=F.col(FIRED),
    )
    shown = {END: "window_end_us", _WINDOW: "pane", FIRED: "fired_us", _ROLE: "role"}
    outcomes = passed.where(F.col(FIRED).isNull()).groupBy(
        STREAM,
        *columns,
        F.col(_ROLE).alias("outcome"),
    )
    return StormResult(
        fired=found.select(
            *columns,
            *named,
            *named_columns(aggregate.results),
        ),
        members=members.select(
            *columns,
            STREAM,
            *renamed_columns(shown),
        ),
        outcomes=outcomes.agg(F.count("*").alias(TUPLES)),
    )


def _timer(windows: StormWindows, streams: Iterable[str]) -> EventTime:
    """Returns the times of streams without timestamps: their arrivals, and one tick per slide.

    A tick does not include tuples of the same instant. If the length counts tuples, however, the
    tuple is processed before the tick.

    Rules: E15, E16
    """
    return EventTime(
        streams=dict.fromkeys(streams, StreamTime(event_at="arrived_at")),
        watermark_interval=f"{windows.slide_us or 1_000_000} us",
        tie="tuple_first" if windows.length_us is None else "tick_first",
    )


@dataclass(frozen=True)
class _Clock:
    start_us: int
    interval_us: int
    end_us: int | None

    def at_us(self, tick: int) -> int:
        """Returns the instant of a tick."""
        return self.start_us + tick * self.interval_us

    @property
    def end(self) -> int | None:
        """The first tick after the end of the recording; None if the end is unknown."""
        return None if self.end_us is None else -((self.start_us - self.end_us) // self.interval_us)


def _walk(
    rules: StormRules,
    recording_keys: list[str],
    columns: list[str],
    clock: _Clock,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that processes tuples in the order of arrival.

    Each recording has a new machine.
    """

    def walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        added = {_ROLE: pa.string(), _WINDOW: pa.int32(), END: pa.int64(), FIRED: pa.int64()}
        schema: pa.Schema | None = None
        passing: _Pass | None = None
        rows: list[dict[str, Any]] = []
        for batch in batches:
            known = batch.schema
            types = {**dict(zip(known.names, known.types, strict=True)), **added}
            schema = pa.schema(dict(zip(columns, map(types.get, columns), strict=True)))
            for row in batch.to_pylist():
                place = list(map(row.get, recording_keys))
                if passing is None or passing.place != place:
                    rows += [] if passing is None else passing.finish()
                    passing = _Pass(place, machine_of(rules), clock)
                rows += passing.take(row)
                if len(rows) >= _BATCH:
                    yield pa.RecordBatch.from_pylist(rows, schema)
                    rows = []
        if passing is not None and schema is not None:
            yield pa.RecordBatch.from_pylist(rows + passing.finish(), schema)

    return walk


class _Pass:
    """A machine that processes one recording, and its tuples."""

    def __init__(
        self,
        place: list[Any],
        machine: StormMachine | ArrivalMachine,
        clock: _Clock,
    ) -> None:
        self.place = place
        self._machine = machine
        self._clock = clock
        self._tuples: list[dict[str, Any]] = []
        self._tick = 1

    def take(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the rows of windows that fire at ticks before a tuple, and the rows of the window
        that the tuple itself fires.
        """
        rows = self._due(row[_TICK])
        self._tuples.append(row)
        number = len(self._tuples) - 1
        if row[_TS] is None:
            self._machine.outcomes.append((number, NULL_TS))
            return rows
        return rows + self._rows(self._machine.take(number, row[_NUMBER], row[_TS]), row[_AT])

    def finish(self) -> list[dict[str, Any]]:
        """Returns the rows of windows that fire at the last ticks, and the outcome of each
        tuple.
        """
        rows = self._due(self._tick + 1 if self._clock.end is None else self._clock.end)
        for number, outcome in self._machine.finish():
            rows.append({**self._tuples[number], _ROLE: outcome})
        return rows

    def _due(self, until: int) -> list[dict[str, Any]]:
        """Returns the rows of windows that fire at ticks before `until`.

        Ticks that cannot fire a window are skipped.
        """
        rows: list[dict[str, Any]] = []
        last = until if self._clock.end is None else min(until, self._clock.end)
        while self._tick < last:
            at_us = self._clock.at_us(self._tick)
            rows += self._rows(self._machine.tick(at_us // _MS), at_us)
            self._tick = self._tick + 1 if self._machine.may_fire() else last
        self._tick = max(self._tick, until)
        return rows

    def _rows(self, members: Iterable[Membership], at_us: int) -> list[dict[str, Any]]:
        rows = []
        for member in members:
            fired = {_ROLE: member.role, _WINDOW: member.window, FIRED: at_us}
            rows.append({**self._tuples[member.tuple], **fired, END: member.end_ms * _MS})
        return rows
