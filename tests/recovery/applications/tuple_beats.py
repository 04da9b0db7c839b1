"""An operator without a key that speaks in every window, behind one that lets nothing through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators import StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Nothing(FrameOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        return inputs["events"].where("false").select("window_id", "key", "x")


class Beats(TupleOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("count", pa.int64())]))}
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        raise AssertionError(row)

    def end_window(self) -> None:
        self.count += 1
        self.emit("out", self.count)


app = Application("tuple_beats", window="1 hour")
beats = app.add("beats", Beats(), events=app.add("nothing", Nothing(), events=app.input("events")))
app.output("out", beats, key=["count"])
