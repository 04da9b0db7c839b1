"""Reads the checkpoints of a replay and checks them against their digests.

Shows which of them a resume would restore.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rewindow.errors import CheckpointError, TableError
from rewindow.ledger import Ledger
from rewindow.planning.forecast import expect_recovery, window_seconds
from rewindow.recovery import Plan
from rewindow.sequences import quantity
from rewindow.settings.config import Config
from rewindow.state.checkpoints import SCHEMA, decode
from rewindow.state.files import StateFiles
from rewindow.storage import DataFile, Table
from rewindow.storage.failures import reading_table
from rewindow.storage.layout import CHECKPOINTS
from rewindow.windows import WindowRange, describe_seconds

_SHOWN = ("operator", "rows", "digest", "schema_version", "code_version", "configuration_digest")


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """The checkpoint of a window that the newest attempt saved.

    Attributes:
        window: the last window included in the states.
        states: rows, bytes, digest and versions of each operator that has a state.
        damage: description of the damage; empty if a resume can restore the checkpoint.
        cost: cost of a resume without this checkpoint, as text; empty if it is not damaged.
    """

    window: int
    attempt: int
    states: list[dict[str, Any]]
    damage: str = ""
    cost: str = ""


@dataclass(frozen=True)
class VerifiedReplay:
    """The checkpoints of a replay, or of one of its containers if it has several.

    Attributes:
        mode: recovery mode, as text.
        checkpoints: newest first.
        restored: the window of the checkpoint that a resume would restore, None if there is none.
        why: the reason for this choice, as text.
        recovery: how a resume would continue, as text; empty if it cannot.
    """

    replay: str
    mode: str
    checkpoints: list[VerifiedCheckpoint]
    restored: int | None
    why: str
    recovery: str = ""

    @property
    def is_damaged(self) -> bool:
        """Whether a checkpoint is damaged."""
        return any(one.damage for one in self.checkpoints)


def verify_checkpoints(config: Config, replay_id: str) -> list[VerifiedReplay]:
    """Reads and checks the checkpoints of a replay, or of each of its containers if it has several.

    Raises:
        InputError: no replay has this id.
        TableError: the staged tables were purged.
        ResourceError: the machine could not read a file, which may be undamaged.
    """
    replays = Ledger.open(config.ledger_url).replays
    plan = replays.get(replay_id).read_plan()
    if not plan.is_divided:
        return [_verified(config, plan)]
    return [_verified(config, row.read_plan()) for row in replays.containers(replay_id)]


def _verified(config: Config, plan: Plan) -> VerifiedReplay:
    table = Table.open(config.replay_root(plan.replay_id) / CHECKPOINTS)
    newest: dict[int, VerifiedCheckpoint] = {}
    for file in table.files():
        for one in _in_file(table, file):
            if one.window not in newest or newest[one.window].attempt <= one.attempt:
                newest[one.window] = one
    usable = [window for window, one in newest.items() if not one.damage]
    seconds = window_seconds(config, plan)
    found = []
    for window in sorted(newest, reverse=True):
        one = newest[window]
        found.append(
            replace(
                one,
                cost=_cost(
                    plan,
                    window,
                    usable,
                    seconds,
                ),
            )
            if one.damage
            else one
        )
    words = plan.mode.words
    try:
        recovery = expect_recovery(
            config,
            plan,
            [plan.mark_of(window) for window in usable],
        )
    except CheckpointError as error:
        return VerifiedReplay(
            plan.replay_id,
            words,
            found,
            None,
            error.primary,
        )
    why = "the newest undamaged one"
    if not plan.mode.may_lose:
        why += " that every table has reached"
    for one in found:
        if one.window > recovery.restored:
            reason = "damaged" if one.damage else "ahead of a table"
            why += f"; that of window {one.window} is {reason}"
    return VerifiedReplay(
        plan.replay_id,
        words,
        found,
        recovery.restored,
        why,
        str(recovery),
    )


def _in_file(table: Table, file: DataFile) -> list[VerifiedCheckpoint]:
    """Returns the checkpoints in a file. An attempt saves each checkpoint in a single file."""
    try:
        with reading_table(table.path):
            rows = table.read(file, SCHEMA.names).select(SCHEMA.names).to_pylist()
    except TableError as error:
        # The log of the table still has the window of the file.
        assert file.first is not None, "the log has bounds of a checkpoint's windows"
        return [
            VerifiedCheckpoint(
                file.first,
                0,
                [],
                damage=error.primary,
            )
        ]
    found: dict[int, VerifiedCheckpoint] = {}
    for row in rows:
        window = row["window_id"]
        one = found.setdefault(
            window,
            VerifiedCheckpoint(
                window,
                row["attempt"],
                [],
            ),
        )
        if row["operator"]:
            size = len(row["state"] or b"")
            try:
                state = decode(row, table.path)
                size = state.bytes() if isinstance(state, StateFiles) else size
            except CheckpointError as error:
                found[window] = replace(one, damage=error.primary)
            one.states.append({**{name: row[name] for name in _SHOWN}, "bytes": size})
    # A warm-up saves states of windows before the range, which no resume restores.
    return [found[row["window_id"]] for row in rows[:1] if row["mark"] >= 0]


def _cost(plan: Plan, window: int, usable: list[int], seconds: float | None) -> str:
    """Returns the cost of a resume that cannot restore the checkpoint of a window, as text."""
    older = [one for one in usable if one < window]
    if not older:
        return "no older checkpoint can replace it"
    windows = WindowRange(max(older) + 1, window)
    count = f"{quantity(len(windows), 'window')} {windows}"
    if plan.mode.may_lose:
        return f"the state would lack {count}"
    time = "" if seconds is None else f", about {describe_seconds(round(seconds * len(windows)))}"
    return f"{count} would be computed again{time}"
