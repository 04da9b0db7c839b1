"""The checkpoints of a replay, read and held against their digests, and the one that a resume would
restore.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rewindow.application import Mode
from rewindow.errors import CheckpointError, TableError
from rewindow.ledger import Ledger
from rewindow.planning.forecast import Recovery, expect_recovery, window_seconds
from rewindow.recovery import Plan
from rewindow.sequences import names_of, quantity
from rewindow.settings.config import Config
from rewindow.state.checkpoints import SCHEMA, decode
from rewindow.state.files import StateFiles
from rewindow.storage import DataFile, Table
from rewindow.storage.failures import reading_table
from rewindow.storage.layout import CHECKPOINTS
from rewindow.windows import WindowRange, describe_seconds


@dataclass(frozen=True)
class SavedState:
    """The state of an operator in a checkpoint.

    Attributes:
        bytes: of its cell, or of its files.
        digest: as it was stored.
        state_version, code_version, configuration_digest: of the operator that has saved it.
        damage: what is wrong with it; empty if it can be restored.
    """

    operator: str
    rows: int
    bytes: int
    digest: str
    state_version: int
    code_version: str
    configuration_digest: str
    damage: str = ""


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """A checkpoint, as the newest attempt has saved it.

    Attributes:
        window: the last window that the states have seen.
        damage: what is wrong with it; empty if a resume can restore it.
        cost: what a resume costs without it, in words; empty if it is not damaged.
    """

    window: int
    attempt: int
    states: tuple[SavedState, ...] = ()
    damage: str = ""
    cost: str = ""


@dataclass(frozen=True)
class VerifiedReplay:
    """The checkpoints of a replay of one container, or of one of several containers.

    Attributes:
        replay: its id.
        checkpoints: newest first.
        restored: the window of the checkpoint that a resume would restore, None if there is none.
        why: why this one, in words.
        recovery: how a resume would continue, in words; empty if it cannot.
    """

    replay: str
    mode: Mode
    checkpoints: list[VerifiedCheckpoint] = field(default_factory=list)
    restored: int | None = None
    why: str = ""
    recovery: str = ""

    @property
    def is_damaged(self) -> bool:
        """Whether a checkpoint is damaged."""
        return any(one.damage for one in self.checkpoints)

    def to_dict(self) -> dict[str, Any]:
        """Returns it for programs."""
        checkpoints = []
        for one in self.checkpoints:
            checkpoints.append({**vars(one), "states": list(map(vars, one.states))})
        return {**vars(self), "mode": self.mode.name, "checkpoints": checkpoints}


def verify_checkpoints(config: Config, replay_id: str) -> list[VerifiedReplay]:
    """Reads the checkpoints of a replay, of each of its containers if it has several.

    Raises:
        InputError: there is no such replay.
        TableError: the staged tables were purged.
        ResourceError: the machine could not read a file that may be whole.
    """
    replays = Ledger.open(config.ledger_url).replays
    plan = replays.get(replay_id).read_plan()
    if not plan.is_divided:
        return [_verified(config, plan)]
    return [_verified(config, row.read_plan()) for row in replays.containers(replay_id)]


def _verified(config: Config, plan: Plan) -> VerifiedReplay:
    path = config.replay_root(plan.replay_id) / CHECKPOINTS
    if not Table.exists(path):
        raise TableError(
            f'replay "{plan.replay_id}" has no checkpoints',
            detail="Its staged tables were purged, or it has not begun.",
        )
    found = _checkpoints(Table.open(path), plan)
    usable = []
    for one in found:
        if not one.damage:
            usable.append(one.window)
    seconds = window_seconds(config, plan)
    checkpoints = []
    for one in sorted(found, key=lambda one: -one.window):
        cost = _cost(plan, one, usable, seconds) if one.damage else ""
        checkpoints.append(
            VerifiedCheckpoint(one.window, one.attempt, one.states, one.damage, cost)
        )
    try:
        recovery = expect_recovery(config, plan, list(map(plan.mark_of, usable)))
    except CheckpointError as error:
        why = f"{error.primary}: the replay can only be planned again"
        return VerifiedReplay(plan.replay_id, plan.mode, checkpoints, why=why)
    return VerifiedReplay(
        plan.replay_id,
        plan.mode,
        checkpoints,
        restored=recovery.restored,
        why=_why(plan, checkpoints, recovery),
        recovery=str(recovery),
    )


def _checkpoints(table: Table, plan: Plan) -> list[VerifiedCheckpoint]:
    """Returns the checkpoints in a table, each of the newest attempt that has saved it."""
    newest: dict[int, VerifiedCheckpoint] = {}
    for file in table.files():
        for one in _in_file(table, file, plan):
            known = newest.get(one.window)
            if known is None or known.attempt <= one.attempt:
                newest[one.window] = one
    return list(newest.values())


def _in_file(table: Table, file: DataFile, plan: Plan) -> list[VerifiedCheckpoint]:
    """Returns the checkpoints in a file; an attempt saves each in one file."""
    try:
        with reading_table(table.path):
            rows = table.read(file, SCHEMA.names).select(SCHEMA.names).to_pylist()
    except TableError as error:
        # The log of the table still has the bounds of the windows in the file.
        known = {file.first, file.last} - {None}
        return [VerifiedCheckpoint(window, 0, damage=error.primary) for window in known if window]
    by_window: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        # A warm-up saves states of windows before the range, which no resume restores.
        if row["mark"] >= 0:
            by_window.setdefault(row["window_id"], []).append(row)
    found = []
    for window, of_window in by_window.items():
        states = []
        for row in of_window:
            if row["operator"]:
                states.append(_saved_state(row, table))
        damage = "; ".join(f"{one.operator}: {one.damage}" for one in states if one.damage)
        missing = _stateful(plan).difference(one.operator for one in states)
        if missing:
            damage = f"it lacks the state of {', '.join(sorted(missing))}"
        found.append(
            VerifiedCheckpoint(window, of_window[0]["attempt"], tuple(states), damage=damage)
        )
    return found


def _stateful(plan: Plan) -> set[str]:
    """Returns the operators of a replay that have a state."""
    operators = plan.graph.operators if plan.graph else []
    return set(names_of(one for one in operators if one.stateful))


def _saved_state(row: dict[str, Any], table: Table) -> SavedState:
    damage = ""
    size = len(row["state"] or b"")
    try:
        state = decode(row, table.path)
        if isinstance(state, StateFiles):
            size = state.bytes()
    except CheckpointError as error:
        damage = error.primary.partition("is damaged: ")[2] or error.primary
    return SavedState(
        row["operator"],
        row["rows"],
        size,
        digest=row["digest"],
        state_version=row["schema_version"],
        code_version=row["code_version"],
        configuration_digest=row["configuration_digest"],
        damage=damage,
    )


def _cost(
    plan: Plan,
    damaged: VerifiedCheckpoint,
    usable: list[int],
    seconds: float | None,
) -> str:
    """Returns what a resume costs that cannot restore a damaged checkpoint, in words."""
    older = [window for window in usable if window < damaged.window]
    if not older:
        return "no older checkpoint can be restored in its place"
    windows = WindowRange(max(older) + 1, damaged.window)
    if plan.mode.may_lose:
        return f"the state would lack {quantity(len(windows), 'window')} {windows}"
    time = "" if seconds is None else f", about {describe_seconds(round(seconds * len(windows)))}"
    return f"{quantity(len(windows), 'window')} {windows} would be computed again{time}"


def _why(plan: Plan, checkpoints: list[VerifiedCheckpoint], recovery: Recovery) -> str:
    """Returns why a resume restores a checkpoint and none of the newer ones, in words."""
    reasons = []
    for one in checkpoints:
        if one.window > recovery.restored:
            reason = "is damaged" if one.damage else "is ahead of a table"
            reasons.append(f"that of window {one.window} {reason}")
    whole = "the newest that is whole"
    if not plan.mode.may_lose:
        whole += " and that every table has reached"
    return "; ".join([whole, *reasons])
