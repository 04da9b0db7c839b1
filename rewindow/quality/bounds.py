"""The values that an expectation allows in a window, as text for readers and as numbers to draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def allowed_values(type_: str, kwargs: Mapping[str, Any]) -> str:
    """Returns the allowed values of an expectation as text; empty if it has neither a set of values
    nor a bound.

    >>> allowed_values("expect_column_values_to_be_between", {"min_value": 0, "max_value": 600})
    'at least 0 and at most 600'
    >>> allowed_values("expect_column_values_to_be_in_set", {"value_set": [1, 3]})
    '1 or 3'
    """
    if "value_set" in kwargs:
        values = list(map(describe_value, kwargs["value_set"]))
        if "_not_" not in type_:
            return " or ".join(values)
        return f"{'neither' if len(values) > 1 else 'not'} {' nor '.join(values)}"
    parts = []
    if kwargs.get("min_value") is not None:
        word = "more than" if kwargs.get("strict_min") else "at least"
        parts.append(f"{word} {describe_value(kwargs['min_value'])}")
    if kwargs.get("max_value") is not None:
        word = "less than" if kwargs.get("strict_max") else "at most"
        parts.append(f"{word} {describe_value(kwargs['max_value'])}")
    return " and ".join(parts)


def describe_value(value: Any) -> str:
    """Returns a value, or a pair of values, as text. A float without a fraction has no point."""
    if isinstance(value, (list, tuple)):
        return " against ".join(map(describe_value, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
