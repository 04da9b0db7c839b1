"""A tuple operator in one and in two partitions on two cores, and 10 M keys with 2 GB of heap.

    python -m bench.partitions [MILLIONS]       wall and CPU seconds of both
    python -m bench.partitions keys [MILLIONS]  replays that many keys of state in files

Everything runs one after the other on an otherwise idle machine; figures of a loaded machine are
not comparable.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.replay import ROOT, make_project, record, run_replay
from bench.report import Row
from bench.tuple_operators import KEYS, WINDOWS, ByTuple
from rewindow.application import OperatorContext
from rewindow.application.placing import Placing
from rewindow.settings.config import Config
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUNS = 5
PARTITIONS = 8
GROUPS = 4
APPLICATION = f"""
from bench.tuple_operators import ByTuple
from rewindow.application import Application

app = Application("totals", window="1 hour")
totals = app.add("totals", ByTuple(), events=app.input("events"), partitions={PARTITIONS})
app.output("totals", totals, key=["key"])
"""


def measure_partitions(tuples: int) -> list[Row]:
    """Returns the rows of the page."""
    from pyspark.sql import functions as F

    from rewindow.spark.frames import empty_frame, spark_schema
    from rewindow.spark.session import spark_session
    from rewindow.tuple_engine.frames import one_pass

    spark = spark_session(Config.load(), "bench")
    each = tuples // WINDOWS
    frame = (
        spark.range(tuples, numPartitions=2)
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
    passes = []
    for partitions in (1, 2):
        operator = ByTuple()
        operator.set_placing(Placing(partitions=partitions))
        empty = empty_frame(spark, spark_schema(operator.state_columns()))
        passes.append(one_pass(operator, {"events": frame}, empty, context))
    times = [[_measure(one) for one in passes] for _ in range(RUNS)]
    one, two = (min(run[place] for run in times) for place in (0, 1))
    cpu_one, cpu_two = (min(run[place][1] for run in times) for place in (0, 1))
    wall = two[0] / one[0]
    cpu = cpu_two / cpu_one
    what = f"tuple operator in 2 partitions, {tuples // 1_000_000} M tuples"
    return [
        Row(
            f"{what}: wall time",
            f"{two[0]:.2f} s",
            f"1 partition {one[0]:.2f} s",
            f"at most 0.6 of it: {wall:.2f}",
            wall <= 0.6,
        ),
        Row(
            f"{what}: CPU time",
            f"{cpu_two:.2f} s",
            f"1 partition {cpu_one:.2f} s",
            f"at most 1.1 of it: {cpu:.2f}",
            cpu <= 1.1,
        ),
    ]


def _measure(frame: DataFrame) -> tuple[float, float]:
    """Returns the wall and CPU seconds of a query, of this process and its children."""
    before = _cpu()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began, _cpu() - before


def _cpu() -> float:
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        used = process.cpu_times()
        total += used.user + used.system
    return total


def replay_keys(keys: int) -> str:
    """Replays two tuples of each key, in groups, with 2 GB of heap; returns the cost."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        from rewindow.spark.session import spark_session

        config = make_project(Path(folder), {"totals": APPLICATION}, driver_memory="2g")
        spark = spark_session(config, "bench")
        record(spark, config, "events", 2 * keys, WINDOWS, keys)
        began = time.monotonic()
        run_replay(spark, config, "totals", WINDOWS // GROUPS, windows=WINDOWS)
        took = time.monotonic() - began
        workers = psutil.Process().children(recursive=True)
        peak = max(worker.memory_info().rss for worker in workers if "python" in worker.name())
        spark.stop()
    return (
        f"{keys / 1e6:.0f} M keys, {2 * keys / 1e6:.0f} M tuples, {PARTITIONS} partitions, "
        f"{GROUPS} groups, 2 GB of heap: {took:.0f} s, a Python worker has {peak / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["keys"]:
        print(replay_keys(int(sys.argv[2] if len(sys.argv) > 2 else 10) * 1_000_000))
    else:
        found = int(sys.argv[1] if len(sys.argv) > 1 else 5)
        for row in measure_partitions(found * 1_000_000):
            print(row)
