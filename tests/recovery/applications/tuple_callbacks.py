"""An operator that writes into a file what it is told of checkpoints, over application windows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Told(TupleOperator):
    """Counts the tuples of PERIOD windows; notes its calls."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {
        "out": OutputPort(pa.schema([("count", pa.int64()), ("partial", pa.bool_())]))
    }
    notes: str = ""
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def begin_window(self, window_id: int) -> None:
        self.count = 0

    def process(self, row: Any) -> None:
        self.count += 1

    def end_window(self) -> None:
        self.emit("out", self.count, self.is_partial)

    def _note(self, text: str) -> None:
        with Path(self.notes).open("a") as file:
            file.write(f"{text}\n")

    def before_checkpoint(self, window_id: int) -> None:
        self._note(f"before {window_id}")

    def checkpointed(self, window_id: int) -> None:
        self._note(f"checkpointed {window_id}")

    def committed(self, window_id: int) -> None:
        self._note(f"committed {window_id}")


app = Application("tuple_callbacks", window="1 hour", checkpoint_windows=8)
told = app.add(
    "told",
    Told(notes=os.environ.get("NOTES", "")),
    events=app.input("events"),
    application_windows=int(os.environ.get("PERIOD", "4")),
    slide_windows=int(os.environ["SLIDES"]) if "SLIDES" in os.environ else None,
)
app.output("out", told, key=["count"])
