"""Counting what a replay's tables hold."""

from __future__ import annotations

import pytest

from rewindow.inspection.counts import ReplayCount, count_replay
from rewindow.inspection.window_runs import WindowRun
from rewindow.settings.config import Config
from tests.pages import replays
from tests.publication.staging import StagedReplay


def counted(replay: StagedReplay) -> ReplayCount:
    return count_replay(replay.plan, replay.root)


def windows_of(mask: object) -> list[int]:
    return [replays.FIRST + int(place) for place in mask.nonzero()[0]]  # type: ignore[attr-defined]


def test_replay_without_a_crash_has_no_redone_lost_or_repeated_windows(config: Config) -> None:
    counts = counted(replays.undisturbed(config)).summary()
    assert (counts.windows, counts.tuples) == (20, 15 * 2 + 20 * 2)
    assert not any(
        (counts.redone, counts.lost, counts.repeated, counts.repeated_tuples, counts.affected)
    )


def test_redone_windows_have_rows_from_one_attempt_and_a_later_checkpoint(
    config: Config,
) -> None:
    found = counted(replays.killed_exactly_once(config))
    assert windows_of(found.redone) == [105, 106, 107, 108, 109]
    assert found.summary().repeated == 0 and found.resumed_after == {2: 104}


def test_repeated_rows_are_the_rows_ignored_by_readers(config: Config) -> None:
    found = counted(replays.killed_at_least_once(config))
    counts = found.summary()
    assert windows_of(found.outputs["ranks"].repeated) == [105, 106, 107, 108, 109]
    assert windows_of(found.outputs["delays"].repeated) == [105, 106, 107, 109], (
        "window 108 has no delays"
    )
    assert (counts.repeated, counts.repeated_tuples, counts.lost) == (5, 5 * 2 + 4 * 2, 0)
    assert counts.tuples == counted(replays.undisturbed(config)).summary().tuples


def test_lost_and_affected_windows_equal_the_recorded_facts(config: Config) -> None:
    found = counted(replays.killed_at_most_once(config))
    counts = found.summary()
    assert windows_of(found.outputs["ranks"].lost) == [105, 106, 107, 108, 109]
    assert windows_of(found.outputs["delays"].lost) == []
    assert windows_of(found.affected("ranks")) == list(range(110, 120))
    assert windows_of(found.affected("delays")) == []
    assert (counts.lost, counts.affected, counts.repeated, counts.redone, counts.windows) == (
        5,
        10,
        0,
        0,
        20,
    )


@pytest.mark.parametrize(
    "name",
    ["undisturbed", "killed_exactly_once", "killed_at_least_once", "killed_at_most_once"],
)
def test_window_runs_cover_every_window_once_in_order(config: Config, name: str) -> None:
    found = counted(getattr(replays, name)(config))
    for output in found.outputs:
        covered = [window for part in found.stretches(output) for window in part.windows]
        assert covered == list(range(replays.FIRST, replays.LAST + 1))


def test_window_run_ends_when_the_outcome_or_attempt_changes(config: Config) -> None:
    parts: tuple[WindowRun, ...] = counted(replays.killed_at_most_once(config)).stretches("ranks")
    assert [(part.windows.first, part.kind, part.attempt) for part in parts] == [
        (100, "committed", 1),
        (105, "lost", 0),
        (110, "affected", 2),
    ]
