"""Figures in a report of latencies, and the possible origins of a value.

Rules: L25, L26, L28
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from rewindow.latency.rows import Ints


class Origin(IntEnum):
    """The origin of a latency.

    Attributes:
        MEASURED: computed from end times.
        CAPPED: the distance from the upstream operator, which exceeds the timeout.
        ESTIMATED: the same distance, because the end times are no longer stored.
        OWN_END_MISSING: the operator's end time is missing.
        UNKNOWN: no upstream end time is known, or the operator has not ended a window yet.
    """

    MEASURED = 0
    CAPPED = 1
    ESTIMATED = 2
    OWN_END_MISSING = 3
    UNKNOWN = 4


ORIGINS = tuple(origin.name.lower() for origin in Origin)


def figures(latency: Ints, samples: int) -> dict[str, float | int | None]:
    """Returns figures of the known values: moving average of the latest, mean, median, 95th
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
