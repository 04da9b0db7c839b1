"""What libraries raise about tables, as errors of ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from rewindow.errors import FencedError, ResourceError, RewindowError, TableError
from rewindow.storage import Table, create_table, query
from rewindow.storage.failures import plain_text

SCHEMA = pa.schema([("window_id", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = create_table(tmp_path / "clicks", SCHEMA)
    made.commit_arrow(pa.table({"window_id": list(range(1000))}), app_id="a", version=1)
    return made


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [cut, Path.unlink, lambda path: path.write_bytes(b"")])
def test_query_over_a_damaged_file_names_the_table_and_is_not_retryable(
    table: Table,
    damage: Callable[[Path], None],
) -> None:
    damage(next(table.path.glob("*.parquet")))
    with pytest.raises(TableError, match='"clicks"') as caught:
        query("select sum(window_id) from t", t=table)
    assert not caught.value.retryable


def test_wrong_query_keeps_the_error_of_the_library(table: Table) -> None:
    with pytest.raises(Exception, match="nope") as caught:
        query("select nope from t", t=table)
    assert not isinstance(caught.value, RewindowError)


def test_table_with_a_damaged_log_is_reported_without_native_frames(table: Table) -> None:
    cut(sorted((table.path / "_delta_log").glob("*.json"))[-1])
    with pytest.raises(TableError, match='table "clicks" cannot be read') as caught:
        Table.open(table.path)
    assert "<unknown>" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("raised", [OSError, DeltaError, CommitFailedError])
def test_commit_rejected_by_the_file_system_is_retryable(
    table: Table,
    raised: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise raised(
            "Generic LocalFileSystem error\n ↳ Unable to rename file x: Read-only file system (os "
            "error 30)"
        )

    monkeypatch.setattr("rewindow.storage.delta.write_deltalake", refuse)
    with pytest.raises(ResourceError, match="read-only file system") as caught:
        table.commit_arrow(pa.table({"window_id": [1]}), app_id="a", version=2)
    assert caught.value.retryable


def test_conflicting_commit_of_one_transaction_id_is_fenced(table: Table) -> None:
    late = Table.open(table.path)
    table.commit_files([], app_id="a", version=2)
    with pytest.raises(FencedError, match="met another one"):
        late.commit_files([], app_id="a", version=2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_commit_on_a_read_only_file_system_is_retryable(table: Table) -> None:
    folder = str(table.path)
    if os.system(
        f"mount --bind '{folder}' '{folder}' 2>/dev/null && mount -o remount,bind,ro '{folder}' "
        "2>/dev/null"
    ):
        os.system(f"umount '{folder}' 2>/dev/null")
        pytest.skip("this machine lets nobody mount")
    try:
        for commit in (
            lambda: table.commit_files([], app_id="a", version=2),
            lambda: table.commit_arrow(pa.table({"window_id": [1]}), app_id="a", version=2),
        ):
            with pytest.raises(ResourceError, match="read-only file system"):
                commit()
    finally:
        os.system(f"umount '{folder}'")


def test_plain_text_has_no_colours_arrows_or_native_frames() -> None:
    frames = "   0: <unknown>\n  12: start_thread\n at ./x.c:442:8\n"
    error = OSError(f"Generic error\n  \x1b[31m↳\x1b[0m Unable to open\n{frames}")
    assert plain_text(error) == "Generic error Unable to open"
