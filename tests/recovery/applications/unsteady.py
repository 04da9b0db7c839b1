"""A faulty application: an operator in its midst, no output, gives other results the next time.

Its property `fault` says how: "order" numbers tuples that tie, "chance" draws a number.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
NUMBERED = pa.schema([*EVENTS, ("number", pa.int64())])


class Numbering(FrameOperator):
    """Numbers the tuples of a window, or gives them one number that is drawn."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"numbered": OutputPort(NUMBERED)}
    fault: str = "none"

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        number = F.lit(random.SystemRandom().randrange(1 << 40) if self.fault == "chance" else 0)
        if self.fault == "order":
            number = F.row_number().over(Window.partitionBy("window_id").orderBy(F.lit(1)))
        return inputs["events"].select(
            "window_id",
            "key",
            "x",
            number.cast("bigint").alias("number"),
        )


class Passing(FrameOperator):
    inputs: ClassVar = {"rows": InputPort(NUMBERED)}
    outputs: ClassVar = {"out": OutputPort(NUMBERED)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        return inputs["rows"].select("window_id", "key", "x", "number")


app = Application("unsteady", window="1 hour")
numbered = app.add("numbering", Numbering(), events=app.input("events"))
app.output("rows", app.add("passing", Passing(), rows=numbered), key=["number"])
