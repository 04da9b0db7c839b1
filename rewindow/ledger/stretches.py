"""The windows and tuples of one port, for a commit group, a stretch of windows, or a whole
replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

SEGMENT_WINDOWS = 1000
"""Largest number of windows in a stretch, unless a single group has more."""


Direction = Literal["in", "out", "error", "dropped"]


@dataclass(frozen=True)
class PortCount:
    """The tuples of one port in the consecutive windows of a commit group.

    Attributes:
        direction: "in" for an input stream, "out" for an output, "error" for an error port,
            "dropped" for another output port that nothing reads.
        lost: whether these windows are lost (at most once); `tuples` were then not processed.

    Rules: R15
    """

    direction: Direction
    port: str
    first: int
    last: int
    tuples: int
    lost: bool = False


@dataclass(frozen=True)
class PortStretch:
    """A stretch of windows of one port, with the time range and the newest epoch of its commits."""

    direction: Direction
    port: str
    first: int
    last: int
    tuples: int
    lost: bool
    epoch: int
    began_at: datetime
    ended_at: datetime

    @property
    def windows(self) -> int:
        """The number of windows in the stretch."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class PortTotal:
    """The windows and tuples of one port in a replay. Lost windows are counted separately."""

    direction: Direction
    port: str
    windows: int
    tuples: int
    lost_windows: int
    lost_tuples: int
