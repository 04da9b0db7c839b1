"""Runs an input operator or a generator in a test: window by window, without a recording."""

from __future__ import annotations

from typing import Any

from rewindow.operators.generators.generator import Generator
from rewindow.operators.tuples.input_operator import InputOperator, window_rows
from rewindow.windows import Grid, WindowRange, parse_duration, parse_time


def run_input(
    operator: InputOperator,
    first: int,
    last: int,
    *,
    width: str = "1 hour",
    origin: str = "1970-01-01",
) -> dict[int, list[dict[str, Any]]]:
    """Returns the tuples that an input operator emits by window.

    Each tuple is a mapping from column to value.

    Args:
        operator: an instance, whose `setup` and `teardown` are called.
        first, last: the windows, closed.
        width, origin: width and origin of the windows, as in the settings of a stream.

    Raises:
        InputError: a tuple does not have the declared columns, or did not arrive in its window.
    """
    grid = _grid(width, origin)
    names = operator.columns.names
    emitted = {}
    for window, rows in window_rows(operator, grid, WindowRange(first, last)):
        emitted[window] = [dict(zip(names, row, strict=True)) for row in rows]
    return emitted


def run_generator(
    generator: Generator,
    *,
    width: str = "1 second",
    origin: str = "1970-01-01",
) -> dict[int, list[dict[str, Any]]]:
    """Returns the tuples of a generator by window, as `run_application` accepts them for a stream.

    Tuples without an arrival are left out, because `record` puts them into the quarantine.

    Args:
        generator: an instance of a generator; set `windows` or `tuples` to limit the stream.
        width, origin: width and origin of the windows, as in the settings of a stream.

    Raises:
        InputError: `rows` returned other columns, or an arrival outside the window.
    """
    placed = generator.on(_grid(width, origin))
    windows = placed.window_range
    emitted = {}
    for window in range(windows.first, windows.last + 1):
        rows: list[dict[str, Any]] = []
        for part in range(placed.parts):
            rows += placed.batch(window, part).to_pylist()
        emitted[window] = [row for row in rows if row[placed.arrival] is not None]
    return emitted


def _grid(width: str, origin: str) -> Grid:
    return Grid(parse_duration(width) // 1000, parse_time(origin) // 1000)
