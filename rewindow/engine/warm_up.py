"""Warm-up: the state before a range, computed from an earlier one when no checkpoint is there
(W63).

It leaves a checkpoint after every group, so that one that dies goes on where it was. Their marks
are below zero: the windows lie before the range. The last one is checkpoint 0.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class WarmUp:
    """A warm-up of an attempt.

    Attributes:
        folder: the state folder.
        beside: the replay's table of checkpoints, to bring the files of a start state there.
        save: makes a checkpoint of the states after a window.
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
    say: Callable[[str], None]

    def run(self, from_checkpoint: stored.Checkpoint | None) -> States:
        """Computes the windows before the range and returns the state after them.

        Args:
            from_checkpoint: where an earlier warm-up came to, None to begin at the plan's start
                state.
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
            self.say(f"warm-up: windows {window} to {end} of {last}")
            window = end + 1
            number = number + 1
            self.crash(number)
        return states

    def _begin(self, checkpoint: stored.Checkpoint | None) -> tuple[int, States]:
        if checkpoint is not None:
            self.say(f"warm-up goes on after window {checkpoint.window}")
            return checkpoint.window + 1, checkpoint.states
        start = self.plan.start
        assert start.warm_up_first is not None, "a warm-up has a first window"
        return start.warm_up_first, _base(self.plan, self.app, self.folder, self.beside)

    def _compute(self, windows: WindowRange, states: States) -> States:
        """Computes a group of which nothing is staged: only its states are wanted."""
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
    rows = stored.brought(rows, table.path, beside, place=stored.START)
    return {
        row["operator"]: stored.decode(row, beside) for row in rows.to_pylist() if row["operator"]
    }
