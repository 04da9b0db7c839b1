"""Formats tuples as JSON lines.

Each line is an object with window id, offset, arrival and the event columns.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time

import pyarrow as pa

from rewindow.json_files import finite
from rewindow.storage.python_rows import python_rows


def json_lines(rows: pa.Table) -> list[bytes]:
    r"""Returns a line for each row, including its line end.

    Times are text in ISO 8601, always with microseconds, so that they sort correctly as text.
    Decimals are text with all their digits, and bytes are text in base 64. NaN and infinity, which
    JSON lacks, are also text, in the format of other programs.

    >>> json_lines(pa.table({"window_id": [7], "key": ["é"], "delay": [float("nan")]}))
    [b'{"window_id":7,"key":"\xc3\xa9","delay":"NaN"}\n']
    """
    # Most streams have no floats. Values are checked one by one only if the schema has floats.
    floats = any(_has_floats(field.type) for field in rows.schema)
    values = map(finite, python_rows(rows)) if floats else python_rows(rows)
    return [_ENCODER.encode(row).encode() + b"\n" for row in values]


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, time):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


_ENCODER = json.JSONEncoder(
    ensure_ascii=False,
    separators=(",", ":"),
    default=_plain,
    check_circular=False,
)


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(
        _has_floats(kind.field(n).type) for n in range(kind.num_fields)
    )
