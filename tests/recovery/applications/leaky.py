"""A faulty application: what it emits shows where commit groups end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Numbered(FrameOperator):
    """Numbers the tuples of each key over the whole frame, without a state to carry the number
    on.
    """

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([*EVENTS, ("number", pa.int32())]))}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        number = F.row_number().over(Window.partitionBy("key").orderBy("window_id", "x"))
        return inputs["events"].select("window_id", "key", "x", number.alias("number"))


app = Application("leaky", window="1 hour")
app.output(
    "numbered",
    app.add("numbered", Numbered(), events=app.input("events")),
    key=["number", "key"],
)
