"""Converts Arrow rows to Python values, including dates outside of the years 1 to 9999, which
Python's date types cannot represent.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rewindow.windows import format_time

_DAY_US = 86_400_000_000
_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000}


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Returns the rows as dictionaries. An instant that Python cannot represent becomes text in ISO
    8601.

    >>> python_rows(pa.table({"at": pa.array([1 << 60], pa.timestamp("us", "UTC"))}))
    [{'at': '+38504-08-17T21:30:06.846976Z'}]
    """
    try:
        return rows.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        return list(map(_value, rows.to_struct_array()))


def _value(scalar: Any) -> Any:
    """Returns the Python value of a scalar, including nested values."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[field.name]) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return list(map(_value, scalar.values))
    if pa.types.is_map(kind):
        entries = map(_value, scalar.values)
        return [tuple(entry.values()) for entry in entries]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_date(kind):
            return format_time(scalar.cast(pa.date32()).value * _DAY_US).removesuffix("T00:00:00Z")
        return format_time(scalar.value * _UNIT_US[kind.unit])
