"""Streams in place over Delta tables with each feature that hides rows or columns from a reader of
files: the seals, the rows and their order equal those that Spark computes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from rewindow.errors import InputError
from rewindow.facts.seals import read_seals
from rewindow.recording.in_place import record_in_place
from rewindow.recording.record import record
from rewindow.settings.config import Config
from rewindow.spark.digests import window_digests
from rewindow.spark.frames import count_windows, read_windows
from rewindow.storage import Table, query
from rewindow.storage.streams import open_sealed
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_US = 1_700_000_040_000_000
COLUMNS = "at TIMESTAMP, key STRING, day DATE, n INT, x DOUBLE"
SETTINGS = """
[streams.s]
source = "lake/s"
arrived_at = "at"
width = "1 min"
copy = false
[streams.copied]
source = "lake/plain"
arrived_at = "at"
width = "1 min"
"""
EVERY = WindowRange(FIRST_US // 60_000_000 - 10, FIRST_US // 60_000_000 + 100)


def fill(spark: SparkSession, table: str, first: int = 0, count: int = 300) -> None:
    """Appends rows over ten minutes, some with the same arrival and some with nulls."""
    number = F.col("id")
    rows = spark.range(first, first + count).select(
        F.timestamp_micros(F.lit(FIRST_US) + (number * 7 % 200) * 3_000_000).alias("at"),
        F.when(number % 5 > 0, F.concat(F.lit("a b/c=d%e"), number % 3)).alias("key"),
        F.date_add(F.lit("2024-01-01").cast("date"), (number % 4).cast("int")).alias("day"),
        number.cast("int").alias("n"),
        F.when(number % 7 > 0, number / 3).alias("x"),
    )
    rows.repartition(4).write.format("delta").mode("append").save(table)


def create(options: str = "", properties: str = "") -> Callable[[SparkSession, str], None]:
    """Returns a function that makes a table with rows."""

    def make(spark: SparkSession, table: str) -> None:
        given = f"TBLPROPERTIES ({properties})" if properties else ""
        spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta {options} {given}")
        fill(spark, table)

    return make


def with_deleted_rows(spark: SparkSession, table: str) -> None:
    create("PARTITIONED BY (key)", "'delta.enableDeletionVectors' = 'true'")(spark, table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE n % 11 = 0")
    spark.sql(f"UPDATE delta.`{table}` SET x = x + 1 WHERE n % 13 = 0")


def with_renamed_columns(spark: SparkSession, table: str) -> None:
    create("PARTITIONED BY (day)", "'delta.columnMapping.mode' = 'name'")(spark, table)
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN n TO number")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN at TO arrived")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN arrived TO at")
    spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN x")


def with_added_column(spark: SparkSession, table: str) -> None:
    create()(spark, table)
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMN more STRING")


def with_many_checkpoints(spark: SparkSession, table: str) -> None:
    create("", "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1'")(spark, table)
    fill(spark, table, 300, 20)


def with_shallow_clone(spark: SparkSession, table: str) -> None:
    create()(spark, f"{table}-before")
    spark.sql(f"CREATE TABLE delta.`{table}` SHALLOW CLONE delta.`{table}-before`")


def without_rows(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta")


FORMS: dict[str, Callable[[SparkSession, str], None]] = {
    "plain": create(),
    "partitioned": create("PARTITIONED BY (key, day)"),
    "deletion vectors": with_deleted_rows,
    "column mapping": with_renamed_columns,
    "clustered": create("CLUSTER BY (key)"),
    "added column": with_added_column,
    "v2 checkpoints": with_many_checkpoints,
    "change data feed": create("", "'delta.enableChangeDataFeed' = 'true'"),
    "row tracking": create("", "'delta.enableRowTracking' = 'true'"),
    "shallow clone": with_shallow_clone,
    "empty": without_rows,
}
QUICK = ("deletion vectors", "column mapping")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "rewindow.toml").write_text(SETTINGS)
    return Config.load(tmp_path / "rewindow.toml")


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=[] if form in QUICK else [pytest.mark.exhaustive]) for form in FORMS],
)
def test_table_in_place_has_the_seals_and_rows_of_its_copy(
    spark: SparkSession, config: Config, tmp_path: Path, form: str
) -> None:
    # Rules: X56, X57
    FORMS[form](spark, str(tmp_path / "lake/s"))
    record_in_place(config, "s")
    rows = spark.read.format("delta").load(str(tmp_path / "lake/s"))
    rows.write.format("delta").save(str(tmp_path / "lake/plain"))
    record(spark, config, "copied")
    found = [read_seals(Table.open(config.windows_table(name))) for name in ("s", "copied")]
    names = ["window_id", "tuples", "digest", "float_digest"]
    ours, theirs = (seals.select(names).to_pylist() for seals in found)
    assert ours == theirs and (bool(ours) or form == "empty")
    if not ours:
        return
    frames = []
    for name in ("s", "copied"):
        seals = Table.open(config.windows_table(name))
        data = Table.open(config.stream_table(name))
        table = open_sealed(data.path, data.version, seals.path, seals.version, EVERY)
        frames.append(read_windows(spark, table, EVERY))
        counts = count_windows(table, EVERY).sort_by("window_id").to_pylist()
        assert [row["tuples"] for row in counts] == [s["tuples"] for s in ours if s["tuples"]]
    rows, copied = (
        frame.toArrow().sort_by([("window_id", "ascending"), ("offset", "ascending")])
        for frame in frames
    )
    assert rows.select(copied.column_names).to_pylist() == copied.to_pylist()
    digests = window_digests(frames[0]).toArrow().sort_by("window_id").to_pylist()
    assert digests == [seal for seal in ours if seal["tuples"]]
    sql = 'select window_id, "offset", arrived_at, key from s order by window_id, "offset"'
    read: list[dict[str, Any]] = query(sql, s=Table.open(config.stream_table("s"))).to_pylist()
    times = [(row["window_id"], row["arrived_at"]) for row in read]
    assert times == [(row["window_id"], row["arrived_at"]) for row in copied.to_pylist()]


@pytest.mark.exhaustive
def test_widened_type_needs_a_copy(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    table = str(tmp_path / "lake/s")
    create("", "'delta.enableTypeWidening' = 'true'")(spark, table)
    spark.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN n TYPE BIGINT")
    with pytest.raises(InputError, match="copy = true"):
        record_in_place(config, "s")
