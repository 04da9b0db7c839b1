"""The progress of a running replay, and the estimate of the time left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rewindow.inspection.replay_progress import ProgressEstimate, seconds_left
from rewindow.ledger import GroupTiming

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def group(epoch: int, mark: int, ended: float, compute: float = 4.0) -> GroupTiming:
    return GroupTiming(epoch, mark, {"compute": compute, "commit": 1.0, "other": 9.0}, at(ended))


def test_time_left_follows_the_pace_of_the_newest_groups() -> None:
    groups = [group(1, 300, 50), group(1, 200, 40), group(1, 100, 30)]
    assert seconds_left(groups, 1_000, at(50)) == pytest.approx(70)
    assert seconds_left(groups, 1_000, at(55)) == pytest.approx(65)


def test_pause_between_two_attempts_does_not_count_as_pace() -> None:
    groups = [group(2, 400, 1_020), group(2, 300, 1_010), group(1, 200, 40), group(1, 100, 30)]
    assert seconds_left(groups, 600, at(1_020)) == pytest.approx(20)


def test_first_group_alone_sets_the_pace_by_its_duration() -> None:
    assert seconds_left([group(1, 100, 30)], 300, at(30)) == pytest.approx(10)


def test_time_left_is_unknown_before_the_first_group_and_never_negative() -> None:
    assert seconds_left([], 300, at(0)) is None
    assert seconds_left([group(1, 0, 1)], 300, at(1)) is None
    assert seconds_left([group(1, 200, 40), group(1, 100, 30)], 300, at(999)) == 0


def test_words_of_the_progress_contain_share_and_time_left() -> None:
    progress = ProgressEstimate("running", 1_000, 3_000, 125.4)
    assert progress.words == "1,000 of 3,000 windows are committed (33 %), about 2 min 5 s left"
    assert ProgressEstimate("failed", 0, 0).words == "0 of 0 windows are committed (0 %)"
