"""Commits a group: outputs in any order, then facts, which contain the seals, and the checkpoint
last.

Every commit checks the epoch on the snapshot that it commits on (`storage.fence`). Readers cannot
see any window of a group before its facts are committed, and no checkpoint is ahead of a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rewindow.application import Application, OperatorContext
from rewindow.crash import Step
from rewindow.engine.computation import Counts, Engine
from rewindow.engine.takeover import Takeover
from rewindow.facts.group_facts import GroupFacts
from rewindow.recovery import CheckpointSchedule, Plan
from rewindow.state import checkpoints as stored
from rewindow.state.files import States
from rewindow.storage.layout import FACTS
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from rewindow.engine.computation import GroupResult


@dataclass(frozen=True)
class GroupEnd:
    """The result of a group's commit: whether a checkpoint was saved, and whether the attempt
    stops.
    """

    checkpoint: bool
    stopping: bool


class GroupCommit:
    """Commits the groups of one attempt.

    Args:
        plan: the plan of the replay.
        app: its application.
        takeover: the fenced tables.
        engine: computes the windows.
        epoch: epoch of the attempt.
        stop: returns whether the user asked to stop; checked once in each group.
    """

    def __init__(
        self,
        plan: Plan,
        app: Application,
        takeover: Takeover,
        engine: Engine,
        epoch: int,
        stop: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._epoch = epoch
        self._stop = stop
        # The failing tuples are committed first. An attempt that computes the group again must then
        # leave them out, whatever else of it was committed.
        staged = app.staged()
        names = list(map(str, app.failing))
        self._staged = dict(zip(names, map(staged.__getitem__, names), strict=True)) | staged
        self._missing = plan.missing_upstream()
        self._checkpoints = takeover.checkpoints
        self._tables = takeover.tables
        self._sealed = takeover.sealed
        self._schedule = CheckpointSchedule(plan.checkpoint_windows, plan.checkpoint_multiple)
        self._made = stored.Provenance.of(plan, epoch)
        self._versions = {node.name: node.operator.state_version for node in app.nodes.values()}

    def staged(self, mark: int) -> list[str]:
        """Returns the outputs and error tables that lack a group, given the mark at the end of the
        group.
        """
        return [name for name in self._staged if self._done(name) < mark]

    def run(
        self,
        group: OperatorContext,
        result: GroupResult,
        counts: Counts,
        began_at: datetime,
        crash: Callable[[Step], None],
    ) -> GroupEnd:
        """Commits a computed group.

        Raises:
            FencedError: a newer attempt has started.
            NotDeterministicError: a window that was computed again differs from the committed one;
                nothing was committed.
        """
        mark = self._plan.mark_of(group.last)
        rows = GroupFacts(
            group.windows,
            self._epoch,
            began_at,
            above=self._plan.window_of(self._done(FACTS)),
        )
        for stream, windows in counts.items():
            rows.add_input(stream, windows, self._missing.get(stream, ()))
        for port, windows in result.dropped.items():
            rows.add_dropped(port, windows)
        self._outputs(group, mark, result, rows, crash)
        crash(Step.AFTER_OUTPUTS)
        self._facts(mark, rows)
        crash(Step.AFTER_FACTS)
        stopping = group.last < self._plan.last and self._stop()
        return GroupEnd(self._checkpoint(group.last, mark, result.states, stopping), stopping)

    def _done(self, name: str) -> int:
        """Returns the mark of a table when this attempt fenced it.

        If the mode writes existing windows again, it is 0.
        """
        return self._tables[name].done if self._plan.mode.writes_only_missing else 0

    def _outputs(
        self,
        group: OperatorContext,
        mark: int,
        result: GroupResult,
        rows: GroupFacts,
        crash: Callable[[Step], None],
    ) -> None:
        staged = self.staged(mark)
        committed = self._engine.compare_with_committed(group.windows, result, staged)
        for number, (name, output) in enumerate(self._staged.items()):
            if name in staged:
                files = self._engine.files(name, result)
                self._tables[name].commit(mark, files, {"epoch": self._epoch, "mark": mark})
                rows.add_output(output, result.digests[name].with_column("attempt", self._epoch))
            elif group.last > (sealed := self._plan.window_of(self._sealed)):
                rows.add_output(output, committed[name].within(WindowRange(sealed + 1, group.last)))
            if number == 0:
                crash(Step.AFTER_FIRST_OUTPUT)

    def _facts(self, mark: int, rows: GroupFacts) -> None:
        if self._done(FACTS) < mark:
            self._tables[FACTS].commit(mark, rows.table())

    def _checkpoint(self, window: int, mark: int, states: States, stopping: bool) -> bool:
        """Commits the checkpoint of all operators if one is due. In the mode exactly once, one is
        due after every group.

        The checkpoint is a single commit, so it is saved completely or not at all, and never
        contains a part of a window. A checkpoint is also saved when the user stops the replay, so
        that no window is repeated or lost from the state.

        Rules: W51, W61, W64
        """
        ends = stopping or window == self._plan.last
        due = self._plan.mode.saves_every_group or self._schedule.is_due(window) or ends
        if due:
            # Saved once per window and attempt, even if the range ends where one is due (W52).
            rows = stored.encode(window, mark, states, versions=self._versions, made=self._made)
            self._checkpoints.commit(max(mark, self._checkpoints.done), rows)
        return due
