"""A Delta table as source, read from its log: appended rows, changed ones and those brought back,
shallow clones, table partitions; no Spark.
"""

from __future__ import annotations

import json
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
def test_source_commit_that_changed_rows_is_rejected_or_skipped_on_request(
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


def test_whole_source_table_is_read_after_compaction_and_vacuum(
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
def test_delta_source_partitioned_by_time_can_be_read(
    tmp_path: Path, position: SourcePosition
) -> None:
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


def test_file_older_than_a_new_column_has_nulls_in_this_column(tmp_path: Path) -> None:
    source = tmp_path / "d"
    write(source, 1)
    both = pa.table({"n": pa.array([2], pa.int64()), "m": ["x"]})
    write_deltalake(str(source), both, mode="append", schema_mode="merge")
    found = find_delta_files("s", source, SourcePosition())
    files = [parquet_rows(file, found.schema, found.schema.names) for file in found.files]
    assert [
        (row["n"], row["m"]) for rows in files for batch in rows for row in batch.to_pylist()
    ] == [(1, None), (2, "x")]


def rows_of(source: Path, position: SourcePosition, **options: Any) -> list[dict[str, Any]]:
    """Returns the rows of a table after a position."""
    found = find_delta_files("s", source, position, **options)
    return [
        row
        for file in found.files
        for rows in parquet_rows(file, found.schema, found.schema.names)
        for row in rows.to_pylist()
    ]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_files_of_a_restored_table_are_not_read_twice(tmp_path: Path, version: int) -> None:
    source = tmp_path / "d"
    write(source, 1)
    write(source, 2)
    waiting: dict[str, dict[str, Any]] = {
        file.name: {} for file in source.glob("*.parquet") if version == 1
    }
    DeltaTable(str(source)).restore(0)
    DeltaTable(str(source)).restore(1)
    write(source, 3)
    position = SourcePosition(version, None, waiting)
    if version < 3:
        with pytest.raises(InputError, match=rf"version {version + 1} \(RESTORE\)") as caught:
            find_delta_files("s", source, position)
        assert "rewindow record s --reopen --replace" in caught.value.hint
    rows = rows_of(source, position, skip_changes=True)
    assert sorted(row["n"] for row in rows) == ([1, 2, 3] if version == 1 else [3])


def test_files_added_by_two_commits_are_read_once(tmp_path: Path) -> None:
    # Such as another engine's RESTORE, which its log names otherwise.
    source = tmp_path / "d"
    write(source, 1)
    write(source, 2)
    log = source / "_delta_log"
    lines = (log / f"{1:020}.json").read_text().splitlines()
    again = [line for line in lines if '"add"' in line]
    (log / f"{2:020}.json").write_text("\n".join(again) + "\n")
    assert [row["n"] for row in rows_of(source, SourcePosition(0))] == [2]


def clone_of(base: Path, clone: Path, prefix: str) -> None:
    """Writes the log of a SHALLOW CLONE: one with absolute paths."""
    (clone / "_delta_log").mkdir(parents=True)
    for file in (base / "_delta_log").glob("*.json"):
        lines = []
        for line in file.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                action["add"]["path"] = f"{prefix}{base}/{action['add']['path']}"
            lines.append(json.dumps(action))
        (clone / "_delta_log" / file.name).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("prefix", ["file:", "file://", ""])
def test_shallow_clone_can_be_read_and_missing_files_are_reported(
    tmp_path: Path,
    prefix: str,
) -> None:
    base = tmp_path / "b d"
    write(base, 1, 2)
    clone_of(base, tmp_path / "c", prefix)
    write(tmp_path / "c", 3)
    assert [row["n"] for row in rows_of(tmp_path / "c", SourcePosition())] == [1, 2, 3]
    assert [row["n"] for row in rows_of(tmp_path / "c", SourcePosition(0))] == [3]
    file = next(base.glob("*.parquet"))
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(
        InputError, match=f"is incomplete: 1 files of its newest version .*{file.name}"
    ) as caught:
        find_delta_files("s", tmp_path / "c", SourcePosition())
    assert "a shallow clone" in caught.value.detail
    assert caught.value.hint.startswith("Restore these files")
    file.write_bytes(content)
    assert len(rows_of(tmp_path / "c", SourcePosition())) == 3


@pytest.mark.parametrize("position", [SourcePosition(), SourcePosition(0)])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_partition_times_without_a_zone_use_the_configured_time_zone(
    tmp_path: Path,
    position: SourcePosition,
    is_checkpointed: bool,
) -> None:
    source = tmp_path / "d"
    noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
    frame = pa.table({"n": [1], "at": pa.array([noon], pa.timestamp("us", "UTC"))})
    write_deltalake(str(source), frame.slice(0, 0), partition_by=["at"])
    write_deltalake(str(source), frame, mode="append")
    log = source / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    next(a["add"] for a in actions if "add" in a)["partitionValues"]["at"] = "2024-07-01 12:00:00"
    next(a["commitInfo"] for a in actions if "commitInfo" in a)["engineInfo"] = "Apache-Spark/3.5"
    log.write_text("\n".join(map(json.dumps, actions)) + "\n")
    if is_checkpointed:
        write_deltalake(str(source), frame.slice(0, 0), mode="append")
        DeltaTable(str(source)).create_checkpoint()
        if position.version < 0:
            log.unlink()
    with pytest.raises(
        InputError, match='times without a zone, such as "2024-07-01 12:00:00"'
    ) as caught:
        find_delta_files("s", source, position)
    for zone, hour in (("UTC", 12), ("Europe/Berlin", 10)):
        assert f'"{zone}"' in caught.value.hint
        assert [row["at"] for row in rows_of(source, position, zone=zone)] == [
            noon.replace(hour=hour)
        ]
