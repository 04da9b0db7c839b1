"""Tuple operators beside a bare `mapInArrow` over the same rows, sorted in the same way; a sink
that writes nothing.

    python -m bench.tuple_operators [MILLIONS]

An operator with a key and a total: called for each tuple, and for each Arrow batch. What is
compared is the rate. Both sides send window, key and value to Python and three numbers back.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from bench.report import Row
from rewindow.application import InputPort, OperatorContext, OutputPort
from rewindow.operators import StateField, TupleOperator
from rewindow.settings.config import Config
from rewindow.testing import run_operator
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOWS = 1_000
KEYS = 1_000
RUNS = 5
IN = pa.schema([("key", pa.int64()), ("value", pa.int64())])
TOTAL = pa.schema([("key", pa.int64()), ("total", pa.int64())])


class ByTuple(TupleOperator):
    """Emits the running total of a key with each tuple."""

    inputs: ClassVar = {"events": InputPort(IN, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(TOTAL)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        """Adds and emits."""
        self.total += row.value
        self.emit("out", row.key, self.total)


class ByBatch(TupleOperator):
    """Passes rows on with another column, batch by batch; its total is that of all."""

    inputs: ClassVar = {"events": InputPort(IN)}
    outputs: ClassVar = {"out": OutputPort(TOTAL)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
        """Adds and emits."""
        self.total += pc.sum(rows["value"]).as_py() or 0
        self.emit_batch("out", pa.table({"key": rows["key"], "total": pc.add(rows["value"], 1)}))


def measure_tuple_operators(tuples: int) -> list[Row]:
    """Returns the rows of the page."""
    from pyspark.sql import functions as F

    from rewindow.spark.frames import empty_frame, spark_schema
    from rewindow.spark.session import spark_session
    from rewindow.tuple_engine.frames import one_pass

    spark = spark_session(Config.load(), "bench")
    each = tuples // WINDOWS
    frame = (
        spark.range(tuples)
        .select(
            F.expr(f"id div {each}").alias("window_id"),
            (F.xxhash64("id") % KEYS).alias("key"),
            F.col("id").alias("value"),
            (F.col("id") % each).alias("offset"),
        )
        .cache()
    )
    frame.count()
    context = OperatorContext(Grid(1000), WindowRange(0, WINDOWS - 1))

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def bare(operator: TupleOperator) -> DataFrame:
        placed = frame.repartition("key") if operator.key_schema().names else frame.coalesce(1)
        rows = placed.sortWithinPartitions("window_id", "offset").select(
            "window_id",
            "key",
            "value",
        )
        return rows.mapInArrow(nothing, rows.schema)

    rows = []
    for operator, least, what in (
        (ByTuple(), 0.45, "a call for each tuple"),
        (ByBatch(), 0.85, "a call for each batch"),
    ):
        empty = empty_frame(spark, spark_schema(operator.state_columns() or pa.schema([])))
        passed = one_pass(operator, {"events": frame}, empty, context)
        alone = bare(operator)
        times = [(_seconds(alone), _seconds(passed)) for _ in range(RUNS)]
        plain, ours = (min(one) for one in zip(*times, strict=True))
        rate = plain / ours
        rows.append(
            Row(
                f"tuple operator, {what}, {tuples // 1_000_000} M tuples",
                f"{ours:.2f} s",
                f"a mapInArrow that does nothing {plain:.2f} s",
                f"at least {least} of its rate: {rate:.2f}",
                rate >= least,
            )
        )
    return rows


def _seconds(frame: DataFrame, clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    frame.write.format("noop").mode("overwrite").save()
    return clock() - began


def measure_testing(clock: Callable[[], float] = time.perf_counter) -> Row:
    """Returns the row of the test framework: the state stored and restored at every window."""
    tuples = {window: [(window * 7 % 80, place) for place in range(10)] for window in range(100)}
    times = []
    for _ in range(7):
        began = clock()
        run_operator(ByTuple(), {"events": tuples})
        times.append(clock() - began)
    took = min(times) * 1000
    return Row(
        "rewindow.testing, 1,000 tuples in 100 windows, the state stored at each",
        f"{took:.0f} ms",
        "",
        "under 50 ms",
        took < 50,
    )


if __name__ == "__main__":
    print(measure_testing())
    for row in measure_tuple_operators(int(sys.argv[1] if len(sys.argv) > 1 else 5) * 1_000_000):
        print(row)
