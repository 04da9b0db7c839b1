"""Draws layers as a calendar. Each day (or hour, or minute) has a column, and each slice of it has
a row.

The colour of a cell represents its value. Pure functions: the input is values, the result is
shapes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rewindow.pages.replay_report import Layer
from rewindow.windows import Grid, WindowRange, to_datetime

COLUMNS_MAX = 400
ROWS_MIN = 12
ROWS_MAX = 48
LEVELS = 6
_LETTER = 8
_SECOND = 1_000_000
_MINUTE = 60_000_000
_HOUR = 3_600_000_000
_DAY = 86_400_000_000
_STEPS = (
    (_SECOND, 10), (10 * _SECOND, 10), (_MINUTE, 12), (10 * _MINUTE, 10), (_HOUR, 12),
    (6 * _HOUR, 12), (_DAY, 24),
    (7 * _DAY, 28), (28 * _DAY, 28), (364 * _DAY, 52),
)  # fmt: skip
"""Possible durations of a column, each with its number of rows."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """The positions of windows in the calendar.

    Attributes:
        column_us, row_us: duration of a column and of a cell.
        begin_us: start of the first column.
        place: for each window, its cell's index: column times rows plus row.
        width, height: size of a cell in pixels.
    """

    columns: int
    rows: int
    column_us: int
    row_us: int
    begin_us: int
    place: npt.NDArray[np.int64]
    width: int
    height: int


@dataclass(frozen=True)
class DrawnLayer:
    """A layer as shapes: one path per level, and a legend of the levels."""

    layer: Layer
    paths: tuple[tuple[str, str], ...]
    legend: tuple[tuple[str, str], ...]
    summary: str


@dataclass(frozen=True)
class Calendar:
    """A calendar as shapes.

    Attributes:
        columns, rows: labels with their position in pixels.
        script: data for the tooltip, as JSON.
    """

    width: int
    height: int
    layers: tuple[DrawnLayer, ...]
    columns: tuple[tuple[int, str], ...]
    rows: tuple[tuple[int, str], ...]
    script: str
    caption: str


def draw_calendar(grid: Grid, windows: WindowRange, layers: Sequence[Layer]) -> Calendar:
    """Returns the calendar of a window range."""
    cells = place_windows(grid, windows)
    values = [cell_values(cells, layer) for layer in layers]
    return Calendar(
        width=cells.columns * cells.width,
        height=cells.rows * cells.height,
        layers=tuple(
            _draw_layer(cells, layer, found) for layer, found in zip(layers, values, strict=True)
        ),
        columns=_column_labels(cells),
        rows=_row_labels(cells),
        script=_script(cells, layers, values),
        caption=f"A column is {_span(cells.column_us)}, a cell {_span(cells.row_us)}; times are "
        "UTC.",
    )


def choose_steps(width_us: int, span_us: int) -> tuple[int, int]:
    """Returns the durations of a column and a cell, so that there are at most COLUMNS_MAX columns
    if possible.

    >>> [step // 1_000_000 for step in choose_steps(3_600_000_000, 365 * 86_400_000_000)]
    [86400, 3600]
    """
    for column_us, rows in _STEPS:
        if column_us >= ROWS_MIN * width_us and span_us <= COLUMNS_MAX * column_us:
            return column_us, width_us if column_us <= ROWS_MAX * width_us else column_us // rows
    column_us = -(-span_us // COLUMNS_MAX // width_us) * width_us
    return max(column_us, width_us), max(column_us, width_us)


def place_windows(grid: Grid, windows: WindowRange) -> Cells:
    """Returns the position of each window of a range."""
    begin = grid.start_us(windows.first)
    end = grid.end_us(windows.last)
    column_us, row_us = choose_steps(grid.width_us, end - begin)
    first = begin // column_us
    starts = np.arange(len(windows), dtype=np.int64) * grid.width_us + begin
    rows = -(-column_us // row_us)
    column = starts // column_us - first
    row = starts % column_us // row_us
    columns = int(column[-1]) + 1
    width = min(max(1100 // columns, 2), 24)
    return Cells(
        columns,
        rows,
        column_us,
        row_us=row_us,
        begin_us=first * column_us,
        place=column * rows + row,
        width=width,
        height=_height(rows),
    )


def cell_values(cells: Cells, layer: Layer) -> Floats:
    """Returns a layer's value for each cell: the sum or the mean of its windows.

    A cell without values has NaN.
    """
    values = np.asarray(layer.values, dtype=np.float64)  # None becomes NaN.
    known = ~np.isnan(values)
    size = cells.columns * cells.rows
    count = np.bincount(cells.place[known], minlength=size)
    total = np.bincount(cells.place[known], weights=values[known], minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = total if layer.total else total / count
    return np.where(count > 0, found, np.nan)


def thresholds(values: Floats) -> list[float]:
    """Returns the lower bounds of the levels: the values if there are only a few, otherwise bounds
    for equal shares of the cells.

    >>> thresholds(np.array([1.0, 1.0, 2.0, 3.0]))
    [1.0, 2.0, 3.0]
    """
    distinct = np.unique(values)
    if len(distinct) <= LEVELS:
        return list(map(float, distinct))
    whole = bool((distinct == np.round(distinct)).all())
    shares = np.quantile(values, np.linspace(0, 1, LEVELS + 1)[:-1])
    bounds = np.unique(np.floor(shares) if whole else np.floor(shares * 10) / 10)
    return list(map(float, bounds))


def _draw_layer(cells: Cells, layer: Layer, values: Floats) -> DrawnLayer:
    known = ~np.isnan(values)
    counted = values[known & (values != 0)] if _counts(layer) else values[known]
    bounds = thresholds(counted) if len(counted) else []
    level = np.full(len(values), -1, dtype=np.int64)
    there = np.zeros(len(values), dtype=bool)
    there[cells.place] = True
    level[there] = 0
    shown = known & ((values != 0) | (not _counts(layer)))
    level[shown] = np.searchsorted(np.array(bounds), values[shown], side="right").clip(1, LEVELS)
    top = len(bounds)
    paths = []
    legend = [("h0", "none" if _counts(layer) else "nothing to show")]
    # If there are few levels, they are spread over all colours, so that the highest always has the
    # strongest colour.
    for index in range(top + 1):
        name = f"h{round(index * LEVELS / max(top, 1))}"
        if (level == index).any():
            paths.append((name, _path(cells, level == index)))
        if index:
            legend.append((name, _bound(bounds, index - 1)))
    return DrawnLayer(layer, tuple(paths), tuple(legend), summary=_summary(layer, values[known]))


def _counts(layer: Layer) -> bool:
    """Returns whether zero means that nothing happened. Then the cell has no colour."""
    return layer.total


def _bound(bounds: list[float], index: int) -> str:
    here = short(bounds[index])
    whole = all(map(float.is_integer, bounds))
    if index + 1 == len(bounds):
        return here if whole and len(bounds) < LEVELS else f"{here} and more"
    following = bounds[index + 1]
    if whole and following - bounds[index] == 1:
        return here
    return f"{here} to {short(following - 1 if whole else following)}"


def _summary(layer: Layer, values: Floats) -> str:
    if not len(values):
        return "no values"
    if layer.total:
        return f"{short(float(values.sum()))} {layer.unit} in {int((values != 0).sum()):,} cells"
    low, middle, high = map(short, np.quantile(values, (0, 0.5, 1)).tolist())
    return f"{low} to {high} {layer.unit}, half of the cells above {middle}"


def _path(cells: Cells, wanted: npt.NDArray[np.bool_]) -> str:
    """Returns one path over all cells of a level.

    Adjacent cells of a column become one rectangle.
    """
    parts = []
    by_column = wanted.reshape(cells.columns, cells.rows)
    for column in np.flatnonzero(by_column.any(axis=1)):
        edges = np.flatnonzero(
            np.diff(np.concatenate([[0], by_column[column].astype(np.int8), [0]]))
        )
        for top, bottom in zip(edges[::2], edges[1::2], strict=True):
            height = (bottom - top) * cells.height
            parts.append(
                f"M{column * cells.width} "
                f"{top * cells.height}h{cells.width}v{height}h-{cells.width}z"
            )
    return "".join(parts)


def _column_labels(cells: Cells) -> tuple[tuple[int, str], ...]:
    """Returns a label for each start of a new month.

    Shorter ranges have labels for days, hours or minutes.
    """
    unit = next(
        (unit for span, unit in _LABELS if cells.columns * cells.column_us >= span), "%H:%M:%S"
    )
    found: list[tuple[int, str]] = []
    before = None
    for column in range(cells.columns):
        text = to_datetime(cells.begin_us + column * cells.column_us).strftime(unit)
        x = column * cells.width
        room = not found or x - found[-1][0] >= _LETTER * len(text)
        if (
            text != before
            and room
            and x + _LETTER * len(text) <= max(cells.columns * cells.width, 40)
        ):
            found.append((x, text))
        before = text
    return tuple(found)


_LABELS = (
    (3 * 364 * _DAY, "%Y"),
    (60 * _DAY, "%b"),
    (2 * _DAY, "%d %b"),
    (2 * _HOUR, "%H:00"),
    (2 * _MINUTE, "%H:%M"),
)


def _row_labels(cells: Cells) -> tuple[tuple[int, str], ...]:
    step = max(1, -(-14 // cells.height), cells.rows // 4)
    form = {_DAY: "%H:%M", 6 * _HOUR: "+%-Hh%M", _HOUR: ":%M"}.get(cells.column_us)
    if form is None or cells.rows < 2:
        return ()
    return tuple(
        (row * cells.height, to_datetime(row * cells.row_us).strftime(form))
        for row in range(0, cells.rows, step)
    )


def _script(cells: Cells, layers: Sequence[Layer], values: Sequence[Floats]) -> str:
    kept = []
    for layer, found in zip(layers, values, strict=True):
        listed = list(map(_json_number, found.tolist()))
        kept.append({"label": layer.label, "unit": layer.unit, "values": listed})
    facts = {
        "rows": cells.rows,
        "w": cells.width,
        "h": cells.height,
        "begin": cells.begin_us // 1000,
        "column": cells.column_us / 1000,
        "row": cells.row_us / 1000,
        "layers": kept,
    }
    # A "<" could end the script element that contains the JSON.
    return json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c")


def _json_number(value: float) -> float | None:
    """Returns a value in few characters, because a page has one for each cell; null for NaN."""
    if math.isnan(value):
        return None
    rounded = round(value, 1)
    return int(rounded) if rounded.is_integer() else rounded


def _height(rows: int) -> int:
    return max(4, min(20, 216 // rows))


def _span(span_us: int) -> str:
    for unit, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (_SECOND, "second")):
        if span_us % unit == 0:
            count = span_us // unit
            return f"one {name}" if count == 1 else f"{count} {name}s"
    return f"{span_us / 1000:g} ms"


def short(value: float) -> str:
    """Returns a number formatted for readers.

    >>> short(1234.0), short(12.34), short(-3.0)
    ('1,234', '12.3', '-3')
    """
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"
