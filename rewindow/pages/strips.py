"""Places the windows of a stream or an output into the cells of a view.

A cell has that state of its windows which needs attention most, and all counts in words. Pure: the
template `strips.html` draws the cells.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from typing import NamedTuple

import numpy as np

from rewindow.inspection.coverage import StreamCoverage, WindowState
from rewindow.ledger.publication_rows import StandingRange
from rewindow.pages.levels import BEGIN_US, CELLS_WANTED, END_US, View
from rewindow.windows import WindowRange

_NAMES_MAX = 3
_PAGE_CELLS_MAX = 3_000
_ROW_CELLS_MIN = 62


class Cell(NamedTuple):
    """A cell of a strip.

    Attributes:
        words: the number of its windows in each state, and the replays.
        replay: the only replay that has published its windows, or may still publish them; empty if
            there are several, or the reader may not see it.
    """

    begin_us: int
    end_us: int
    windows: WindowRange
    state: WindowState
    words: str
    replay: str


class Strip(NamedTuple):
    """The cells of a stream or an output that have windows. `words` counts the windows of all."""

    coverage: StreamCoverage
    cells: Sequence[Cell] = ()
    words: str = ""

    def runs(self) -> list[list[Cell]]:
        """Returns the cells in groups of the same state and replay."""
        runs = []
        for _, group in groupby(self.cells, key=lambda cell: (cell.state, cell.replay)):
            runs.append(list(group))
        return runs


def view_of(
    coverages: Sequence[StreamCoverage],
    begin_us: int | None = None,
    end_us: int | None = None,
) -> View | None:
    """Returns the view of a range of time, by default of all sealed windows and of all replays in
    progress; None if there are none.

    With many rows, the cells are longer, because the time to draw a page grows with their number.

    Raises:
        InputError: the range cannot be shown.
    """
    begins, ends, widths = [], [], []
    for coverage in coverages:
        grid = coverage.grid
        if grid is None:
            continue
        for ranges in coverage.windows.values():
            if len(ranges):
                first, last = ranges[[0, -1], [0, 1]].tolist()
                begins.append(grid.start_us(first))
                ends.append(grid.end_us(last))
                widths.append(grid.width_us)
    if not widths:
        return None
    # A damaged seal may name a window outside of all times that can be shown.
    if begin_us is None:
        begin_us = min(max(min(begins), BEGIN_US), END_US - 1)
    if end_us is None:
        end_us = max(min(max(ends), END_US), begin_us + 1)
    wanted = min(CELLS_WANTED, _PAGE_CELLS_MAX // len(coverages))
    wanted = max(wanted, _ROW_CELLS_MIN)
    return View.over(begin_us, end_us, min(widths), wanted)


def draw_strip(
    coverage: StreamCoverage,
    view: View,
    readable: AbstractSet[str],
) -> Strip:
    """Returns the strip of a stream or an output.

    Args:
        coverage: the state of its windows.
        view: the range of time, and the unit of a cell.
        readable: replays whose names the reader may see.
    """
    if coverage.grid is None:
        return Strip(coverage)
    level = view.cells(coverage.grid)
    counts = {}
    for state in WindowState:
        if state in coverage.windows:
            counts[state] = level.count_ranges(coverage.windows[state])
    counts[coverage.full] -= counts[WindowState.EMPTY]
    states = list(counts)
    table = np.array(list(counts.values()))
    # The states are in the order of attention, so the first one with a window counts.
    first_states = (table > 0).argmax(axis=0).tolist()
    cells = []
    for index in np.flatnonzero(table.any(axis=0)).tolist():
        windows = level.range_of(index)
        words = _counted(states, table[:, index].tolist())
        published = _replays_in(coverage.published, windows)
        in_progress = _replays_in(coverage.in_progress, windows)
        words += _named("published by", published, readable)
        words += _named("in progress:", in_progress, readable)
        named = (in_progress or published) & readable
        replay = min(named) if len(named) == 1 else ""
        cell = Cell(
            begin_us=int(level.starts_us[index]),
            end_us=int(level.starts_us[index + 1]),
            windows=windows,
            state=states[first_states[index]],
            words=words,
            replay=replay,
        )
        cells.append(cell)
    totals = table.sum(axis=1).tolist()
    return Strip(coverage, cells, _counted(states, totals))


def _replays_in(parts: Sequence[StandingRange], windows: WindowRange) -> set[str]:
    begin = bisect_left(
        parts,
        windows.first,
        key=lambda part: part.range.last,
    )
    end = bisect_right(
        parts,
        windows.last,
        key=lambda part: part.range.first,
    )
    return {part.replay_id for part in parts[begin:end]}


def _named(
    what: str,
    replays: set[str],
    readable: AbstractSet[str],
) -> str:
    """Returns replays in words. Those that the reader may not see are only counted."""
    if not replays:
        return ""
    names = sorted(replays & readable)[-_NAMES_MAX:]
    if others := len(replays) - len(names):
        names.append(f"{others:,} {'others' if names else 'replays'}")
    return f"; {what} {', '.join(names)}"


def _counted(states: Sequence[WindowState], counts: Sequence[int]) -> str:
    words = []
    for state, count in zip(states, counts, strict=True):
        if count:
            words.append(f"{count:,} {state}")
    return ", ".join(words) or "no windows"
