"""Cells of a strip: the state that needs attention most, the counts, and the replays."""

from __future__ import annotations

import numpy as np
import pytest

from rewindow.errors import TableError
from rewindow.inspection.coverage import Ranges, StreamCoverage, WindowState
from rewindow.ledger.publication_rows import StandingRange
from rewindow.pages.levels import Unit, View
from rewindow.pages.strips import draw_strip, view_of
from rewindow.windows import Grid, WindowRange, parse_time

HOURS = Grid(3_600_000)
FIRST = HOURS.window(parse_time("2013-01-01"))
NAMES = frozenset({"old", "new", "next"})


def ranges(*bounds: tuple[int, int]) -> Ranges:
    return np.array(bounds, dtype=np.int64).reshape(-1, 2) + FIRST


def part(number: int, replay_id: str, first: int, last: int) -> StandingRange:
    return StandingRange(number, replay_id, WindowRange(FIRST + first, FIRST + last))


OUTPUT = StreamCoverage(
    "app.out",
    HOURS,
    windows={
        WindowState.PUBLISHED: ranges((0, 71), (80, 767)),
        WindowState.EMPTY: ranges((24, 47)),
        WindowState.MISSING: ranges((72, 79)),
        WindowState.LATE: ranges(),
        WindowState.LOST: ranges((75, 75), (100, 100)),
        WindowState.STALE: ranges((96, 101)),
        WindowState.IN_PROGRESS: ranges((700, 791)),
    },
    published=[part(1, "old", 0, 500), part(2, "new", 501, 767)],
    in_progress=[part(0, "next", 700, 791)],
)


def test_cell_has_the_state_that_needs_attention_most() -> None:
    view = view_of([OUTPUT])
    assert view is not None and view.unit is Unit.DAY
    strip = draw_strip(OUTPUT, view, NAMES)
    cells = strip.cells
    assert [str(cell.state) for cell in cells[:6]] == [
        "published",
        "empty",
        "published",
        "lost",
        "lost",
        "published",
    ]
    assert cells[3].words == "1 lost, 8 missing, 16 published; published by old"
    assert cells[4].words == "1 lost, 6 stale, 24 published; published by old"
    assert cells[20].words == "24 published; published by new, old"
    assert (cells[19].replay, cells[20].replay, cells[21].replay) == ("old", "", "new")
    last = cells[-1]
    assert (last.state, last.replay) == (WindowState.IN_PROGRESS, "next")
    assert last.words == "24 in progress; in progress: next"
    assert strip.words.startswith("2 lost, 8 missing, 6 stale, 92 in progress, 736 published")
    assert sum(len(cell.windows) for cell in cells) == 33 * 24


def test_names_of_replays_are_hidden_from_readers_without_rights() -> None:
    view = view_of([OUTPUT])
    assert view is not None
    cells = draw_strip(OUTPUT, view, frozenset({"new"})).cells
    assert cells[0].words == "24 published; published by 1 replays"
    assert cells[0].replay == ""
    assert cells[20].words == "24 published; published by new, 1 others"


def test_runs_are_consecutive_windows_of_the_same_state_and_replay() -> None:
    view = View.over(HOURS.start_us(FIRST + 490), HOURS.start_us(FIRST + 510), HOURS.width_us)
    assert view.unit is Unit.WINDOW
    runs = draw_strip(OUTPUT, view, NAMES).runs()
    found = [(run[0].replay, run[0].windows.first, run[-1].windows.last) for run in runs]
    assert found == [("old", FIRST + 480, FIRST + 500), ("new", FIRST + 501, FIRST + 527)]


def test_view_ignores_unreadable_streams_and_windows_without_a_time() -> None:
    broken = StreamCoverage("broken", problem=TableError("damaged"))
    assert view_of([broken]) is None
    view = view_of([broken, OUTPUT])
    assert view is not None
    assert not draw_strip(broken, view, NAMES).cells
    wild = StreamCoverage("wild", HOURS, windows={WindowState.SEALED: ranges((0, 1 << 61))})
    assert view_of([wild]) is not None


def test_many_rows_have_longer_cells() -> None:
    year = StreamCoverage("year", HOURS, windows={WindowState.SEALED: ranges((0, 365 * 24 - 1))})
    few, many = view_of([year]), view_of([year] * 50)
    assert few is not None and many is not None
    assert (few.unit, many.unit) == (Unit.DAY, Unit.MONTH)
    opened = view_of([year] * 50, *many.cells(HOURS).starts_us[:2].tolist())
    assert opened is not None and opened.unit is Unit.DAY


@pytest.mark.parametrize("days", [1, 31, 3_000])
def test_all_rows_share_the_axis(days: int) -> None:
    minutes = Grid(60_000)
    begin_us = parse_time("2013-01-01")
    view = View.over(begin_us, begin_us + days * 86_400_000_000, minutes.width_us)
    for grid in (minutes, HOURS):
        starts = view.cells(grid).starts_us
        assert (starts[0], starts[-1]) == (view.begin_us, view.end_us)
