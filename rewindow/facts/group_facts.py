"""Facts: what is known of every window of a replay; the rows of an output are at the same time its seals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rewindow.application import Output
from rewindow.errors import InputError, TableError
from rewindow.recovery import Plan
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.windows import WindowRange

Numbers = npt.NDArray[np.int64]
_OF_THE_GROUP = ("group_first", "group_last", "began_at", "ended_at")
_PART = pa.schema([field for field in FACTS_SCHEMA if field.name not in _OF_THE_GROUP])


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
    """Collects the fact rows of one commit group, as columns: a group may have a million windows.

    Attributes:
        windows: the group's windows; rows outside `above` are left out, since they are committed already.
        above: the mark of the facts table as a window; only later windows get a row.
    """

    windows: WindowRange
    attempt: int
    began_at: datetime
    above: int

    def __post_init__(self) -> None:
        self._parts: list[pa.Table] = []
        first = max(self.windows.first, self.above + 1)
        self._new = np.arange(first, max(first, self.windows.last + 1))

    def add_input(self, stream: str, counts: Mapping[int, int], lost: bool = False) -> None:
        """Adds a row per window for an input, also for empty windows; `lost` are tuples not processed (R15)."""
        self._add("in", stream, self._new, self._tuples(counts), lost=lost)

    def add_dropped(self, port: str, counts: Mapping[int, int], lost: bool = False) -> None:
        """Adds a row per window for an output port that nothing reads, error ports excepted (O16)."""
        self._add("dropped", port, self._new, self._tuples(counts), lost=lost)

    def add_output(self, output: Output, seals: Mapping[int, Seal]) -> None:
        """Adds the seals of an output or an error table, also of windows without a tuple (O65, O66)."""
        windows = self._new[np.isin(self._new, _numbers(seals))]
        found = [seals[window] for window in windows.tolist()]
        digests = {
            "digest": pa.array([seal.window.digest for seal in found], pa.string()),
            "float_digest": pa.array([seal.window.float_digest for seal in found], pa.string()),
            "attempt": pa.array([seal.attempt for seal in found], pa.int64()),
        }
        self._add(output.direction, output.name, windows, _numbers(seal.window.tuples for seal in found), **digests)

    def add_lost(self, output: Output, lost: WindowRange) -> None:
        """Adds a row for each window of an output or an error table that at most once gives up."""
        windows = self._new[(self._new >= lost.first) & (self._new <= lost.last)]
        self._add(output.direction, output.name, windows, np.zeros_like(windows), lost=True)

    def add_skip(self, operator: str, lacking: Iterable[int], dropped: Mapping[int, int]) -> None:
        """Adds what the state of an operator lost at a skip, of windows before the group too.

        Args:
            operator: its name; facts have it in place of a port.
            lacking: windows whose output stays and which its state has never seen: state_lost (X2).
            dropped: window to tuples of it that waited in the state and were dropped (X3).
        """
        windows, waited = _numbers(lacking), _numbers(sorted(dropped))
        self._add("state", operator, windows, np.zeros_like(windows), lost=True)
        self._add("skipped", operator, waited, _numbers(dropped[window] for window in sorted(dropped)), lost=True)

    def table(self) -> pa.Table:
        """Returns the rows; the group ends now."""
        own = {"group_first": self.windows.first, "group_last": self.windows.last, "began_at": self.began_at}
        rows = pa.concat_tables([_PART.empty_table(), *self._parts])
        for name, value in {**own, "ended_at": datetime.now(UTC)}.items():
            field = FACTS_SCHEMA.field(name)
            rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        return rows.select(FACTS_SCHEMA.names)

    def _tuples(self, counts: Mapping[int, int]) -> Numbers:
        """Returns the tuples of each new window; those that are not counted have none."""
        found, place = np.zeros_like(self._new), _numbers(counts) - (self._new[0] if len(self._new) else 0)
        inside = (place >= 0) & (place < len(found))
        found[place[inside]] = _numbers(counts.values())[inside]
        return found

    def _add(
        self, direction: str, port: str, windows: Numbers, tuples: Numbers, *, lost: bool = False, **columns: pa.Array
    ) -> None:
        """Adds a row for each of some windows; what `columns` does not say is the same in all of them."""
        same = {"direction": direction, "port": port, "attempt": self.attempt, "lost": lost}
        columns |= {"window_id": pa.array(windows), "tuples": pa.array(tuples)}
        for name in _PART.names:
            if name not in columns:
                columns[name] = pa.repeat(pa.scalar(same.get(name), _PART.field(name).type), len(windows))
        self._parts.append(pa.table({name: columns[name] for name in _PART.names}, schema=_PART))


def _numbers(values: Iterable[int]) -> Numbers:
    return np.fromiter(values, np.int64)


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
