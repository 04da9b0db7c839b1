"""An input operator in a test: window by window, without a recording."""

from __future__ import annotations

from typing import Any

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
    """Returns by window what an input operator emits when it is recorded, each tuple by its
    columns.

    Args:
        operator: one instance; it is set up and torn down.
        first, last: the windows, closed.
        width, origin: of the windows, as the stream's settings have them.

    Raises:
        InputError: a tuple does not have the declared columns, or did not arrive in its window.
    """
    grid = Grid(parse_duration(width) // 1000, parse_time(origin) // 1000)
    names = operator.columns.names
    emitted = {}
    for window, rows in window_rows(operator, grid, WindowRange(first, last)):
        emitted[window] = [dict(zip(names, row, strict=True)) for row in rows]
    return emitted
