"""The progress of a replay while it runs: committed windows, and an estimate of the time left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from rewindow.inspection.next_steps import has_stopped_unnoticed
from rewindow.inspection.visibility import Visibility, state_words, visibility
from rewindow.ledger import Ledger
from rewindow.ledger.attempts import GroupTiming
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.windows import describe_seconds

_GROUPS_MAX = 20
"""Number of newest commit groups whose pace is used for the estimate."""


@dataclass(frozen=True)
class ProgressEstimate:
    """The progress of a replay.

    Attributes:
        state: the state as text, see `state_words`.
        mark, of: number of committed windows, and of all windows. Those of containers are added up.
        seconds_left: estimated time to the last commit; None if it does not run, before its first
            commit groups, and for a replay with several containers.
    """

    state: str
    mark: int
    of: int
    seconds_left: float | None = None

    @property
    def words(self) -> str:
        """The progress as text."""
        share = 100 * self.mark // max(self.of, 1)
        words = f"{self.mark:,} of {self.of:,} windows are committed ({share} %)"
        if self.seconds_left is None:
            return words
        return f"{words}, about {describe_seconds(round(self.seconds_left))} left"

    def to_dict(self) -> dict[str, Any]:
        """Returns the progress as plain values for the script of a page."""
        return vars(self) | {"words": self.words}


def replay_progress(
    ledger: Ledger,
    row: Replay,
    seen: Visibility | None = None,
) -> ProgressEstimate:
    """Returns the progress of a replay. Reads only the ledger.

    Args:
        ledger: the ledger.
        row: the replay.
        seen: the publications that cover it, if they are known.
    """
    is_gone = has_stopped_unnoticed(ledger, row)
    state = state_words(row, visibility(ledger, row) if seen is None else seen, is_gone)
    of = len(row.range)
    divided = max(len(row.plan.get("containers", ())), 1)
    if divided > 1 and row.mark < of:
        marks = [container.mark for container in ledger.replays.containers(row.replay_id)]
        return ProgressEstimate(state, sum(marks), of * divided)
    if row.state is not ReplayState.RUNNING or is_gone:
        return ProgressEstimate(state, row.mark, of)
    groups = ledger.attempts.timings(row.replay_id, limit=_GROUPS_MAX)
    return ProgressEstimate(state, row.mark, of, seconds_left(groups, of, datetime.now(UTC)))


def seconds_left(groups: Sequence[GroupTiming], of: int, now: datetime) -> float | None:
    """Returns the estimated time until the last window is committed, at the pace of the newest
    commit groups; None if no pace is known.

    Args:
        groups: commit groups, newest first.
        of: number of windows of the replay.
        now: current time.
    """
    windows = 0
    seconds = 0.0
    for later, earlier in pairwise(groups):
        # The time between two attempts is not the pace of a group.
        if later.epoch == earlier.epoch:
            windows += later.mark - earlier.mark
            seconds += (later.reported_at - earlier.reported_at).total_seconds()
    if not windows and groups:
        # The first group of the first attempt has no earlier one to measure from.
        newest = groups[-1]
        windows = newest.mark
        seconds = sum(newest.timings.get(step, 0.0) for step in ("compute", "commit"))
    if not windows or not seconds:
        return None
    since = (now - groups[0].reported_at).total_seconds()
    return max((of - groups[0].mark) * seconds / windows - since, 0.0)
