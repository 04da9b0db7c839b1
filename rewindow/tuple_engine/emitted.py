"""Protects emitted tuples against later changes: copies nested values, and reports changes in
tests.

Rules: O43
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.operators.tuples.values import shown
from rewindow.sequences import map_values
from rewindow.tuple_engine.tagged_rows import Columns

_PLAIN = (str, int, float, bytes, Decimal, datetime, date, time, timedelta, type(None))


class _Emitted(NamedTuple):
    port: str
    column: str
    given: Any
    was: Any


class EmittedCopies:
    """Copies emitted values that an operator could still change, which are the values of nested
    columns.

    Args:
        ports: columns of each output port.
        tells: True if a change is an error; otherwise it has no effect.
    """

    def __init__(self, ports: dict[str, Columns], *, tells: bool) -> None:
        self._tells = tells
        self._nested: dict[str, list[tuple[int, str]]] = {}
        for port, columns in ports.items():
            self._nested[port] = nested = []
            for place, field in enumerate(columns.schema):
                if pa.types.is_nested(field.type):
                    nested.append((place, field.name))
        self._emitted: list[_Emitted] = []

    def is_plain(self, port: str) -> bool:
        """Returns whether the values of a port cannot be changed after they are emitted."""
        return not self._nested[port]

    def copy_of(self, port: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values of a tuple, with copies of nested values."""
        copies = list(values)
        for index, name in self._nested[port]:
            copies[index] = copied(values[index])
            if self._tells:
                self._emitted.append(_Emitted(port, name, values[index], was=copies[index]))
        return tuple(copies)

    def note_batch(self, port: str, rows: pa.Table) -> None:
        """Stores a copy of a batch for comparison.

        The operator may still use the buffers of the batch, for example as a numpy array.
        """
        if self._tells:
            copy = rows.take(pa.array(range(rows.num_rows), pa.int64()))
            for name in rows.column_names:
                self._emitted.append(_Emitted(port, name, rows[name], was=copy[name]))

    def check(self, operator: str, window: int) -> None:
        """Checks that the tuples of a window were not changed after they were emitted.

        Raises:
            InputError: a tuple was changed; the message has operator, port, window and column.
        """
        emitted = self._emitted
        self._emitted = []
        for entry in emitted:
            if not _is_same(entry.given, entry.was):
                raise InputError(
                    f'a tuple of port "{entry.port}" of {operator}, window {window}, was changed '
                    "after it was emitted",
                    detail=f'Column "{entry.column}" was {shown(entry.was)}, and is now '
                    f"{shown(entry.given)}. A replay stores the value at the time of emission.",
                    hint="Emit a copy, such as list(self.seen), or change the value before.",
                )


def copied(value: Any) -> Any:
    """Returns a deep copy of a value."""
    if isinstance(value, list):
        return list(map(copied, value))
    if isinstance(value, dict):
        return map_values(copied, value)
    return value if isinstance(value, _PLAIN) else deepcopy(value)


def _is_same(given: Any, was: Any) -> bool:
    if isinstance(given, pa.ChunkedArray):
        return bool(given.equals(was)) or repr(given.to_pylist()) == repr(was.to_pylist())
    return repr(given) == repr(was)
