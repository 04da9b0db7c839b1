"""An application whose operator declares its mode, so that it can run in no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Same(FrameOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        return inputs["events"].select("window_id", "key", "x")


app = Application("declared", window="1 hour", checkpoint_windows=2)
app.output(
    "same",
    app.add("same", Same(), mode="at_least_once", events=app.input("events")),
    key=["key", "x"],
)
