"""Converts rows for CSV: lists and structs become JSON, bytes become hexadecimal text."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc


def as_csv(rows: pa.Table) -> pa.Table:
    """Returns the rows with columns that Arrow's CSV writer supports; names stay the same."""
    columns = []
    for column in rows.columns:
        kind = column.type
        if pa.types.is_nested(kind):
            columns.append(pa.array(map(_json, column.to_pylist()), pa.string()))
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            columns.append(pa.array(map(_hex, column.to_pylist()), pa.string()))
        elif pa.types.is_decimal(kind):
            columns.append(pc.cast(column, pa.string()))
        else:
            columns.append(column)
    return pa.table(columns, names=rows.schema.names)


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return _hex(value)
    return str(value) if isinstance(value, Decimal) else repr(value)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else "\\x" + value.hex()
