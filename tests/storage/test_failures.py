"""What libraries raise about tables, as errors of ours."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from rewindow.errors import FencedError, ResourceError, RewindowError, TableError
from rewindow.storage import Table, create_table, query
from rewindow.storage.failures import plain_text, reading_table, reading_tables

SCHEMA = pa.schema([("window_id", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = create_table(tmp_path / "clicks", SCHEMA)
    made.commit_arrow(pa.table({"window_id": list(range(1000))}), app_id="a", version=1)
    return made


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [cut, Path.unlink, lambda path: path.write_bytes(b"")])
def test_query_error_for_a_damaged_file_shows_the_table_and_is_not_retryable(
    table: Table,
    damage: Callable[[Path], None],
) -> None:
    damage(next(table.path.glob("*.parquet")))
    with pytest.raises(TableError, match='"clicks"') as caught:
        query("select sum(window_id) from t", t=table)
    assert not caught.value.retryable


def test_invalid_query_raises_the_original_error_of_the_library(table: Table) -> None:
    with pytest.raises(Exception, match="nope") as caught:
        query("select nope from t", t=table)
    assert not isinstance(caught.value, RewindowError)


def test_table_with_a_damaged_log_is_reported_without_native_frames(table: Table) -> None:
    cut(sorted((table.path / "_delta_log").glob("*.json"))[-1])
    with pytest.raises(TableError, match='of table "clicks" is damaged') as caught:
        Table.open(table.path)
    assert "<unknown>" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def flip(path: Path) -> None:
    """Changes a byte in the middle of a file, to one that is in no text."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] = 0xFF
    path.write_bytes(content)


STEPS = {
    "streams/clicks": 'move all tables of stream "clicks" away, and record or publish it again',
    "streams/clicks.files": "rewindow streams upgrade clicks",
    "replays/r/clicks": "abandon the replay (rewindow abandon r) and plan its range again",
}
"""Folder of a table below the state folder, and the next step after its log was damaged."""


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize("folder", STEPS)
def test_damaged_log_entry_is_reported_with_its_table_and_the_next_step(
    tmp_path: Path,
    folder: str,
    damage: Callable[[Path], None],
) -> None:
    table = create_table(tmp_path / folder, SCHEMA)
    table.commit_arrow(pa.table({"window_id": [1]}), app_id="a", version=1)
    entry = sorted((table.path / "_delta_log").glob("*.json"))[-1]
    older = Table.open(table.path, 0)
    damage(entry)
    for read in (lambda: Table.open(table.path), older.refresh):
        with pytest.raises(TableError) as caught:
            read()
        name = table.path.name
        assert caught.value.primary == f'file "{entry.name}" of table "{name}" is damaged'
        assert STEPS[folder] in caught.value.hint


@pytest.mark.parametrize("damage", [cut, flip])
def test_damaged_log_checkpoint_is_reported_by_name(
    table: Table,
    damage: Callable[[Path], None],
) -> None:
    table.delta.create_checkpoint()
    (entry,) = (table.path / "_delta_log").glob("*.checkpoint.parquet")
    cut(entry)
    with pytest.raises(TableError, match=f'file "{entry.name}" of table "clicks" is damaged'):
        Table.open(table.path)


@pytest.mark.parametrize("damage", [cut, Path.unlink, lambda path: path.write_bytes(b"")])
def test_query_error_for_two_tables_shows_the_damaged_file(
    table: Table,
    tmp_path: Path,
    damage: Callable[[Path], None],
) -> None:
    other = create_table(tmp_path / "visits", SCHEMA)
    other.commit_arrow(pa.table({"window_id": [1]}), app_id="a", version=1)
    file = next(other.path.glob("*.parquet"))
    damage(file)
    with pytest.raises(TableError, match=f'file "{file.name}" of table "visits" is damaged'):
        query("select * from a join b on a.window_id = b.window_id", a=table, b=other)


def test_panics_and_plain_exceptions_of_a_library_become_rewindow_errors(table: Table) -> None:
    panic = type("PanicException", (BaseException,), {})
    for error in (panic("called `unwrap()` on a `None` value"), Exception("Json error: x")):
        with pytest.raises(TableError, match='table "clicks" cannot be read'):
            raise_in(reading_table(table.path), error)
    with pytest.raises(AssertionError):
        raise_in(reading_table(table.path), AssertionError("a bug"))


def raise_in(context: reading_tables, error: BaseException) -> None:
    with context:
        raise error


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
    with pytest.raises(FencedError, match="conflicts with another commit"):
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


QUERY = """
import sys
from rewindow.errors import TableError
from rewindow.storage import Table, query
try:
    query("select * from t", t=Table.open(sys.argv[1]))
except TableError as error:
    print(error.primary)
"""


def test_panic_of_native_code_over_a_damaged_file_does_not_end_the_process(table: Table) -> None:
    (file,) = table.path.glob("*.parquet")
    stored = pq.read_metadata(file).metadata[b"ARROW:schema"]
    width = base64.b64decode(stored)
    assert width.count(b"\x40\x00\x00\x00") == 1, "the width of the column's integers"
    changed = base64.b64encode(width.replace(b"\x40\x00\x00\x00", bytes(4)))
    file.write_bytes(file.read_bytes().replace(stored, changed))
    command = [sys.executable, "-c", QUERY, str(table.path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (
        0,
        f'file "{file.name}" of table "clicks" is damaged\n',
    )
