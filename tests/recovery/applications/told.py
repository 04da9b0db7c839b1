"""An application that emits what its operator is told, and a random number for every tuple."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators.seeds import random_number

TOLD = pa.schema([("operator", pa.string()), ("mode", pa.string()), ("drawn", pa.float64())])


class Told(FrameOperator):
    inputs: ClassVar = {"events": InputPort()}
    outputs: ClassVar = {"out": OutputPort(TOLD)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        name = F.lit(context.operator).alias("operator")
        mode = F.lit(context.mode.name).alias("mode")
        return inputs["events"].select(
            "window_id",
            name,
            mode,
            random_number(context, "offset").alias("drawn"),
        )


app = Application("told", window="1 hour")
app.output("first", app.add("one", Told(), events=app.input("events")), key=[])
app.output("second", app.add("two", Told(), events=app.input("events")), key=[])
