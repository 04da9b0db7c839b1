"""Event time's functions alone, beside a plain Spark aggregate of the same tuples.

    python -m bench.event_time [ROWS_IN_MILLIONS]

Ratios of one run in one process; each figure is the median of three, after three runs to warm up.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.replay import ROOT, make_project
from bench.report import Row
from rewindow.operators.event_time.lateness import lateness
from rewindow.operators.event_time.settings import EventTime, StreamTime
from rewindow.operators.event_time_windows.settings import EventWindows
from rewindow.operators.event_time_windows.windows import event_windows
from rewindow.operators.filling.function import fill_gaps
from rewindow.operators.filling.settings import FillSettings
from rewindow.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 1_000
SPAN_S = 100_000
LATE_PERCENT = 1
VERY_LATE_PERCENT = 20


def tuples(spark: SparkSession, count: int, late_percent: int = LATE_PERCENT) -> DataFrame:
    """Returns `arrived_at`, `at`, `key`, `value`: in order of arrival, up to 5 s old, some of them
    a minute old.
    """
    spacing_us = SPAN_S * 1_000_000 // count
    return spark.range(count, numPartitions=8).selectExpr(
        f"timestamp_micros(id * {spacing_us}) AS arrived_at",
        f"timestamp_micros(id * {spacing_us} - CASE WHEN pmod(xxhash64(id), 100) < {late_percent} "
        "THEN 60000000 "
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
        for keys in (KEYS, 1):
            readings(spark, count, keys).write.parquet(f"{folder}/readings_{keys}")
            rows += _measure_filling(spark.read.parquet(f"{folder}/readings_{keys}"), count, keys)
        spark.stop()
    return rows


TIME = EventTime(
    streams={"clicks": StreamTime(event_at="at")},
    lag="10 s",
    watermark_interval="1 s",
)


def _measure(stored: DataFrame, count: int) -> list[Row]:
    from pyspark.sql import functions as F

    def plain() -> None:
        minute = F.floor(F.unix_micros("at") / 60_000_000)
        stored.groupBy("key", minute).agg(F.sum("value"), F.count("*")).write.format("noop").mode(
            "overwrite"
        ).save()

    def classified() -> None:
        result = lateness({"clicks": stored}, TIME, start_us=0, end_us=SPAN_S * 1_000_000)
        result.counts("key").write.format("noop").mode("overwrite").save()

    beside = _seconds(plain)
    ours = _seconds(classified)
    what = (
        f"lateness of {count // 1_000_000} M tuples, {KEYS} keys, {LATE_PERCENT} % late, "
        "counted by key"
    )
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
    """Returns a row for windows that tumble and one for windows that overlap, beside Spark's own
    `window`.
    """
    from pyspark.sql import functions as F

    rows = []
    for slide, most in (("60 s", 2 if late == LATE_PERCENT else 3), ("20 s", 3)):

        def plain(slide: str = slide) -> None:
            by = F.window("at", "60 seconds", slide.replace(" s", " seconds"))
            stored.groupBy("key", by).agg(F.sum("value"), F.count("*")).write.format("noop").mode(
                "overwrite"
            ).save()

        def fired(slide: str = slide) -> None:
            classified = lateness({"clicks": stored}, TIME, start_us=0, end_us=SPAN_S * 1_000_000)
            windows = EventWindows(length="60 s", slide=slide)
            aggregates = {"total": ("sum", "value"), "clicks": ("count", "*")}
            result = event_windows(classified, windows, aggregates, keys=["key"])
            result.fired.write.format("noop").mode("overwrite").save()

        beside = _seconds(plain)
        ours = _seconds(fired)
        ratio = ours / beside
        what = (
            f"windows of 60 s by {slide} over {count // 1_000_000} M tuples, {KEYS} keys, "
            f"{late} % late"
        )
        beside_text = f"the same windows of all tuples by Spark {beside:.1f} s"
        rows.append(
            Row(what, f"{ours:.1f} s", beside_text, f"{most} x: {ratio:.2f} x", ratio <= most)
        )
    return rows


def readings(spark: SparkSession, count: int, keys: int) -> DataFrame:
    """Returns `key`, `at` (seconds) and two values: a reading of each key every ten seconds, a
    tenth missing.
    """
    points = count * 10 // 9 // keys
    rows = spark.range(points * keys, numPartitions=8).selectExpr(
        f"id % {keys} AS key",
        f"(id DIV {keys}) * 10 AS at",
        "cast(pmod(xxhash64(id), 1000) AS double) AS temp",
        "pmod(xxhash64(id, 1), 1000) AS level",
        "pmod(xxhash64(id, 2), 10) AS dice",
    )
    return rows.where("dice > 0").drop("dice")


def _measure_filling(stored: DataFrame, count: int, keys: int) -> list[Row]:
    """Measures `fill_gaps` beside what users write: a series of all readings, joined, and values
    carried over it.

    One key is none for us.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    end = count * 10 // 9 // keys * 10
    settings = FillSettings(
        event_at="at",
        unit="s",
        step=10,
        from_time=0,
        to_time=end * 1_000_000,
        keys=["key"] if keys > 1 else [],
        columns={"temp": "linear", "level": "forward"},
    )

    def filled() -> None:
        fill_gaps(stored, settings).write.format("noop").mode("overwrite").save()

    def joined() -> None:
        series = stored.sparkSession.range(0, end, 10).select(
            F.lit(0).alias("key"),
            F.col("id").alias("at"),
        )
        if keys > 1:
            every = F.explode(F.sequence(F.lit(0), F.lit(end - 10), F.lit(10)))
            series = stored.select("key").distinct().select("key", every.alias("at"))
        rows = series.join(stored, ["key", "at"], "left")
        since = Window.partitionBy("key").orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
        until = (
            Window.partitionBy("key")
            .orderBy(F.desc("at"))
            .rowsBetween(Window.unboundedPreceding, 0)
        )
        known = F.when(F.col("temp").isNotNull(), F.struct("at", "temp"))
        before = F.last(known, ignorenulls=True).over(since)
        behind = F.last(known, ignorenulls=True).over(until)
        rows = rows.withColumns(
            {"before": before, "behind": behind, "level": F.last("level", True).over(since)}
        )
        share = (F.col("at") - F.col("before.at")) / (F.col("behind.at") - F.col("before.at"))
        line = F.col("before.temp") + (F.col("behind.temp") - F.col("before.temp")) * share
        found = rows.select("key", "at", F.coalesce("temp", line).alias("temp"), "level")
        found.write.format("noop").mode("overwrite").save()

    ours = _seconds(filled)
    beside = _seconds(joined)
    recording_keys = f"{keys:,} keys" if keys > 1 else "no keys"
    what = (
        f"gaps of {count / 1e6:.0f} M readings filled, {recording_keys}, a tenth missing, two "
        "columns"
    )
    faster = beside / ours
    text = f"a series of all readings, joined and carried over {beside:.1f} s"
    speed = Row(what, f"{ours:.1f} s", text, f"at least 2 x faster: {faster:.1f} x", faster >= 2)
    spark = stored.sparkSession
    (task, shuffled), (task_beside, shuffled_beside) = (
        _memory(spark, filled),
        _memory(spark, joined),
    )
    memory = Row(
        "its memory: the largest of a task, and what is shuffled",
        f"{task:,.0f} MB and {shuffled:,.0f} MB",
        f"joined {task_beside:,.0f} MB and {shuffled_beside:,.0f} MB",
        f"less: {task / task_beside:.2f} x and {shuffled / shuffled_beside:.2f} x",
        task < task_beside and shuffled < shuffled_beside,
    )
    return [speed, memory]


def _memory(spark: SparkSession, run: Callable[[], None]) -> tuple[float, float]:
    """Returns the largest execution memory that Spark counted for a task of a run, and bytes
    shuffled, both in MB.
    """
    context = spark.sparkContext
    store, jvm = context._jsc.sc().statusStore(), context._jvm  # type: ignore[union-attr]
    quantiles = context._gateway.new_array(jvm.double, 0)  # type: ignore[union-attr]

    def stages() -> dict[int, Any]:
        found = store.stageList(None, False, False, quantiles, None)
        return {
            found.apply(number).stageId(): found.apply(number) for number in range(found.size())
        }

    before = stages()
    run()
    largest = shuffled = 0
    for stage in (stage for number, stage in stages().items() if number not in before):
        shuffled += stage.shuffleWriteBytes()
        tasks = store.taskList(stage.stageId(), stage.attemptId(), 10_000)
        for number in range(tasks.size()):
            metrics = tasks.apply(number).taskMetrics()
            if metrics.isDefined():
                largest = max(largest, metrics.get().peakExecutionMemory())
    return largest / 1e6, shuffled / 1e6


def _seconds(run: Callable[[], None]) -> float:
    for _ in range(3):
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
