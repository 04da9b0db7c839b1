"""Snapshots kept while a verb runs: never an older table than is there, and its log read once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rewindow.errors import TableError
from rewindow.storage import Table, create_table
from rewindow.storage.snapshots import snapshot_cache

SCHEMA = pa.schema([("window_id", pa.int64())])
ROW = pa.table({"window_id": [1]}, schema=SCHEMA)


def test_cached_table_is_read_once_until_another_commit(tmp_path: Path) -> None:
    create_table(tmp_path, SCHEMA)
    with snapshot_cache():
        before = Table.open(tmp_path)
        assert Table.open(tmp_path).delta is before.delta
        write_deltalake(str(tmp_path), ROW, mode="append")
        now = Table.open(tmp_path)
        assert (now.version, Table.open(tmp_path, 0).version, len(now.files())) == (1, 0, 1)
        assert Table.open(tmp_path, 0).delta is Table.open(tmp_path, 0).delta is not now.delta
        now.append(ROW)
        assert (Table.open(tmp_path).version, Table.open(tmp_path, 1).version) == (2, 1)
        pinned = Table.open(tmp_path, 1)
        pinned.refresh()
        assert Table.open(tmp_path, 1).version == 1 and pinned.version == 2


def test_commit_by_another_writer_does_not_change_open_table_handles(tmp_path: Path) -> None:
    create_table(tmp_path, SCHEMA)
    other = Table.open(tmp_path)
    with snapshot_cache():
        building = Table.open(tmp_path)
        other.append(ROW)
        assert (Table.open(tmp_path).version, building.version) == (1, 0)


def test_recreated_table_is_not_read_from_the_cache(tmp_path: Path) -> None:
    create_table(tmp_path / "t", SCHEMA)
    with snapshot_cache():
        before = Table.open(tmp_path / "t").id
        shutil.rmtree(tmp_path / "t")
        with pytest.raises(TableError, match="does not exist"):
            Table.open(tmp_path / "t")
        create_table(tmp_path / "t", SCHEMA)
        assert Table.open(tmp_path / "t").id != before != Table.open(tmp_path / "t", 0).id


def test_tables_without_a_snapshot_cache_are_read_each_time(tmp_path: Path) -> None:
    create_table(tmp_path, SCHEMA)
    with snapshot_cache():
        kept = Table.open(tmp_path)
    assert Table.open(tmp_path).delta is not kept.delta is not Table.open(tmp_path).delta
