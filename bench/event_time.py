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
from rewindow.operators.event_time.window_settings import EventWindows
from rewindow.operators.event_time.windows import event_windows
from rewindow.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS, SPAN_S, LATE_PERCENT, VERY_LATE_PERCENT = 1_000, 100_000, 1, 20


def tuples(spark: SparkSession, count: int, late_percent: int = LATE_PERCENT) -> DataFrame:
    """Returns `arrived_at`, `at`, `key`, `value`: in order of arrival, up to 5 s old, some of them a minute old."""
    spacing_us = SPAN_S * 1_000_000 // count
    return spark.range(count, numPartitions=8).selectExpr(
        f"timestamp_micros(id * {spacing_us}) AS arrived_at",
        f"timestamp_micros(id * {spacing_us} - CASE WHEN pmod(xxhash64(id), 100) < {late_percent} THEN 60000000 "
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
        for late in (LATE_PERCENT, VERY_LATE_PERCENT):
            tuples(spark, count, late).write.parquet(f"{folder}/tuples_{late}")
            rows += _measure_windows(spark.read.parquet(f"{folder}/tuples_{late}"), count, late)
        spark.stop()
    return rows


TIME = EventTime(streams={"clicks": StreamTime(event_at="at")}, lag="10 s", watermark_interval="1 s")


def _measure(stored: DataFrame, count: int) -> list[Row]:
    from pyspark.sql import functions as F

    def plain() -> None:
        minute = F.floor(F.unix_micros("at") / 60_000_000)
        stored.groupBy("key", minute).agg(F.sum("value"), F.count("*")).write.format("noop").mode("overwrite").save()

    def judged() -> None:
        result = lateness({"clicks": stored}, TIME, start_us=0, end_us=SPAN_S * 1_000_000)
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


def _measure_windows(stored: DataFrame, count: int, late: int) -> list[Row]:
    """Returns a row for windows that tumble and one for windows that overlap, beside Spark's own `window`."""
    from pyspark.sql import functions as F

    rows = []
    for slide, most in (("60 s", 2 if late == LATE_PERCENT else 3), ("20 s", 3)):

        def plain(slide: str = slide) -> None:
            by = F.window("at", "60 seconds", slide.replace(" s", " seconds"))
            stored.groupBy("key", by).agg(F.sum("value"), F.count("*")).write.format("noop").mode("overwrite").save()

        def fired(slide: str = slide) -> None:
            judged = lateness({"clicks": stored}, TIME, start_us=0, end_us=SPAN_S * 1_000_000)
            windows = EventWindows(length="60 s", slide=slide)
            aggregates = {"total": ("sum", "value"), "clicks": ("count", "*")}
            result = event_windows(judged, windows, aggregates, keys=["key"])
            result.fired.write.format("noop").mode("overwrite").save()

        beside, ours = _seconds(plain), _seconds(fired)
        ratio = ours / beside
        what = f"windows of 60 s by {slide} over {count // 1_000_000} M tuples, {KEYS} keys, {late} % late"
        beside_text = f"the same windows of all tuples by Spark {beside:.1f} s"
        rows.append(Row(what, f"{ours:.1f} s", beside_text, f"{most} x: {ratio:.2f} x", ratio <= most))
    return rows


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
