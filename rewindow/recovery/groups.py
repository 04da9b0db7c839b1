"""Where commit groups end and checkpoints fall (docs/rules/windows_and_checkpoints.md section 5,
W51).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from rewindow.application import Mode

GROWTH_MAX = 4.0
_SMALLER = 1.5
"""A group that is smaller by less tells nothing: chance outweighs it."""


@dataclass(frozen=True)
class CheckpointSchedule:
    """The windows after which a checkpoint falls due.

    Attributes:
        distance: D, windows from one due checkpoint of the application to the next (W42).
        multiple: K, a checkpoint waits for the next multiple of it (W45, W46). The operators of a
            container are saved together, so this is the least common multiple of theirs.
    """

    distance: int
    multiple: int = 1

    def is_due(self, window: int) -> bool:
        """Returns whether a checkpoint falls after a window: ordinals count from 1, across restarts
        (W43, X7).

        >>> [window for window in range(20) if CheckpointSchedule(6).is_due(window)]
        [5, 11, 17]
        >>> [window for window in range(30) if CheckpointSchedule(6, 5).is_due(window)]
        [9, 14, 19, 24, 29]
        """
        ordinal = window + 1
        return (
            ordinal % self.multiple == 0
            and ordinal // self.distance * self.distance > ordinal - self.multiple
        )

    @property
    def gap_max(self) -> int:
        """The most windows between two checkpoints: they fall due D apart, and each waits for the
        next multiple of K.

        >>> [CheckpointSchedule(*sizes).gap_max for sizes in ((6,), (6, 5), (1, 4))]
        [6, 10, 4]
        """
        return self.multiple * -(-self.distance // self.multiple)

    def next_due(self, window: int) -> int:
        """Returns the first window at or after a given one after which a checkpoint falls."""
        ordinal = window + 1
        asked = ordinal // self.distance * self.distance
        while True:
            due = -(-asked // self.multiple) * self.multiple
            if due >= ordinal:
                return due - 1
            asked += self.distance


def next_end(
    first: int,
    last: int,
    size: int,
    mode: Mode,
    schedule: CheckpointSchedule,
    cuts: Iterable[int] = (),
) -> int:
    """Returns the last window of the commit group that begins at a window.

    A group never reaches past a due checkpoint where the mode has a schedule, past a cut, or past
    the end of the range.

    Args:
        first: the group's first window.
        last: the range's last window.
        size: windows wished for, at least 1.
        cuts: windows where a group must end, such as the mark of a table that is ahead of the
            checkpoint.
    """
    ends = [first + max(size, 1) - 1, last, *(cut for cut in cuts if cut >= first)]
    if not mode.saves_every_group:
        ends.append(schedule.next_due(first))
    return min(ends)


@dataclass
class GroupSizer:
    """Chooses how many windows the next group takes, so that one takes about a target time.

    A group costs something whatever its size. Where a smaller group took hardly less time, no group
    after it is as small: that would only pay the same more often.

    Attributes:
        fixed: a fixed number instead, or None.
        target_seconds: wished duration of a group.
        size: present choice, in windows.
        size_max: most windows of a group, None without a bound.
    """

    fixed: int | None
    target_seconds: float
    size: int = 64
    size_max: int | None = None
    _last: tuple[int, float] = field(default=(0, 0.0), init=False, repr=False)
    _least: tuple[int, float] = field(default=(1, math.inf), init=False, repr=False)

    def __post_init__(self) -> None:
        self.size = self._bounded(self.fixed or max(1, self.size))

    def took(self, windows: int, seconds: float) -> None:
        """Learns from a group: grows or shrinks towards the target, at most fourfold at a time."""
        if self.fixed or windows < 1:
            return
        seconds = max(seconds, 0.05)
        before, took = self._last
        if windows * _SMALLER <= before and seconds > took * (1 + windows / before) / 2:
            # It should have saved more than half of what the lacking windows had cost.
            self._least = self._last
        elif seconds > 2 * self._least[1]:
            # The machine has become slower: what was learnt does not hold.
            self._least = (1, math.inf)
        self._last = windows, seconds
        wanted = max(windows * self.target_seconds / seconds, self._least[0])
        self.size = self._bounded(
            max(1, int(min(max(wanted, self.size / GROWTH_MAX), self.size * GROWTH_MAX)))
        )

    def _bounded(self, size: int) -> int:
        return size if self.size_max is None else min(size, self.size_max)
