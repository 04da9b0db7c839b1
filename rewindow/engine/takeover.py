"""Takeover: how an attempt makes a replay's tables its own, and decides where to go on.

The order is the protocol. Fence the checkpoints first and read their marks, then fence every other
table; what is done in a table is what it held when it was fenced. At least once sets the other
tables back to the checkpoint that it restores, so it must know that one before it fences them. What
it goes by is in the tables alone (R7).

At most once keeps the last window whose work was begun as a transaction id of its own on the
checkpoints table, so that it does not depend on the ledger: an older ledger, or one that was
rebuilt, begins no window twice.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Takeover:
    """A replay whose tables this attempt has fenced.

    Attributes:
        started: the checkpoints table as a mode that may lose enters there what it begins; None in
            other modes.
        tables: the outputs, the error tables and the facts.
        sealed: mark of the facts as they are; `done` of the facts is lower where an output has lost
            commits.
        checkpoint: the one to restore, None when the state must be warmed up.
        warmed_up: the newest checkpoint of a warm-up that died, None when there is none.
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
    say: Callable[[str], None],
    open_table: Callable[[Location], Log] = Table.open,
) -> Takeover:
    """Takes every table of a replay, the checkpoints first, and returns how to go on.

    Args:
        root: folder of the replay's tables.
        say: called with lines for people.
        open_table: opens a table at its newest snapshot.

    Raises:
        FencedError: a newer attempt has begun.
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
    restorer = _Restorer(plan, app, checkpoints, started=started.done if started else 0, say=say)
    if plan.mode.may_repeat:
        positions = {}
        # Facts first: a table that another attempt fences meanwhile must not count for nothing.
        for name in [FACTS, *app.staged()]:
            positions[name] = position(open_table(root / name), app_id(plan.replay_id, name))
        found, checkpoint = restorer.newest(held_marks(plan, positions))
        tables = {}
        for name in [*app.staged(), FACTS]:
            tables[name] = take(name, name, lambda mark: found.restore)
        sealed = tables[FACTS].done
    else:
        tables = {name: take(name, name) for name in app.staged()}
        tables[FACTS], sealed = _take_facts(plan, take, [table.done for table in tables.values()])
        found, checkpoint = restorer.newest({name: table.done for name, table in tables.items()})
    warmed_up = None if checkpoint else restorer.newest_of_warm_up()
    return Takeover(
        checkpoints,
        started,
        tables,
        sealed=sealed,
        resume=found,
        checkpoint=checkpoint,
        warmed_up=warmed_up,
    )


def _take_facts(
    plan: Plan,
    take: Callable[..., FencedTable],
    outputs: list[int],
) -> tuple[FencedTable, int]:
    """Fences the facts and returns their mark too.

    Where only what is missing is written, they count for no more than the outputs hold: they are
    committed last, so an output that is behind them has lost commits; what it lacks is computed
    again under this attempt, and must be sealed again.
    """
    if not plan.mode.writes_only_missing:
        facts = take(FACTS, FACTS)
        return facts, facts.done
    facts = take(FACTS, FACTS, lambda mark: min([mark, *outputs]))
    return replace(facts, done=min([facts.done, *outputs])), facts.done


@dataclass(frozen=True)
class _Restorer:
    plan: Plan
    app: Application
    checkpoints: FencedTable
    started: int
    say: Callable[[str], None]

    def newest(self, done: Mapping[str, int]) -> tuple[Resume, stored.Checkpoint | None]:
        """Loads the newest checkpoint that the mode allows; a damaged one is passed over for an
        older one (R25).
        """
        plan = self.plan
        left = set(stored.marks(self.checkpoints.table))
        if not left and plan.start.source == "warm_up":
            return resume(plan.mode, {0}, done, self.started), None
        if not left:
            raise CheckpointError(
                f'replay "{plan.replay_id}" has no checkpoint at all, not even of its start state',
                hint="Abandon it and plan the range again; what is published is untouched.",
            )
        while True:
            found = resume(plan.mode, left, done, self.started)
            checkpoint = self._load(found.restore)
            if checkpoint is not None:
                self._say_cost(found)
                return found, checkpoint
            left.discard(found.restore)

    def newest_of_warm_up(self) -> stored.Checkpoint | None:
        """Loads the newest checkpoint that a warm-up has left."""
        marks = reversed(stored.warm_up_marks(self.checkpoints.table))
        return next((found for mark in marks if (found := self._load(mark))), None)

    def _load(self, mark: int) -> stored.Checkpoint | None:
        try:
            checkpoint = stored.load(self.checkpoints.table, mark)
            self._check_operators(checkpoint)
        except CheckpointError as error:
            self.say(f"{error.primary}; looking for an older one")
            return None
        return checkpoint

    def _say_cost(self, found: Resume) -> None:
        """Says what it costs that the newest checkpoint that was made cannot be restored."""
        newest = self.checkpoints.done
        if found.restore >= newest:
            return
        windows = f"{self.plan.window_of(found.restore + 1)} to {self.plan.window_of(newest)}"
        cost = f"windows {windows} are computed again"
        if self.plan.mode.may_lose:
            cost = (
                f"the state will lack windows {windows}, since {self.plan.mode.words} computes "
                "none again"
            )
        older = (
            f"the one at window {self.plan.window_of(found.restore)}"
            if found.restore
            else "the start state"
        )
        lost = (
            f"the checkpoint at window {self.plan.window_of(newest)} is damaged, gone or ahead "
            "of the tables"
        )
        self.say(f"{lost}; {older} is restored, so {cost}")

    def _check_operators(self, checkpoint: stored.Checkpoint) -> None:
        wanted = set(stateful_operators(self.app))
        if set(checkpoint.states) != wanted:
            raise CheckpointError(
                f"checkpoint at mark {checkpoint.mark} is foreign: it has the states of "
                f"{sorted(checkpoint.states)}, "
                f"the application has {sorted(wanted)}"
            )
