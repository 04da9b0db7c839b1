"""Lateness as an operator: connects the function `lateness` to input ports, output ports and
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from pydantic import model_validator

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.application.error_tuples import DETAIL, REASON
from rewindow.names import check_name, quoted_column
from rewindow.operators.columns import Columns, floor_div
from rewindow.operators.durations import Duration
from rewindow.operators.event_time.lateness import (
    ADDED,
    JUMP,
    LATE_BY,
    OUTCOME,
    TIMESTAMP,
    WATERMARK,
    Lateness,
    arrived_us,
    lateness,
    refused_because,
)
from rewindow.operators.event_time.settings import EventTime, StreamTime
from rewindow.operators.event_time.watermarks import STATE
from rewindow.sequences import excluding, matching_names, names_of, not_named, only_named
from rewindow.spark.columns import union_all
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NOT_CARRIED = ("window_id", "attempt", "offset")
_NO_PORT = frozenset(signature(Application.add).parameters) - {"feeds"}
"""Names that `add` uses for parameters other than input ports."""
_US = pa.int64()
_COUNTED = [("outcome", pa.string()), ("tuples", _US), ("late_by_us_max", _US)]


class EventTimeOperator(FrameOperator):
    """Base class of event-time operators: declares the input ports and finds late tuples.

    Attributes:
        columns: columns of the stream, or of each stream. They pass unchanged, except for `offset`.
        streams: names of input ports whose streams share one watermark. Without them there is one
            port, `stream`; with them each output port that has tuples or counts them has a first
            column `stream`.
        event_at: the event timestamp, a column or a SQL expression over the stream's columns.
        unit: unit of a whole number in `event_at`, counted from 1970.
        lag: how far the watermark trails the newest timestamp, a duration such as "5 s".
        watermark_interval: interval of arrival time at which the watermark is updated, a duration.
        max_ahead: a timestamp ahead of its arrival by more than this duration is an error, and so
            is one that would be close to its arrival in a larger unit; null disables the checks.
        max_jump: a timestamp ahead of the largest earlier one by more than this duration is an
            error; null disables the check.
        idle_timeout: a stream without tuples for longer than this duration does not hold the
            watermark back; needs several streams.
        arrived_at: column of the arrival.
        tie: which one is processed first when a tuple arrives at the instant of a watermark update.

    Rules: E2, E24, E47
    """

    state_reads_outputs = False

    columns: Columns
    streams: tuple[str, ...] = ()
    event_at: str
    unit: Literal["us", "ms", "s"] = "us"
    lag: Duration = "0 s"
    watermark_interval: Duration = "1 s"
    max_ahead: Duration = "1 day"
    max_jump: Duration = None
    idle_timeout: Duration = None
    arrived_at: str = "arrived_at"
    tie: Literal["tuple_first", "tick_first"] = "tuple_first"

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        self.event_time()
        self._check_columns(self.arrived_at)
        taken = matching_names(self._names(), ADDED)
        if taken:
            raise ValueError(
                f"{type(self).__name__} adds a column {', '.join(taken)}, which the input has "
                "already: rename it upstream"
            )
        return self

    @model_validator(mode="after")
    def _check_streams(self) -> Self:
        if not self.streams:
            if self.idle_timeout is not None:
                raise ValueError(
                    "idle_timeout needs several streams: with only one, no other stream can "
                    "advance the watermark"
                )
            return self
        if len(set(self.streams)) < max(2, len(self.streams)):
            raise ValueError(
                f"streams must be two or more different names, not {', '.join(self.streams)}"
            )
        for name in self.streams:
            if check_name("input port", name) in _NO_PORT:
                raise ValueError(
                    f'stream name "{name}" cannot be an input port: it is a parameter of `app.add`'
                )
        if matching_names(self._names(), {"stream"}):
            raise ValueError(
                "the input has a column stream, but the operator adds a column with this name: "
                "rename the column upstream"
            )
        return self

    def _check_columns(self, *asked: str) -> None:
        absent = excluding(asked, self._names())
        if absent:
            raise ValueError(
                f"the stream has no column {', '.join(absent)}; available columns: "
                f"{', '.join(self._names())}"
            )

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns a port for each of `streams`, or the single port `stream`."""
        return dict.fromkeys(self._ports(), InputPort(pa.schema(self._carried())))

    def _late_port(self) -> OutputPort:
        classified = [(TIMESTAMP, _US), (WATERMARK, _US), (LATE_BY, _US)]
        return OutputPort(pa.schema([*self._named(), *self._carried(), *classified]), optional=True)

    def _errors_port(self) -> OutputPort:
        return OutputPort(pa.schema([*self._named(), *self._carried()]), error=True)

    def _counts_port(self, by: tuple[str, ...]) -> OutputPort:
        keys = only_named(self._carried(), by)
        return OutputPort(
            pa.schema([*self._named(), *keys, *_COUNTED]),
            optional=True,
            report=True,
        )

    def _classify(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Lateness:
        columns = list(map(quoted_column, ("window_id", *self._names())))
        frames = {}
        for name in self._ports():
            frames[name] = inputs[name].select(*columns)
        return lateness(
            frames,
            self.event_time(),
            state=state,
            start_us=context.start_us,
            end_us=context.end_us,
            origin_us=context.grid.origin_us,
            materialize=context.materialize,
        )

    def _refused(
        self,
        classified: Lateness,
        late: Mapping[str, DataFrame],
    ) -> Mapping[str, DataFrame]:
        """Returns the frames for the ports `late` and `errors`."""
        errors = self._together(classified.errors)
        jumps = (
            "timestamp is later than the newest one before it in its stream by more than max_jump, "
            f"{self.max_jump}"
        )
        why = refused_because(arrived_us(errors, "stream", self.arrived_at))
        why = F.when(F.col(OUTCOME) == JUMP, jumps).otherwise(why)
        errors = errors.withColumn(DETAIL, why).withColumnRenamed(OUTCOME, REASON)
        return {
            "late": self._together(late).drop(OUTCOME),
            "errors": errors.drop(TIMESTAMP, WATERMARK, LATE_BY),
        }

    def _together(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Combines the tuples of all streams into one frame.

        If there are several streams, a column has the name of the stream.
        """
        if not self.streams:
            return frames["stream"]
        return union_all(frame.withColumn("stream", F.lit(name)) for name, frame in frames.items())

    def _window_of(self, at: str, context: OperatorContext) -> Column:
        """Returns the streaming window of an instant on the arrival clock.

        If at-most-once recovery skipped a window, its rows belong to the first window after it.

        Rules: E43
        """
        window = floor_div(F.col(at) - context.grid.origin_us, context.grid.width_us)
        return F.greatest(window, F.lit(context.first))

    def event_time(self) -> EventTime:
        """Returns the event-time settings that follow from the properties."""
        stream = StreamTime(
            event_at=self.event_at,
            unit=self.unit,
            max_ahead=self.max_ahead,
            max_jump=self.max_jump,
            idle_timeout=self.idle_timeout,
        )
        return EventTime(
            streams=dict.fromkeys(self._ports(), stream),
            lag=self.lag,
            watermark_interval=self.watermark_interval,
            arrived_at=self.arrived_at,
            tie=self.tie,
        )

    def _ports(self) -> tuple[str, ...]:
        return self.streams or ("stream",)

    def _named(self) -> list[Any]:
        """Returns the column with the stream name of each tuple, or an empty list for a single
        stream.
        """
        return [("stream", pa.string())] if self.streams else []

    def _carried(self) -> list[Any]:
        return not_named(self.columns, _NOT_CARRIED)

    def _names(self) -> list[str]:
        return names_of(self._carried())


class SplitLate(EventTimeOperator):
    """Splits a stream into tuples on time, late tuples, and tuples without a usable timestamp.

    A tuple is late if the watermark had passed its timestamp when it arrived. The ports `on_time`
    and `late` have the stream's columns; `late` also has `_rw_event_us`, `_rw_watermark_us` and
    `_rw_late_by_us`. `errors` is an error port with the reason `null_ts`, `far_future`, `bad_type`
    or `jump`, and a detail. `ticks` has the instants at which the watermark rose. `counts` has the
    number of tuples per window, key and outcome, so that you can compare the input with the sum of
    all outcomes.

    Attributes:
        key_by: columns that `counts` is grouped by.

    Example:
        late = SplitLate(columns=CLICKS, event_at="clicked_at", lag="5 s")
        split = app.add("split", late, stream=clicks)
        app.output("late_clicks", split["late"], key=["user"])

    Rules: E4, E5, E23, E36, E38 to E40, X37
    """

    key_by: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        self._check_columns(*self.key_by)
        counted = matching_names(self.key_by, ("stream", *dict(_COUNTED)))
        if counted:
            raise ValueError(
                f"key_by cannot be {', '.join(counted)}: the output port `counts` has a column "
                "with this name; rename it upstream"
            )
        return self

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the ports `on_time`, `late`, `errors`, `ticks` and `counts`."""
        return {
            "on_time": OutputPort(pa.schema([*self._named(), *self._carried()]), optional=True),
            "late": self._late_port(),
            "errors": self._errors_port(),
            "ticks": OutputPort(
                pa.schema([("tick_us", _US), ("watermark_us", _US)]),
                optional=True,
            ),
            "counts": self._counts_port(self.key_by),
        }

    def state_columns(self) -> pa.Schema:
        """Returns the columns from which the watermark is computed.

        The state has one row per stream.

        Rules: E41
        """
        return pa.schema({**dict.fromkeys(STATE, _US), "stream": pa.string()})

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns the tuples for each outcome, the ticks, and the counts."""
        classified = self._classify(inputs, state, context)
        tick_window = self._window_of("tick_us", context).alias("window_id")
        counts = classified.counts("window_id", *self.key_by)
        return {
            "on_time": self._together(classified.on_time),
            **self._refused(classified, classified.late),
            "ticks": classified.ticks.select(tick_window, "tick_us", "watermark_us"),
            "counts": counts if self.streams else counts.drop("stream"),
        }

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the values from which the next group computes the watermark.

        They depend only on the inputs, so they are the same in every run.
        """
        after = self._classify(inputs, state, context).state
        assert after is not None, "the end of the group is given"
        return after.select(*STATE)
