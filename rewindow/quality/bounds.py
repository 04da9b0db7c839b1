"""The values that an expectation allows in every window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any


@dataclass(frozen=True)
class Bounds:
    """The values of a measure that an expectation allows.

    Attributes:
        text: the allowed values; empty if the expectation is not about the values of a window.
        low, high: the smallest and the largest one; infinite without such a bound.
    """

    text: str = ""
    low: float = -inf
    high: float = inf

    def allows(
        self,
        low: float,
        high: float,
    ) -> bool:
        """Returns whether all values from `low` to `high` are between the bounds."""
        return self.low <= low and high <= self.high


def bounds_of(type_: str, kwargs: Mapping[str, Any]) -> Bounds:
    """Returns the bounds of an expectation.

    >>> kwargs = {"column": "delay", "min_value": 0, "max_value": 600}
    >>> bounds_of("expect_column_values_to_be_between", kwargs).text
    'at least 0 and at most 600'
    """
    if type_ == "expect_column_values_to_be_in_set":
        values = kwargs["value_set"]
        text = " or ".join(map(describe_value, values))
        if all(isinstance(value, int | float) for value in values):
            return Bounds(
                text,
                min(values, default=-inf),
                max(values, default=inf),
            )
        return Bounds(text)
    if type_ == "expect_column_pair_values_to_be_equal":
        return Bounds("equal values")
    if type_ != "expect_column_values_to_be_between":
        return Bounds()
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    words = []
    if low is not None:
        words.append(
            f"{'more than' if kwargs.get('strict_min') else 'at least'} {describe_value(low)}"
        )
    if high is not None:
        words.append(
            f"{'less than' if kwargs.get('strict_max') else 'at most'} {describe_value(high)}"
        )
    return Bounds(
        " and ".join(words),
        low if isinstance(low, int | float) else -inf,
        high if isinstance(high, int | float) else inf,
    )


def describe_value(value: Any) -> str:
    """Returns a value, or a pair of values, as text. A float without a fraction has no point."""
    if isinstance(value, (list, tuple)):
        return " against ".join(map(describe_value, value))
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
