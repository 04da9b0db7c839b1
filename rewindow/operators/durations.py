"""Durations in the settings of functions and operators: seconds, or text such as "5 min"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo
from pydantic.fields import FieldInfo

from rewindow.errors import InputError
from rewindow.operators.setting_errors import in_one_line
from rewindow.windows import DURATION_US_MAX, parse_duration


def duration_us(value: object) -> int:
    """Converts a duration to microseconds.

    >>> duration_us("0.10"), duration_us("2 min")
    (100000, 120000000)

    Raises:
        ValueError: it is not a duration, or not from 0 to 100 years.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError(
            f'duration must be a number of seconds, or text such as "10 minutes", not {value!r}'
        )
    try:
        parsed = parse_duration(str(value))
    except InputError as error:
        raise ValueError(in_one_line(error)) from error
    if not 0 <= parsed <= DURATION_US_MAX:
        raise ValueError(f"duration must be from 0 to 100 years, not {value}")
    return parsed


def _above_zero(value: int, info: ValidationInfo) -> int:
    if not value:
        name = str(info.field_name).removesuffix("_us")
        raise ValueError(f"{name} must be above 0, not 0")
    return value


NonNegativeUs = Annotated[int, BeforeValidator(duration_us)]
"""A duration in the settings of a function, as whole microseconds. `settings.types.DurationUs` is
the type for rewindow.toml: it can be negative, and its errors show TOML.
"""
PositiveUs = Annotated[NonNegativeUs, AfterValidator(_above_zero)]
"""A duration above zero, as whole microseconds."""
_MARK = "duration"
Duration = Annotated[Any, _MARK]
"""A duration as its user wrote it. The operator does not parse it in place, because the
configuration digest is computed from the text.
"""


def is_duration(field: FieldInfo) -> bool:
    """Returns whether a property of an operator is a duration."""
    return _MARK in field.metadata


def in_microseconds(value: Any) -> Any:
    """Converts a duration to text in microseconds.

    Other values, such as "10 tuples", are unchanged.

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
