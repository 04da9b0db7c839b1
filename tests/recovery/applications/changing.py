"""An operator with a property that may be changed while it runs, and one that may not."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pyarrow as pa
from pydantic import Field

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

IN = pa.schema([("key", pa.string()), ("x", pa.int64())])
OUT = pa.schema([("key", pa.string()), ("factor", pa.int64()), ("total", pa.int64())])


class Weighed(TupleOperator):
    """Adds up what comes, each tuple by the factor that holds in its window."""

    inputs: ClassVar = {"events": InputPort(IN, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(OUT)}
    changeable: ClassVar = ("factor",)
    factor: Annotated[int, Field(ge=1)] = 1
    start: int = 0
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.total += row.x * self.factor
        self.emit("out", row.key, self.factor, self.total + self.start)


app = Application("changing", window="1 hour")
app.output("totals", app.add("weighed", Weighed(), events=app.input("events")), key=["key"])
