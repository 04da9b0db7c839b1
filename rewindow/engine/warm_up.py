"""Warm-up: computes the state before a range from an earlier state, if there is no checkpoint for
the start of the range.

A checkpoint is saved after every group, so that an interrupted warm-up can continue. The marks of
these checkpoints are negative, because their windows are before the range. The last checkpoint has
number 0.

Rules: W63
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from rewindow.application import Application, OperatorContext
from rewindow.engine.computation import Engine
from rewindow.engine.ports import stateful_operators
from rewindow.location import Location
from rewindow.recovery import CheckpointSchedule, GroupSizer, Plan
from rewindow.state import checkpoints as stored
from rewindow.state.files import States
from rewindow.storage import Table
from rewindow.windows import WindowRange

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmUp:
    """The warm-up of an attempt.

    Attributes:
        folder: the state folder.
        beside: the replay's table of checkpoints; the files of a start state are linked next to it.
        save: saves a checkpoint of the states after a window.
        crash: called after each checkpoint, with the number of the group.
    """

    plan: Plan
    app: Application
    folder: Location
    beside: Location
    engine: Engine
    sizer: GroupSizer
    save: Callable[[int, States], None]
    crash: Callable[[int], None]

    def run(self, from_checkpoint: stored.Checkpoint | None) -> States:
        """Computes the windows before the range and returns the state after them.

        Args:
            from_checkpoint: the newest checkpoint of an earlier warm-up, None to start at the
                plan's start state.
        """
        window, states = self._begin(from_checkpoint)
        last = self.plan.first - 1
        number = 0
        while window <= last:
            began = time.monotonic()
            end = min(last, window + self.sizer.size - 1)
            states = self._compute(WindowRange(window, end), states)
            self.save(end, states)
            self.sizer.took(end - window + 1, time.monotonic() - began)
            windows = self.plan.grid.describe(WindowRange(window, end))
            logger.info(f"warm-up: windows {windows} of {last}")
            window = end + 1
            number = number + 1
            self.crash(number)
        return states

    def _begin(self, checkpoint: stored.Checkpoint | None) -> tuple[int, States]:
        if checkpoint is not None:
            logger.info(
                f"warm-up continues after window {self.plan.grid.describe(checkpoint.window)}"
            )
            return checkpoint.window + 1, checkpoint.states
        start = self.plan.start
        assert start.warm_up_first is not None, "a warm-up has a first window"
        return start.warm_up_first, _base(self.plan, self.app, self.folder, self.beside)

    def _compute(self, windows: WindowRange, states: States) -> States:
        """Computes a group without staging its outputs. Only its states are used."""
        schedule = CheckpointSchedule(self.plan.checkpoint_windows, self.plan.checkpoint_multiple)
        unseen = self.plan.start.unseen(self.plan.first)
        ends = self.app.ends(self.plan.ends)
        group = OperatorContext(
            self.plan.grid,
            windows,
            self.plan.mode,
            unseen=unseen,
            ends=ends,
            next_mark=schedule.next_due,
        )
        tuples = sum(counts.tuples for counts in self.engine.count_inputs(windows).values())
        return self.engine.compute(group, 0, states, staged=(), tuples=tuples).states


def _base(plan: Plan, app: Application, folder: Location, beside: Location) -> States:
    stateful = stateful_operators(app)
    if not plan.start.taken_from:
        return {name: operator.initial_state() for name, operator in stateful.items()}
    table = Table.open(plan.start.table(folder), plan.start.version)
    rows = stored.rows_at(table, plan.start.warm_up_first - 1)  # type: ignore[operator]
    rows = stored.copy_states(rows, table.path, beside, place=stored.START)
    return {
        row["operator"]: stored.decode(row, beside) for row in rows.to_pylist() if row["operator"]
    }
