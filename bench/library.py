"""Operators of the library next to Spark queries that were written by hand, over the same rows.

    python -m bench.library [MILLIONS]

The rows are read from Parquet files of a million rows each; a sink discards the results. Each row
of the page is the time of the operator divided by that of the query, both in one session.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.report import Row
from rewindow.application import FrameOperator, OperatorContext
from rewindow.operators import (
    Aggregate,
    Deduplicate,
    Enrich,
    Join,
    Sample,
    Select,
    Split,
    TopN,
    Union,
)
from rewindow.settings.config import Config
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AIM = 1.2
RUNS = 5
WINDOWS = 100
KEYS = 1_000
TIME = pa.timestamp("us", tz="UTC")
ROWS = pa.schema(
    [("key", pa.int64()), ("number", pa.int64()), ("price", pa.float64()), ("at", TIME)]
)
OTHER = pa.schema([("number", pa.int64()), ("bid", pa.int64()), ("bid_at", TIME)])
Case = tuple[str, FrameOperator, Callable[["DataFrame", "DataFrame"], "DataFrame"]]


def cases() -> list[Case]:
    """Returns for each operator its name, an example, and a query that a user would write."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_price = Window.partitionBy("window_id").orderBy(F.desc("price"), "number")
    by_key = Window.partitionBy("number", F.date_trunc("HOUR", "at")).orderBy("window_id", "offset")
    newest = Window.partitionBy("number").orderBy("window_id")

    def aggregated(*aggregates: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
        columns = [F.expr(text).alias(f"c{place}") for place, text in enumerate(aggregates)]
        return lambda rows, other: rows.groupBy("window_id", "key").agg(*columns)

    def enriched(rows: DataFrame, other: DataFrame) -> DataFrame:
        both = rows.drop("offset").unionByName(other.drop("offset"), allowMissingColumns=True)
        bid = F.last("bid", ignorenulls=True).over(newest)
        return both.withColumn("bid", bid).where("key is not null")

    def joined(rows: DataFrame, other: DataFrame) -> DataFrame:
        pairs = rows.join(other.drop("offset", "window_id"), "number")
        return pairs.where("abs(unix_micros(at) - unix_micros(bid_at)) <= 60000000")

    names = ["window_id", *ROWS.names]
    found: list[Case] = []

    def add(
        operator: FrameOperator,
        query: Callable[[DataFrame, DataFrame], DataFrame],
        what: str = "",
    ) -> None:
        found.append((f"{type(operator).__name__}{what}", operator, query))

    dear = Select(columns=ROWS, where="price > 500", keep=["number"])
    add(dear, lambda rows, other: rows.where("price > 500").select("window_id", "number"))
    split = Split(columns=ROWS, conditions={"dear": "price > 500"})
    add(split, lambda rows, other: rows.where("price > 500").select(*names))
    union = Union(columns=ROWS)
    add(union, lambda rows, other: rows.select(*names).union(rows.select(*names)))
    sample = Sample(columns=ROWS, fraction=0.1, key=("number",))
    add(sample, lambda rows, other: rows.where("pmod(xxhash64(number), 10) = 0").select(*names))
    for texts in (["sum(number)", "max(number)"], ["sum(price)"], ["sum(price)", "max(price)"]):
        calls = {f"c{place}": text for place, text in enumerate(texts)}
        operator = Aggregate(columns=ROWS, by=("key",), aggregates=calls)
        add(operator, aggregated(*texts), f", {', '.join(texts)}")
    top = TopN(columns=ROWS, by=("price",), top=10)
    place = F.row_number().over(by_price)
    add(top, lambda rows, other: rows.select(*names, place.alias("p")).where("p <= 10"))
    unique = Deduplicate(
        columns=ROWS,
        key=("number",),
        event_at="at",
        reference="1970-01-01",
        expire="1 day",
        span="1 hour",
    )
    first = F.row_number().over(by_key)
    add(unique, lambda rows, other: rows.withColumn("p", first).where("p = 1"))
    pairs = Join(columns=ROWS, right_columns=OTHER, on=("number",))
    add(pairs, lambda rows, other: rows.join(other.drop("offset"), ["window_id", "number"]))
    expiring = Join(
        columns=ROWS,
        right_columns=OTHER,
        on=("number",),
        expire="60 s",
        event_at={"left": "at", "right": "bid_at"},
    )
    add(expiring, joined, " with expire")
    add(Enrich(columns=ROWS, table_columns=OTHER, on=("number",)), enriched)
    return found


def measure_library(tuples: int) -> list[Row]:
    """Returns the rows of the page."""
    from rewindow.spark.frames import empty_frame, spark_schema
    from rewindow.spark.session import spark_session

    spark = spark_session(Config.load(), "bench")
    context = OperatorContext(Grid(1_000), WindowRange(0, WINDOWS - 1))
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        rows, other = _make_rows(spark, tuples, folder)
        for name, operator, query in cases():
            columns = operator.state_columns()
            state = None if columns is None else empty_frame(spark, spark_schema(columns))
            inputs = {}
            for place, port in enumerate(operator.input_ports()):
                is_other = place == 1 and not isinstance(operator, Union)
                inputs[port] = other if is_other else rows
            found = operator.transform(inputs, state, context)
            ours = found if not isinstance(found, dict) else next(iter(found.values()))
            theirs = query(rows, other)
            times = []
            for _ in range(RUNS):
                times.append((_seconds(theirs), _seconds(ours)))
            plain, took = (min(one) for one in zip(*times, strict=True))
            measured.append(
                Row(
                    f"library: {name}, {tuples // 1_000_000} M tuples",
                    f"{took:.2f} s",
                    f"the query by hand {plain:.2f} s",
                    f"at most {AIM} of it: {took / plain:.2f}",
                    took / plain <= AIM,
                )
            )
    return measured


def _make_rows(spark: SparkSession, tuples: int, folder: str) -> tuple[DataFrame, DataFrame]:
    """Returns tuples of a stream and a quarter of their number of another one, in files."""
    each = tuples // WINDOWS
    common = [f"id div {each} as window_id", f"id % {each} as offset"]
    at = f"timestamp_micros(id * 1000000 div {each})"
    count = tuples // 2
    rows = spark.range(tuples, numPartitions=max(2, tuples // 1_000_000)).selectExpr(
        *common,
        f"xxhash64(id) % {KEYS} as key",
        f"pmod(xxhash64(id, 1), {count}) as number",
        "rand(1) * 1000 as price",
        f"{at} as at",
    )
    other = spark.range(0, tuples, 4, numPartitions=2).selectExpr(
        *common,
        f"pmod(xxhash64(id, 2), {count}) as number",
        "id as bid",
        f"{at} as bid_at",
    )
    for name, frame in (("rows", rows), ("other", other)):
        frame.write.parquet(f"{folder}/{name}")
    return spark.read.parquet(f"{folder}/rows"), spark.read.parquet(f"{folder}/other")


def _seconds(frame: DataFrame, clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    frame.write.format("noop").mode("overwrite").save()
    return clock() - began


if __name__ == "__main__":
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for row in measure_library(millions * 1_000_000):
        print(f"{row.what:60}{row.measured:>10}   {row.beside:32}{row.aim}")
