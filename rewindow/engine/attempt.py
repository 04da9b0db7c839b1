"""One attempt of a replay: takes over the tables, restores a state, then computes and commits group
after group.

| step | module | invariant |
| --- | --- | --- |
| takeover | `takeover` | fence first, then read; the checkpoints before every other table |
| warm-up | `warm_up` | writes nothing that a reader sees |
| losses | `losses` | at most once records lost windows before its first new group |
| commit | `group_commit` | outputs, facts and seals, the checkpoint last; each checks the epoch |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from rewindow.application import Application, OperatorContext
from rewindow.application.configuring import apply_changes
from rewindow.crash import Step, crash_point
from rewindow.engine.computation import Counts, Engine, PlannedAttempt
from rewindow.engine.group_commit import GroupCommit, GroupEnd
from rewindow.engine.losses import record_losses, unseen_windows
from rewindow.engine.progress import Progress, output_tuples, port_counts
from rewindow.engine.takeover import Takeover, take_over
from rewindow.engine.warm_up import WarmUp
from rewindow.errors import Interrupted
from rewindow.facts.group_facts import check_error_counts
from rewindow.ledger import Ledger
from rewindow.location import Location
from rewindow.names import whole_replay
from rewindow.recovery import CheckpointSchedule, GroupSizer, Plan, next_end
from rewindow.state import checkpoints as stored
from rewindow.state.changes import ChangeLog, container_log
from rewindow.state.files import RetainedFiles, States, folder_of
from rewindow.storage import FencedTable, Log, Table
from rewindow.storage.layout import CHECKPOINTS, state_folder
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from rewindow.engine.computation import GroupResult

logger = logging.getLogger(__name__)

FIRST_GROUP_TUPLES = 2_000_000
Crash = Callable[[Step, int], None]


class Attempt:
    """Runs a planned replay under one epoch until its last window is committed.

    Args:
        planned: the replay, its application and tables, and the attempt's epoch.
        ledger: receives the progress.
        engine: creates the engine that computes the windows; called with the fenced outputs and
            facts.
        tell: called with every committed group.
        stop: returns whether the user asked to stop; checked after each group.
        crash: called at every step of the protocol, with the number of the group; may end the
            process.
        open_table: opens a table at its newest snapshot.
    """

    def __init__(
        self,
        planned: PlannedAttempt,
        ledger: Ledger,
        engine: Callable[[Mapping[str, FencedTable]], Engine],
        *,
        tell: Callable[[Progress], None] = lambda progress: None,
        stop: Callable[[], bool] = lambda: False,
        crash: Crash | None = None,
        open_table: Callable[[Location], Log] = Table.open,
    ) -> None:
        self.plan = plan = planned.plan
        self.app = app = planned.app
        self.root = root = planned.root
        self.ledger = ledger
        self.epoch = epoch = planned.epoch
        self._make_engine = engine
        self._open_table = open_table
        self._tell = tell
        self._stop = stop
        self._crash = crash or partial(crash_point, attempt=epoch)
        self._held = RetainedFiles(folder_of(root / CHECKPOINTS), epoch)
        self._schedule = CheckpointSchedule(plan.checkpoint_windows, plan.checkpoint_multiple)
        changeable = any(node.is_changeable for node in app.nodes.values())
        self._unseen: list[WindowRange] = []
        self._changes = _change_log(plan, app, root) if changeable else None

    def run(self) -> None:
        """Runs the attempt to the end of the range.

        Raises:
            FencedError: a newer attempt has started.
            CheckpointError: no checkpoint can be restored.
            NotDeterministicError: a window that was computed again differs from the committed one.
            Interrupted: the user asked to stop; everything up to a group's end is kept.
        """
        takeover = take_over(
            self.plan,
            self.app,
            self.root,
            self.epoch,
            self._open_table,
        )
        self._held.clear(stored.state_leaves(takeover.checkpoints.table))
        self._crash(Step.FENCED, 1)
        engine = self._make_engine(takeover.tables)
        engine.clear_scratch()
        states = self._restore(takeover, engine)
        self._crash(Step.RESUMED, 1)
        self._run_groups(takeover, engine, states)
        if self._changes is not None:
            self.ledger.replays.keep_changes(self.plan.replay_id, self._changes.changes())
        engine.join_files()
        self._crash(Step.JOINED, 1)
        engine.clear_scratch()

    def _restore(self, takeover: Takeover, engine: Engine) -> States:
        """Records the losses of at-most-once recovery, and returns the states for the first
        group.
        """
        plan = self.plan
        resume = takeover.resume
        states = (
            takeover.checkpoint.states if takeover.checkpoint else self._warm_up(takeover, engine)
        )
        if resume.restore or resume.first > 1:
            at = (
                f"the checkpoint at window {plan.grid.describe(plan.window_of(resume.restore))}"
                if resume.restore
                else "the start state"
            )
            following = plan.grid.describe(plan.window_of(resume.first))
            logger.info(f"resumed from {at}, next window {following}")
        if not plan.mode.may_lose:
            return states
        self._unseen = unseen_windows(plan, takeover)
        skip = engine.skip(states, plan.windows_of(resume.skipped)) if resume.skipped else None
        record_losses(
            plan,
            self.app,
            takeover,
            engine=engine,
            epoch=self.epoch,
            skip=skip,
        )
        if skip and resume.first > len(plan.range):
            self._save(
                takeover,
                plan.last,
                skip.states,
            )  # No window is left to compute, so no group would save the states.
        return skip.states if skip else states

    def _save(self, takeover: Takeover, window: int, states: States) -> None:
        """Commits a checkpoint outside of a commit group."""
        plan = self.plan
        mark = self.plan.mark_of(window)
        versions = {node.name: node.operator.state_version for node in self.app.nodes.values()}
        provenance = stored.Provenance.of(plan, self.epoch)
        rows = stored.encode(window, mark, states, versions=versions, made=provenance)
        takeover.checkpoints.commit(max(mark, takeover.checkpoints.done), rows)
        self._held.went_on(states, states, saved=True)

    def _warm_up(self, takeover: Takeover, engine: Engine) -> States:
        plan = self.plan

        def save(window: int, states: States) -> None:
            self._save(takeover, window, states)
            self.ledger.attempts.report_warm_up(plan.replay_id, self.epoch)

        # The plan's limit of the group size does not apply: a warm-up stages nothing, so a crash
        # loses nothing that a reader would see.
        assert plan.start.warm_up_first is not None, "a warm-up has a first window"
        windows = WindowRange(plan.start.warm_up_first, plan.first - 1)
        tuples = sum(counts.tuples for counts in engine.count_inputs(windows).values())
        crash = partial(self._crash, Step.WARMED_UP)
        folder = state_folder(self.root)
        beside = self.root / CHECKPOINTS
        warm_up = WarmUp(
            plan,
            self.app,
            folder,
            beside=beside,
            engine=engine,
            sizer=self._sizer(windows, tuples, size_max=None),
            save=save,
            crash=crash,
        )
        return warm_up.run(takeover.warmed_up)

    def _run_groups(self, takeover: Takeover, engine: Engine, states: States) -> None:
        plan = self.plan
        sizer = self._sizer(plan.range, plan.input_tuples, size_max=plan.group_windows_max)
        commit = GroupCommit(
            plan,
            self.app,
            takeover,
            engine=engine,
            epoch=self.epoch,
            stop=self._stop,
        )
        cuts = list(map(plan.window_of, takeover.resume.cuts))
        window = plan.window_of(takeover.resume.first)
        number = 0
        restored = takeover.resume.restore
        saved = plan.window_of(restored) if restored else None
        ends = self.app.ends(plan.ends)
        lost = [(windows.first, windows.last) for windows in self._unseen]
        for missing in plan.missing_upstream().values():
            lost += [(windows.first, windows.last) for windows in missing]
        unseen = (*plan.start.unseen(plan.first), *lost)
        while window <= plan.last:
            began = time.monotonic()
            end = self._begin(
                window,
                next_end(
                    window,
                    plan.last,
                    sizer.size,
                    mode=plan.mode,
                    schedule=self._schedule,
                    cuts=cuts,
                ),
            )
            number += 1
            windows = WindowRange(window, end)
            next_mark = self._schedule.next_due
            group = OperatorContext(
                plan.grid,
                windows,
                plan.mode,
                unseen=unseen,
                ends=ends,
                checkpointed=saved,
                next_mark=next_mark,
            )
            self._start(takeover, plan.mark_of(end))
            states, ended = self._run_group(commit, engine, group, states=states, number=number)
            saved = end if ended.checkpoint else None
            sizer.took(end - window + 1, time.monotonic() - began)
            window = end + 1
            if ended.stopping:
                raise Interrupted(
                    f'replay "{plan.replay_id}" stopped after window {plan.grid.describe(end)} of '
                    f"{plan.last}",
                    detail="All windows up to it are committed.",
                    hint=f"Continue with: rewindow replay --resume {plan.replay_id}",
                )

    def _begin(self, first: int, last: int) -> int:
        """Sets changeable properties to their values for a group.

        Returns the last window of the group, which is before the next change.

        Rules: O26
        """
        if self._changes is None:
            return last
        end = self._changes.begin(first, last)
        apply_changes(self.app, self._changes.at(first))
        return end

    def _start(self, takeover: Takeover, mark: int) -> None:
        """Records durably that the windows of a group are started, before any work on them.

        Only used in the mode at most once.

        Rules: R13
        """
        if takeover.started:
            takeover.started.commit(mark, [], durable=True)

    def _run_group(
        self,
        commit: GroupCommit,
        engine: Engine,
        group: OperatorContext,
        states: States,
        number: int,
    ) -> tuple[States, GroupEnd]:
        """Computes and commits a group. Returns the states after it, and how its commit ended."""
        began = time.monotonic()
        began_at = datetime.now(UTC)
        mark = self.plan.mark_of(group.last)
        self._crash(Step.STARTED, number)
        counts = engine.count_inputs(group.windows)
        tuples = sum(of_input.tuples for of_input in counts.values())
        result = engine.compute(group, mark, states, staged=commit.staged(mark), tuples=tuples)
        check_error_counts(self.plan, result.digests)
        computed = time.monotonic()
        self._crash(Step.MATERIALISED, number)
        end = commit.run(group, result, counts, began_at, lambda step: self._crash(step, number))
        self._crash(Step.AFTER_CHECKPOINT, number)
        self._held.went_on(states, result.states, saved=end.checkpoint)
        engine.clear_scratch()
        self._report(
            group,
            result,
            counts,
            end,
            computed - began,
            time.monotonic() - began,
        )
        return result.states, end

    def _report(
        self,
        group: OperatorContext,
        result: GroupResult,
        counts: Counts,
        end: GroupEnd,
        compute: float,
        seconds: float,
    ) -> None:
        """Records a committed group in the ledger and reports it.

        `compute` and `seconds` are measured from the start of the group.
        """
        plan = self.plan
        mark = self.plan.mark_of(group.last)
        timings = {"compute": round(compute, 3), "commit": round(seconds - compute, 3)}
        ports = port_counts(group.windows, counts, result, errors=self.app.errors())
        self.ledger.attempts.report_progress(
            plan.replay_id,
            self.epoch,
            mark,
            mark if end.checkpoint else None,
            timings,
            ports,
            result.partitions,
        )
        windows = f"windows {plan.grid.describe(group.windows)}"
        for port in ports:
            if port.direction == "dropped" and port.tuples:
                logger.info(
                    f"nothing reads port {port.port}: {port.tuples:,} tuples of {windows} are "
                    "dropped"
                )
            if port.direction == "error" and port.tuples:
                logger.info(
                    f"error port {port.port}: {port.tuples:,} tuples of {windows} are stored as "
                    "errors"
                )
        tuples = output_tuples(result)
        self._tell(
            Progress(
                group.first,
                group.last,
                mark,
                of=len(plan.range),
                checkpoint=end.checkpoint,
                seconds=round(seconds, 3),
                tuples=tuples,
            )
        )

    def _sizer(self, windows: WindowRange, tuples: int, size_max: int | None) -> GroupSizer:
        """Returns the object that chooses the sizes of groups, for a range and its number of
        tuples.
        """
        size = max(16, len(windows) * FIRST_GROUP_TUPLES // max(tuples, 1))
        return GroupSizer(self.plan.group_windows, self.plan.group_seconds, size, size_max=size_max)


def _change_log(plan: Plan, app: Application, root: Location) -> ChangeLog:
    """Returns the property changes of a replay, or those of the operators of a container."""
    if not plan.container:
        return ChangeLog(root, plan.changes)
    planned = [change for change in plan.changes if change.operator in app.nodes]
    return container_log(root.with_name(whole_replay(root.name)), plan.container, planned)
