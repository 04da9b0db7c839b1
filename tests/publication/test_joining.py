"""Small published files that become one: readers, undos and digests notice nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rewindow.certificate import certify
from rewindow.publication import joining
from rewindow.publication.publish import expected_publication, publish
from rewindow.publication.result import PublicationResult
from rewindow.publication.undo import undo
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.checksums import differing, with_noted
from rewindow.storage.damage import find_damage
from rewindow.storage.delta import DataFile
from rewindow.windows import WindowRange
from tests.publication.test_staged_files import STREAM, expected, flip, minutes, published, stage

DAYS = {f"day{day}": (100 + 2 * day, 101 + 2 * day) for day in range(8)}


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files are enough to be joined."""
    monkeypatch.setattr(joining, "FILES_MIN", 4)


def files(*sizes: int) -> list[DataFile]:
    """Returns files of some sizes, a window and a row each, ascending."""
    return [DataFile(f"/t/{n}", 1, n, n, size) for n, size in enumerate(sizes)]


def test_files_of_daily_publications_are_joined_into_few_files(config: Config) -> None:
    most = 0
    apart = {}
    for name, windows in DAYS.items():
        stage(config, name, *windows)
        foreseen = expected_publication(config, name)
        before = len(published(config)) if Table.exists(config.stream_table(STREAM)) else 0
        publish(config, name)
        assert not isinstance(foreseen, PublicationResult)
        apart[name] = before + 1 - len(published(config))
        assert apart[name] == max(0, foreseen.tables[0].files_joined - 1)
        most = max(most, len(published(config)))
    assert sum(apart.values()) >= 3 and most == 5, apart
    assert minutes(config) == expected(100, 115)
    table = Table.open(config.stream_table(STREAM))
    assert all(file.checksum for file in with_noted(table, table.files()))
    assert differing(with_noted(table, table.files())) == []
    assert certify(config, "day1", "published").verdict == "equal"


def test_publications_in_a_joined_file_can_be_undone_in_any_order(config: Config) -> None:
    shown: dict[str, dict[int, int]] = {}
    for name, windows in DAYS.items():
        stage(config, name, *windows)
        publish(config, name)
        shown[name] = expected(*windows)
    assert len(published(config)) < len(DAYS)
    stage(config, "fix", 103, 108, 5)
    publish(config, "fix")
    undo(config, "fix")
    order = sorted(DAYS)
    random.Random(7).shuffle(order)
    for name in order:
        assert minutes(config) == {
            window: total for part in shown.values() for window, total in part.items()
        }
        undo(config, name)
        del shown[name]
    assert minutes(config) == {}


def test_damaged_neighbouring_file_is_not_joined(config: Config) -> None:
    # Rewriting the file would hide the damage.
    for name, windows in list(DAYS.items())[:4]:
        stage(config, name, *windows)
        publish(config, name)
    file = next(file for file in published(config) if file.first == 102)
    flip(Path(file.path))
    stage(config, "day4", *DAYS["day4"])
    publish(config, "day4")
    assert len(published(config)) == 5
    (found,) = find_damage(Table.open(config.stream_table(STREAM)), STREAM, WindowRange(100, 109))
    assert found.windows == WindowRange(102, 103)


@pytest.mark.parametrize(
    ("sizes", "joined"),
    [
        ([1, 1, 1], []),
        ([1, 1, 1, 1], [0, 1, 2, 3]),
        ([4, 1, 1, 1], []),
        ([4, 1, 1, 1, 1], [1, 2, 3, 4]),
        ([4, 4, 4, 4, 1], [0, 1, 2, 3, 4]),
        ([4, 4, 4, 1, 1], []),
        ([joining.BYTES_MAX // 4] * 9, [0, 1, 2, 3]),
    ],
)
def test_files_of_similar_size_are_joined_up_to_the_size_limit(
    sizes: list[int],
    joined: list[int],
) -> None:
    assert [file.first for file in joining._longest(files(*sizes))] == joined


def test_year_of_daily_publications_creates_few_files_and_few_rewrites_per_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    day = 500_000
    there = list[DataFile]()
    rewritten = 0
    most = 0
    for number in range(365):
        run = joining._longest(joining._chain(there[::-1])[::-1])
        if run:
            at = there.index(run[0])
            size = sum(file.size for file in run)
            rewritten += size
            there[at : at + len(run)] = [DataFile("/t/joined", 1, run[0].first, run[-1].last, size)]
        there.append(DataFile(f"/t/{number}", 1, number, number, day))
        most = max(most, len(there))
    assert most <= 25 and rewritten <= 2 * 365 * day


def test_files_after_a_large_file_or_with_common_windows_are_not_joined() -> None:
    near = files(1, 1, joining.BYTES_MAX, 1)
    assert joining._chain(near) == near[:2]
    assert joining._chain([*near[:2], DataFile("/t/x", 1, 0, 1, 1)]) == near[:2]
