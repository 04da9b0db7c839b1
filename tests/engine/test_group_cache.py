"""What is computed once in a group: passes whose tasks write their rows themselves."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.application import WRITTEN, OperatorContext, PartSink
from rewindow.engine.group_cache import GroupCache, take_over
from rewindow.errors import RewindowError
from rewindow.location import location
from rewindow.spark.frames import spark_schema
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 3
EACH = 200_000
SCHEMAS = {
    "out": pa.schema([("x", pa.int64())]),
    "none": pa.schema([("arrived_at", pa.timestamp("us", "UTC"))]),
}
CONTEXT = OperatorContext(Grid(1_000_000, 500), WindowRange(7, 8))


def numbers(spark: SparkSession, sink: PartSink) -> DataFrame:
    """A pass of some tasks; each writes more rows than a row group has, of two windows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = pa.array([row for batch in batches for row in batch["id"].to_pylist()], pa.int64())
        windows = [7 + number % 2 for number in range(len(ids))]
        half = len(ids) // 2
        yield from sink(
            (
                "out",
                pa.table({"window_id": windows[part : part + half], "x": ids.slice(part, half)}),
            )
            for part in (0, half)
        )

    return spark.range(0, TASKS * EACH, 1, TASKS).mapInArrow(run, spark_schema(WRITTEN))


def test_tasks_write_every_row_once_to_files_that_the_output_adopts(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    root = location(tmp_path)
    asked = []

    def make(sink: PartSink) -> DataFrame:
        asked.append(sink)
        return numbers(spark, sink)

    once = GroupCache(spark, root, 3, lambda frame: frame)
    context = once.context("adds", CONTEXT)
    assert context.parts is not None
    found = context.parts(SCHEMAS, make)
    assert context.parts(SCHEMAS, make)["out"] is found["out"] and len(asked) == 1
    assert once.files_of("adds", "out", found["out"].where("x > 1")) is None, (
        "not what was written any more"
    )

    written = once.files_of("adds", "out", found["out"])
    assert written is not None
    target = root / "output" / "3-8"
    (target / "left.parquet").write("of an attempt that died")
    rows = pq.read_table(take_over(written, target).uri, partitioning=None)
    assert rows.schema.names == ["window_id", "attempt", "offset", "arrived_at", "x"]
    assert sorted(rows["x"].to_pylist()) == list(range(TASKS * EACH))
    assert len(set(rows["offset"].to_pylist())) == rows.num_rows and set(
        rows["attempt"].to_pylist()
    ) == {3}
    starts = {
        (row["window_id"], row["arrived_at"].timestamp()) for row in rows.slice(0, 10).to_pylist()
    }
    assert starts == {(7, 7000.5), (8, 8000.5)}
    assert found["none"].columns == ["window_id", "arrived_at", "_rw_emitted"]
    assert not found["none"].count()
    once.clear()
    assert once.files_of("adds", "out", found["out"]) is None


def test_files_not_reported_by_a_task_are_not_adopted(spark: SparkSession, tmp_path: Path) -> None:
    # A task that Spark repeats has left the file of its first try.
    def make(sink: PartSink) -> DataFrame:
        stray = pa.table({"window_id": [7], "x": [1_000_000_000]})
        list(sink([("out", stray)]))
        return numbers(spark, sink)

    parts = (
        GroupCache(spark, location(tmp_path), 1, lambda frame: frame).context("adds", CONTEXT).parts
    )
    assert parts is not None
    assert parts(SCHEMAS, make)["out"].count() == TASKS * EACH


def lost(path: Path) -> None:
    path.unlink()


def shortened(path: Path) -> None:
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.slice(1), path)


@pytest.mark.parametrize("damage", [lost, shortened])
def test_driver_rejects_a_task_whose_file_is_missing_or_incomplete(
    damage: Callable[[Path], None],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    def make(sink: PartSink) -> DataFrame:
        tasks = Path(sink.folder)  # type: ignore[attr-defined]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            ids = pa.array([row for batch in batches for row in batch["id"].to_pylist()])
            for named in sink([("out", pa.table({"window_id": ids, "x": ids}))]):
                if ids[0].as_py() == 0:
                    damage(tasks / named["file"][0].as_py())
                yield named

        return spark.range(0, 30, 1, TASKS).mapInArrow(run, spark_schema(WRITTEN))

    root = location(tmp_path)
    parts = GroupCache(spark, root, 1, lambda frame: frame).context("adds", CONTEXT).parts
    assert parts is not None
    found = 20 if damage is lost else 29
    with pytest.raises(RewindowError) as error:
        parts(SCHEMAS, make)
    text = str(error.value)
    assert f"tasks wrote 30 rows into folder {root}" in text and f"finds {found} there" in text
    assert socket.gethostname() in text and not error.value.retryable
