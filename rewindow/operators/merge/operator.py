"""The Merge as an operator: connects the function `merge` to input ports, an output port and
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pydantic import model_validator

from rewindow.application import FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators.columns import WINDOW, Columns
from rewindow.operators.merge.function import (
    EMISSION,
    RELEASED_AT,
    SOURCE,
    MergeResult,
    count_waiting,
    find_fault,
    merge,
    without_waiting,
)
from rewindow.sequences import names_of, not_named
from rewindow.spark.columns import named_columns
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Merge(FrameOperator):
    """Combines streams with the same columns into one, in the order of event time.

    A tuple is emitted as soon as every input has reached its event time. The columns of the inputs
    pass unchanged, except for `offset`, which is left out, and are followed by `_rw_source`,
    `_rw_released_at` and `_rw_emission`. Downstream operators use `_rw_released_at` as the arrival,
    and `_rw_emission` as the order in a window. An input that may fall silent needs a Heartbeat
    before it; otherwise all other tuples wait for it in the state.

    Example:
        columns = Heartbeat(...).output_ports()["out"].schema
        merge = Merge(columns=columns, event_at="at", order_by=("_rw_emission",))
        app.add("both", merge, left=beat_a, right=beat_b)

    Attributes:
        ports: names of the input ports, two or more.
        event_at: column of the event timestamp.
        arrived_at: column of the arrival.
        order_by: columns that order the tuples of one input at one instant.

    Rules: H59
    """

    columns: Columns
    ports: tuple[str, ...] = ("left", "right")
    event_at: str
    arrived_at: str = "arrived_at"
    order_by: tuple[str, ...] = ("offset",)

    @model_validator(mode="after")
    def _check_properties(self) -> Self:
        if wrong := find_fault(
            self.ports,
            self._names(),
            self.event_at,
            arrived_at=self.arrived_at,
            order_by=self.order_by,
        ):
            raise ValueError(wrong)
        return self

    def input_ports(self) -> Mapping[str, InputPort]:
        """Returns a port for each of `ports`."""
        return dict.fromkeys(self.ports, InputPort(pa.schema(self._carried())))

    def output_ports(self) -> Mapping[str, OutputPort]:
        """Returns the port `out`, with the input columns and the columns that the Merge adds."""
        kept = not_named(self._carried(), ("offset", RELEASED_AT, EMISSION))
        released_at = (RELEASED_AT, self.columns.field(self.arrived_at).type)
        return {
            "out": OutputPort(
                pa.schema([*kept, (SOURCE, pa.string()), released_at, (EMISSION, pa.int64())])
            )
        }

    def state_columns(self) -> pa.Schema:
        """Returns `window_id`, `_rw_source` and the input columns.

        The state has one row per port and one per waiting tuple.
        """
        return pa.schema([(WINDOW, pa.int64()), (SOURCE, pa.string()), *self._carried()])

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the tuples that are released in the group's windows."""
        return self._merge(inputs, state, context).tuples

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the latest event time of each port and the waiting tuples.

        They follow from the inputs, so they are the same in every run.
        """
        return self._merge(inputs, state, context).state

    def state_after_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Returns the state without the waiting tuples."""
        return without_waiting(state)

    def dropped_by_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Returns the number of waiting tuples that no skipped window has emitted, by the window of
        their arrival.
        """
        return count_waiting(state, outputs.get("out"))

    def _merge(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> MergeResult:
        frames = {}
        for port in self.ports:
            frames[port] = inputs[port].select(WINDOW, *named_columns(self._names()))
        ended = None
        if context.end is not None and context.ended_us is not None:
            ended = (context.end, context.ended_us)
        return merge(
            frames,
            event_at=self.event_at,
            arrived_at=self.arrived_at,
            order_by=self.order_by,
            state=state,
            ended=ended,
        )

    def _names(self) -> list[str]:
        return names_of(self._carried())

    def _carried(self) -> list[Any]:
        dropped = {WINDOW, "attempt"} | {"offset"} - {*self.order_by}
        return not_named(self.columns, dropped)
