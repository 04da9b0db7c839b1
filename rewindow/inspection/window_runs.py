"""How the windows of a replay fared, and what its tables hold: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from rewindow.windows import WindowRange

COMMITTED = "committed"
REPEATED = "repeated"
LOST = "lost"
AFFECTED = "affected"


@dataclass(frozen=True)
class WindowRun:
    """Windows of an output that fared alike; `attempt` is the one whose rows readers take, 0 for
    lost ones.
    """

    windows: WindowRange
    kind: str
    attempt: int


@dataclass(frozen=True)
class ReplayCounts:
    """What the tables of a replay hold, counted.

    Attributes:
        windows: windows of the range that are accounted for: sealed in an output, or listed as
            lost.
        tuples: rows of all outputs that readers see.
        tuples_in: input tuples that were processed.
        redone: windows that a later attempt computed although an earlier one had committed some of
            them.
        repeated, repeated_tuples: windows with rows of several attempts, and the rows that readers
            do not take.
        lost, lost_tuples: windows that at most once gave up in an output, and input tuples that
            were not processed.
        affected: windows computed from a state that lacks lost windows or is stale (R14).
    """

    windows: int = 0
    tuples: int = 0
    tuples_in: int = 0
    redone: int = 0
    repeated: int = 0
    repeated_tuples: int = 0
    lost: int = 0
    lost_tuples: int = 0
    affected: int = 0

    @property
    def fate(self) -> str:
        """Windows that are not simply committed, in words, as a part of a sentence."""
        if not (self.lost or self.repeated or self.affected):
            return "none lost, repeated or affected"
        return f"{self.lost:,} lost, {self.repeated:,} repeated, {self.affected:,} affected"
