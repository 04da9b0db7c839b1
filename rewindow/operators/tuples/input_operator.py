"""InputOperator: creates or fetches tuples, which are recorded before an application reads them.

Rules: O2, O7, O8, X45
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, PrivateAttr

from rewindow.errors import InputError
from rewindow.operators.tuples.values import shown, to_array
from rewindow.windows import Grid, WindowRange

_ROWS = 50_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class InputOperator(BaseModel):
    """An operator without input ports, whose tuples become a recorded stream.

    For each window, even one without tuples, `begin_window`, `emit_tuples` and `end_window` are
    called once, in the order of the windows, after `setup` and before `teardown`. Properties are
    fields, as in every operator. A sealed window is never emitted again, because replays read the
    stream.

    Attributes:
        columns: columns of its tuples.
        arrival: column with the arrival of a tuple, a timestamp inside the window.
    """

    model_config = ConfigDict(
        extra="forbid",
        arbitrary_types_allowed=True,
        validate_default=True,
    )

    columns: ClassVar[pa.Schema]
    arrival: ClassVar[str] = "at"
    _rows: list[tuple[Any, ...]] | None = PrivateAttr(default=None)

    def setup(self) -> None:
        """Called before the first window. Open connections and files here."""

    def begin_window(self, window_id: int) -> None:
        """Called at the start of each window."""

    def emit_tuples(self, start: datetime, end: datetime) -> None:
        """Emits the tuples that arrived at or after `start` and before `end`, both in UTC."""
        raise NotImplementedError

    def end_window(self) -> None:
        """Called at the end of each window; it may still emit."""

    def teardown(self) -> None:
        """Called after the last window, and after an error."""

    def emit(self, *values: Any, **named: Any) -> None:
        """Emits a tuple in the open window.

        Values are passed in the order of the columns, or by name.

        Raises:
            InputError: no window is open, or the values do not match the columns.
        """
        if self._rows is None:
            raise InputError(
                f"{type(self).__name__} cannot emit a tuple: no window is open",
                hint="Emit in begin_window, emit_tuples or end_window.",
            )
        rest = self.columns.names[len(values) :]
        if len(values) > len(self.columns) or set(rest) != set(named):
            emitted = ", ".join([*map(shown, values), *named]) or "nothing"
            raise InputError(
                f"{type(self).__name__} must emit values of the columns "
                f"{', '.join(self.columns.names)}, not {emitted}"
            )
        self._rows.append((*values, *map(named.get, rest)))


def input_rows(
    operator: InputOperator,
    grid: Grid,
    windows: WindowRange,
) -> Iterator[pa.Table]:
    """Calls an operator for each window of a range, and yields its tuples, in tables of several
    windows.

    Raises:
        InputError: a tuple does not have the declared types, or did not arrive in the window in
            which it was emitted.
        Exception: an error of the operator's code, with a note of callback and window.
    """
    waiting: list[tuple[Any, ...]] = []
    for _, rows in window_rows(operator, grid, windows):
        waiting += rows
        if len(waiting) >= _ROWS:
            yield _table(operator, waiting)
            waiting = []
    if waiting:
        yield _table(operator, waiting)


def window_rows(
    operator: InputOperator,
    grid: Grid,
    windows: WindowRange,
) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    """Yields each window of a range with the tuples that an operator emits in it; raises the
    same errors as `input_rows`.
    """
    try:
        _call("setup", operator, operator.setup)
        for window in range(windows.first, windows.last + 1):
            yield window, _window_rows(operator, grid, window)
    finally:
        operator._rows = None
        _call("teardown", operator, operator.teardown)


def _window_rows(
    operator: InputOperator,
    grid: Grid,
    window: int,
) -> list[tuple[Any, ...]]:
    start = _EPOCH + timedelta(microseconds=grid.start_us(window))
    end = _EPOCH + timedelta(microseconds=grid.end_us(window))
    where = f", window {window}"
    operator._rows = []
    _call(f"begin_window{where}", operator, operator.begin_window, window)
    _call(f"emit_tuples{where}", operator, operator.emit_tuples, start, end)
    _call(f"end_window{where}", operator, operator.end_window)
    emitted = operator._rows
    operator._rows = None
    _check_arrival(operator, emitted, start, end=end, window=window)
    return emitted


def _call(
    name: str,
    operator: InputOperator,
    callback: Callable[..., None],
    *arguments: Any,
) -> None:
    try:
        callback(*arguments)
    except Exception as error:
        error.add_note(f"in {name} of {type(operator).__name__}")
        raise


def _check_arrival(
    operator: InputOperator,
    rows: Iterable[tuple[Any, ...]],
    start: datetime,
    end: datetime,
    window: int,
) -> None:
    place = operator.columns.get_field_index(operator.arrival)
    for row in rows:
        at = row[place]
        inside = isinstance(at, datetime) and at.tzinfo is not None and start <= at < end
        if not inside:
            raise InputError(
                f"{type(operator).__name__} emitted a tuple in window {window} that did not arrive "
                f"in it: {operator.arrival} is {shown(at)}",
                detail=f"The window is from {start.isoformat()} to {end.isoformat()} (exclusive).",
                hint="Emit only tuples that arrived at or after `start` and before `end`, with a "
                "time zone.",
            )


def _table(operator: InputOperator, rows: list[tuple[Any, ...]]) -> pa.Table:
    what = f"a tuple of {type(operator).__name__}"
    columns = []
    for values, field in zip(zip(*rows, strict=True), operator.columns, strict=True):
        columns.append(to_array(list(values), field, what))
    return pa.table(columns, schema=operator.columns)
