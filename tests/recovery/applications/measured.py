"""An application whose output has a suite with measures: over whole numbers, floats with NaN, and
nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
SHARES = pa.schema(
    [("key", pa.string()), ("total", pa.int64()), ("share", pa.float64()), ("few", pa.int32())]
)


class Shares(FrameOperator):
    """Sums of each key, a third of them, and small ones; some of both are missing."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"shares": OutputPort(SHARES)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        total = F.col("total")
        share = F.when(total % 5 == 0, F.lit(float("nan"))).otherwise(total / F.lit(3.0))
        few = F.when(total % 2 == 0, total).cast("int")
        return (
            inputs["events"]
            .groupBy("window_id", "key")
            .agg(F.sum("x").alias("total"))
            .select("window_id", "key", "total", share.alias("share"), few.alias("few"))
        )


class Heads(FrameOperator):
    inputs: ClassVar = {"shares": InputPort(SHARES)}
    outputs: ClassVar = {"heads": OutputPort(pa.schema([("keys", pa.int64())]))}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        return inputs["shares"].groupBy("window_id").agg(F.count("key").alias("keys"))


app = Application("measured", window="1 hour", checkpoint_windows=6)
shares = app.add("shares", Shares(), events=app.input("events"))
app.output("shares", shares, key=["key"], suite="shares")
app.output("heads", app.add("heads", Heads(), shares=shares), key=[])
