"""An application whose output shows the number of cores that Spark uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class CoresInUse(FrameOperator):
    """The number of cores with which each tuple was computed."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"cores": OutputPort(pa.schema([("cores", pa.int64())]))}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        events = inputs["events"]
        cores = events.sparkSession.sparkContext.defaultParallelism
        return events.select("window_id", F.lit(cores).cast("long").alias("cores"))


app = Application("parallel", window="1 hour")
app.output("cores", app.add("cores", CoresInUse(), events=app.input("events")), key=[])
