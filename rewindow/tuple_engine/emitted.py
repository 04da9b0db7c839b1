"""What was emitted stays what it was (O43): nested values are copied, and tests are told of those
that were changed.
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
    """Copies what operators emit and could still change: values of nested columns.

    Args:
        ports: columns of each output port.
        tells: whether a change is an error; without it, it merely has no effect.
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
        """Returns whether nothing that is emitted on a port can be changed."""
        return not self._nested[port]

    def copy_of(self, port: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values of a tuple, nested ones copied."""
        found = list(values)
        for place, name in self._nested[port]:
            found[place] = copied(values[place])
            if self._tells:
                self._emitted.append(_Emitted(port, name, values[place], was=found[place]))
        return tuple(found)

    def note_batch(self, port: str, rows: pa.Table) -> None:
        """Notes a batch, whose buffers may be those of a numpy array that the operator still
        has.
        """
        if self._tells:
            copy = rows.take(pa.array(range(rows.num_rows), pa.int64()))
            for name in rows.column_names:
                self._emitted.append(_Emitted(port, name, rows[name], was=copy[name]))

    def check(self, operator: str, window: int) -> None:
        """Says what was changed since it was emitted in a window.

        Raises:
            InputError: names operator, port, window and column.
        """
        emitted = self._emitted
        self._emitted = []
        for one in emitted:
            if not _is_same(one.given, one.was):
                raise InputError(
                    f'a tuple of port "{one.port}" of {operator}, window {window}, was changed '
                    "after it was emitted",
                    detail=f'Column "{one.column}" was {shown(one.was)}, and is now '
                    f"{shown(one.given)}. A replay keeps "
                    "what it was when it was emitted.",
                    hint="Emit a copy, such as list(self.seen), or change it before.",
                )


def copied(value: Any) -> Any:
    """Returns a value with lists, structs and maps of its own."""
    if isinstance(value, list):
        return list(map(copied, value))
    if isinstance(value, dict):
        return map_values(copied, value)
    return value if isinstance(value, _PLAIN) else deepcopy(value)


def _is_same(given: Any, was: Any) -> bool:
    if isinstance(given, pa.ChunkedArray):
        return bool(given.equals(was)) or repr(given.to_pylist()) == repr(was.to_pylist())
    return repr(given) == repr(was)
