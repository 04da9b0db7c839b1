"""Operators that number their tuples as they come, after one that numbers them as it emits them."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, FrameOperator, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
PLACED = pa.schema([("key", pa.string()), ("emitted", pa.int64())])
READ = pa.schema([*PLACED, ("read", pa.int64())])
DAY = pa.schema([("day", pa.int64())])


class Emits(TupleOperator):
    """Emits three tuples for each, numbered in their window by key, and by key range none."""

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {
        "out": OutputPort(PLACED),
        "errors": OutputPort(PLACED, error=True),
        "days": OutputPort(DAY, control=True),
    }
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        for _ in range(3):
            self.emit("out", row.key, self.count)
            self.emit_error("errors", (row.key, self.count), "emitted")
            self.count += 1

    def end_window(self) -> None:
        for _ in self.keys():
            self.count = 0
        self.emit("days", self.window_id // 24)


class EmitsAlone(Emits):
    """The same in one key range, with one count."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}

    def end_window(self) -> None:
        self.count = 0


class Reads(TupleOperator):
    """Numbers the tuples of each window and key as they come."""

    inputs: ClassVar = {"rows": InputPort(PLACED, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(READ)}
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.emit("out", *row, self.count)
        self.count += 1

    def end_window(self) -> None:
        for _ in self.keys():
            self.count = 0


class ReadsAlone(Reads):
    """The same of all keys."""

    inputs: ClassVar = {"rows": InputPort(PLACED)}

    def end_window(self) -> None:
        self.count = 0


class Passes(FrameOperator):
    """Passes a frame on, with whatever other columns it has."""

    inputs: ClassVar = {"rows": InputPort(PLACED)}
    outputs: ClassVar = {"out": OutputPort(PLACED)}

    def transform(self, inputs: Any, state: Any, context: Any) -> Any:
        return inputs["rows"]


class PassesEvents(FrameOperator):
    """Passes a recorded stream on, with its offsets."""

    inputs: ClassVar = {"rows": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}

    def transform(self, inputs: Any, state: Any, context: Any) -> Any:
        return inputs["rows"]


class Stateless(TupleOperator):
    """Numbers tuples without a state, so that what feeds it is not written before."""

    inputs: ClassVar = {"rows": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([*EVENTS, ("read", pa.int64())]))}
    transient: ClassVar = ("count",)

    def begin_window(self, window_id: int) -> None:
        self.count = 0

    def process(self, row: Any) -> None:
        self.emit("out", *row, self.count)
        self.count += 1


app = Application("tuple_order", window="1 hour")
events = app.input("events")
emits = app.add("emits", Emits(), events=events)
alone = app.add("alone", EmitsAlone(), events=events)
READERS = {
    "alone_alone": (ReadsAlone(), alone["out"]),
    "alone_errors": (ReadsAlone(), alone["errors"]),
    "keyed_keyed": (Reads(), emits["out"]),
    "keyed_errors": (Reads(), emits["errors"]),
    "keyed_alone": (ReadsAlone(), emits["out"]),
    "frames_alone": (ReadsAlone(), app.add("passes", Passes(), rows=alone["out"])["out"]),
}
for name, (operator, end) in READERS.items():
    app.output(name, app.add(name, operator, rows=end), key=["key", "emitted"])
passed = app.add("passed", PassesEvents(), rows=events)
app.output("frames_stateless", app.add("stateless", Stateless(), rows=passed), key=["key"])
app.output("sorted", alone["out"], key=["emitted"], sorted_by=["key"])
app.output("days", emits["days"], key=["day"])
