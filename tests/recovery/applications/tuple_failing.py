"""An operator that fails at a tuple of one window."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Failing(TupleOperator):
    """Divides by how far a window lies from the one that it cannot do."""

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}

    def process(self, row: Any) -> None:
        self.emit("out", row.key, 100 // (self.window_id - 1003))


app = Application("tuple_failing", window="1 hour")
app.output("out", app.add("totals", Failing(), events=app.input("events")), key=["key"])
