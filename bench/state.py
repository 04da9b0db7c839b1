"""Running totals over many keys: beside one plain Spark query, and what the driver holds of 1 M and
of 10 M keys.

    python -m bench.state          prints both
    python -m bench.state KEYS     prints the peak memory of a Python driver, with 2 GB of heap

Everything runs one after the other on an otherwise idle machine; figures of a loaded one mean
nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.replay import ROOT, make_project, record, run_replay
from bench.report import Row
from rewindow.spark.session import spark_session
from rewindow.storage import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TUPLES = 20_000_000
KEYS = 1_000_000
WINDOWS = 1_000
GROUPS = 4
APPLICATION = """
from typing import ClassVar
import pyarrow as pa
from pyspark.sql import functions as F
from bench.state import running_totals
from rewindow.application import Application, FrameOperator, InputPort, OutputPort

IN = pa.schema([("key", pa.int64()), ("value", pa.int64())])
TOTAL = pa.schema([("key", pa.int64()), ("total", pa.int64())])

class Totals(FrameOperator):
    inputs: ClassVar = {"events": InputPort(IN)}
    outputs: ClassVar = {"out": OutputPort(TOTAL)}
    state_schema: ClassVar = TOTAL
    state_key: ClassVar = ("key",)
    state_increments: ClassVar = True
    def transform(self, inputs, state, context):
        before = state.select(F.lit(context.first - 1).alias("window_id"), "key",
            F.col("total").alias("value"))
        rows = running_totals(inputs["events"].select("window_id", "key",
            "value").unionByName(before))
        return rows.where(F.col("window_id") >= context.first)
    def next_state(self, inputs, outputs, state, context):
        return outputs["out"].groupBy("key").agg(F.max_by("total", "window_id").alias("total"))

app = Application("totals", window="1 hour")
app.output("totals", app.add("totals", Totals(), events=app.input("events")), key=["key"])
"""


def running_totals(rows: DataFrame) -> DataFrame:
    """Returns the total so far of each key, in each window with a row of it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    sums = rows.repartition("key").groupBy("window_id", "key").agg(F.sum("value").alias("value"))
    so_far = (
        Window.partitionBy("key").orderBy("window_id").rowsBetween(Window.unboundedPreceding, 0)
    )
    return sums.select("window_id", "key", F.sum("value").over(so_far).alias("total"))


def measure_state() -> list[Row]:
    """Returns the rows of the page."""
    plain, replayed = _beside_plain_spark()
    small, large = (_driver_peak_mb(keys) for keys in (KEYS, 10 * KEYS))
    return [
        Row(
            f"running totals, {TUPLES / 1e6:.0f} M tuples over {KEYS / 1e6:.0f} M keys, {GROUPS} "
            "groups, increments on",
            f"{replayed:.1f} s, {replayed / plain:.2f} x",
            f"one plain Spark query: {plain:.1f} s",
            "1.5 x",
            replayed <= 1.5 * plain,
        ),
        Row(
            "peak memory of the Python driver, 10 M keys of state, `driver_memory = 2g`",
            f"{large:.0f} MB",
            f"1 M keys: {small:.0f} MB",
            "less than 100 MB more",
            large - small < 100,
        ),
    ]


def _beside_plain_spark() -> tuple[float, float]:
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        config = make_project(Path(folder), {"totals": APPLICATION})
        spark = spark_session(config, "bench")
        record(spark, config, "events", TUPLES, WINDOWS, KEYS)
        files = [file.path for file in Table.open(config.stream_table("events")).files()]
        target = str(config.state / "plain")
        began = time.monotonic()
        running_totals(spark.read.parquet(*files)).write.format("delta").mode("overwrite").save(
            target
        )
        plain = time.monotonic() - began
        began = time.monotonic()
        run_replay(spark, config, "totals", WINDOWS // GROUPS, windows=WINDOWS)
        replayed = time.monotonic() - began
        spark.stop()
    print(f"plain {plain:.2f} s  replay {replayed:.2f} s  {replayed / plain:.2f} x", flush=True)
    return plain, replayed


def _driver_peak_mb(keys: int) -> float:
    """Returns the peak memory of the Python process that drives a replay, one for each number of
    keys.
    """
    done = subprocess.run(
        [sys.executable, "-m", "bench.state", str(keys)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def _drive(keys: int) -> None:
    """Replays two tuples a key, in two groups, and prints this process's peak memory in MB."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        config = make_project(Path(folder), {"totals": APPLICATION}, driver_memory="2g")
        spark = spark_session(config, "bench")
        record(spark, config, "events", 2 * keys, WINDOWS, keys)
        run_replay(spark, config, "totals", WINDOWS // 2, windows=WINDOWS)
        spark.stop()
    print(_peak_mb())


def _peak_mb() -> float:
    """Returns this process's peak. `getrusage` would count the process that has started it, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _drive(int(sys.argv[1]))
    else:
        for row in measure_state():
            print(row)
