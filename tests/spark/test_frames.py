"""What is read and counted of a stream: sealed windows, and what deletion vectors and column
mapping leave.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F

from rewindow.errors import RewindowError
from rewindow.facts.seals import columns_text, seal_rows
from rewindow.planning import draft_plan
from rewindow.spark.frames import (
    count_windows,
    count_written,
    empty_frame,
    open_inputs,
    read_windows,
    write_files,
)
from rewindow.storage import Table, query
from rewindow.storage.inputs import open_input
from rewindow.storage.streams import holes
from rewindow.windows import WindowRange
from tests.folders import FolderLocation
from tests.lost_files import lose_part_files
from tests.planning.options import request
from tests.recovery.project import FIRST, WINDOWS, make_project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAST = FIRST + WINDOWS - 1


def tear(path: Path) -> None:
    """Commits tuples of two windows behind the last sealed one, as a recording that died before
    their seals.
    """
    stream = Table.open(path)
    rows = query(f"select * from s where window_id = {LAST}", s=stream)
    for window in (LAST + 1, LAST + 2):
        ids = pa.array([window] * rows.num_rows, pa.int64())
        torn = rows.set_column(rows.column_names.index("window_id"), "window_id", ids)
        stream.commit_arrow(torn, app_id="record", version=window)


FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as they are": lambda rows: rows,
    "no row": lambda rows: rows.where("window_id < 0"),
    "constant, without a row": lambda rows: empty_frame(rows.sparkSession, rows.schema),
    "limited": lambda rows: rows.limit(10),
    "sorted": lambda rows: rows.sort("x"),
    "shuffled": lambda rows: rows.groupBy("window_id").agg(F.max("x").alias("x")),
    "united": lambda rows: rows.unionByName(rows),
    "joined with nothing": lambda rows: rows.join(rows.where("x < 0"), "window_id", "left_semi"),
    "in one task": lambda rows: rows.coalesce(1),
}


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("name", FRAMES)
def test_every_written_row_is_counted(
    name: str,
    adaptive: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        rows = spark.range(1000, numPartitions=3).selectExpr("id % 7 as window_id", "id as x")
        frame = FRAMES[name](rows)
        folder = FolderLocation(tmp_path / "written")
        write_files(frame, folder)
        assert sum(count_written(folder)["tuples"].to_pylist()) == frame.count()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)


def test_missing_part_file_after_a_write_is_reported_with_folder_and_host(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = FolderLocation(tmp_path / "written")
    rows = spark.range(1000, numPartitions=4).selectExpr("id % 7 as window_id", "id as x")
    lost = lose_part_files(monkeypatch, "written")
    with pytest.raises(RewindowError) as error:
        write_files(rows, folder)
    assert len(lost) == 1
    text = str(error.value)
    assert f"tasks wrote 1,000 rows into folder {folder}, and the driver finds 750 there" in text
    assert "Spark runs on 127.0.0.1" in text and "same shared file system" in text
    assert not error.value.retryable and error.value.exit_code == 65


def test_truncated_part_file_after_a_write_raises_an_error(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = FolderLocation(tmp_path / "written")
    write = DataFrameWriter.parquet

    def cut(writer: DataFrameWriter, path: str) -> None:
        write(writer, path)
        part = next(Path(path).glob("part-*.parquet"))
        part.write_bytes(part.read_bytes()[:-9])

    monkeypatch.setattr(DataFrameWriter, "parquet", cut)
    with pytest.raises(RewindowError, match="tasks wrote 10 rows .* finds 0 there"):
        write_files(spark.range(10, numPartitions=1), folder)


def test_readers_skip_most_small_row_groups_of_sorted_rows(
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    rows = spark.range(400_000, numPartitions=1).selectExpr("id % 1000 as key", "hash(id) as value")
    found = {}
    for name, frame, size in (
        ("sorted", rows.sortWithinPartitions("key"), 256 << 10),
        ("as they come", rows, 256 << 10),
        ("one group", rows.sortWithinPartitions("key"), None),
    ):
        write_files(frame, FolderLocation(tmp_path / name), size)
        found[name] = row_groups(tmp_path / name, pc.field("key") == 777)
    assert found["sorted"][0] <= 2 and found["sorted"][1] >= 4
    assert found["as they come"][0] == found["as they come"][1] >= 4
    assert found["one group"] == (1, 1)


def row_groups(folder: Path, wanted: pc.Expression) -> tuple[int, int]:
    """Returns how many row groups a reader opens for some rows, and how many there are."""
    fragments = list(ds.dataset(folder, format="parquet").get_fragments())
    opened = sum(len(fragment.split_by_row_group(wanted)) for fragment in fragments)
    return opened, sum(fragment.num_row_groups for fragment in fragments)


@pytest.mark.parametrize("warm_up", [False, True])
def test_rows_of_unsealed_windows_are_neither_read_nor_counted(
    tmp_path: Path,
    spark: SparkSession,
    warm_up: bool,
) -> None:
    config = make_project(tmp_path).config
    tear(config.stream_table("events"))
    if warm_up:
        seals = Table.open(config.windows_table("events"))
        data = Table.open(config.stream_table("events"), 1)
        later = pa.table(
            {
                "window_id": [LAST + 3],
                "tuples": [0],
                "digest": [""],
                "float_digest": pa.nulls(1, pa.string()),
            }
        )
        rows = seal_rows(later, data, columns_text(data.schema))
        seals.commit_arrow(rows, app_id="record", version=2)
    first = LAST + 3 if warm_up else LAST
    plan = draft_plan(config, request(first=first, last=LAST + 3, allow_missing=True)).plan
    table = open_inputs(plan, config.state)["events"]
    windows = WindowRange(LAST, LAST + 3)
    wanted = {
        row["window_id"]
        for row in query(
            f"select window_id from w where window_id = {LAST}",
            w=Table.open(config.windows_table("events")),
        ).to_pylist()
    }
    assert set(count_windows(table, windows)["window_id"].to_pylist()) == wanted
    assert {row.window_id for row in read_windows(spark, table, windows).collect()} == wanted


def test_input_is_read_and_counted_at_its_pinned_version(
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    # Rules: R62
    config = make_project(tmp_path).config
    path = config.stream_table("events")
    sealed = Table.open(config.windows_table("events"))
    plan = draft_plan(config, request(first=FIRST, last=LAST)).plan
    windows = WindowRange(FIRST, LAST)
    before = query("select * from s", s=Table.open(path)).num_rows
    later = query(f"select * from s where window_id = {LAST}", s=Table.open(path))
    Table.open(path).commit_arrow(later, app_id="record", version=99)
    Table.open(path).delta.delete(f"window_id = {FIRST + 1}")
    sealed.delta.delete(f"window_id = {FIRST + 2}")
    (entry,) = plan.inputs
    assert open_input(entry, config.state).version == entry.version < Table.open(path).version
    table = open_inputs(plan, config.state)["events"]
    assert (table.version, table.hidden) == (entry.version, ())
    assert pc.sum(count_windows(table, windows)["tuples"]).as_py() == before == entry.tuples
    assert read_windows(spark, table, windows).count() == before


@pytest.mark.parametrize(
    ("feature", "change", "tuples"),
    [
        (
            "delta.enableDeletionVectors' = 'true",
            "delete from delta.`{0}` where x % 7 = 0",
            {2: 8, 3: 9},
        ),
        (
            "delta.columnMapping.mode' = 'name",
            "alter table delta.`{0}` rename column x to y",
            {2: 10, 3: 10},
        ),
    ],
)
def test_tuple_count_respects_deletion_vectors_and_column_mapping(
    tmp_path: Path,
    spark: SparkSession,
    feature: str,
    change: str,
    tuples: dict[int, int],
) -> None:
    path = str(tmp_path / "s")
    spark.sql(
        f"create table delta.`{path}` (window_id bigint, x bigint) using delta tblproperties "
        f"('{feature}')"
    )
    rows = spark.range(100).selectExpr("id div 10 as window_id", "id as x").repartition(1)
    rows.write.format("delta").mode("append").save(path)
    spark.sql(change.format(path))
    assert DeltaTable(path).version() == 2
    found = count_windows(Table.open(path), WindowRange(2, 3))
    assert dict(zip(*found.to_pydict().values(), strict=True)) == tuples


def test_missing_ranges_are_the_ranges_between_seals() -> None:
    sealed = pa.chunked_array([[7, 5, 5], [6, 10]])
    assert [(hole.first, hole.last) for hole in holes(sealed, WindowRange(3, 12))] == [
        (3, 4),
        (8, 9),
        (11, 12),
    ]
    assert holes(pa.chunked_array([[]], pa.int64()), WindowRange(1, 2)) == [WindowRange(1, 2)]
