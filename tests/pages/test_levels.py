"""Views of time and their cells, against the calendar of Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.errors import InputError
from rewindow.pages.levels import CELLS_MAX, Unit, View, label
from rewindow.windows import Grid, WindowRange, parse_time, to_datetime, to_ranges

DAY_US = 86_400_000_000
times = st.integers(parse_time("1901-01-01"), parse_time("2199-12-31"))
spans = st.one_of(st.integers(1, 4 * DAY_US), st.integers(1, 90 * 366 * DAY_US))
widths = st.sampled_from([1, 700, 60_000, 3_600_000, 86_400_000, 5 * 86_400_000])
grids = st.builds(Grid, widths, st.sampled_from([0, 1_234_567, 43_200_000]))


def start_of(unit: Unit, moment: datetime) -> datetime:
    match unit:
        case Unit.YEAR:
            return datetime(moment.year, 1, 1, tzinfo=UTC)
        case Unit.MONTH:
            return datetime(moment.year, moment.month, 1, tzinfo=UTC)
    length = timedelta(**{f"{unit}s": 1})
    return moment - (moment - datetime(1900, 1, 1, tzinfo=UTC)) % length


@given(times, spans, grids)
def test_view_covers_its_range_with_whole_units_in_few_cells(
    begin_us: int, span_us: int, grid: Grid
) -> None:
    view = View.over(begin_us, begin_us + span_us, grid.width_us)
    assert view.begin_us <= begin_us < begin_us + span_us <= view.end_us
    cells = view.cells(grid)
    assert 2 <= len(cells.starts_us) <= CELLS_MAX + 1
    assert cells.starts_us[0] == view.begin_us and cells.starts_us[-1] == view.end_us
    assert (np.diff(cells.starts_us) > 0).all() and (np.diff(cells.first_windows) >= 0).all()
    if cells.starts_us[1] - cells.starts_us[0] <= grid.width_us:
        assert (np.diff(cells.first_windows) == 1).all()
        return
    for start_us in cells.starts_us.tolist():
        moment = to_datetime(start_us)
        assert start_of(view.unit, moment) == moment


@given(times, spans, grids)
def test_cell_opens_a_view_with_shorter_cells(begin_us: int, span_us: int, grid: Grid) -> None:
    view = View.over(begin_us, begin_us + span_us, grid.width_us)
    order = list(Unit)
    while view.unit is not Unit.WINDOW:
        starts = view.cells(Grid(1)).starts_us
        following = View.over(int(starts[0]), int(starts[1]), grid.width_us)
        assert order.index(following.unit) > order.index(view.unit)
        view = following


@given(times, spans, grids, st.sets(st.integers(-50, 2_000)), st.data())
def test_windows_are_counted_in_the_cell_in_which_they_start(
    begin_us: int, span_us: int, grid: Grid, offsets: set[int], data: st.DataObject
) -> None:
    view = View.over(begin_us, begin_us + span_us, grid.width_us)
    cells = view.cells(grid)
    first = int(cells.first_windows[0])
    step = data.draw(st.sampled_from([1, 7, max(1, int(cells.first_windows[-1] - first) // 1_500)]))
    ids = np.array(sorted(first + offset * step for offset in offsets), dtype=np.int64)
    expected = [0] * (len(cells.starts_us) - 1)
    for window in ids.tolist():
        for index in range(len(cells.starts_us) - 1):
            if cells.first_windows[index] <= window < cells.first_windows[index + 1]:
                expected[index] += 1
    ranges = np.array([(part.first, part.last) for part in to_ranges(ids)], dtype=np.int64)
    assert cells.count_ranges(ranges).tolist() == expected
    for index, count in enumerate(expected):
        if count:
            windows = cells.range_of(index)
            assert sum(window in windows for window in ids.tolist()) == count


def test_view_of_two_years_of_minutes_opens_down_to_the_window() -> None:
    view = View.over(parse_time("2013-01-01"), parse_time("2014-11-26"), 60_000_000)
    units = [view.unit]
    for index in (2, 30, 5):
        starts = view.cells(Grid(60_000)).starts_us.tolist()
        view = View.over(starts[index], starts[index + 1], 60_000_000)
        units.append(view.unit)
    assert units == [Unit.MONTH, Unit.DAY, Unit.HOUR, Unit.WINDOW]
    assert [words for words, _, _ in view.around()] == ["2013", "2013-03", "2013-03-31", "05:00"]
    hour = [tuple(map(label, (Unit.HOUR, Unit.HOUR), pair)) for pair in view.neighbours()]
    assert hour == [("04:00", "05:00"), ("06:00", "07:00")]
    window = parse_time("2013-03-31T05:07") // 60_000_000
    assert view.cells(Grid(60_000)).range_of(7) == WindowRange(window, window)


def test_months_have_neighbours_of_other_lengths() -> None:
    view = View.over(parse_time("2013-03-01"), parse_time("2013-04-01"), 3_600_000_000)
    before, after = view.neighbours()
    assert before == (parse_time("2013-02-01"), parse_time("2013-03-01"))
    assert after == (parse_time("2013-04-01"), parse_time("2013-05-01"))
    assert [words for _, _, words in view.axis()][:3] == ["03-01", "", ""]


def test_wide_windows_are_cells_in_a_view_of_short_ones() -> None:
    view = View.over(0, 31 * DAY_US, 60_000_000)
    assert view.unit is Unit.DAY
    assert len(view.cells(Grid(60_000)).starts_us) == 32
    cells = view.cells(Grid(5 * 86_400_000))
    assert (np.diff(cells.first_windows) == 1).all() and len(cells.starts_us) == 8


@pytest.mark.parametrize("ends", [(5, 5), (5, 4), (parse_time("0001-01-01") - 1, 0), (0, 1 << 60)])
def test_view_of_an_impossible_range_is_rejected(ends: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="cannot be shown"):
        View.over(*ends, 1_000_000)
