"""An application whose state forgets: the newest value of each key, beside the one before the
window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
PAIRS = pa.schema([("key", pa.string()), ("newest", pa.int64()), ("before", pa.int64())])
NEWEST = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Newest(FrameOperator):
    """The newest value of each key, carried until the key comes again."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"pairs": OutputPort(PAIRS)}
    state_schema: ClassVar = NEWEST

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        assert state is not None, "stateful"
        newest = (
            inputs["events"]
            .groupBy("window_id", "key")
            .agg(F.max_by("x", "offset").alias("newest"))
        )
        kept = state.withColumnRenamed("x", "kept")
        last = F.lag("newest").over(Window.partitionBy("key").orderBy("window_id"))
        rows = newest.withColumn("last", last).join(kept, "key", "left")
        return rows.select("window_id", "key", "newest", F.coalesce("last", "kept").alias("before"))

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        newest = outputs["pairs"].groupBy("key").agg(F.max_by("newest", "window_id").alias("x"))
        return state.join(newest, "key", "left_anti").unionByName(newest)


app = Application("recent", window="1 hour", checkpoint_windows=3)
app.output("pairs", app.add("newest", Newest(), events=app.input("events")), key=["key"])
