"""An operator that numbers the tuples of a published stream as they come."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Reads(TupleOperator):
    inputs: ClassVar = {"rows": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([*EVENTS, ("read", pa.int64())]))}
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.emit("out", *row, self.count)
        self.count += 1

    def end_window(self) -> None:
        self.count = 0


app = Application("tuple_published", window="1 hour")
app.output("out", app.add("reads", Reads(), rows=app.input("shop.rows")), key=["key"])
