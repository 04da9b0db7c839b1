"""An application whose state tells what its operator was given at an at-most-once skip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.windows import WindowRange

KEPT = pa.schema([("kept", pa.int64())])


class Kept(FrameOperator):
    """A row per window with the number of its own rows that a skip found in the output."""

    inputs: ClassVar = {"events": InputPort()}
    outputs: ClassVar = {"out": OutputPort(KEPT)}
    state_schema: ClassVar = KEPT

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        assert state is not None, "stateful"
        kept = state.agg(F.coalesce(F.max("kept"), F.lit(0)).cast("bigint").alias("kept"))
        return context.frame(state.sparkSession).crossJoin(kept)

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        return state

    def state_after_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        return outputs["out"].agg(F.count("*").alias("kept"))


app = Application("skipping", window="1 hour", checkpoint_windows=6)
app.output("out", app.add("kept", Kept(), events=app.input("events")), key=[])
