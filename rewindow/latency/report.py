"""Figures of a report of latencies, and where each value may come from (L25, L26, L28)."""

from __future__ import annotations

import numpy as np

from rewindow.latency.rows import Ints

MEASURED = "measured"
CAPPED = "capped"
ESTIMATED = "estimated"
OWN_END_MISSING = "own_end_missing"
UNKNOWN_ORIGIN = "unknown"
ORIGINS = (MEASURED, CAPPED, ESTIMATED, OWN_END_MISSING, UNKNOWN_ORIGIN)
"""Where a latency comes from: end times; the distance in windows, as that is larger or as no end
time is stored; or it is unknown, since the operator's end or every upstream end is."""


def figures(known: Ints) -> dict[str, float | int | None]:
    """Returns mean, median, maximum and 95th percentile (nearest rank) of known values.

    >>> figures(np.arange(1, 21))
    {'known': 20, 'mean': 10.5, 'median': 10.5, 'p95': 19, 'max': 20}
    """
    count = len(known)
    if not count:
        return {"known": 0, "mean": None, "median": None, "p95": None, "max": None}
    # The rank is rounded up without a floating-point number.
    rank = (95 * count + 99) // 100 - 1
    middle = [(count - 1) // 2, count // 2]
    ordered = np.partition(known, [*middle, rank])
    return {
        "known": count,
        "mean": float(known.mean()),
        "median": float(ordered[middle].mean()),
        "p95": int(ordered[rank]),
        "max": int(known.max()),
    }


def moving_average(known: Ints, samples: int) -> int | None:
    """Returns the average of the latest known values, cut off toward zero (L8, L26)."""
    latest = known[-samples:]
    return int(latest.sum()) // len(latest) if len(latest) else None
