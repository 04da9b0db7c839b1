"""An application with a Python function of its own folder in a UDF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from _scale import scaled
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort


def twice(x: int) -> int:
    return 2 * scaled(x)


class Scaling(FrameOperator):
    inputs: ClassVar = {"events": InputPort(pa.schema([("x", pa.int64())]))}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("x", pa.int64()), ("six", pa.int64())]))}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        return inputs["events"].select("window_id", "x", F.udf(twice, "bigint")("x").alias("six"))


app = Application("scaling", window="1 hour")
app.output("out", app.add("scaling", Scaling(), events=app.input("events")), key=["x"])
