"""A damaged ledger, a full disk and a folder that is read-only: each has another next step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event

from rewindow.errors import LedgerError
from rewindow.ledger import Ledger
from tests.ledger.life import plan, run_to_end

MARK = "a reason that is easy to find in the file"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A ledger with a replay, in one file."""
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger.open(f"sqlite:///{path}")
    plan(ledger, "r")
    run_to_end(ledger, "r")
    ledger.replays.abandon("r", MARK)
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def read(file: Path) -> None:
    ledger = Ledger.open(f"sqlite:///{file}")
    ledger.replays.get("r")
    ledger.checks.newest("r")


def fill(ledger: Ledger) -> None:
    """Enters replays until the file would have to grow."""
    for number in range(1000):
        plan(ledger, f"replay-{number}")


def replace(file: Path, old: bytes, new: bytes) -> None:
    content = file.read_bytes()
    assert old in content and len(old) == len(new)
    file.write_bytes(content.replace(old, new))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "name of a table": lambda file: replace(
        file, b"CREATE TABLE replays", b"CREATE TABLE\xffreplays"
    ),
    "text": lambda file: replace(file, MARK.encode(), b"\xff" + MARK.encode()[1:]),
    "JSON": lambda file: replace(file, b'{"replay_id": "r"}', b'{"replay_id": "r"\x00'),
    "state": lambda file: replace(file, b"abandoned", b"abandoneD"),
    "header": lambda file: replace(file, b"SQLite format 3", b"SQLite farmot 3"),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:20_000]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_ledger_error_suggests_a_copy_and_a_rebuild(
    file: Path,
    damage: Callable[[Path], object],
) -> None:
    damage(file)
    with pytest.raises(LedgerError) as caught:
        read(file)
    assert caught.value.primary == f'ledger "{file}" is damaged'
    assert caught.value.hint.startswith("Restore it from a backup. Without a backup: move it away;")
    assert "rewindow ledger rebuild" in caught.value.hint


PRAGMAS = {
    "the disk is full": "PRAGMA max_page_count = 1",
    "readonly": "PRAGMA query_only = ON",
}


@pytest.mark.parametrize("words", PRAGMAS)
def test_full_disk_and_read_only_file_are_not_reported_as_a_damaged_ledger(
    file: Path,
    words: str,
) -> None:
    ledger = Ledger.open(f"sqlite:///{file}")

    @event.listens_for(ledger.database.engine, "connect")
    def limit(connection: sqlite3.Connection, record: object) -> None:
        connection.execute(PRAGMAS[words])

    ledger.close()
    with pytest.raises(LedgerError) as caught:
        fill(ledger)
    assert words in str(caught.value)
    assert "is damaged" not in str(caught.value) and "rebuild" not in caught.value.hint
    assert caught.value.hint.startswith("The ledger is undamaged, do not move it. Free space")
    assert caught.value.retryable
