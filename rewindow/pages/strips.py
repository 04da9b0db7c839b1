"""Draws the windows of streams and outputs along one time axis, a strip of cells for each.

A cell shows that state of its windows which needs attention most, and all counts in its title.
Pure: the input is the coverage of the streams and a view, the result is values for a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple
from urllib.parse import quote, urlencode

import numpy as np

from rewindow.inspection.coverage import StreamCoverage, as_ranges
from rewindow.pages.levels import BEGIN_US, END_US, LevelCells, Numbers, Unit, View
from rewindow.windows import Grid, WindowRange, format_time

LISTED_MAX = 200
"""Largest number of runs of windows in the list below the strips."""
_NAMES_MAX = 3


class CellState(StrEnum):
    """The states of windows, from the one that needs attention most."""

    LOST = "lost"
    MISSING = "missing"
    STALE = "stale"
    LATE = "late"
    IN_PROGRESS = "in progress"
    PUBLISHED = "published"
    SEALED = "sealed"
    EMPTY = "empty"


LEGEND = {
    CellState.LOST: "given up by a replay in at most once",
    CellState.MISSING: "not sealed, between sealed windows",
    CellState.STALE: "published from inputs or a state that have changed",
    CellState.LATE: "tuples arrived after the window was sealed",
    CellState.IN_PROGRESS: "a replay has not been published yet",
    CellState.PUBLISHED: "visible to readers",
    CellState.SEALED: "recorded to its end",
    CellState.EMPTY: "sealed without a tuple",
}
_STEPS = {
    CellState.LOST: "Replay the windows: rewindow replay {application}",
    CellState.MISSING: "Complete the recording: rewindow record {name}",
    CellState.STALE: "Replay stale windows: rewindow repair",
    CellState.LATE: "Add the late tuples: rewindow record {name} --reopen",
    CellState.IN_PROGRESS: "Next step: see the replay",
    CellState.PUBLISHED: "Why: rewindow why {application} {window}",
    CellState.SEALED: "Tuples: rewindow streams rows {name} {window}",
    CellState.EMPTY: "",
}


class Cell(NamedTuple):
    """A cell of a strip.

    Attributes:
        left, width: its position, in percent of the strip.
        state: None if it has no windows.
    """

    left: float
    width: float
    state: CellState
    title: str
    address: str


@dataclass(frozen=True)
class Strip:
    """The cells of a stream or an output."""

    coverage: StreamCoverage
    cells: Sequence[Cell]
    summary: str


class WindowRun(NamedTuple):
    """Consecutive windows in the same state, for the list of windows."""

    name: str
    windows: WindowRange
    begin: str
    end: str
    state: CellState
    replay: str
    step: str


@dataclass(frozen=True)
class Strips:
    """All strips of a view.

    Attributes:
        axis: parts of the time axis: left, width, label, title, and address.
        crumbs: label and address of the whole range and of the longer units around the view.
        steps: name and address of the neighbouring views.
        runs: in a view of single windows, the windows in words.
    """

    strips: Sequence[Strip]
    axis: Sequence[tuple[float, float, str, str, str]] = ()
    crumbs: Sequence[tuple[str, str]] = ()
    steps: Sequence[tuple[str, str]] = ()
    runs: Sequence[WindowRun] = ()
    caption: str = ""


def whole_view(coverages: Sequence[StreamCoverage]) -> View | None:
    """Returns the view of all sealed windows and of all replays in progress; None if there are
    none.
    """
    begins, ends, widths = [], [], []
    for coverage in coverages:
        if coverage.seals is None or coverage.seals.span is None:
            continue
        grid = coverage.seals.grid
        for part in [coverage.seals.span, *(row.range for row in coverage.in_progress)]:
            begins.append(grid.start_us(part.first))
            ends.append(grid.end_us(part.last))
        widths.append(grid.width_us)
    if not widths:
        return None
    # A damaged seal may name a window outside of all times that can be shown.
    begin_us = min(max(min(begins), BEGIN_US), END_US - 1)
    end_us = max(min(max(ends), END_US), begin_us + 1)
    return View.over(begin_us, end_us, min(widths))


def draw_strips(
    coverages: Sequence[StreamCoverage],
    whole: View,
    view: View,
    readable: AbstractSet[str],
) -> Strips:
    """Returns the strips of a view.

    Args:
        coverages: the streams and outputs, in the order of the rows.
        whole: the view of everything.
        view: the view to draw.
        readable: replays whose names the reader may see.
    """
    strips, runs = [], []
    for coverage in coverages:
        strip, its_runs = _draw(coverage, view, readable)
        strips.append(strip)
        runs += its_runs
    axis = []
    for begin_us, end_us, words in view.axis():
        left, width = _position(view, begin_us, end_us)
        times = f"{format_time(begin_us)} to {format_time(end_us)}"
        axis.append((left, width, words, times, address(begin_us, end_us)))
    crumbs = [("all", "?")]
    if view != whole:
        crumbs += [(words, address(*ends)) for words, *ends in view.around()]
    before, after = view.beside()
    steps = []
    if before[1] > whole.begin_us:
        steps.append(("earlier", address(*before)))
    if after[0] < whole.end_us:
        steps.append(("later", address(*after)))
    times = f"{format_time(view.begin_us)} to {format_time(view.end_us)}"
    return Strips(
        strips, axis, crumbs, steps, runs[:LISTED_MAX], f"{times}; a cell is a {view.unit}"
    )


def address(begin_us: int, end_us: int) -> str:
    """Returns the address of a view, relative to the overview."""
    return "?" + urlencode({"from": format_time(begin_us), "to": format_time(end_us)}, safe=":")


def count_states(coverage: StreamCoverage, cells: LevelCells) -> dict[CellState, Numbers]:
    """Returns the number of windows in each state, for each cell. A window can be in several
    states.
    """
    assert coverage.seals is not None
    seals = coverage.seals
    sealed = cells.count_ranges(seals.sealed)
    empty = cells.count_ranges(seals.empty)
    full = CellState.PUBLISHED if coverage.is_output else CellState.SEALED
    span = as_ranges([seals.span] if seals.span else [])
    in_progress = as_ranges(row.range for row in coverage.in_progress)
    counts = {
        CellState.LOST: cells.count_ranges(coverage.lost),
        CellState.MISSING: cells.count_ranges(span) - sealed,
        CellState.STALE: cells.count_ranges(coverage.stale),
        CellState.LATE: cells.count_ranges(coverage.late),
        CellState.IN_PROGRESS: cells.count_ranges(in_progress),
        full: sealed - empty,
        CellState.EMPTY: empty,
    }
    return {state: counts[state] for state in CellState if state in counts}


def _draw(
    coverage: StreamCoverage,
    view: View,
    readable: AbstractSet[str],
) -> tuple[Strip, list[WindowRun]]:
    """Returns a strip, and in a view of single windows, its windows in words."""
    if coverage.seals is None:
        return Strip(coverage, (), "cannot be read"), []
    grid = coverage.seals.grid
    cells = view.cells(grid)
    counts = count_states(coverage, cells)
    states = list(counts)
    table = np.array(list(counts.values()))
    # The states are in the order of attention, so the first one with a window counts.
    first_state = (table > 0).argmax(axis=0)
    by_cell = _Replays(coverage, readable)
    drawn, rows = [], []
    for index in np.flatnonzero(table.any(axis=0)).tolist():
        windows = cells.range_of(index)
        if windows is None:
            continue
        state = states[first_state[index]]
        begin_us, end_us = cells.starts_us[index : index + 2].tolist()
        numbers = dict(zip(states, table[:, index].tolist(), strict=True))
        words, only = by_cell.of(windows, numbers[CellState.IN_PROGRESS] > 0)
        times = _times(grid, windows)
        title = f"{times[0]} to {times[1]}, {_counted(numbers, len(windows))}{words}"
        place = address(begin_us, end_us)
        if view.unit is Unit.WINDOW:
            place = f"streams/{quote(coverage.name, safe='')}/time"
            if only:
                place = f"replays/{quote(only, safe='')}/page"
            rows.append((state, only, windows))
        drawn.append(Cell(*_position(view, begin_us, end_us), state, title, place))
    totals = {state: int(values.sum()) for state, values in counts.items()}
    return Strip(coverage, drawn, _counted(totals)), _runs(coverage, grid, rows)


def _runs(
    coverage: StreamCoverage,
    grid: Grid,
    rows: Sequence[tuple[CellState, str, WindowRange]],
) -> list[WindowRun]:
    runs = []
    application = coverage.name.rpartition(".")[0]
    for (state, replay), group in groupby(rows, key=lambda row: row[:2]):
        its = [windows for *_, windows in group]
        windows = WindowRange(its[0].first, its[-1].last)
        step = _STEPS[state].format(
            application=application, name=coverage.name, window=windows.first
        )
        runs.append(WindowRun(coverage.name, windows, *_times(grid, windows), state, replay, step))
    return runs


class _Replays:
    """The replays that have published the windows of an output, or would publish them."""

    def __init__(self, coverage: StreamCoverage, readable: AbstractSet[str]) -> None:
        self._coverage = coverage
        self._readable = readable
        ranges = [(act.range.first, act.range.last) for act in coverage.published]
        self._ranges = np.array(ranges, dtype=np.int64).reshape(-1, 2)

    def of(self, windows: WindowRange, is_in_progress: bool) -> tuple[str, str]:
        """Returns the replays of a cell in words, and the only one that the reader may see; empty
        if there are several.
        """
        begin = int(np.searchsorted(self._ranges[:, 1], windows.first))
        end = int(np.searchsorted(self._ranges[:, 0], windows.last, side="right"))
        published = {act.replay_id for act in self._coverage.published[begin:end]}
        in_progress = set()
        if is_in_progress:
            for row in self._coverage.in_progress:
                if row.range.overlap(windows):
                    in_progress.add(row.replay_id)
        words = self._words("published by", published) + self._words("in progress:", in_progress)
        names = (in_progress or published) & self._readable
        return words, min(names) if len(names) == 1 else ""

    def _words(self, what: str, replays: set[str]) -> str:
        if not replays:
            return ""
        names = sorted(replays & self._readable)[-_NAMES_MAX:]
        others = len(replays) - len(names)
        if others:
            names.append(f"{others:,} {'others' if names else 'replays'}")
        return f"; {what} {', '.join(names)}"


def _counted(numbers: dict[CellState, int], count: int = 0) -> str:
    words = [f"{number:,} {state}" for state, number in numbers.items() if number]
    if count == 1:
        return ", ".join(state for state, number in numbers.items() if number)
    listed = ", ".join(words) or "no windows"
    return f"{count:,} windows: {listed}" if count else listed


def _times(grid: Grid, windows: WindowRange) -> tuple[str, str]:
    return format_time(grid.start_us(windows.first)), format_time(grid.end_us(windows.last))


def _position(view: View, begin_us: int, end_us: int) -> tuple[float, float]:
    """Returns start and length of a time range in percent of a view."""
    span = view.end_us - view.begin_us
    return (
        round(100 * (begin_us - view.begin_us) / span, 4),
        round(100 * (end_us - begin_us) / span, 4),
    )
