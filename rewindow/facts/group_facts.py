"""Facts: what is known of every window of a replay; the rows of an output are at the same time its seals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from rewindow.application import Output
from rewindow.errors import InputError, TableError
from rewindow.recovery import Plan
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.windows import WindowRange


@dataclass(frozen=True)
class WindowDigest:
    """What one window of one output holds."""

    tuples: int
    digest: str
    float_digest: str | None


@dataclass(frozen=True)
class Seal:
    """What a window of an output holds, and the attempt whose rows those are."""

    window: WindowDigest
    attempt: int


@dataclass
class GroupFacts:
    """Collects the fact rows of one commit group.

    Attributes:
        windows: the group's windows; rows outside `above` are left out, since they are committed already.
        above: the mark of the facts table as a window; only later windows get a row.
    """

    windows: WindowRange
    attempt: int
    began_at: datetime
    above: int

    def __post_init__(self) -> None:
        self._rows: list[dict[str, object]] = []

    def add_input(self, stream: str, counts: Mapping[int, int], lost: bool = False) -> None:
        """Adds a row per window for an input, also for empty windows; `lost` are tuples not processed (R15)."""
        for window in self._new():
            self._add(window, "in", stream, counts.get(window, 0), lost=lost, attempt=self.attempt)

    def add_dropped(self, port: str, counts: Mapping[int, int], lost: bool = False) -> None:
        """Adds a row per window for an output port that nothing reads, error ports excepted (O16)."""
        for window in self._new():
            self._add(window, "dropped", port, counts.get(window, 0), lost=lost, attempt=self.attempt)

    def add_output(self, output: Output, seals: Mapping[int, Seal]) -> None:
        """Adds the seals of an output or an error table, also of windows without a tuple (O65, O66)."""
        for window in self._new():
            if window in seals:
                found, attempt = seals[window].window, seals[window].attempt
                self._add(window, output.direction, output.name, found.tuples, attempt=attempt, found=found)

    def add_lost(self, output: Output, lost: WindowRange) -> None:
        """Adds a row for each window of an output or an error table that at most once gives up."""
        for window in self._new():
            if window in lost:
                self._add(window, output.direction, output.name, 0, lost=True, attempt=self.attempt)

    def add_skip(self, operator: str, lacking: Iterable[int], dropped: Mapping[int, int]) -> None:
        """Adds what the state of an operator lost at a skip, of windows before the group too.

        Args:
            operator: its name; facts have it in place of a port.
            lacking: windows whose output stays and which its state has never seen: state_lost (X2).
            dropped: window to tuples of it that waited in the state and were dropped (X3).
        """
        for window in lacking:
            self._add(window, "state", operator, 0, lost=True, attempt=self.attempt)
        for window, tuples in sorted(dropped.items()):
            self._add(window, "skipped", operator, tuples, lost=True, attempt=self.attempt)

    def table(self) -> pa.Table:
        """Returns the rows; the group ends now."""
        ended_at = datetime.now(UTC)
        return pa.Table.from_pylist([{**row, "ended_at": ended_at} for row in self._rows], schema=FACTS_SCHEMA)

    def _new(self) -> range:
        return range(max(self.windows.first, self.above + 1), self.windows.last + 1)

    def _add(
        self,
        window: int,
        direction: str,
        port: str,
        tuples: int,
        *,
        attempt: int,
        lost: bool = False,
        found: WindowDigest | None = None,
    ) -> None:
        self._rows.append(
            {
                "window_id": window, "direction": direction, "port": port, "tuples": tuples,
                "digest": found.digest if found else None, "float_digest": found.float_digest if found else None,
                "attempt": attempt, "lost": lost, "group_first": self.windows.first, "group_last": self.windows.last,
                "began_at": self.began_at,
            }
        )  # fmt: skip


def check_error_counts(plan: Plan, digests: Mapping[str, Mapping[int, WindowDigest]]) -> None:
    """Ends a replay in a window with more error tuples on a port than are allowed, before the group is committed (O71).

    Raises:
        InputError: names the first such window of the first such port.
    """
    if plan.errors_max is None:
        return
    for error in plan.errors:
        for window, found in sorted(digests.get(error.name, {}).items()):
            if found.tuples > plan.errors_max:
                raise InputError(
                    f'window {window} has {found.tuples:,} error tuples on port "{error.name}", at most '
                    f"{plan.errors_max:,} are allowed (setting replay.errors_max)",
                    detail="Nothing of its commit group was committed.",
                    hint="Mend the operator or its input, or raise the setting; then plan the range again: "
                    f"rewindow abandon {plan.replay_id}",
                )


def check_input_counts(stream: str, counted: Mapping[int, int], sealed: Mapping[int, int]) -> None:
    """Refuses an input whose windows hold other numbers of tuples than were sealed (of R58 the counts).

    Raises:
        TableError: names the first window that differs.
    """
    for window in sorted({*counted, *sealed}):
        if counted.get(window, 0) != sealed.get(window, 0):
            raise TableError(
                f'window {window} of stream "{stream}" holds {counted.get(window, 0)} tuples, '
                f"sealed were {sealed.get(window, 0)}",
                hint="The stream was changed behind its seals; record it anew or restore the version of the plan.",
            )
