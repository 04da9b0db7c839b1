"""Damaged files of published tables are named before anything is begun, and left out on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rewindow.certificate import certify
from rewindow.errors import TableError
from rewindow.ledger import Ledger
from rewindow.publication import staged_output
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.damage import KEPT_IN, damaged_error, damaged_now, find_damage, leave_out
from rewindow.windows import WindowRange
from tests.publication.staging import simple

RANGE = WindowRange(100, 109)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def zero(file: Path) -> None:
    """Overwrites a page of data; the size stays."""
    content = bytearray(file.read_bytes())
    content[4:60] = bytes(56)
    file.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {"cut": cut, "page": zero, "gone": Path.unlink}


@pytest.fixture
def table(config: Config) -> Path:
    """A published table of two files, windows 100 to 104 and 105 to 109, and its seals."""
    path = config.stream_table("app.x")
    for first in (100, 105):
        windows = pa.array(range(first, first + 5), pa.int64())
        write_deltalake(
            path,
            pa.table({"window_id": windows, "x": ["some text"] * 5}),
            mode="append",
        )
        write_deltalake(
            config.stream_table("app.x.windows"),
            pa.table({"window_id": windows}),
            mode="append",
        )
    return path


def windows_of(path: Path) -> list[int]:
    return query("select window_id as w from t order by w", t=Table.open(path))["w"].to_pylist()


def file_of(path: Path, window: int) -> Path:
    return Path(next(file.path for file in Table.open(path).files(window, window)))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_reported_with_its_windows_only_if_the_file_is_needed(
    config: Config,
    table: Path,
    damage: Callable[[Path], None],
) -> None:
    assert find_damage(Table.open(table), "app.x", RANGE) == []
    file = file_of(table, 107)
    damage(file)
    assert find_damage(Table.open(table), "app.x", WindowRange(100, 104)) == []
    (found,) = find_damage(Table.open(table), "app.x", RANGE)
    assert (found.table, found.file, found.windows) == (
        "app.x",
        file,
        WindowRange(105, 109),
    ) and found.why
    text = str(damaged_error([found], "rewindow undo r"))
    assert (
        f'file "{file.name}" of table "app.x" is damaged: windows 105 to 109 cannot be read' in text
    )
    assert "rewindow undo r --leave-out-damaged" in text


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_excluded_from_the_publication_but_not_deleted(
    config: Config,
    table: Path,
    damage: Callable[[Path], None],
) -> None:
    windows = pa.array([104, 105], pa.int64())
    write_deltalake(table, pa.table({"window_id": windows, "x": ["more", "text"]}), mode="append")
    file = file_of(table, 107)
    damage(file)
    leave_out(config, damaged_now(config, ["app.x", "app.x.windows"], RANGE))
    assert windows_of(table) == [100, 101, 102, 103, 104, 104]
    assert windows_of(config.stream_table("app.x.windows")) == [100, 101, 102, 103, 104]
    assert (table / KEPT_IN / file.name).exists() == (damage is not Path.unlink)
    assert damaged_now(config, ["app.x", "app.x.windows"], RANGE) == []


def test_missing_file_outside_the_range_stays_in_the_log(config: Config, table: Path) -> None:
    cut(file_of(table, 107))
    file_of(table, 100).unlink()
    with pytest.raises(TableError, match='table "app.x" lacks files of other windows, too'):
        leave_out(config, damaged_now(config, ["app.x"], WindowRange(105, 109)))
    assert file_of(table, 107).exists()


def test_windows_alongside_damaged_ones_are_restored_and_published_on_request(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staged_output, "TUPLES_PER_FILE", 4)
    simple(config, "r0", 100, 107, publishable=True, outputs=("ranks",), linkable=False)
    path = config.stream_table("app.ranks")
    seals = config.windows_table("app.ranks")
    publish(config, "r0")
    simple(config, "fix", 100, 107, plus=9, publishable=True, outputs=("ranks",), linkable=False)
    simple(config, "next", 106, 107, plus=5, publishable=True, outputs=("ranks",), linkable=False)
    damaged = file_of(path, 103)
    (held,) = [
        (file.first or 0, file.last or 0)
        for file in Table.open(path).files()
        if file.path == str(damaged)
    ]
    publish(config, "fix")
    cut(damaged)
    with pytest.raises(
        TableError,
        match=f'of table "app.ranks" is damaged: windows {held[0]} to {held[1]}',
    ):
        undo(config, "fix")
    ledger = Ledger.open(config.ledger_url)
    assert ledger.publications.unfinished() == [] and ledger.leases.held() == []
    undo(config, "fix", leave_out_damaged=True)
    left = [w for w in range(100, 108) if not held[0] <= w <= held[1]]
    assert windows_of(path) == sorted([*left, *left]) and windows_of(seals) == left

    newest = file_of(path, 107)
    cut(newest)
    with pytest.raises(TableError, match=f'file "{newest.name}" of table "app.ranks" is damaged'):
        publish(config, "next")
    assert ledger.publications.unfinished() == []
    publish(config, "next", leave_out_damaged=True)
    assert {106, 107} <= set(windows_of(seals)) and windows_of(seals) == sorted(
        set(windows_of(path))
    )


def cut_newest_entry(config: Config, name: str) -> Path:
    entry = sorted((config.stream_table(name) / "_delta_log").glob("*.json"))[-1]
    cut(entry)
    return entry


@pytest.mark.parametrize("table", ["app.ranks", "app.ranks.windows", "app.ranks.files"])
@pytest.mark.parametrize("leave_out", [False, True])
def test_publish_undo_and_certify_report_a_damaged_log_entry(
    config: Config,
    table: str,
    leave_out: bool,
) -> None:
    simple(config, "first", 100, 107, publishable=True, outputs=("ranks",))
    publish(config, "first")
    simple(config, "second", 100, 107, plus=7, publishable=True, outputs=("ranks",))
    entry = cut_newest_entry(config, table)
    words = f'file "{entry.name}" of table "{table}" is damaged'
    for act in (
        lambda: publish(config, "second", leave_out_damaged=leave_out),
        lambda: undo(config, "first", leave_out_damaged=leave_out),
        lambda: certify(config, "published", "first"),
    ):
        with pytest.raises(TableError, match=words) as caught:
            act()
        assert "Restore it from a backup" in caught.value.hint
    ledger = Ledger.open(config.ledger_url)
    assert ledger.publications.unfinished() == [] and ledger.leases.held() == []


def test_truncated_checksum_file_is_reported_with_the_command_to_rebuild_it(config: Config) -> None:
    simple(config, "first", 100, 107, publishable=True, outputs=("ranks",))
    publish(config, "first")
    file = next(config.files_table("app.ranks").glob("*.parquet"))
    cut(file)
    with pytest.raises(TableError) as caught:
        certify(config, "published", "first")
    assert caught.value.primary == f'file "{file.name}" of table "app.ranks.files" is damaged'
    assert "rewindow streams upgrade app.ranks" in caught.value.hint
