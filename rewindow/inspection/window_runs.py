"""Runs of windows with the same state, and counts of a replay's tables, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from rewindow.windows import WindowRange

COMMITTED = "committed"
REPEATED = "repeated"
LOST = "lost"
AFFECTED = "affected"


@dataclass(frozen=True)
class WindowRun:
    """Consecutive windows of an output with the same state.

    `attempt` is the attempt whose rows are visible, or 0 for lost windows.
    """

    windows: WindowRange
    kind: str
    attempt: int


@dataclass(frozen=True)
class ReplayCounts:
    """The counts of a replay's tables.

    Attributes:
        windows: windows of the range that are sealed in an output, or listed as lost.
        tuples: rows of all outputs that readers see.
        tuples_in: input tuples that were processed.
        redone: windows that a later attempt computed although an earlier one had committed part of
            them.
        repeated, repeated_tuples: windows with rows of several attempts, and their rows that
            readers do not see.
        lost, lost_tuples: windows that at most once gave up in an output, and input tuples that
            were not processed.
        affected: windows computed from a state that lacks lost windows or is stale.

    Rules: R14
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
        """The number of windows that are lost, repeated or affected, as part of a sentence."""
        if not (self.lost or self.repeated or self.affected):
            return "none lost, repeated or affected"
        return f"{self.lost:,} lost, {self.repeated:,} repeated, {self.affected:,} affected"
