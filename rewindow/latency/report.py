"""Figures of a report of latencies, and where each value may come from (L25, L26, L28)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from rewindow.latency.rows import Ints


class Origin(IntEnum):
    """Where a latency comes from.

    Measured: from end times. Capped: the distance in windows, as it is larger. Estimated: the
    distance, as no end time is stored. Unknown: the operator's end is missing, or every upstream
    end is.
    """

    MEASURED = 0
    CAPPED = 1
    ESTIMATED = 2
    OWN_END_MISSING = 3
    UNKNOWN = 4


ORIGINS = tuple(origin.name.lower() for origin in Origin)


def figures(latency: Ints, samples: int) -> dict[str, float | int | None]:
    """Returns the figures of the known values: moving average of the latest, mean, median, 95th
    percentile (nearest rank) and maximum.

    >>> figures(np.array([-1, 4, 1, 3]), samples=2)
    {'known': 3, 'latencyMA': 2, 'mean': 2.6666666666666665, 'median': 3.0, 'p95': 4, 'max': 4}
    """
    known = latency[latency >= 0]
    count = len(known)
    if not count:
        return {"known": 0, **dict.fromkeys(("latencyMA", "mean", "median", "p95", "max"))}
    latest = known[-samples:]
    # The rank is rounded up without a floating-point number.
    rank = (95 * count + 99) // 100 - 1
    middle = [(count - 1) // 2, count // 2]
    ordered = np.partition(known, [*middle, rank])
    return {
        "known": count,
        "latencyMA": int(latest.sum()) // len(latest),
        "mean": float(known.mean()),
        "median": float(ordered[middle].mean()),
        "p95": int(ordered[rank]),
        "max": int(known.max()),
    }
