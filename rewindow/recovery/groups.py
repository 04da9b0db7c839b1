"""Where commit groups end and checkpoints fall (docs/rules/windows_and_checkpoints.md section 5,
W51).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rewindow.application import Mode

GROWTH_MAX = 4.0
_LARGER = 1.5
"""Groups whose sizes differ by a smaller factor show nothing: chance outweighs it."""
_IN_LINE = 2.0
"""A group is out of line if its time is further off by this factor."""
_PER_FIXED = 4.0
"""A group takes at least this many times what every group costs whatever its size."""
_LEAST_SECONDS = 1e-9
"""Seconds that a window takes at least, so that one can divide by them."""


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

    The time of a group is `a + b * windows`, by the last groups of two sizes. Where `a`, which each
    group costs, would exceed a quarter of a group's time, groups are larger than the target time
    asks for. A single group that takes far longer than the one before it, of the same size, changes
    nothing: one of its windows may take long. Two in a row show that the machine has become slower,
    and then `a` and `b` change alike.

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
    _last: _Group | None = field(default=None, init=False, repr=False)
    _other: _Group | None = field(default=None, init=False, repr=False)
    _is_out_of_line: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        self.size = self._bounded(self.fixed or max(1, self.size))

    def took(self, windows: int, seconds: float) -> None:
        """Learns from a group: grows or shrinks towards the target, at most fourfold at a time."""
        if self.fixed or windows < 1:
            return
        group = _Group(windows, max(seconds, 0.05))
        last = self._last
        is_repeated = last is not None and group.is_as_large_as(last)
        if last is None or not is_repeated:
            self._other = last
            self._last = group
        else:
            change = group.seconds / last.seconds
            self._is_out_of_line = (
                not 1 / _IN_LINE <= change <= _IN_LINE and not self._is_out_of_line
            )
            if self._is_out_of_line:
                return
            self._last = group
            if self._other is not None:
                self._other = replace(self._other, seconds=self._other.seconds * change)
        wanted = self._wanted(self._last, is_repeated=is_repeated)
        least = self.size / GROWTH_MAX
        self.size = self._bounded(max(1, int(min(max(wanted, least), self.size * GROWTH_MAX))))

    def _wanted(self, last: _Group, *, is_repeated: bool) -> float:
        """Returns the size that is wished for after a group."""
        if self._other is not None and not last.is_as_large_as(self._other):
            fixed, each = _line(last, self._other)
            return max((self.target_seconds - fixed) / each, (_PER_FIXED - 1) * fixed / each)
        # One size does not show which part of the time is fixed, so it does not become smaller at
        # once. After a second group of it another size is tried: a larger one, unless these groups
        # took much too long.
        if is_repeated and last.seconds > GROWTH_MAX * self.target_seconds:
            return last.windows / 2
        larger = 2.0 if is_repeated else self.target_seconds / last.seconds
        return max(self.size, last.windows * larger)

    def _bounded(self, size: int) -> int:
        return size if self.size_max is None else min(size, self.size_max)


@dataclass(frozen=True)
class _Group:
    """A group that was committed."""

    windows: int
    seconds: float

    def is_as_large_as(self, other: _Group) -> bool:
        """Returns whether two groups are too close in size to show what a window takes."""
        larger = max(self.windows, other.windows)
        return larger < _LARGER * min(self.windows, other.windows)


def _line(one: _Group, other: _Group) -> tuple[float, float]:
    """Returns the `a` and `b` of two groups.

    >>> _line(_Group(100, 3), _Group(400, 6))
    (2.0, 0.01)
    """
    # Neither part is below zero: where noise makes one so, the other part is the whole time.
    slope = (one.seconds - other.seconds) / (one.windows - other.windows)
    each = min(max(slope, _LEAST_SECONDS), one.seconds / one.windows)
    return one.seconds - each * one.windows, each
