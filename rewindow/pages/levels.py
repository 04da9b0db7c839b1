"""Divides a range of time into cells: years, months, days and shorter units down to windows.

All rows of a page have one view, so that their cells line up. A view has few cells, and each cell
opens another view with a shorter unit. Pure functions: windows are ranges, never an object per
window.

    view = View.over(begin_us, end_us, grid.width_us)
    sealed = view.cells(grid).count_ranges(ranges)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rewindow.errors import InputError
from rewindow.windows import Grid, WindowRange, format_time

CELLS_MAX = 2_000
"""Largest number of cells of a view in one row."""
CELLS_WANTED = 400
"""A view has the shortest unit with at most this number of cells. More cells would be too narrow to
select."""
BEGIN_US, END_US = -62_135_596_800_000_000, 253_370_764_800_000_000
"""The years 1 to 9998, for which Python has times, also for the end of a view."""
_AXIS_MAX = 62
_AXIS_CHARACTERS = 60
"""Number of characters for which the axis has room on a narrow screen."""
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND

Numbers: TypeAlias = npt.NDArray[np.int64]


class Unit(StrEnum):
    """The duration of a cell."""

    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    MINUTE = "minute"
    SECOND = "second"
    WINDOW = "window"


class _Calendar(NamedTuple):
    """The code of a unit in NumPy, its shortest length, and its label as a part of a time."""

    code: str
    length_us: int
    label: slice


_CALENDAR = {
    Unit.YEAR: _Calendar("Y", 365 * _DAY, slice(4)),
    Unit.MONTH: _Calendar("M", 28 * _DAY, slice(7)),
    Unit.DAY: _Calendar("D", _DAY, slice(10)),
    Unit.HOUR: _Calendar("h", 3600 * _SECOND, slice(11, 16)),
    Unit.MINUTE: _Calendar("m", 60 * _SECOND, slice(11, 16)),
    Unit.SECOND: _Calendar("s", _SECOND, slice(11, 19)),
}
"""Units of the calendar, from the longest to the shortest."""


@dataclass(frozen=True)
class LevelCells:
    """Consecutive cells of one row.

    Attributes:
        first_windows: first window of each cell, then the first window after the last cell.
        starts_us: start of each cell, then the end of the last one.
    """

    first_windows: Numbers
    starts_us: Numbers

    def range_of(self, index: int) -> WindowRange:
        """Returns the windows of a cell.

        Raises:
            RangeError: no window starts in it.
        """
        first = int(self.first_windows[index])
        after = int(self.first_windows[index + 1])
        return WindowRange(first, after - 1)

    def count_ranges(self, ranges: Numbers) -> Numbers:
        """Returns how many windows of ascending, disjoint ranges are in each cell.

        Args:
            ranges: a row for each range, with its first and its last window.
        """
        if not len(ranges):
            return np.zeros_like(self.first_windows[1:])
        firsts = ranges[:, 0]
        afters = ranges[:, 1] + 1
        before = np.append(0, np.cumsum(afters - firsts))
        # For each border, the windows of the ranges that start before it, less those of the last
        # such range that are not before it.
        index = np.searchsorted(firsts, self.first_windows)
        beyond = afters[index - 1] - self.first_windows
        beyond = np.where(index > 0, beyond, 0)
        counted = before[index] - np.maximum(beyond, 0)
        return np.diff(counted)


@dataclass(frozen=True)
class View:
    """A range of time, divided by a unit. It starts and ends with a whole unit of the calendar.

    Attributes:
        begin_us, end_us: the range, half-open.
        unit: duration of a cell.
        window_us: width of the shortest windows in the view.
    """

    begin_us: int
    end_us: int
    unit: Unit
    window_us: int

    @classmethod
    def over(
        cls,
        begin_us: int,
        end_us: int,
        window_us: int,
        wanted: int = CELLS_WANTED,
    ) -> View:
        """Returns the view of a range of time. Its unit is the shortest one that results in few
        cells; windows are also chosen if the range has a single cell otherwise.

        Args:
            begin_us, end_us: the range, half-open.
            window_us: width of the shortest windows to show.
            wanted: largest number of cells.

        Raises:
            InputError: the range is empty, or not in the years 1 to 9998.

        >>> day_us = 86_400_000_000
        >>> [str(View.over(0, days * day_us, 60_000_000).unit) for days in (1, 31, 800, 5000)]
        ['hour', 'day', 'month', 'month']
        """
        if not BEGIN_US <= begin_us < end_us <= END_US:
            raise InputError(
                f"time range from {format_time(begin_us)} to {format_time(end_us)} cannot be shown",
                hint="Its end must be after its start, and its years from 1 to 9998.",
            )
        span_us = end_us - begin_us
        unit = Unit.YEAR
        has_few_windows = span_us // window_us <= wanted
        for shorter in _fitting(span_us):
            is_few = has_few_windows or _count(shorter, begin_us, end_us) <= wanted
            if is_few and _CALENDAR[shorter].length_us > window_us:
                unit = shorter
        begin_us, end_us = _whole(unit, begin_us, end_us)
        if has_few_windows or _count(unit, begin_us, end_us) == 1:
            unit = Unit.WINDOW
        return cls(begin_us, end_us, unit, window_us)

    def cells(self, grid: Grid) -> LevelCells:
        """Returns the cells of a row whose windows have the given grid.

        A window belongs to the cell in which it starts. A row of windows that are wider than the
        unit has a cell for each window.
        """
        first = (self.begin_us - grid.origin_us) // grid.width_us
        last = (self.end_us - 1 - grid.origin_us) // grid.width_us
        if self.unit is Unit.WINDOW or grid.width_us >= _CALENDAR[self.unit].length_us:
            firsts = np.arange(first, last + 2, dtype=np.int64)
            starts = firsts * grid.width_us + grid.origin_us
            return LevelCells(firsts, starts.clip(self.begin_us, self.end_us))
        starts = _starts(self.unit, self.begin_us, self.end_us)
        firsts = -((grid.origin_us - starts) // grid.width_us)
        return LevelCells(firsts, starts)

    def around(self) -> list[tuple[str, int, int]]:
        """Returns the units that contain the view, from the longest, with their label, start and
        end.
        """
        found = []
        for unit in _fitting(self.end_us - self.begin_us):
            if _count(unit, self.begin_us, self.end_us) == 1:
                begin_us, end_us = _whole(unit, self.begin_us, self.end_us)
                words = label(unit, begin_us)
                found.append((words, begin_us, end_us))
        return found

    def neighbours(self) -> list[tuple[int, int]]:
        """Returns the ranges before and after the view: the neighbouring units of the calendar if
        the view is one of them, otherwise ranges of the same length.
        """
        span_us = self.end_us - self.begin_us
        for unit in _fitting(span_us):
            starts = _starts(unit, self.begin_us, self.end_us)
            if starts.tolist() == [self.begin_us, self.end_us]:
                before = _whole(unit, self.begin_us - 1, self.begin_us)
                after = _whole(unit, self.end_us, self.end_us + 1)
                return [before, after]
        before = (self.begin_us - span_us, self.begin_us)
        after = (self.end_us, self.end_us + span_us)
        return [before, after]

    def axis(self) -> list[tuple[int, int, str]]:
        """Returns the parts of the axis: the shortest unit that is not shorter than a cell and has
        few parts. Each part has its start, its end, and a label; the label is empty where it would
        not fit.
        """
        unit = Unit.YEAR
        for shorter in _fitting(self.end_us - self.begin_us):
            count = _count(shorter, self.begin_us, self.end_us)
            if count <= _AXIS_MAX and _CALENDAR[shorter].length_us >= self.window_us:
                unit = shorter
            if shorter is self.unit:
                break
        starts = _starts(unit, self.begin_us, self.end_us)
        starts = starts.clip(self.begin_us, self.end_us)
        parts = list(pairwise(starts.tolist()))
        axis = []
        for index, ends in enumerate(parts):
            # The year of a day is in the heading of the view.
            words = label(unit, ends[0])
            if unit is Unit.DAY:
                words = words[5:]
            every = -(-len(parts) * len(words) // _AXIS_CHARACTERS)
            is_labelled = index % every == 0
            has_room = is_labelled and index + every <= len(parts)
            axis.append((*ends, words if has_room else ""))
        return axis


def label(unit: Unit, t_us: int) -> str:
    """Returns the label of a unit that starts at a time.

    >>> label(Unit.MONTH, 1357016400000000), label(Unit.HOUR, 1357016400000000)
    ('2013-01', '05:00')
    """
    return format_time(t_us)[_CALENDAR[unit].label]


def _fitting(span_us: int) -> list[Unit]:
    """Returns the units, from the longest, of which a range of time has at most CELLS_MAX. Years
    are always one of them.
    """
    units = [Unit.YEAR]
    for unit, calendar in _CALENDAR.items():
        if span_us <= CELLS_MAX * calendar.length_us and unit not in units:
            units.append(unit)
    return units


def _starts(unit: Unit, begin_us: int, end_us: int) -> Numbers:
    """Returns the starts of the units that contain a range of time, and the end of the last one.

    A range of more than CELLS_MAX years has cells of several years.
    """
    code = f"datetime64[{_CALENDAR[unit].code}]"
    edges = np.array([begin_us, end_us - 1]).astype("datetime64[us]")
    first, last = edges.astype(code).astype(np.int64).tolist()
    step = 1
    if unit is Unit.YEAR:
        step += (last - first) // CELLS_MAX
    starts = np.arange(first, last + 1 + step, step, dtype=np.int64)
    times = starts.astype(code).astype("datetime64[us]")
    return times.astype(np.int64)


def _count(unit: Unit, begin_us: int, end_us: int) -> int:
    return len(_starts(unit, begin_us, end_us)) - 1


def _whole(unit: Unit, begin_us: int, end_us: int) -> tuple[int, int]:
    """Returns a range of time extended to whole units."""
    starts = _starts(unit, begin_us, end_us)
    return int(starts[0]), int(starts[-1])
