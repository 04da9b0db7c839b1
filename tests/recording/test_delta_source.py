"""A Delta table as source, read from its log: appended rows, changed ones, table partitions; no
Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rewindow.errors import InputError
from rewindow.recording.sources.delta import find_delta_files
from rewindow.recording.sources.parquet_files import parquet_rows
from rewindow.recording.sources.source import SourcePosition


def write(source: Path, *numbers: int, **settings: Any) -> None:
    write_deltalake(
        str(source),
        pa.table({"n": pa.array(numbers, pa.int64())}),
        mode="append",
        **settings,
    )


def merge(source: DeltaTable) -> None:
    """Updates a row that is there and inserts another one."""
    rows = pa.table({"n": pa.array([1, 9], pa.int64())})
    found = source.merge(rows, "s.n = t.n", source_alias="s", target_alias="t")
    found.when_matched_update({"n": "t.n + 100"}).when_not_matched_insert_all().execute()


CHANGES: dict[str, Callable[[DeltaTable], Any]] = {
    "DELETE": lambda table: table.delete("n = 1"),
    "UPDATE": lambda table: table.update({"n": "n + 100"}, predicate="n = 1"),
    "MERGE": merge,
    "WRITE": lambda table: write_deltalake(
        table,
        pa.table({"n": pa.array([7], pa.int64())}),
        mode="overwrite",
    ),
}


@pytest.mark.parametrize("operation", CHANGES)
def test_commit_that_changed_rows_is_rejected_or_skipped_on_request(
    tmp_path: Path,
    operation: str,
) -> None:
    source = tmp_path / "d"
    write(source, 1, 2)
    write(source, 3)
    CHANGES[operation](DeltaTable(str(source)))
    write(source, 4)
    with pytest.raises(InputError, match=rf'version 2 \({operation}\)(.|\n)*changed_rows = "skip"'):
        find_delta_files("s", source, SourcePosition(0))
    found = find_delta_files("s", source, SourcePosition(0), skip_changes=True)
    rows = [
        row["n"]
        for file in found.files
        for rows in parquet_rows(file, found.schema, ())
        for row in rows.to_pylist()
    ]
    assert rows == [3, 4]
    assert [warning.split(" of ")[0] for warning in found.warnings] == [f"version 2 ({operation})"]


def test_compacted_and_vacuumed_files_are_replaced_by_reading_the_whole_table(
    tmp_path: Path,
) -> None:
    source = tmp_path / "d"
    for number in range(4):
        write(source, number)
    table = DeltaTable(str(source))
    waiting: dict[str, dict[str, Any]] = {path.name: {} for path in source.glob("*.parquet")}
    table.optimize.compact()
    table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    found = find_delta_files("s", source, SourcePosition(1, None, waiting))
    assert found.whole
    rows = [
        row["n"]
        for file in found.files
        for rows in parquet_rows(file, found.schema, ())
        for row in rows.to_pylist()
    ]
    assert sorted(rows) == [0, 1, 2, 3]
    assert "compacted and vacuumed" in found.warnings[0]


@pytest.mark.parametrize("position", [SourcePosition(), SourcePosition(0)])
def test_table_partitioned_by_time_is_read(tmp_path: Path, position: SourcePosition) -> None:
    source = tmp_path / "d"
    times = [
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        None,
    ]
    frame = pa.table(
        {
            "n": pa.array([1, 2, 3], pa.int64()),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "day": pa.array([time.date() if time else None for time in times], pa.date32()),
        }
    )
    write_deltalake(str(source), frame.slice(0, 0), partition_by=["at", "day"])
    write_deltalake(str(source), frame, mode="append")
    found = find_delta_files("s", source, position)
    rows = [
        row
        for file in found.files
        for rows in parquet_rows(file, found.schema, ())
        for row in rows.to_pylist()
    ]
    assert sorted((row["n"], row["at"], row["day"]) for row in rows) == [
        (n, time, time.date() if time else None) for n, time in enumerate(times, start=1)
    ]


def test_file_from_before_a_new_column_has_nulls_in_it(tmp_path: Path) -> None:
    source = tmp_path / "d"
    write(source, 1)
    both = pa.table({"n": pa.array([2], pa.int64()), "m": ["x"]})
    write_deltalake(str(source), both, mode="append", schema_mode="merge")
    found = find_delta_files("s", source, SourcePosition())
    files = [parquet_rows(file, found.schema, found.schema.names) for file in found.files]
    assert [
        (row["n"], row["m"]) for rows in files for batch in rows for row in batch.to_pylist()
    ] == [(1, None), (2, "x")]
