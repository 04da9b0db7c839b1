"""Input files: a changed byte is named before it is read, each file is compared once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.errors import TableError
from rewindow.storage import Table
from rewindow.storage import inputs as module
from rewindow.storage.inputs import InputFiles
from rewindow.windows import WindowRange
from tests.recovery.project import FIRST, WINDOWS, make_project

WHOLE = WindowRange(FIRST, FIRST + WINDOWS - 1)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.open(make_project(tmp_path).config.stream_table("events"))


def flip_a_byte(table: Table) -> None:
    """Changes one byte in the middle of the table's file; its size stays."""
    path = Path(table.files()[0].path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_flipped_byte_is_detected_by_checksum(table: Table) -> None:
    # With names and sizes alone it is not detected.
    flip_a_byte(table)
    InputFiles("events", table, checksums=False).compare(WHOLE)
    with pytest.raises(
        TableError,
        match='of stream "events" does not have the recorded bytes',
    ) as raised:
        InputFiles("events", table, checksums=True).compare(WHOLE)
    assert f"windows {FIRST + 1} to {WHOLE.last}" in raised.value.detail


def test_file_is_verified_only_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    checksum = module.file_checksum

    def noted(path: Path) -> str:
        read.append(path)
        return checksum(path)

    monkeypatch.setattr(module, "file_checksum", noted)
    files = InputFiles("events", table, checksums=True)
    files.compare(WindowRange(FIRST, FIRST + 3))
    files.compare(WHOLE)
    assert len(read) == 1
