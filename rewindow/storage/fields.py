"""Helpers for fields of Arrow and Spark schemas, type names, and pairs of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from typing import Any, TypeVar

import pyarrow as pa

from rewindow.sequences import Named

Field = TypeVar("Field", bound=Named)

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*:?\s*(.+?)\s*", re.DOTALL)
_CLAUSES = re.compile(r"\s+(?:not\s+null|comment\s+'.*'|default\s.*)$", re.DOTALL)
# Spark accepts several names for a type and writes one.
_ALIASES = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp",
}
_TYPES = {
    "string": pa.string(), "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(), "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(), "double": pa.float64(), "date": pa.date32(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us", "UTC"),
}  # fmt: skip
_SIZED = re.compile(r"(\w+)\s*(\(\s*\d+\s*(?:,\s*\d+\s*)?\))?")


def plain_type(name: str, size: str | None) -> pa.DataType | None:
    """Returns the type with a lower-case name, including the precision and scale of a decimal; None
    for an unknown name.
    """
    if name in ("decimal", "dec", "numeric"):
        precision, _, scale = (size or "(10, 0)").strip("() ").partition(",")
        return pa.decimal128(int(precision), int(scale or 0))
    return None if size else _TYPES.get(name)


def type_named(text: str) -> pa.DataType | None:
    """Returns the type for a Spark type name; None if it is unknown.

    >>> type_named("DECIMAL(12, 2)"), type_named("array<string>"), type_named("number")
    (Decimal128Type(decimal128(12, 2)), ListType(list<item: string>), None)
    """
    name = text.strip().lower()
    if name.startswith("array<") and name.endswith(">"):
        item = type_named(name[len("array<") : -1])
        return None if item is None else pa.list_(item)
    match = _SIZED.fullmatch(name)
    return None if match is None else plain_type(match[1], match[2])


def fields_without(fields: Iterable[Field], names: Container[str]) -> list[Field]:
    """Returns the fields whose names are not in a container, in their original order.

    >>> schema = pa.schema([("window_id", pa.int64()), ("key", pa.string())])
    >>> fields_without(schema, {"window_id"})
    [pyarrow.Field<key: string>]
    """
    return [field for field in fields if field.name not in names]


def retyped(
    fields: Iterable[pa.Field],
    type_of: Callable[[pa.DataType], pa.DataType],
) -> list[pa.Field]:
    """Returns copies of the fields, with their types replaced by `type_of(type)`."""
    return [field.with_type(type_of(field.type)) for field in fields]


def column_pairs(table: pa.Table, left: str, right: str) -> list[tuple[Any, Any]]:
    """Returns the values of two columns row by row.

    >>> column_pairs(pa.table({"mark": [0, 5], "attempt": [1, 2]}), "mark", "attempt")
    [(0, 1), (5, 2)]
    """
    return list(zip(table[left].to_pylist(), table[right].to_pylist(), strict=True))


def ddl_columns(text: str) -> list[tuple[str, str]]:
    """Returns the name and type of each column in DDL; types are normalized to lower case, as Spark
    writes them.

    Timestamps with and without time zone are both recorded as instants, so they have the same type
    here.

    >>> ddl_columns("k STRING, n DECIMAL(10, 2) NOT NULL, `a b` STRUCT<x: INT, y: LONG>")
    [('k', 'string'), ('n', 'decimal(10,2)'), ('a b', 'struct<x:int,y:bigint>')]
    """
    columns, depth, start = [], 0, 0
    for at, character in enumerate(f"{text},"):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            columns.append(text[start:at])
            start = at + 1
    pairs = []
    for match in map(_COLUMN.fullmatch, columns):
        if match is not None:
            pairs.append(((match[1] or match[2]).replace("``", "`"), _kind(match[3])))
    return pairs


def _kind(text: str) -> str:
    kind = _CLAUSES.sub("", text.lower())
    kind = re.sub(r"\s*([<>(),:])\s*", r"\1", kind)
    kind = re.sub(r"\b(?:var)?char\(\d+\)", "string", kind)
    # A word before a colon is the name of a struct's field; every other word is a type.
    return re.sub(r"\b\w+\b(?!:)", lambda word: _ALIASES.get(word[0], word[0]), kind)
