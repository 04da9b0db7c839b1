"""What a playback did, and how much later than due its tuples were sent (the jitter)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rewindow.windows import WindowRange

_EDGES = np.geomspace(1e-6, 1e5, 1101)
"""Bounds of the bins in seconds, a hundred for each factor of ten: a quantile is right within 2.4
%."""


class Delays:
    """Counts how much later than due tuples were sent, in memory that does not grow with them."""

    def __init__(self) -> None:
        self._bins = np.zeros(len(_EDGES) + 1, dtype=np.int64)
        self.largest = 0.0

    def add(self, seconds: npt.NDArray[np.float64]) -> None:
        """Counts the delays of some tuples."""
        self._bins += np.bincount(
            np.searchsorted(_EDGES, seconds, "right"),
            minlength=len(self._bins),
        )
        self.largest = max(self.largest, float(seconds.max()))

    def quantile(self, share: float) -> float:
        """Returns the delay in seconds that this share of the tuples did not exceed; 0 without
        tuples.
        """
        counted = np.cumsum(self._bins)
        place = int(np.searchsorted(counted, max(1, share * counted[-1])))
        return min(float(_EDGES[min(place, len(_EDGES) - 1)]), self.largest) if counted[-1] else 0.0


@dataclass(frozen=True)
class PlaybackReport:
    """A playback that has ended.

    Attributes:
        stream: its name.
        windows: the range that was asked for.
        missing: windows of it that are not sealed; nothing was sent for them.
        tuples: tuples sent.
        speed: how many times as fast as recorded; None for as fast as possible.
        recorded_s: seconds from the first tuple's arrival to the last one's, as they were recorded.
        seconds: seconds that it took to send them.
        delay_s: seconds later than due: of half of the tuples at most `median`, of 99 in 100 at
            most `p99`, of all at most `largest`; None for as fast as possible, where nothing is
            due.
        is_complete: whether everything was sent; else the reader went, or the user stopped it.
    """

    stream: str
    windows: WindowRange
    missing: int
    tuples: int
    speed: float | None
    recorded_s: float
    seconds: float
    delay_s: dict[str, float] | None
    is_complete: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        values = asdict(self)
        values["windows"] = {"first": self.windows.first, "last": self.windows.last}
        return values


def delays_of(delays: Delays) -> dict[str, float]:
    """Returns the delays as a report has them, to the microsecond."""
    found = {
        "median": delays.quantile(0.5),
        "p99": delays.quantile(0.99),
        "largest": delays.largest,
    }
    return {name: round(seconds, 6) for name, seconds in found.items()}
