"""Durations as properties of operators: seconds, or text such as "5 min"."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic.fields import FieldInfo

from rewindow.errors import InputError
from rewindow.windows import parse_duration

_MARK = "duration"
Duration = Annotated[Any, _MARK]
"""A duration as its user wrote it. The operator does not parse it in place, because the
configuration digest is computed from the text.
"""


def is_duration(field: FieldInfo) -> bool:
    """Returns whether a property of an operator is a duration."""
    return _MARK in field.metadata


def in_microseconds(value: Any) -> Any:
    """Returns a duration as text in microseconds; other values, such as "10 tuples", stay.

    >>> in_microseconds("1 hour"), in_microseconds(0.5), in_microseconds("10  tuples")
    ('3600000000 us', '500000 us', '10 tuples')
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        duration_us = parse_duration(value)
    except InputError:
        return " ".join(value.split()) if isinstance(value, str) else value
    return f"{duration_us} us" if duration_us >= 0 else value
