"""Runs the attempts of a replay in a test: commit groups, checkpoints, and the windows that each
mode restores, loses and recomputes after a crash.

The decisions are those of a replay: `recovery.resume` finds the window to continue with, and
`recovery.next_end` the end of a group. Tables are lists of rows, and a checkpoint is a mapping of
states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from types import MappingProxyType
from typing import Any

from rewindow.application import Application, OperatorContext
from rewindow.crash import Step
from rewindow.errors import InputError
from rewindow.recovery import CheckpointSchedule, Resume, StartState, next_end, resume
from rewindow.sequences import map_values
from rewindow.testing.computation import GraphComputation, States
from rewindow.testing.passes import Died
from rewindow.windows import WindowRange

Rows = dict[int, list[tuple[Any, ...]]]
"""Tuples by window, each as the window and the values."""
Repartition = Mapping[int, Mapping[str, int]]
"""Window to the number of partitions of operators from that window on."""
_FACTS = ""


class ReplayRun:
    """Runs the attempts of a replay until one ends.

    Args:
        app: the application.
        computation: computes its commit groups.
        context: the common part of the context of all groups; its windows are those of the replay.
        group_windows: windows of all commit groups, or of each.
        dies_at: for each attempt, the step of the protocol and the number of the group at which it
            dies.
        repartition: window to the partitions of operators from that window on.

    Attributes:
        tables: tuples by output or error table.
        ports: tuples of the committed groups, by port.
        crashes: number of attempts that died.
    """

    def __init__(
        self,
        app: Application,
        computation: GraphComputation,
        context: OperatorContext,
        group_windows: int | Sequence[int],
        dies_at: Sequence[tuple[str, int]] = (),
        repartition: Repartition = MappingProxyType({}),
    ) -> None:
        self._app = app
        self._computation = computation
        self._schedule = CheckpointSchedule(app.checkpoint_windows, app.checkpoint_multiple)
        self._context = replace(context, next_mark=self._schedule.next_due)
        self._windows = context.windows
        self._group_windows = group_windows
        self._dies_at = dies_at
        self._repartition = repartition
        self._checkpoints = {0: computation.initial_states()}
        self._done = dict.fromkeys([*app.staged(), _FACTS], 0)
        self._started = 0
        self._skipped: set[int] = set()
        self._lost: dict[str, set[int]] = defaultdict(set)
        self.tables: dict[str, Rows] = map_values(lambda output: {}, app.staged())
        self.ports: dict[str, Rows] = {}
        self.crashes = 0
        while True:
            try:
                self._attempt()
            except Died:
                self.crashes += 1
            else:
                break

    @property
    def states(self) -> States:
        """The states after the last window."""
        return self._checkpoints[len(self._windows)]

    @property
    def lost(self) -> list[int]:
        """Windows that the mode at most once has given up in at least one table."""
        return sorted(set().union(*self._lost.values()))

    @property
    def state_lost(self) -> list[int]:
        """Windows that are in the outputs but missing from the states.

        Rules: X2
        """
        nowhere = self._skipped.intersection(*map(self._lost.__getitem__, self._app.outputs))
        return sorted(self._skipped - nowhere) if self.states else []

    def _attempt(self) -> None:
        mode = self._context.mode
        found = resume(
            mode,
            self._checkpoints,
            self._done,
            self._started,
        )
        if mode.may_repeat:
            # Windows after the checkpoint are written again, so no table counts as ahead of it.
            self._done = dict.fromkeys(self._done, found.restore)
        self._reach(Step.FENCED)
        states = self._checkpoints[found.restore]
        if found.skipped:
            states = self._skip(
                found,
                found.skipped,
                states,
            )
        self._reach(Step.RESUMED)
        self._run_groups(found, states)
        self._reach(Step.JOINED)

    def _reach(self, step: Step, number: int = 1) -> None:
        """Raises `Died` if this attempt is configured to die at a step."""
        if (step, number) in self._dies_at[self.crashes : self.crashes + 1]:
            raise Died

    def _skip(self, found: Resume, skipped: tuple[int, int], states: States) -> States:
        """Records the windows that the mode at most once gives up, and returns the states without
        them.
        """
        for table in self.tables.keys() & found.lost:
            self._lost[table].update(self._between(found.lost[table]))
        windows = self._between(skipped)
        self._skipped.update(windows)
        states = self._computation.skip(
            states,
            windows,
            self.tables,
        )
        self._done[_FACTS] = max(self._done[_FACTS], found.first - 1)
        if found.first > len(self._windows):
            self._checkpoints[len(self._windows)] = states
        return states

    def _run_groups(self, found: Resume, states: States) -> None:
        first = self._windows.first
        window = first + found.first - 1
        saved = first + found.restore - 1 if found.restore else None
        cuts = list(map((first - 1).__add__, found.cuts))
        cuts += map((-1).__add__, self._repartition)
        # Exactly once leaves out the windows that a table had when the attempt took it over.
        present = dict(self._done)
        unseen = list(StartState(source="initial").unseen(first))
        for lost in sorted(self._skipped):
            unseen.append((lost, lost))
        number = 0
        while window <= self._windows.last:
            end = next_end(
                window,
                self._windows.last,
                self._group_size(window),
                self._context.mode,
                self._schedule,
                cuts,
            )
            number += 1
            self._started = end - first + 1
            self._reach(Step.STARTED, number)
            group = replace(
                self._context,
                windows=WindowRange(window, end),
                unseen=tuple(unseen),
                checkpointed=saved,
            )
            for from_window in sorted(self._repartition):
                if from_window <= window:
                    set_partitions(self._app, self._repartition[from_window])
            emitted, states = self._computation.compute(group, states)
            self._reach(Step.MATERIALISED, number)
            saved = self._commit(
                group,
                emitted,
                states,
                present,
                number,
            )
            self._reach(Step.AFTER_CHECKPOINT, number)
            window = end + 1

    def _commit(
        self,
        group: OperatorContext,
        emitted: Mapping[str, Rows],
        states: States,
        present: Mapping[str, int],
        number: int,
    ) -> int | None:
        """Stores a group, one table after the other.

        Returns its last window if a checkpoint was saved.
        """
        mark = group.last - self._windows.first + 1
        for place, (name, output) in enumerate(self._app.staged().items()):
            if not group.mode.writes_only_missing or present[name] < mark:
                self.tables[name] |= emitted[str(output.source)]
                self._done[name] = mark
            if place == 0:
                self._reach(Step.AFTER_FIRST_OUTPUT, number)
        self._reach(Step.AFTER_OUTPUTS, number)
        # Tuples of ports without a table are recorded when the windows of their group are sealed.
        for port, rows in emitted.items():
            self.ports[port] = self.ports.get(port, {}) | rows
        self._done[_FACTS] = max(mark, self._done[_FACTS])
        self._reach(Step.AFTER_FACTS, number)
        is_due = group.mode.saves_every_group or self._schedule.is_due(group.last)
        if not is_due and group.last < self._windows.last:
            return None
        self._checkpoints[mark] = states
        return group.last

    def _group_size(self, window: int) -> int:
        """Returns the number of windows of the group that starts at a window."""
        if isinstance(self._group_windows, int):
            return self._group_windows
        ends = accumulate(self._group_windows, initial=self._windows.first)
        return next((end for end in ends if end > window), self._windows.last + 1) - window

    def _between(self, marks: tuple[int, int]) -> WindowRange:
        first = self._windows.first - 1
        return WindowRange(first + marks[0], first + marks[1])


def set_partitions(app: Application, partitions: Mapping[str, int]) -> None:
    """Changes the number of partitions of operators.

    For operators with `spread`, changes the number of instances.
    """
    for name, count in partitions.items():
        if name not in app.nodes:
            raise InputError(
                f'application "{app.name}" has no operator "{name}"',
                hint=f"Available operators: {', '.join(app.nodes)}.",
            )
        node = app.nodes[name]
        attribute: dict[str, Any] = {"spread" if node.spread else "partitions": count}
        app.nodes[name] = replace(node, **attribute)


def rows_of(by_window: Rows) -> list[tuple[Any, ...]]:
    """Returns tuples in the order of windows.

    Within a window, they are in the order of emission.
    """
    return list(chain.from_iterable(map(by_window.__getitem__, sorted(by_window))))
