"""A random graph of operators whose results depend on the order of their tuples; GRAPH is its seed,
NOTES the file of the callbacks.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from rewindow.application import Application, FrameOperator, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

ROWS = pa.schema([("k", pa.int64()), ("n", pa.int64())])
KEYS = 5
WINDOWINGS: list[dict[str, int]] = [
    {},
    {"checkpoint_windows": 2},
    {"application_windows": 3, "checkpoint_windows": 3},
    {"application_windows": 6, "slide_windows": 2, "checkpoint_windows": 2},
]


class Folds(TupleOperator):
    """Folds its tuples, one after the other, so that another order has another result.

    With `strays` some tuples are emitted under another key than their own.
    """

    inputs: ClassVar = {"a": InputPort(ROWS), "b": InputPort(ROWS, optional=True)}
    outputs: ClassVar = {"out": OutputPort(ROWS), "odd": OutputPort(ROWS, error=True)}
    strays: bool = False
    notes: str = ""
    name: str = ""
    fold = StateField(pa.int64(), 7)  # type: ignore[pydantic-field]

    def _take(self, row: Any, port: int) -> None:
        self.fold = (self.fold * 31 + row.n * 7 + row.k * 3 + port) % 1_000_003
        if self.fold % 7 == 0:
            self.emit_error("odd", (row.k, self.fold), "emitted")
        for more in range(1 + self.fold % 2):
            strays = self.strays and self.fold % 3 == 0
            self.emit("out", (row.k + 1) % KEYS if strays else row.k, self.fold + more)

    def process_a(self, row: Any) -> None:
        self._take(row, 1)

    def process_b(self, row: Any) -> None:
        self._take(row, 2)

    def end_window(self) -> None:
        self.emit("out", 0, 2 * self.fold + self.is_partial)

    def slide(self) -> None:
        self.end_window()

    def before_checkpoint(self, window_id: int) -> None:
        self._note(f"before {window_id}")

    def checkpointed(self, window_id: int) -> None:
        self._note(f"checkpointed {window_id}")

    def committed(self, window_id: int) -> None:
        self._note(f"committed {window_id}")

    def _note(self, text: str) -> None:
        with Path(self.notes).open("a") as file:
            file.write(f"{self.name} {text}\n")


class KeyedFolds(Folds):
    """The same by key: key ranges are called in parallel, so it notes nothing."""

    inputs: ClassVar = {
        "a": InputPort(ROWS, key=("k",)),
        "b": InputPort(ROWS, key=("k",), optional=True),
    }

    def end_window(self) -> None:
        for key in self.keys():
            if self.fold % 4 == 0:
                self.emit("out", key, 2 * self.fold + self.is_partial)

    def _note(self, text: str) -> None:
        pass


class Batches(TupleOperator):
    """Emits batches and single tuples on one port."""

    inputs: ClassVar = {"a": InputPort(ROWS, key=("k",)), "b": InputPort(ROWS, key=("k",))}
    outputs: ClassVar = {"out": OutputPort(ROWS)}

    def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            self.at(row["k"])
            self.emit("out", row["k"], 2 * row["n"])
        self.emit_batch("out", rows.set_column(1, ROWS.field(1), pc.add(rows["n"], 1)))


class OneBatches(Batches):
    """The same in one key range."""

    inputs: ClassVar = {"a": InputPort(ROWS), "b": InputPort(ROWS)}

    def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
        for place, row in enumerate(rows.to_pylist()):
            self.emit("out", row["k"], -1)
            self.emit_batch("out", rows.slice(place, 1))


class Frames(FrameOperator):
    """Passes frames on."""

    inputs: ClassVar = {"a": InputPort(ROWS), "b": InputPort(ROWS)}
    outputs: ClassVar = {"out": OutputPort(ROWS)}

    def transform(self, inputs: Any, state: Any, context: Any) -> Any:
        found = [frame.select("window_id", "k", "n") for frame in inputs.values()]
        return found[0].unionByName(found[1])


def graph(seed: int, notes: str) -> Application:
    """Returns the application of a seed."""
    chosen = random.Random(seed)
    app = Application("random_graph", window="1 hour", checkpoint_windows=chosen.choice([1, 2, 4]))
    ends = [app.input("numbers")]
    kinds: list[type[FrameOperator]] = [
        Folds,
        Folds,
        KeyedFolds,
        KeyedFolds,
        Batches,
        OneBatches,
        Frames,
    ]
    for place in range(chosen.randint(3, 5)):
        name = f"op{place}"
        kind = chosen.choice(kinds)
        if issubclass(kind, Folds):
            strays = chosen.random() < 0.5
            operator: FrameOperator = kind(strays=strays, notes=notes, name=name)
        else:
            operator = kind()
        node = app.add(
            name,
            operator,
            a=ends[-1],
            b=chosen.choice(ends),
            **(chosen.choice(WINDOWINGS) if issubclass(kind, Folds) else {}),  # type: ignore[arg-type]
        )
        ends.append(node["out"])
        if isinstance(operator, Folds) and chosen.random() < 0.3:
            ends.append(node["odd"])
    app.output("last", app.nodes[name]["out"], key=["k"])
    app.output("first", app.nodes["op0"]["out"], key=["k"], sorted_by=chosen.choice([[], ["n"]]))
    return app


app = graph(int(os.environ.get("GRAPH", "0")), os.environ.get("NOTES", ""))
