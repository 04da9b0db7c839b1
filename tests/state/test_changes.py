"""The log of changes: one order of changes and of windows that were begun."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rewindow.application.overrides import PropertyChange
from rewindow.location import location
from rewindow.state.changes import ChangeLog


def change(value: int, from_window: int) -> PropertyChange:
    at = datetime(2026, 1, 1, value, tzinfo=UTC)
    return PropertyChange(
        operator="op",
        name="limit",
        value=value,
        from_window=from_window,
        at=at,
        by="ann",
    )


def test_group_ends_before_a_change_and_the_last_change_of_a_window_is_used(tmp_path: Path) -> None:
    # Rules: O27
    log = ChangeLog(location(tmp_path), [change(1, 3)])
    assert log.begun() is None and log.begin(3, 9) == 9 and log.begun() == 9
    for value, window in ((2, 15), (3, 12), (4, 12)):
        log.add(lambda begun, value=value, window=window: change(value, window))  # type: ignore[misc]
    for other in (log, ChangeLog(location(tmp_path), [change(1, 3)])):
        assert [[one.value for one in other.at(window)] for window in (2, 3, 11, 12, 14, 15)] == [
            [],
            [1],
            [1],
            [4],
            [4],
            [2],
        ]
        assert [other.begin(first, 20) for first in (10, 12, 15)] == [11, 14, 20]
    assert log.begin(10, 20) == 11, "a window that comes again is cut where it was cut before"
    assert ChangeLog(location(tmp_path)).begun() == 20


def test_second_of_two_concurrent_writers_sees_the_change_of_the_first(tmp_path: Path) -> None:
    here = ChangeLog(location(tmp_path))
    there = ChangeLog(location(tmp_path))
    seen: list[int | None] = []

    def late(begun: int | None) -> PropertyChange:
        seen.append(begun)
        if len(seen) == 1:
            there.begin(1, 5)
        return change(7, 6 if begun else 1)

    assert here.add(late).from_window == 6 and seen == [None, 5]
    there.add(lambda begun: change(8, 8))
    assert here.begin(6, 9) == 7


def test_rejected_property_change_leaves_no_file(tmp_path: Path) -> None:
    log = ChangeLog(location(tmp_path))
    log.begin(1, 5)

    def refused(begun: int | None) -> PropertyChange:
        raise ValueError(begun)

    with pytest.raises(ValueError, match="5"):
        log.add(refused)
    assert len(list((tmp_path / "changes").iterdir())) == 1
