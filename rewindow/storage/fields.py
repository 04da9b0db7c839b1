"""Fields of Arrow and Spark schemas, and pairs of columns."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, TypeVar

import pyarrow as pa

from rewindow.sequences import Named

Field = TypeVar("Field", bound=Named)


def fields_without(fields: Iterable[Field], names: Container[str]) -> list[Field]:
    """Returns the fields whose names are not in a container, in their order.

    >>> schema = pa.schema([("window_id", pa.int64()), ("key", pa.string())])
    >>> fields_without(schema, {"window_id"})
    [pyarrow.Field<key: string>]
    """
    return [field for field in fields if field.name not in names]


def retyped(
    fields: Iterable[pa.Field],
    type_of: Callable[[pa.DataType], pa.DataType],
) -> list[pa.Field]:
    """Returns the fields with other types, which a function maps from their present ones."""
    return [field.with_type(type_of(field.type)) for field in fields]


def column_pairs(table: pa.Table, left: str, right: str) -> list[tuple[Any, Any]]:
    """Returns the values of two columns row by row.

    >>> column_pairs(pa.table({"mark": [0, 5], "attempt": [1, 2]}), "mark", "attempt")
    [(0, 1), (5, 2)]
    """
    return list(zip(table[left].to_pylist(), table[right].to_pylist(), strict=True))
