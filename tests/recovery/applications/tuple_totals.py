"""The application `totals` once more, with an operator that is called tuple by tuple: every digest
must be the same.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from rewindow.application import Application, InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
TOTALS = pa.schema([("key", pa.string()), ("total", pa.int64())])


class Totals(TupleOperator):
    """Sums of a window on one port, totals of all windows so far on the other."""

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"sums": OutputPort(TOTALS), "totals": OutputPort(TOTALS)}
    state_buckets: ClassVar = 2
    transient: ClassVar = ("sums",)
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def begin_window(self, window_id: int) -> None:
        self.sums: dict[str, int] = {}

    def process(self, row: Any) -> None:
        self.sums[row.key] = self.sums.get(row.key, 0) + (row.x or 0)

    def end_window(self) -> None:
        for key, sum_ in self.sums.items():
            self.at(key)
            self.total += sum_
            self.emit("sums", key, sum_)
            self.emit("totals", key=key, total=self.total)


app = Application("tuple_totals", window="1 hour", checkpoint_windows=6)
totals = app.add("totals", Totals(), events=app.input("events"))
app.output("sums", totals["sums"], key=["key"])
app.output("totals", totals["totals"], key=["key"])
