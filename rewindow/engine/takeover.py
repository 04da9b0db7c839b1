"""Takeover: an attempt fences all tables of a replay and decides where to resume.

The order is essential. The checkpoints are fenced first and their marks are read, then every other
table is fenced. The mark of a table is its mark at the time of fencing. The mode at least once sets
the other tables back to the checkpoint that it restores, so it must choose the checkpoint before it
fences them. All decisions depend only on the tables.

The mode at most once stores the last started window under a separate transaction id on the
checkpoints table. So it does not depend on the ledger: with an older or rebuilt ledger, no window
is started twice.

Rules: R7
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rewindow.application import Application
from rewindow.engine.ports import stateful_operators
from rewindow.errors import CheckpointError
from rewindow.location import Location
from rewindow.recovery import Plan, Resume, resume
from rewindow.state import checkpoints as stored
from rewindow.storage import FencedTable, Log, Table, fence, position
from rewindow.storage.layout import CHECKPOINTS, FACTS, STARTED, app_id
from rewindow.storage.staged_marks import held_marks

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Takeover:
    """A replay whose tables this attempt has fenced.

    Attributes:
        started: the checkpoints table under the transaction id of started windows, for a mode that
            may lose windows; None in other modes.
        tables: the outputs, the error tables and the facts.
        sealed: mark of the facts as they are; `done` of the facts is lower if an output has lost
            commits.
        resume: where the attempt resumes.
        checkpoint: the checkpoint to restore, None if the state must be computed by a warm-up.
        warmed_up: the newest checkpoint of a warm-up that died, None if there is none.
    """

    checkpoints: FencedTable
    started: FencedTable | None
    tables: Mapping[str, FencedTable]
    sealed: int
    resume: Resume
    checkpoint: stored.Checkpoint | None
    warmed_up: stored.Checkpoint | None


def take_over(
    plan: Plan,
    app: Application,
    root: Location,
    epoch: int,
    open_table: Callable[[Location], Log] = Table.open,
) -> Takeover:
    """Fences every table of a replay, the checkpoints first, and returns where to resume.

    Args:
        plan: the plan of the replay.
        app: its application.
        root: folder of the replay's tables.
        epoch: epoch of this attempt.
        open_table: opens a table at its newest snapshot.

    Raises:
        FencedError: a newer attempt has started.
        CheckpointError: no checkpoint can be restored.
    """

    def take(
        table: str,
        name: str,
        mark_of: Callable[[int], int] = lambda mark: mark,
    ) -> FencedTable:
        return fence(
            root / table,
            app_id(plan.replay_id, name),
            epoch,
            mark_of=mark_of,
            open_table=open_table,
        )

    # The checkpoints come first. An older attempt that still runs then cannot add a checkpoint
    # after this one has chosen from them.
    checkpoints = take(CHECKPOINTS, CHECKPOINTS)
    started = take(CHECKPOINTS, STARTED) if plan.mode.may_lose else None
    restorer = _Restorer(plan, app, checkpoints, started=started.done if started else 0)
    if plan.mode.may_repeat:
        positions = {}
        # The facts are read first: `held_marks` ignores tables with an older epoch than the facts,
        # and another attempt may be fencing tables at the same time.
        for name in [FACTS, *app.staged()]:
            positions[name] = position(open_table(root / name), app_id(plan.replay_id, name))
        start, checkpoint = restorer.newest(held_marks(plan, positions))
        tables = {}
        for name in [*app.staged(), FACTS]:
            tables[name] = take(name, name, lambda mark: start.restore)
        sealed = tables[FACTS].done
    else:
        tables = {name: take(name, name) for name in app.staged()}
        tables[FACTS], sealed = _take_facts(plan, take, [table.done for table in tables.values()])
        start, checkpoint = restorer.newest({name: table.done for name, table in tables.items()})
    warmed_up = None if checkpoint else restorer.newest_of_warm_up()
    return Takeover(
        checkpoints,
        started,
        tables,
        sealed=sealed,
        resume=start,
        checkpoint=checkpoint,
        warmed_up=warmed_up,
    )


def _take_facts(
    plan: Plan,
    take: Callable[..., FencedTable],
    outputs: list[int],
) -> tuple[FencedTable, int]:
    """Fences the facts and returns them with their mark.

    In a mode that writes only missing windows, the returned `done` is at most the mark of every
    output. The facts are committed last, so an output with a lower mark has lost commits. This
    attempt computes its missing windows again, and must seal them again.
    """
    if not plan.mode.writes_only_missing:
        facts = take(FACTS, FACTS)
        return facts, facts.done
    facts = take(FACTS, FACTS, lambda mark: min([mark, *outputs]))
    return replace(facts, done=min([facts.done, *outputs])), facts.done


@dataclass(frozen=True)
class _Restorer:
    """Finds and loads the checkpoint to restore."""

    plan: Plan
    app: Application
    checkpoints: FencedTable
    started: int

    def newest(self, done: Mapping[str, int]) -> tuple[Resume, stored.Checkpoint | None]:
        """Loads the newest checkpoint that the mode allows. If it is damaged, an older one is used.

        Rules: R25
        """
        plan = self.plan
        left = set(stored.marks(self.checkpoints.table))
        if not left and plan.start.source == "warm_up":
            return resume(plan.mode, {0}, done, self.started), None
        if not left:
            raise CheckpointError(
                f'replay "{plan.replay_id}" has no checkpoint at all, not even of its start state',
                hint="Abandon it and plan the range again; published windows are not affected.",
            )
        while True:
            start = resume(plan.mode, left, done, self.started)
            checkpoint = self._load(start.restore)
            if checkpoint is not None:
                self._say_cost(start)
                return start, checkpoint
            left.discard(start.restore)

    def newest_of_warm_up(self) -> stored.Checkpoint | None:
        """Loads the newest checkpoint of a warm-up; None if none exists."""
        marks = reversed(stored.warm_up_marks(self.checkpoints.table))
        return next((checkpoint for mark in marks if (checkpoint := self._load(mark))), None)

    def _load(self, mark: int) -> stored.Checkpoint | None:
        try:
            checkpoint = stored.load(self.checkpoints.table, mark)
            self._check_operators(checkpoint)
        except CheckpointError as error:
            logger.warning(f"{error.primary}; trying an older one")
            return None
        return checkpoint

    def _say_cost(self, start: Resume) -> None:
        """Reports the cost of restoring an older checkpoint than the newest saved one."""
        newest = self.checkpoints.done
        if start.restore >= newest:
            return
        grid = self.plan.grid
        windows = grid.describe(self.plan.windows_of((start.restore + 1, newest)))
        cost = f"windows {windows} are computed again"
        if self.plan.mode.may_lose:
            cost = (
                f"the state will lack windows {windows}, since {self.plan.mode.words} does not "
                "compute windows again"
            )
        older = (
            f"the one at window {grid.describe(self.plan.window_of(start.restore))}"
            if start.restore
            else "the start state"
        )
        lost = (
            f"the checkpoint at window {grid.describe(self.plan.window_of(newest))} is damaged, "
            "missing or ahead of the tables"
        )
        logger.warning(f"{lost}; {older} is restored, so {cost}")

    def _check_operators(self, checkpoint: stored.Checkpoint) -> None:
        wanted = set(stateful_operators(self.app))
        if set(checkpoint.states) != wanted:
            raise CheckpointError(
                f"checkpoint at mark {checkpoint.mark} belongs to another application: it has "
                f"the states of {sorted(checkpoint.states)}, but the application has "
                f"{sorted(wanted)}"
            )
