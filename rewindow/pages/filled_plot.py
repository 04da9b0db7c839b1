"""Draws a filled gap: recorded values, filled ones, and points without a value. Pure functions: the
input is values, the result is shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewindow.inspection.filled import FilledGap, FilledRow, FilledStream
from rewindow.sequences import present
from rewindow.windows import format_time

WIDTH = 1000
HEIGHT = 130


@dataclass(frozen=True)
class Plot:
    """The values of a column in and around a gap, as shapes.

    Attributes:
        line: a path through values of consecutive points of the grid; it is interrupted at missing
            values.
        dots: x, y, whether the value was filled, and a text.
        missing: x, width and text of each point that has a row but no value.
        gap: x and width of the gap.
        begin_us, end_us: start of the plot, and end of its last row's step.
        ticks: y and text.
    """

    column: str
    line: str
    dots: tuple[tuple[float, float, bool, str], ...]
    missing: tuple[tuple[float, float, str], ...]
    gap: tuple[float, float]
    begin_us: int
    end_us: int
    ticks: tuple[tuple[float, str], ...]


def draw_plots(filled: FilledStream) -> list[tuple[FilledGap, list[Plot]]]:
    """Returns a plot for each gap and column."""
    plots = []
    for gap in filled.gaps:
        plots.append((gap, [_plot(gap, column, filled.step_us) for column in filled.columns]))
    return plots


def _plot(gap: FilledGap, column: str, step_us: int) -> Plot:
    times = [row.at_us for row in gap.rows]
    begin = min(times, default=gap.from_us)
    span = max(max(times, default=gap.last_us) + step_us - begin, 1)
    known = present(row.values[column] for row in gap.rows)
    low = min(known, default=0.0)
    top = max(known, default=0.0)

    def place(at_us: int) -> float:
        return round((at_us - begin) * WIDTH / span, 1)

    def height(value: float) -> float:
        return round(HEIGHT * (0.5 if top == low else (top - value) / (top - low)), 1)

    dots = []
    missing = []
    points = []
    for row in gap.rows:
        value = row.values[column]
        x = place(row.at_us)
        y = None if value is None else height(value)
        points.append((x, y, row.at_us))
        if y is None:
            # One row may represent several points of the grid, so its mark is as wide as these.
            width = round(step_us * row.stands_for * WIDTH / span, 1)
            missing.append((x, width, _words(row, column)))
        else:
            dots.append((x, y, row.is_made, _words(row, column)))
    end = gap.last_us + step_us * next(
        (row.stands_for for row in gap.rows if row.at_us == gap.last_us and row.is_made), 1
    )
    return Plot(
        column,
        _line(points, step_us),
        tuple(dots),
        missing=tuple(missing),
        gap=(place(gap.from_us), round(place(end) - place(gap.from_us), 1)),
        begin_us=gap.from_us,
        end_us=end,
        ticks=tuple((height(value), f"{value:.6g}") for value in sorted({low, top}))
        if known
        else (),
    )


def _line(points: Sequence[tuple[float, float | None, int]], step_us: int) -> str:
    """Returns a path that is interrupted at missing values and missing rows."""
    parts = []
    before = None
    for x, y, at_us in points:
        if y is not None:
            goes_on = before is not None and at_us - before < 2 * step_us
            parts.append(f"{'L' if goes_on else 'M'}{x} {y}")
        before = at_us if y is not None else None
    return "".join(parts)


def _words(row: FilledRow, column: str) -> str:
    value = row.values[column]
    how = row.methods.get(column, "null") if row.is_made else "recorded"
    return f"{format_time(row.at_us)}: {'no value' if value is None else f'{value:.6g}'}, {how}"
