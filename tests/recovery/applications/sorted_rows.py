"""Passes the stream on twice, once with its rows sorted."""

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


app = Application("sorted_rows", window="1 hour")
events = app.input("events")
app.output("as_they_come", app.add("same", Same(), events=events), key=["key", "x"])
app.output(
    "by_key",
    app.add("again", Same(), events=events),
    key=["key", "x"],
    sorted_by=["key", "window_id"],
)
