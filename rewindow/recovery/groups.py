"""Chooses where commit groups end, and after which windows checkpoints are saved.

A commit group is a run of consecutive windows that is computed and committed together. Longer
groups spread the fixed cost of a commit over more windows; shorter ones lose less work in a crash.

Rules: W51 (docs/rules/windows_and_checkpoints.md section 5)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rewindow.application import Mode

GROWTH_MAX = 4.0
_LARGER = 1.5
"""Two groups are compared only if their sizes differ by at least this factor; below it, noise in
the timings outweighs the difference."""
_IN_LINE = 2.0
"""A group counts as an outlier if its time differs by more than this factor from the group before.
"""
_PER_FIXED = 4.0
"""A group takes at least this many times as long as the fixed cost of a group."""
_LEAST_SECONDS = 1e-9
"""Lower bound for the seconds per window, to avoid a division by zero."""


@dataclass(frozen=True)
class CheckpointSchedule:
    """The windows after which a checkpoint is due.

    Attributes:
        distance: D, windows from one due checkpoint of the application to the next.
        multiple: K, each checkpoint is postponed to the next multiple of K windows. The operators
            of a container are saved together, so K is the least common multiple of their settings.

    Rules: W42, W45, W46
    """

    distance: int
    multiple: int = 1

    def is_due(self, window: int) -> bool:
        """Returns whether a checkpoint is due after a window.

        `window` is an index that starts at 0 and continues across restarts.

        Rules: W43, X7

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
        """Returns the largest number of windows between two checkpoints: D, rounded up to a
        multiple of K.

        >>> [CheckpointSchedule(*sizes).gap_max for sizes in ((6,), (6, 5), (1, 4))]
        [6, 10, 4]
        """
        return self.multiple * -(-self.distance // self.multiple)

    def next_due(self, window: int) -> int:
        """Returns the first window at or after the given one after which a checkpoint is due."""
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
    """Returns the last window of the commit group that starts at `first`.

    A group ends at the latest at the end of the range or at a cut. If the mode saves checkpoints by
    a schedule, it also ends at a due checkpoint.

    Args:
        first: the group's first window.
        last: the range's last window.
        size: preferred number of windows, at least 1.
        mode: recovery mode of the container.
        schedule: when checkpoints are due, for a mode that does not save every group.
        cuts: windows where a group must end, such as the mark of a table that is ahead of the
            checkpoint.
    """
    ends = [first + max(size, 1) - 1, last, *(cut for cut in cuts if cut >= first)]
    if not mode.saves_every_group:
        ends.append(schedule.next_due(first))
    return min(ends)


@dataclass
class GroupSizer:
    """Chooses the number of windows of the next group, so that a group takes about a target time.

    The model of a group's time is `a + b * windows`: `a` is the fixed cost of a group and `b` the
    cost of a window. Both are computed from the last groups of two different sizes. If `a` would
    exceed a quarter of a group's time, groups become larger than the target time asks for. A single
    outlier (a group of the same size as the one before that takes far longer) is ignored, because
    one of its windows may be slow. Two in a row mean that the machine has become slower, so `a` and
    `b` are scaled by the same factor.

    Attributes:
        fixed: a fixed group size in windows, None to adapt it.
        target_seconds: preferred duration of a group.
        size: current group size, in windows.
        size_max: upper bound of the size, None without a bound.
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
        """Records the duration of a group and adapts the size of the next group, at most by a
        factor of 4.
        """
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
        """Returns the preferred size of the next group, before limits are applied."""
        if self._other is not None and not last.is_as_large_as(self._other):
            fixed, each = _line(last, self._other)
            return max((self.target_seconds - fixed) / each, (_PER_FIXED - 1) * fixed / each)
        # The fixed cost cannot be derived from groups of one size, so the size is not reduced
        # yet. After two groups of the same size another one is tried: a larger one, unless these
        # groups took much too long.
        if is_repeated and last.seconds > GROWTH_MAX * self.target_seconds:
            return last.windows / 2
        larger = 2.0 if is_repeated else self.target_seconds / last.seconds
        return max(self.size, last.windows * larger)

    def _bounded(self, size: int) -> int:
        return size if self.size_max is None else min(size, self.size_max)


@dataclass(frozen=True)
class _Group:
    """The size and the duration of a committed group."""

    windows: int
    seconds: float

    def is_as_large_as(self, other: _Group) -> bool:
        """Returns whether the sizes of two groups are too similar to derive the cost of a
        window.
        """
        larger = max(self.windows, other.windows)
        return larger < _LARGER * min(self.windows, other.windows)


def _line(one: _Group, other: _Group) -> tuple[float, float]:
    """Returns `a` and `b` of the line through two groups.

    >>> _line(_Group(100, 3), _Group(400, 6))
    (2.0, 0.01)
    """
    # Noise can make one of the two negative. It is set to 0, and the other explains all the time.
    slope = (one.seconds - other.seconds) / (one.windows - other.windows)
    each = min(max(slope, _LEAST_SECONDS), one.seconds / one.windows)
    return one.seconds - each * one.windows, each
