"""The attempts of a replay, in a test: commit groups, checkpoints, and what each mode restores,
loses and computes again after a crash.

The decisions are those of a replay: `recovery.resume` says where an attempt goes on, and
`recovery.next_end` where a group ends. Tables are lists of rows, and a checkpoint is the states
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from rewindow.application import Mode, OperatorContext
from rewindow.crash import Step
from rewindow.recovery import CheckpointSchedule, Resume, StartState, next_end, resume
from rewindow.windows import Grid, WindowRange

CRASH = object()
"""Among the tuples of a port: here the process dies, once. What comes of it depends on the mode."""
States = Mapping[str, Any]
Row = tuple[Any, ...]
"""A window and the values of a tuple."""
_FACTS = ""


class Died(Exception):
    """Stands for a process that was killed."""


class Computed(NamedTuple):
    """A computed group: by port the tuples, by operator the state after it."""

    emitted: Mapping[str, Sequence[Row]]
    states: States


class Computation(Protocol):
    """What computes commit groups."""

    def initial_states(self) -> States:
        """Returns the states before the first window."""
        ...

    def compute(self, context: OperatorContext, states: States) -> Computed:
        """Returns a group, computed from the states before it.

        Raises:
            Died: one of its tuples is CRASH, which is then gone.
        """
        ...

    def skip(self, states: States, windows: WindowRange, kept: Kept) -> States:
        """Returns the states with which an attempt continues after windows that they never see.

        Args:
            kept: returns the tuples of these windows that a table has, by its name.
        """
        ...


Kept = Callable[[str], Sequence[Row]]


@dataclass(frozen=True)
class ReplayOptions:
    """What all attempts have in common.

    Attributes:
        group_windows: windows of a commit group, or of each.
        ends: by operator, the window with which its recordings have ended.
    """

    windows: WindowRange
    mode: Mode
    grid: Grid
    schedule: CheckpointSchedule
    group_windows: int | Sequence[int] = 1
    operator: str = "test"
    ends: Mapping[str, int] = field(default_factory=dict)

    def group_size(self, window: int) -> int:
        """Returns how many windows the group that begins at a window should have."""
        if isinstance(self.group_windows, int):
            return self.group_windows
        sizes = accumulate(self.group_windows, initial=self.windows.first)
        return next((end for end in sizes if end > window), self.windows.last + 1) - window


class Attempts:
    """Runs the attempts of a replay until one ends.

    Args:
        tables: by output or error table, the port that it holds.
        outputs: those of them that are outputs.
        crash: called at every step of the protocol with the number of the group, as in a replay; it
            may raise `Died`.

    Attributes:
        tables: by table and window, its tuples.
        ports: the same by port.
        states: those after the last window.
        lost: by table, the windows that at most once has given up.
        crashes: how many attempts died.
    """

    def __init__(
        self,
        computation: Computation,
        options: ReplayOptions,
        tables: Mapping[str, str],
        outputs: Iterable[str],
        crash: Callable[[Step, int], None] = lambda step, number: None,
    ) -> None:
        self._computation = computation
        self._options = options
        self._port_of = tables
        self._outputs = list(outputs)
        self._crash = crash
        self._checkpoints = {0: computation.initial_states()}
        self._done = dict.fromkeys([*tables, _FACTS], 0)
        self._started = 0
        self._skipped: set[int] = set()
        self.tables: dict[str, dict[int, list[Row]]] = {name: {} for name in tables}
        self.ports: dict[str, dict[int, list[Row]]] = {}
        self.lost: dict[str, set[int]] = {name: set() for name in tables}
        self.crashes = 0

    def run(self) -> None:
        """Runs an attempt after the other until one reaches the end of the range."""
        while True:
            try:
                self._attempt()
            except Died:
                self.crashes += 1
            else:
                return

    @property
    def states(self) -> States:
        """The states after the last window."""
        return self._checkpoints[max(self._checkpoints)]

    @property
    def given_up(self) -> list[int]:
        """Windows that some table lacks since at most once has given them up."""
        return sorted(set().union(*self.lost.values()))

    @property
    def state_lost(self) -> list[int]:
        """Windows that outputs have and the states have never seen (X2)."""
        nowhere = set(self._skipped)
        for name in self._outputs:
            nowhere &= self.lost[name]
        return sorted(self._skipped - nowhere) if self.states else []

    def rows_of(self, by_window: Mapping[int, Sequence[Row]]) -> list[Row]:
        """Returns tuples by window, and as they were emitted."""
        return [row for window in sorted(by_window) for row in by_window[window]]

    def _attempt(self) -> None:
        mode = self._options.mode
        found = resume(mode, self._checkpoints, self._done, self._started)
        if mode.may_repeat:
            self._done = dict.fromkeys(self._done, found.restore)
        self._crash(Step.FENCED, 1)
        states = self._checkpoints[found.restore]
        if found.skipped:
            states = self._skip(found, states)
        self._crash(Step.RESUMED, 1)
        self._run_groups(found, states)
        self._crash(Step.JOINED, 1)

    def _skip(self, found: Resume, states: States) -> States:
        """Lists what at most once gives up, and returns the states that lack it."""
        assert found.skipped is not None, "checked by the caller"
        windows = self._windows(found.skipped)
        for name, marks in found.lost.items():
            if name in self.lost:
                self.lost[name].update(self._windows(marks))
        self._skipped.update(windows)

        def kept(table: str) -> list[Row]:
            return [row for row in self.rows_of(self.tables[table]) if row[0] in windows]

        states = self._computation.skip(states, windows, kept)
        self._done[_FACTS] = max(found.first - 1, self._done[_FACTS])
        if found.first > len(self._options.windows):
            self._checkpoints[len(self._options.windows)] = states
        return states

    def _run_groups(self, found: Resume, states: States) -> None:
        options = self._options
        last = options.windows.last
        window = options.windows.first + found.first - 1
        saved = self._windows((1, found.restore)).last if found.restore else None
        cuts = [self._windows((1, mark)).last for mark in found.cuts]
        begin = dict(self._done)
        number = 0
        while window <= last:
            size = options.group_size(window)
            end = next_end(window, last, size, options.mode, options.schedule, cuts)
            number += 1
            self._started = end - options.windows.first + 1
            context = self._context(WindowRange(window, end), saved)
            self._crash(Step.STARTED, number)
            group = self._computation.compute(context, states)
            self._crash(Step.MATERIALISED, number)
            states = group.states
            saved = end if self._commit(context.windows, group, begin, number) else None
            self._crash(Step.AFTER_CHECKPOINT, number)
            window = end + 1

    def _context(self, group: WindowRange, saved: int | None) -> OperatorContext:
        options = self._options
        before = StartState(source="initial").unseen(options.windows.first)
        return OperatorContext(
            options.grid,
            group,
            options.mode,
            operator=options.operator,
            unseen=(*before, *((window, window) for window in sorted(self._skipped))),
            ends=options.ends,
            checkpointed=saved,
            next_mark=options.schedule.next_due,
        )

    def _commit(
        self,
        windows: WindowRange,
        group: Computed,
        begin: Mapping[str, int],
        number: int,
    ) -> bool:
        """Keeps a group, table after table; returns whether a checkpoint was saved."""
        options = self._options
        mark = windows.last - options.windows.first + 1
        by_port = {port: _by_window(windows, rows) for port, rows in group.emitted.items()}
        for place, (name, port) in enumerate(self._port_of.items()):
            if not options.mode.writes_only_missing or begin[name] < mark:
                self.tables[name] |= by_port[port]
                self._done[name] = mark
            if place == 0:
                self._crash(Step.AFTER_FIRST_OUTPUT, number)
        self._crash(Step.AFTER_OUTPUTS, number)
        for port, rows in by_port.items():
            self.ports.setdefault(port, {}).update(rows)
        self._done[_FACTS] = max(mark, self._done[_FACTS])
        self._crash(Step.AFTER_FACTS, number)
        is_last = windows.last == options.windows.last
        if options.mode.saves_every_group or options.schedule.is_due(windows.last) or is_last:
            self._checkpoints[mark] = group.states
            return True
        return False

    def _windows(self, marks: tuple[int, int]) -> WindowRange:
        first = self._options.windows.first
        return WindowRange(first + marks[0] - 1, first + marks[1] - 1)


def _by_window(windows: WindowRange, rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {window: [] for window in windows}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def without_crash(rows: Iterable[Any]) -> list[Any]:
    """Returns the tuples without CRASH."""
    return [row for row in rows if row is not CRASH]
