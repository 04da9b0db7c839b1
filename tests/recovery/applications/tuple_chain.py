"""Chains of tuple operators whose results depend on the order of their tuples.

LOCALITY is that of all operators; with STRAYS the first one emits tuples of other keys; FAILS names
an operator that fails.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import SlidingField, StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
DAY = pa.schema([("day", pa.int64())])


class Closes(TupleOperator):
    """Emits a control tuple in the last of every four windows."""

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(DAY, control=True)}

    def process(self, row: Any) -> None:
        pass

    def end_window(self) -> None:
        if self.window_id % 4 == 3:
            self.emit("out", self.window_id // 4)


class Totals(TupleOperator):
    inputs: ClassVar = {
        "events": InputPort(EVENTS, key=("key",)),
        "close": InputPort(DAY, control=True),
    }
    outputs: ClassVar = {"out": OutputPort(EVENTS), "odd": OutputPort(EVENTS, error=True)}
    strays: bool = False
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process_events(self, row: Any) -> None:
        self.total += row.x
        key = "b" if self.strays and self.total % 5 == 0 else row.key
        for more in range(1 + self.total % 3):
            self.emit("out", key, self.total + more)
        if self.total % 4 == 0:
            self.emit_error("odd", (row.key, self.total), "emitted")

    def process_close(self, row: Any) -> None:
        for key in self.keys():
            self.emit("out", key, row.day)
            if self.total % 2:
                self.forget()


class Folds(TupleOperator):
    """Combines its tuples one after the other, so the result depends on their order."""

    inputs: ClassVar = {"rows": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}
    fails: bool = False
    fold = StateField(pa.int64(), 7)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.fold = (self.fold * 31 + row.x) % 1_000_003
        if self.fails and self.fold % 3 == 0:
            raise ValueError("on purpose")
        self.emit("out", row.key, self.fold)

    def end_window(self) -> None:
        for key in self.keys():
            self.emit("out", key, self.fold + self.is_partial)

    def before_checkpoint(self, window_id: int) -> None:
        for _ in self.keys():
            self.fold += 1


class Slides(Folds):
    count = SlidingField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        super().process(row)
        self.count += self.fold

    def slide(self) -> None:
        for key in self.keys():
            self.emit("out", key, sum(self.partials("count")))


class OneFolds(Folds):
    """The same in one key range."""

    inputs: ClassVar = {"rows": InputPort(EVENTS)}

    def end_window(self) -> None:
        self.emit("out", None, self.fold + self.is_partial)

    def before_checkpoint(self, window_id: int) -> None:
        self.fold += 1


class OneBatches(TupleOperator):
    inputs: ClassVar = {"rows": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}
    fold = StateField(pa.int64(), 7)  # type: ignore[pydantic-field]

    def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
        for x in rows["x"].to_pylist():
            self.fold = (self.fold * 31 + x) % 1_000_003
        # The result does not depend on the size of batches.
        self.emit_batch("out", rows)


def build() -> Application:
    """Returns the application, as the environment describes it."""
    app = Application("tuple_chain", window="1 hour", checkpoint_windows=6)
    how: dict[str, Any] = {"locality": os.environ.get("LOCALITY") or None}
    fails = os.environ.get("FAILS")
    events = app.input("events")
    strays = bool(os.environ.get("STRAYS"))
    close = app.add("closes", Closes(), events=events, **how)
    totals = app.add("totals", Totals(strays=strays), events=events, close=close, **how)
    thirds = {"application_windows": 3, "checkpoint_windows": 3}
    ranks = app.add("ranks", Folds(), rows=totals["out"], **thirds, **how)
    windows = {"application_windows": 6, "slide_windows": 2, "checkpoint_windows": 2}
    tops = app.add("tops", Folds(fails=fails == "tops"), rows=ranks, **how)
    means = app.add("means", Slides(), rows=ranks, **windows, **how)
    rejects = app.add("rejects", Folds(), rows=totals["odd"], **how)
    one = app.add("one", OneFolds(), rows=events, **how)
    two = app.add("two", OneBatches(), rows=one, **how)
    three = app.add("three", OneFolds(), rows=two, **how)
    for name, end in {"totals": totals["out"], "tops": tops, "means": means}.items():
        app.output(name, end, key=["key"])
    app.output("rejects", rejects, key=["key"])
    app.output("three", three, key=["key"])
    return app


app = build()
