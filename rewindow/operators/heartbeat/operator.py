"""The Heartbeat as an operator: connects the function `heartbeat` to an input port, output ports
and state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pydantic import model_validator

from rewindow.application import FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.names import BOOKKEEPING, POSITION_COLUMNS, quoted_column
from rewindow.operators.columns import Columns
from rewindow.operators.heartbeat.function import (
    ADDED,
    EMISSION,
    STATE_FIELDS,
    HeartbeatResult,
    heartbeat,
    without_clock,
)
from rewindow.operators.heartbeat.settings import HeartbeatProperties
from rewindow.sequences import excluding, names_of, not_named, only_named, repeated_names
from rewindow.spark.columns import bigint, named_columns
from rewindow.spark.functions import F, Window
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROVENANCE = list(zip(ADDED, (pa.bool_(), pa.string(), pa.int64(), pa.int64()), strict=True))
"""Columns that distinguish timers from data. `_rw_emission` is the position of a tuple within its
window in the order of emission, from 0.

Rules: H19, H52
"""
RENAME = "rename it upstream, or with keep and select in the settings of the stream"


class Heartbeat(HeartbeatProperties, FrameOperator):
    """Passes a stream on, and adds timer tuples where it is silent.

    The columns of the stream pass unchanged, followed by `_rw_is_timer`, `_rw_cause`,
    `_rw_timer_count` and `_rw_emission`. In a timer the columns of the stream are null except for
    the event timestamp, the keys, and the arrival, which is the instant of emission. Tuples that
    exceed `max_jump` are emitted only on the port `errors`; the port also reports tuples whose
    arrival was changed by `arrival_regression`. An application may have any number of Heartbeats,
    each with separate clocks.

    Example:
        heartbeat = Heartbeat(interval=60, slack=10, event_at="at", columns=schema)
        beat = app.add("beat", heartbeat, stream=clicks)

    Attributes:
        parameters: values of `${name}` in `interval` and `slack`, replaced once, at launch.
        interval: timers are emitted at the multiples of this duration, as seconds or text with a
            unit.
        slack: how long a timer waits after its scheduled time for a tuple.
        event_at: column of the event timestamp.
        arrived_at: column of the arrival.
        order_by: columns that order tuples within a window.
        key_by: columns with a clock for each of their values; without any there is one clock.
        crossing: emit all timers that a tuple's timestamp passes, or only the last one.
        first_on_multiple: whether a first tuple exactly on a multiple causes a timer.
        early_crossing: which of timer and tuple is emitted first when a tuple at or past the next
            timer arrives before the timer's scheduled time.
        slack_restart: whether the slack counts from the scheduled time or from the arrival of a
            tuple that arrived within it.
        slack_after_timeout: whether a silence that starts after timeouts has the whole slack again,
            or none.
        answered_crossing: emit or drop a timer whose tuple has exactly its timestamp.
        tie: which one is emitted first when a tuple arrives at the instant at which a timer is due.
        arrival_regression: reject a tuple that arrived before an earlier one, or clamp its arrival
            to the latest one.
        max_jump: tuples whose timestamp is ahead of all earlier ones by more than this are
            quarantined; null disables the check.
        max_timers: largest number of timers for one crossing or one silence.
        on_too_many: stop beyond `max_timers`, or write one summary row for the other timers.
        speed: how many times faster the clock of `arrived_at` runs than the recorded one.

    Rules: H1 to H14, H63
    """

    columns: Columns

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        wrong = list(self._wrong_columns())
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def _wrong_columns(self) -> Iterator[str]:
        """Yields errors about the columns: missing columns, columns of a type that the clock cannot
        read, and duplicate or reserved names.

        Rules: H19, H40, H53
        """
        names = self.columns.names
        absent = excluding(self._clock_columns(), names)
        if absent:
            yield (
                f"the stream has no column {', '.join(absent)}; available columns: "
                f"{', '.join(names)}"
            )
        for field in self.columns:
            is_time = pa.types.is_timestamp(field.type) or pa.types.is_int64(field.type)
            if field.name in (self.event_at, self.arrived_at) and not is_time:
                yield (
                    f"column {field.name} must be a timestamp, or int64 microseconds, not "
                    f"{field.type}"
                )
            if field.name.lower() in ADDED:
                yield (
                    f"the Heartbeat adds a column {field.name}, but the input already has this "
                    f"column: {RENAME}"
                )
            if field.name.lower() in BOOKKEEPING and field.name not in POSITION_COLUMNS:
                yield (
                    f"column {field.name} has a name that is reserved in the tables of a replay: "
                    f"{RENAME}"
                )
        twice = repeated_names(names)
        if twice:
            yield (
                f"names of columns {' and '.join(twice)} differ only in case, which tables do not "
                f"support: {RENAME}"
            )

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns one port, `stream`, with the columns that the clock needs and the columns that
        are passed on.

        Rules: H16
        """
        return {"stream": InputPort(pa.schema(self._needed()))}

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`, and the error port `errors`.

        Rules: H16
        """
        payload = self._payload()
        out = pa.schema([*payload, *PROVENANCE])
        errors = pa.schema(payload)
        return {"out": OutputPort(out), "errors": OutputPort(errors, error=True)}

    def state_columns(self) -> pa.Schema:
        """Returns the key columns and the columns of the clock.

        The state has one row per clock.

        Rules: H55
        """
        keys = only_named(self.columns, self.key_by)
        return pa.schema([*keys, *STATE_FIELDS])

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns data and timers on `out`, and quarantined tuples on `errors`."""
        made = self._beat(inputs, state, context)
        tuples = self._within_end(made.tuples, context)
        keys = named_columns(self.key_by)
        place = F.row_number().over(Window.partitionBy("window_id").orderBy(EMISSION, *keys)) - 1
        return {"out": tuples.withColumn(EMISSION, place.cast("bigint")), "errors": made.errors}

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the clocks after the group.

        They depend only on recorded columns, so they are the same in every run.
        """
        return self._beat(inputs, state, context).state

    def state_after_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Returns the state with empty clocks and the index of the last timer that each clock has
        emitted.

        Rules: H10, H58
        """
        return without_clock(state, self, outputs.get("out"))

    def _beat(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> HeartbeatResult:
        names = dict.fromkeys(["window_id", *names_of(self._needed())])
        frame = inputs["stream"].select(*map(quoted_column, names))
        last = context.last if context.end is None else min(context.end, context.last)
        end_us = context.grid.end_us(last)
        has_ended = last == context.end
        return heartbeat(
            frame,
            self,
            state=state,
            end_us=end_us,
            end_included=has_ended,
            grid=context.grid,
        )

    def _within_end(self, tuples: DataFrame, context: OperatorContext) -> DataFrame:
        """Moves a timer that is due exactly at the end of the recording to the last instant of its
        last window.

        At every other border such a timer belongs to the next window, but no window follows the end
        of the recording.

        Rules: H13, H56, X23
        """
        if context.end is None or context.ended_us is None:
            return tuples
        last = bigint(context.ended_us)
        if tuples.schema[self.arrived_at].dataType.typeName() != "long":
            last = F.timestamp_micros(last)
        at_end = F.col("window_id") > context.end
        arrival = F.col(quoted_column(self.arrived_at))
        moved = {self.arrived_at: F.when(at_end, last).otherwise(arrival)}
        return tuples.withColumns({**moved, "window_id": F.least("window_id", bigint(context.end))})

    def _clock_columns(self) -> list[str]:
        return list(dict.fromkeys([self.event_at, self.arrived_at, *self.order_by, *self.key_by]))

    def _needed(self) -> list[Any]:
        needed = {*self._clock_columns(), *names_of(self._payload())}
        return only_named(self.columns, needed)

    def _payload(self) -> list[Any]:
        return not_named(self.columns, POSITION_COLUMNS)
