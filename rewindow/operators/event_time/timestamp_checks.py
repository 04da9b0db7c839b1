"""Which timestamps cannot be: far ahead of their arrival, or read in too small a unit. As SQL, of
Spark and DataFusion.

Whatever judges tuples by their event time asks here, so that one tuple gets the same verdict
everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

DAY_US = 86_400_000_000
MAX_AHEAD_US = DAY_US
"""So far a timestamp may run ahead of its arrival where nothing else is set."""
FACTORS = {1_000: "a thousand", 1_000_000: "a million"}
"""What lies between two units of a timestamp, in words."""
_YEAR_US = 366 * DAY_US


def is_far(ts: str, at: str, max_ahead_us: int = MAX_AHEAD_US) -> str:
    """Returns as SQL whether a timestamp runs further ahead of its arrival than it may.

    Args:
        ts, at: the timestamp and the arrival, in microseconds.
        max_ahead_us: how far it may.
    """
    return f"{ts} > {at} + {max_ahead_us}"


def is_shrunk(ts: str, at: str, factors: Iterable[int] = FACTORS) -> str:
    """Returns as SQL whether a timestamp was read in too small a unit: long ago, in a larger one
    close to its arrival.

    Whole division and that of doubles come to the same here, so any dialect will do.

    Args:
        ts, at: the timestamp and the arrival, in microseconds.
        factors: how many times too small it may be.
    """
    # SQL rounds a division of negative numbers toward 0 or down, depending on the dialect. The
    # arrival less its remainder is a multiple of the factor, for which both are the same.
    near = []
    for factor in factors:
        remainder = f"(({at} % {factor}) + {factor}) % {factor}"
        near.append(f"abs({ts} - ({at} - {remainder}) / {factor}) <= {DAY_US // factor}")
    return f"{ts} < {at} - {_YEAR_US} AND ({' OR '.join(near)})"
