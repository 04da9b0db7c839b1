"""A small application for recovery tests: sums per key and window, and running totals carried in a
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
TOTALS = pa.schema([("key", pa.string()), ("total", pa.int64())])


class SumPerKey(FrameOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"sums": OutputPort(TOTALS)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        return inputs["events"].groupBy("window_id", "key").agg(F.sum("x").alias("total"))


class RunningTotal(FrameOperator):
    """Total of all sums so far, per key, in each window with a tuple of it."""

    inputs: ClassVar = {"sums": InputPort(TOTALS)}
    outputs: ClassVar = {"totals": OutputPort(TOTALS)}
    state_schema: ClassVar = TOTALS
    state_key: ClassVar = ("key",)
    state_buckets: ClassVar = 2

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        assert state is not None, "stateful"
        before = state.select("key", F.col("total").alias("before"))
        running = F.sum("total").over(Window.partitionBy("key").orderBy("window_id"))
        rows = inputs["sums"].withColumn("running", running).join(before, "key", "left")
        return rows.select(
            "window_id",
            "key",
            (F.col("running") + F.coalesce("before", F.lit(0))).alias("total"),
        )

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        newest = outputs["totals"].groupBy("key").agg(F.max_by("total", "window_id").alias("total"))
        return state.join(newest, "key", "left_anti").unionByName(newest)


app = Application("totals", window="1 hour", checkpoint_windows=6)
sums = app.add("sums", SumPerKey(), events=app.input("events"))
app.output("sums", sums, key=["key"])
app.output("totals", app.add("totals", RunningTotal(), sums=sums), key=["key"])
