"""SQL conditions for implausible timestamps: far ahead of their arrival, or read in the wrong unit.

Spark and DataFusion both run the conditions. All code that classifies tuples by event time uses
them, so that a tuple has the same result everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

DAY_US = 86_400_000_000
MAX_AHEAD_US = DAY_US
"""Default limit for a timestamp ahead of its arrival."""
FACTORS = {1_000: "a thousand", 1_000_000: "a million"}
"""Factors between two units of a timestamp, in words."""
_YEAR_US = 366 * DAY_US


def is_far(ts: str, at: str, max_ahead_us: int = MAX_AHEAD_US) -> str:
    """Returns a SQL condition that is true if a timestamp exceeds its arrival by more than the
    limit.

    Args:
        ts, at: the timestamp and the arrival, in microseconds.
        max_ahead_us: the limit in microseconds.
    """
    return f"{ts} > {at} + {max_ahead_us}"


def is_shrunk(ts: str, at: str, factors: Iterable[int] = FACTORS) -> str:
    """Returns a SQL condition that is true if a timestamp was read in too small a unit.

    Such a timestamp is far in the past, but close to its arrival when it is read in a larger unit.
    Integer division and division of doubles have the same result here, so the condition works in
    any dialect.

    Args:
        ts, at: the timestamp and the arrival, in microseconds.
        factors: possible ratios of the two units.
    """
    # SQL rounds a division of negative numbers toward 0 or down, depending on the dialect. The
    # arrival less its remainder is a multiple of the factor, for which both are the same.
    near = []
    for factor in factors:
        remainder = f"(({at} % {factor}) + {factor}) % {factor}"
        near.append(f"abs({ts} - ({at} - {remainder}) / {factor}) <= {DAY_US // factor}")
    return f"{ts} < {at} - {_YEAR_US} AND ({' OR '.join(near)})"
