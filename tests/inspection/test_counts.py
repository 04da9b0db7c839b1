"""Counting what a replay's tables hold."""

from __future__ import annotations

import pytest

from rewindow.config import Config
from rewindow.inspection.counts import ReplayCount, count_replay
from rewindow.inspection.stretches import Stretch
from tests.pages import replays
from tests.publication.staging import StagedReplay


def counted(replay: StagedReplay) -> ReplayCount:
    return count_replay(replay.plan, replay.root)


def windows_of(mask: object) -> list[int]:
    return [replays.FIRST + int(place) for place in mask.nonzero()[0]]  # type: ignore[attr-defined]


def test_undisturbed_replay_has_nothing_redone_lost_repeated_or_affected(config: Config) -> None:
    """Of a replay that nobody disturbed only windows and tuples are counted."""
    counts = counted(replays.undisturbed(config)).summary()
    assert (counts.windows, counts.tuples) == (20, 15 * 2 + 20 * 2)
    assert not any((counts.redone, counts.lost, counts.repeated, counts.repeated_tuples, counts.affected))


def test_redone_are_the_windows_after_the_checkpoint_that_were_committed_before(config: Config) -> None:
    """A group whose rows are an earlier attempt's and whose checkpoint a later one's was computed again."""
    found = counted(replays.killed_exactly_once(config))
    assert windows_of(found.redone) == [105, 106, 107, 108, 109]
    assert found.summary().repeated == 0 and found.resumed_after == {2: 104}


def test_repeated_are_rows_that_readers_do_not_take(config: Config) -> None:
    """At least once stages a group twice; only windows with rows can hold rows twice."""
    found = counted(replays.killed_at_least_once(config))
    counts = found.summary()
    assert windows_of(found.outputs["ranks"].repeated) == [105, 106, 107, 108, 109]
    assert windows_of(found.outputs["delays"].repeated) == [105, 106, 107, 109], "window 108 has no delays"
    assert (counts.repeated, counts.repeated_tuples, counts.lost) == (5, 5 * 2 + 4 * 2, 0)
    assert counts.tuples == counted(replays.undisturbed(config)).summary().tuples


def test_lost_and_affected_windows_are_those_of_the_facts(config: Config) -> None:
    """At most once lists what it gave up; later windows of what has state upstream are affected, others are not."""
    found = counted(replays.killed_at_most_once(config))
    counts = found.summary()
    assert windows_of(found.outputs["ranks"].lost) == [105, 106, 107, 108, 109]
    assert windows_of(found.outputs["delays"].lost) == []
    assert windows_of(found.affected("ranks")) == list(range(110, 120))
    assert windows_of(found.affected("delays")) == []
    assert (counts.lost, counts.affected, counts.repeated, counts.redone, counts.windows) == (5, 10, 0, 0, 20)


@pytest.mark.parametrize("name", ["undisturbed", "killed_exactly_once", "killed_at_least_once", "killed_at_most_once"])
def test_stretches_cover_every_window_once(config: Config, name: str) -> None:
    """Stretches are in order, do not overlap, and together are the range."""
    found = counted(getattr(replays, name)(config))
    for output in found.outputs:
        covered = [window for part in found.stretches(output) for window in part.windows]
        assert covered == list(range(replays.FIRST, replays.LAST + 1))


def test_stretches_tell_the_fate_and_the_attempt(config: Config) -> None:
    """A stretch ends where the fate or the attempt changes."""
    parts: tuple[Stretch, ...] = counted(replays.killed_at_most_once(config)).stretches("ranks")
    assert [(part.windows.first, part.kind, part.attempt) for part in parts] == [
        (100, "committed", 1), (105, "lost", 0), (110, "affected", 2),
    ]  # fmt: skip
