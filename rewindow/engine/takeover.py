"""Takeover: how an attempt makes a replay's tables its own, and decides where to go on.

The order is the protocol. Fence the checkpoints first and read their marks, then fence every other table; what is done
in a table is what it held when it was fenced. At least once sets the other tables back to the checkpoint that it
restores, so it must know that one before it fences them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from rewindow.application import Application, Mode
from rewindow.errors import CheckpointError
from rewindow.ledger import Ledger
from rewindow.recovery import Plan, Resume, resume
from rewindow.tables import FencedTable, Log, Table, fence
from rewindow.tables import checkpoints as stored
from rewindow.tables.staging import CHECKPOINTS, FACTS, app_id


@dataclass(frozen=True)
class Takeover:
    """A replay whose tables this attempt has fenced.

    Attributes:
        tables: the outputs and the facts.
        checkpoint: the one to restore, None when the state must be warmed up.
    """

    checkpoints: FencedTable
    tables: Mapping[str, FencedTable]
    resume: Resume
    checkpoint: stored.Checkpoint | None


def take_over(
    plan: Plan,
    app: Application,
    root: Path,
    ledger: Ledger,
    epoch: int,
    say: Callable[[str], None],
    open_table: Callable[[Path], Log] = Table.open,
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

    def take(name: str, mark_of: Callable[[int], int] = lambda mark: mark) -> FencedTable:
        return fence(root / name, app_id(plan.replay_id, name), epoch, mark_of, open_table)

    checkpoints = take(CHECKPOINTS)
    usable = set(stored.marks(checkpoints.table))
    names = [*app.outputs, FACTS]
    restorer = _Restorer(plan, app, ledger, checkpoints.table, say)
    if plan.mode is Mode.AT_LEAST_ONCE:
        found, checkpoint = restorer.newest(usable, {})
        return Takeover(
            checkpoints, {name: take(name, lambda mark: found.restore) for name in names}, found, checkpoint
        )
    tables = {name: take(name) for name in names}
    found, checkpoint = restorer.newest(usable, {name: table.done for name, table in tables.items()})
    return Takeover(checkpoints, tables, found, checkpoint)


@dataclass(frozen=True)
class _Restorer:
    plan: Plan
    app: Application
    ledger: Ledger
    checkpoints: Log
    say: Callable[[str], None]

    def newest(self, usable: Collection[int], done: Mapping[str, int]) -> tuple[Resume, stored.Checkpoint | None]:
        """Loads the newest checkpoint that the mode allows; a damaged one is passed over for an older one (R25)."""
        plan = self.plan
        started = self.ledger.started(plan.replay_id) if plan.mode is Mode.AT_MOST_ONCE else 0
        if not usable and plan.start.source == "warm_up":
            return resume(plan.mode, {0}, done, started), None
        if not usable:
            raise CheckpointError(
                f'replay "{plan.replay_id}" has no checkpoint at all, not even of its start state',
                hint="Abandon it and plan the range again; what is published is untouched.",
            )
        left = set(usable)
        while True:
            found = resume(plan.mode, left, done, started)
            try:
                checkpoint = stored.load(self.checkpoints, found.restore)
                self._check_operators(checkpoint)
                return found, checkpoint
            except CheckpointError as error:
                left.discard(found.restore)
                self.say(f"{error.primary}; looking for an older one")
                if not left:
                    raise

    def _check_operators(self, checkpoint: stored.Checkpoint) -> None:
        wanted = {node.name for node in self.app.nodes.values() if node.operator.is_stateful}
        if set(checkpoint.states) != wanted:
            raise CheckpointError(
                f"checkpoint at mark {checkpoint.mark} is foreign: it has the states of {sorted(checkpoint.states)}, "
                f"the application has {sorted(wanted)}"
            )
