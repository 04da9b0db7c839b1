"""The report of a playback, with the delays of its tuples (the jitter)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rewindow.windows import WindowRange

_EDGES = np.geomspace(1e-6, 1e5, 1101)
"""Bounds of the bins in seconds, a hundred per factor of ten: a quantile is accurate within
2.4 %.
"""


class Delays:
    """A histogram of delays that needs constant memory."""

    def __init__(self) -> None:
        self._bins = np.zeros(len(_EDGES) + 1, dtype=np.int64)
        self.largest = 0.0

    def add(self, seconds: npt.NDArray[np.float64]) -> None:
        """Adds the delays of the given tuples."""
        self._bins += np.bincount(
            np.searchsorted(_EDGES, seconds, "right"),
            minlength=len(self._bins),
        )
        self.largest = max(self.largest, float(seconds.max()))

    def quantile(self, share: float) -> float:
        """Returns the delay in seconds that the given share of the tuples did not exceed; 0 without
        tuples.
        """
        counted = np.cumsum(self._bins)
        place = int(np.searchsorted(counted, max(1, share * counted[-1])))
        return min(float(_EDGES[min(place, len(_EDGES) - 1)]), self.largest) if counted[-1] else 0.0


@dataclass(frozen=True)
class PlaybackReport:
    """The report of a playback that has ended.

    Attributes:
        stream: its name.
        windows: the requested range.
        missing: number of its windows that are not sealed; they have no tuples to send.
        tuples: number of tuples sent.
        speed: multiple of the recorded speed; None for as fast as possible.
        recorded_s: recorded seconds from the first tuple's arrival to the last one's.
        seconds: duration of the playback.
        delay_s: delays in seconds: at most `median` for half of the tuples, at most `p99` for 99 in
            100, at most `largest` for all; None for as fast as possible, where no tuple has a due
            time.
        is_complete: whether everything was sent; otherwise the reader has disconnected, or the user
            has stopped it.
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
    """Returns the delays in the format of a report, rounded to microseconds."""
    found = {
        "median": delays.quantile(0.5),
        "p99": delays.quantile(0.99),
        "largest": delays.largest,
    }
    return {name: round(seconds, 6) for name, seconds in found.items()}
