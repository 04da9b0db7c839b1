"""Recording, against what Spark alone takes to write the same rows sorted by window: a ratio in one
session.

    python -m bench.record [ROWS_IN_MILLIONS]
    python -m bench.record memory [ROWS_IN_MILLIONS ...]

From Parquet: a plain read, range partitioning by window, sort by arrival, write. From CSV: Spark's
own CSV reader with the same types before it. Each is run once beforehand with a tenth of the rows,
so that the JVM is warm. `memory` shows how much each process of the whole command takes at most:
what has launched it, the job's Python, the JVM.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rewindow.recording.record import record
from rewindow.settings.config import Config, StreamConfig
from rewindow.spark.session import spark_session

FILES = 8
WINDOW_S = 60
SPAN_S = 86_400
COLUMNS = "at TIMESTAMP, k STRING, n BIGINT, x DOUBLE, y DOUBLE"
_TUPLES_PER_FILE = 250_000


def main(millions: float) -> None:
    """Prints seconds of both, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        config = Config(state=root / "spark")
        spark = spark_session(config, "bench record")
        print(f"{millions:g} M rows in {FILES} files, {SPAN_S // WINDOW_S:,} windows")
        for kind in ("parquet", "csv"):
            for rows in (int(millions * 100_000), int(millions * 1_000_000)):
                plain_s, recorded_s = measure(spark, root, kind, rows)
            print(
                f"{kind:8} plain {plain_s:6.1f} s   record {recorded_s:6.1f} s   "
                f"{recorded_s / plain_s:.2f} x"
            )


def memory(millions: list[float]) -> None:
    """Prints the largest resident size of each process of `rewindow record`, in MB."""
    print(f"{'rows':>12}{'launcher MB':>14}{'Python MB':>12}{'JVM MB':>10}{'seconds':>10}")
    for rows in (int(count * 1_000_000) for count in millions):
        with tempfile.TemporaryDirectory() as folder:
            make_source(Path(folder) / "source", "parquet", rows)
            jars = Path(".rewindow/jars").resolve()
            settings = (
                f'state = "state"\n[spark]\njars = "{jars}"\n[streams.s]\nsource = "source"\n'
            )
            (Path(folder) / "rewindow.toml").write_text(
                f'{settings}arrived_at = "at"\nwidth = "{WINDOW_S} s"\n'
            )
            began = time.monotonic()
            peaks = _peaks([sys.executable, "-m", "rewindow.cli", "record", "s"], folder)
            own, python, java = (peaks[name] / 1e6 for name in ("own", "python", "java"))
            print(
                f"{rows:12,}{own:14.0f}{python:12.0f}{java:10.0f}{time.monotonic() - began:10.1f}",
                flush=True,
            )


def _peaks(command: list[str], folder: str) -> dict[str, int]:
    """Returns the largest resident size that a command, and its children of each name, had together
    at a look.
    """
    peaks = dict.fromkeys(("own", "python", "java"), 0)
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while process.poll() is None:
            seen = dict.fromkeys(peaks, 0)
            with contextlib.suppress(psutil.NoSuchProcess):
                own = psutil.Process(process.pid)
                seen["own"] = own.memory_info().rss
                for child in own.children(recursive=True):
                    seen["java" if "java" in child.name() else "python"] += child.memory_info().rss
            peaks = {name: max(peak, seen[name]) for name, peak in peaks.items()}
            time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return peaks


def measure(spark: SparkSession, root: Path, kind: str, rows: int) -> tuple[float, float]:
    """Returns seconds of the plain write and of the recording of as many rows."""
    source = root / f"{kind}-{rows}"
    make_source(source, kind, rows)
    plain_s = seconds(lambda: plain(spark, source, kind, rows, root / f"plain-{kind}-{rows}"))
    return plain_s, seconds(lambda: recorded(spark, source, root / f"state-{kind}-{rows}"))


def make_source(folder: Path, kind: str, rows: int) -> None:
    """Writes files of rows whose arrival is a little out of order."""
    folder.mkdir()
    random = np.random.default_rng(7)
    for number in range(FILES):
        count = rows // FILES
        begin_us = number * SPAN_S * 1_000_000 // FILES
        steps = np.sort(random.integers(0, SPAN_S * 1_000_000 // FILES, count)) + random.integers(
            0,
            30_000_000,
            count,
        )
        table = pa.table(
            {
                "at": pa.array(begin_us + steps, pa.timestamp("us", "UTC")),
                "k": pa.array(random.integers(0, 10_000, count)).cast(pa.string()),
                "n": random.integers(0, 1 << 40, count),
                "x": random.random(count),
                "y": random.random(count),
            }
        )
        if kind == "csv":
            pacsv.write_csv(table, folder / f"{number}.csv")
        else:
            pq.write_table(table, folder / f"{number}.parquet")


def plain(spark: SparkSession, source: Path, kind: str, rows: int, out: Path) -> None:
    """Writes the rows of a source as Spark alone would."""
    reader: Any = spark.read.option("header", True).schema(COLUMNS)
    frame = reader.csv(str(source)) if kind == "csv" else spark.read.parquet(str(source))
    window = F.expr(f"unix_micros(at) div {WINDOW_S * 1_000_000}")
    placed = frame.withColumn("window_id", window).repartitionByRange(
        max(2, rows // _TUPLES_PER_FILE),
        "window_id",
    )
    placed.sortWithinPartitions("window_id", "at").write.parquet(str(out))


def recorded(spark: SparkSession, source: Path, state: Path) -> None:
    """Records a source into a new stream."""
    stream = StreamConfig(
        source=str(source),
        columns=COLUMNS,
        arrived_at="at",
        width=f"{WINDOW_S} s",
        keys=["k"],
    )
    record(spark, Config(state=state, streams={"s": stream}), "s", end=True)


def seconds(work: Callable[[], object]) -> float:
    """Returns how long work takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory"]:
        memory([float(count) for count in sys.argv[2:]] or [1, 20])
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 2)
