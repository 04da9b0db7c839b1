"""The calendar: where windows lie, and what colours they get."""

from __future__ import annotations

import json
import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rewindow.pages.calendar import (
    COLUMNS_MAX,
    LEVELS,
    cell_values,
    draw_calendar,
    place_windows,
    thresholds,
)
from rewindow.pages.replay_report import Layer
from rewindow.windows import Grid, WindowRange

widths_ms = st.sampled_from(
    [100, 250, 500, 1_000, 5_000, 60_000, 600_000, 3_600_000, 86_400_000, 7_000]
)
ranges = st.builds(
    lambda first, length: WindowRange(first, first + length - 1),
    st.integers(0, 10**7),
    st.integers(1, 5_000),
)


def layer(values: list[float | None], total: bool = True) -> Layer:
    return Layer("x", "X", "things", tuple(values), total)


@given(widths_ms, ranges)
def test_calendar_shows_every_window_in_order_in_a_limited_number_of_columns(
    width_ms: int,
    windows: WindowRange,
) -> None:
    cells = place_windows(Grid(width_ms), windows)
    assert len(cells.place) == len(windows)
    assert (np.diff(cells.place) >= 0).all()
    assert 0 <= cells.place[0] < cells.rows and cells.place[-1] < cells.columns * cells.rows
    assert cells.columns <= COLUMNS_MAX + 2


@given(ranges, st.data())
def test_calendar_totals_are_preserved_if_windows_share_cells(
    windows: WindowRange,
    data: st.DataObject,
) -> None:
    width_ms = data.draw(widths_ms)
    values = [float(window % 7) if window % 5 else None for window in windows]
    cells = place_windows(Grid(width_ms), windows)
    found = cell_values(cells, layer(values))
    assert np.nansum(found) == sum(value for value in values if value is not None)


def test_calendar_of_hourly_windows_over_a_year_has_columns_of_days() -> None:
    cells = place_windows(Grid(3_600_000), WindowRange(376_954, 385_709))
    assert (cells.columns, cells.rows) == (366, 24)
    assert len(set(cells.place.tolist())) == 8_756


def test_calendar_shapes_cover_exactly_the_area_of_the_windows() -> None:
    windows = WindowRange(24 * 100 + 3, 24 * 190 + 20)
    values: list[float | None] = [None if w % 11 == 0 else float(w % 9) for w in windows]
    calendar = draw_calendar(Grid(3_600_000), windows, [layer(values), layer(values, total=False)])
    cells = place_windows(Grid(3_600_000), windows)
    for drawn in calendar.layers:
        areas = re.findall(r"h(\d+)v(\d+)h-", "".join(path for _, path in drawn.paths))
        assert sum(int(w) * int(h) for w, h in areas) == len(windows) * cells.width * cells.height


@given(st.lists(st.floats(-1e6, 1e6).map(lambda value: round(value, 1)), min_size=1, max_size=200))
def test_color_thresholds_ascend_from_the_smallest_value(values: list[float]) -> None:
    bounds = thresholds(np.array(values))
    assert bounds == sorted(set(bounds)) and len(bounds) <= LEVELS
    assert bounds[0] <= min(values)


def test_script_content_cannot_close_its_element() -> None:
    odd = Layer("x", "</script><b>", "things", (1.0,))
    text = draw_calendar(Grid(3_600_000), WindowRange(1, 1), [odd]).script
    assert "<" not in text and json.loads(text)["layers"][0]["label"] == "</script><b>"
