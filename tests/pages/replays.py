"""Replays that were killed once, one for each mode, as the engine leaves them: groups of five
windows, [100, 119].
"""

from __future__ import annotations

from rewindow.application import Mode
from rewindow.settings.config import Config
from tests.publication.staging import StagedReplay, rows_of, state_of

FIRST = 100
LAST = 119
SIZE = 5


def undisturbed(config: Config, replay_id: str = "calm") -> StagedReplay:
    """Returns an ended replay of four groups by one attempt."""
    replay = StagedReplay(config, replay_id, FIRST, LAST)
    for first in range(FIRST, LAST + 1, SIZE):
        _group(replay, first, epoch=1)
    return replay.end()


def killed_exactly_once(config: Config, replay_id: str = "once") -> StagedReplay:
    """Returns a replay whose first attempt died in its second group, between the outputs and the
    checkpoint.
    """
    replay = StagedReplay(config, replay_id, FIRST, LAST)
    _group(replay, 100, epoch=1)
    replay.group(105, 109, rows_of(range(105, 110)), epoch=1)
    replay.save(109, 2, state_of(109))
    for first in (110, 115):
        _group(replay, first, epoch=2)
    return replay.end(epoch=2)


def killed_at_least_once(config: Config, replay_id: str = "twice") -> StagedReplay:
    """Returns a replay whose first attempt died before the second group's checkpoint, so that it is
    there twice.
    """
    replay = StagedReplay(config, replay_id, FIRST, LAST, mode=Mode.AT_LEAST_ONCE)
    _group(replay, 100, epoch=1)
    replay.group(105, 109, rows_of(range(105, 110)), epoch=1)
    for first in (105, 110, 115):
        _group(replay, first, epoch=2)
    return replay.end(epoch=2)


def killed_at_most_once(config: Config, replay_id: str = "never_twice") -> StagedReplay:
    """Returns a replay that gave its second group up in `ranks`; `delays` had it already."""
    replay = StagedReplay(config, replay_id, FIRST, LAST, mode=Mode.AT_MOST_ONCE)
    _group(replay, 100, epoch=1)
    replay.group(105, 109, {"delays": rows_of(range(105, 110))["delays"]}, epoch=1)
    replay.lose(105, 109, ["ranks"], epoch=2)
    for first in (110, 115):
        _group(replay, first, epoch=2, plus=1)
    return replay.end(epoch=2)


def _group(replay: StagedReplay, first: int, epoch: int, plus: int = 0) -> None:
    rows = rows_of(range(first, first + SIZE))
    rows["ranks"] = rows_of(range(first, first + SIZE), plus)["ranks"]
    replay.group(first, first + SIZE - 1, rows, epoch, state=state_of(first + SIZE - 1 + plus))
