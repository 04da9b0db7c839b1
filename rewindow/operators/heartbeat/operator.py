"""The Heartbeat as an operator: the function `heartbeat` between an input port, an output port and
a carried state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pydantic import field_serializer, model_validator

from rewindow.application import FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.names import BOOKKEEPING, POSITION_COLUMNS, quoted_column
from rewindow.operators.columns import type_texts
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
"""What tells timers from data (H19); `_rw_emission` is the place within the window, from 0, in
emission order (H52)."""
RENAME = "rename it upstream, or by keep and select in the settings of the stream"


class Heartbeat(HeartbeatProperties, FrameOperator):
    """Passes a stream on with timer tuples where it is silent (docs/rules/heartbeat.md part 1).

    `columns` are the stream's; they pass unchanged, with `PROVENANCE` behind them. In a timer they
    are null but for the event timestamp, the keys, and the arrival, which is the instant of
    emission. Quarantined tuples (`max_jump`) leave by the port `errors`, where clamped ones
    (`arrival_regression`) are reported too. Any number of them may stand in an application, each
    with its own clocks (H63).

    Example:
        heartbeat = Heartbeat(interval=60, slack=10, event_at="at", columns=schema)
        beat = app.add("beat", heartbeat, stream=clicks)
    """

    columns: pa.Schema

    @field_serializer("columns")
    def _columns_as_text(self, columns: pa.Schema) -> dict[str, str]:
        return type_texts(columns)

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        wrong = list(self._wrong_columns())
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def _wrong_columns(self) -> Iterator[str]:
        """Yields what the clock lacks (H53), what it cannot count in (H40), and what would be there
        twice (H19).
        """
        names = self.columns.names
        absent = excluding(self._clock_columns(), names)
        if absent:
            yield f"column {', '.join(absent)} is not in the stream's columns: {', '.join(names)}"
        for field in self.columns:
            is_time = pa.types.is_timestamp(field.type) or pa.types.is_int64(field.type)
            if field.name in (self.event_at, self.arrived_at) and not is_time:
                yield (
                    f"column {field.name} is {field.type}, it must be a timestamp, or int64 as "
                    "microseconds"
                )
            if field.name.lower() in ADDED:
                yield f"column {field.name} is one that the Heartbeat adds: {RENAME}"
            if field.name.lower() in BOOKKEEPING and field.name not in POSITION_COLUMNS:
                yield (
                    f"column {field.name} has a name that tables of a replay need for "
                    f"themselves: {RENAME}"
                )
        twice = repeated_names(names)
        if twice:
            yield (
                f"columns {' and '.join(twice)} are one to a table, which reads no capital "
                f"letters: {RENAME}"
            )

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns one port, `stream`, with the columns that the clock needs and those that pass
        (H16).
        """
        return {"stream": InputPort(pa.schema(self._needed()))}

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`, and behind it `errors` (H16)."""
        payload = self._payload()
        out = pa.schema([*payload, *PROVENANCE])
        errors = pa.schema(payload)
        return {"out": OutputPort(out), "errors": OutputPort(errors, error=True)}

    def state_columns(self) -> pa.Schema:
        """Returns key columns and clock, a row per clock (H55)."""
        keys = only_named(self.columns, self.key_by)
        return pa.schema([*keys, *STATE_FIELDS])

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns data and timers, and what is quarantined."""
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
        """Returns the clocks after the group; what they depend on is recorded, so it is the same in
        every run.
        """
        return self._beat(inputs, state, context).state

    def state_after_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Returns the state with empty clocks and the index of the last timer that was emitted for
        each (H58, H10).
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
        """Returns tuples with timers due exactly at the recording's end in its last window, at its
        last instant (X23).

        At every other border such a timer belongs to the next window (H56); after the end there is
        none (H13).
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
