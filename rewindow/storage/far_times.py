"""Rows as Python values, also where a time or date is beyond the years 1 to 9999, which Python's
types lack: such a value is text in ISO 8601 with a signed year.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

_CYCLE_DAYS = 146_097
"""Days of 400 years, after which the calendar repeats."""


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Returns a table's rows.

    >>> python_rows(pa.table({"until": pa.array([2**63 - 1], pa.timestamp("us", "UTC"))}))
    [{'until': '+294247-01-10T04:00:54.775807Z'}]
    """
    try:
        return list(rows.to_pylist())
    except OverflowError:
        columns = [_values(column) for column in rows.columns]
        return [
            dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)
        ]


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    try:
        return list(column.to_pylist())
    except OverflowError:
        if pa.types.is_timestamp(kind):
            zone = "Z" if kind.tz else ""
            micros = column.cast(pa.timestamp("us")).cast(pa.int64())
            return [_far(each, timedelta(microseconds=1), zone) for each in micros.to_pylist()]
        if pa.types.is_date32(kind):
            return [_far(each, timedelta(days=1)) for each in column.cast(pa.int32()).to_pylist()]
        raise


def _far(number: int | None, unit: timedelta, zone: str = "") -> str | None:
    if number is None:
        return None
    cycles, rest = divmod(number, timedelta(days=_CYCLE_DAYS) // unit)
    moment = datetime(1970, 1, 1) + rest * unit
    text = moment.isoformat(timespec="microseconds")[4 : 10 if unit.days else None]
    return f"{moment.year + 400 * cycles:+05}{text}{zone}"
