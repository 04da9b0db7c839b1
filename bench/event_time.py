"""Event time's functions alone, beside a plain Spark aggregate of the same tuples.

    python -m bench.event_time [ROWS_IN_MILLIONS]

Ratios of one run in one process; each figure is the median of three, after one run to warm up.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.replay import ROOT, make_project
from bench.report import Row
from rewindow.operators.event_time.lateness import lateness
from rewindow.operators.event_time.settings import EventTime, StreamTime
from rewindow.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS, SPAN_S, LATE_PERCENT = 1_000, 100_000, 1


def tuples(spark: SparkSession, count: int) -> DataFrame:
    """Returns `arrived_at`, `at`, `key`, `value`: in order of arrival, up to 5 s old, some of them a minute old."""
    spacing_us = SPAN_S * 1_000_000 // count
    return spark.range(count, numPartitions=8).selectExpr(
        f"timestamp_micros(id * {spacing_us}) AS arrived_at",
        f"timestamp_micros(id * {spacing_us} - CASE WHEN pmod(xxhash64(id), 100) < {LATE_PERCENT} THEN 60000000 "
        "ELSE pmod(xxhash64(id, 1), 5000000) END) AS at",
        f"pmod(xxhash64(id, 2), {KEYS}) AS key",
        "pmod(xxhash64(id, 3), 1000) AS value",
    )


def measure_event_time(count: int) -> list[Row]:
    """Returns the rows of the page."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        spark = spark_session(make_project(Path(folder), {}), "bench")
        tuples(spark, count).write.parquet(f"{folder}/tuples")
        rows = _measure(spark.read.parquet(f"{folder}/tuples"), count)
        spark.stop()
    return rows


def _measure(stored: DataFrame, count: int) -> list[Row]:
    from pyspark.sql import functions as F

    time_ = EventTime(streams={"clicks": StreamTime(event_at="at")}, lag="10 s", watermark_interval="1 s")

    def plain() -> None:
        minute = F.floor(F.unix_micros("at") / 60_000_000)
        stored.groupBy("key", minute).agg(F.sum("value"), F.count("*")).write.format("noop").mode("overwrite").save()

    def judged() -> None:
        result = lateness({"clicks": stored}, time_, start_us=0, end_us=SPAN_S * 1_000_000)
        result.counts("key").write.format("noop").mode("overwrite").save()

    beside, ours = _seconds(plain), _seconds(judged)
    what = f"lateness of {count // 1_000_000} M tuples, {KEYS} keys, {LATE_PERCENT} % late, counted by key"
    ratio = ours / beside
    return [
        Row(
            what,
            f"{ours:.1f} s",
            f"plain aggregate by key and minute {beside:.1f} s",
            f"2 x: {ratio:.2f} x",
            ratio <= 2,
        )
    ]


def _seconds(run: Callable[[], None]) -> float:
    run()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    for row in measure_event_time(int(sys.argv[1] if len(sys.argv) > 1 else 10) * 1_000_000):
        print(row.what, row.measured, row.beside, row.aim, row.verdict, sep=" | ")
