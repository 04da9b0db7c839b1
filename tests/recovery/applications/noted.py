"""The application `totals` whose Python code notes each of its starts, and waits for the test.

The sums are computed after a Python function in two tasks of a map stage; another map stage adds
no row. A tuple operator passes them on, in one task, to another one that adds them up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators import StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
TOTALS = pa.schema([("key", pa.string()), ("total", pa.int64())])


def note(name: str) -> None:
    """Creates the file NAME.N for the N-th start of some work, with the pid of the Python worker;
    waits for the file `go-NAME` if there is a file `hold-NAME`.
    """
    folder = Path(os.environ["NOTES"])
    start = 1
    while True:
        try:
            with (folder / f"{name}.{start}").open("x") as file:
                file.write(str(os.getpid()))
            break
        except FileExistsError:
            start += 1
    while (folder / f"hold-{name}").exists() and not (folder / f"go-{name}").exists():
        time.sleep(0.01)


def noted(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    note(name)
    yield from batches


class NotedSums(FrameOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"sums": OutputPort(TOTALS)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        events = inputs["events"].select("window_id", "key", "x")

        def part(name: str, rows: DataFrame) -> DataFrame:
            return rows.mapInArrow(partial(noted, name=f"{context.first}-{name}"), rows.schema)

        both = part("0", events.where("key = 'a'")).unionByName(
            part("1", events.where("key <> 'a'"))
        )
        # A union of two tasks has to be shuffled, so that it is a stage; this one is the second.
        stage = events.where("key = 'none'").unionByName(part("late", events))
        late = _sums(stage).where(F.col("total") > 1 << 40)
        return _sums(both).unionByName(late)


def _sums(rows: DataFrame) -> DataFrame:
    return rows.groupBy("window_id", "key").agg(F.sum("x").alias("total"))


class NotedPass(TupleOperator):
    """Emits what it gets. Without keys its one task reads files, and no shuffle."""

    inputs: ClassVar = {"sums": InputPort(TOTALS)}
    outputs: ClassVar = {"same": OutputPort(TOTALS)}

    def begin_window(self, window_id: int) -> None:
        note(f"{window_id}-pass")

    def process(self, row: Any) -> None:
        self.emit("same", key=row.key, total=row.total)


class Totals(TupleOperator):
    inputs: ClassVar = {"sums": InputPort(TOTALS, key=("key",))}
    outputs: ClassVar = {"totals": OutputPort(TOTALS)}
    state_buckets: ClassVar = 2
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.total += row.total
        self.emit("totals", key=row.key, total=self.total)


app = Application("noted", window="1 hour", checkpoint_windows=6)
sums = app.add("sums", NotedSums(), events=app.input("events"))
app.output("sums", sums, key=["key"])
same = app.add("pass", NotedPass(), sums=sums)
app.output("totals", app.add("totals", Totals(), sums=same), key=["key"])
