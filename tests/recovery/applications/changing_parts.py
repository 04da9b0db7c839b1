"""Two containers, each with a property that may be changed while it runs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pyarrow as pa
from pydantic import Field

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import TupleOperator

ROWS = pa.schema([("key", pa.string()), ("x", pa.int64())])
OUT = pa.schema([*ROWS, ("factor", pa.int64())])


class Times(TupleOperator):
    """Multiplies by the factor of the window, and emits the factor too."""

    inputs: ClassVar = {"rows": InputPort(ROWS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(ROWS), "factors": OutputPort(OUT)}
    changeable: ClassVar = ("factor",)
    factor: Annotated[int, Field(ge=1)] = 1

    def process(self, row: Any) -> None:
        self.emit("out", row.key, row.x * self.factor)
        self.emit("factors", row.key, row.x, self.factor)


app = Application("changing_parts", window="1 hour")
first = app.add("first", Times(), container="c1", rows=app.input("events"))
second = app.add("second", Times(), container="c2", rows=first["out"])
app.output("first", first["factors"], key=["key"])
app.output("second", second["factors"], key=["key"])
app.output("result", second["out"], key=["key"])
