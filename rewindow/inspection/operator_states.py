"""Reads operator states from a checkpoint of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from rewindow.errors import InputError, TableError
from rewindow.ledger import Ledger
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.state.checkpoints import frame_digest, load, marks
from rewindow.state.files import OperatorState
from rewindow.state.preview import first_rows
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS


@dataclass(frozen=True)
class OperatorStateRows:
    """The state of an operator after a window.

    Attributes:
        window: the last window included in the state.
        count: number of rows; an operator with a key has one row per key.
        rows: the first rows, or the first of the requested ones.
    """

    operator: str
    window: int
    count: int
    digest: str
    rows: pa.Table = field(compare=False)


def operator_states(
    config: Config,
    replay_id: str,
    operator: str | None = None,
    *,
    window: int | None = None,
    where: Mapping[str, str] | None = None,
    limit: int = 20,
) -> list[OperatorStateRows]:
    """Checks the states in a checkpoint of a replay against their digests.

    Returns the states with some of their rows.

    Args:
        config: current settings.
        replay_id: a replay; it may still be running.
        operator: the only operator to read.
        window: use the newest checkpoint at or before this window, not the newest of all.
        where: columns of the state, such as the key, with the text of the value that rows must have
            there.
        limit: maximum number of rows per operator.

    Raises:
        InputError: the replay, an operator with a state, the column or the checkpoint does not
            exist.
        CheckpointError: the checkpoint is damaged.
        TableError: the staged tables were purged.
    """
    plan = Ledger.open(config.ledger_url).replays.get(replay_id).read_plan()
    path = config.replay_root(replay_id) / CHECKPOINTS
    if not Table.exists(path):
        raise TableError(
            f'replay "{replay_id}" has no checkpoints',
            detail="Its staged tables were purged, or it has not started.",
        )
    table = Table.open(path)
    found = load(table, _mark(plan, marks(table), window))
    wanted = {name: state for name, state in found.states.items() if operator in (None, name)}
    if operator is not None and not wanted:
        raise InputError(
            f'operator "{operator}" of replay "{replay_id}" has no state',
            hint=f"Operators with a state: {', '.join(found.states) or 'none'}.",
        )
    return [_look(name, found.window, state, where or {}, limit) for name, state in wanted.items()]


def _mark(plan: Plan, known: list[int], window: int | None) -> int:
    if window is not None and window not in plan.range:
        raise InputError(
            f'window {window} is not in replay "{plan.replay_id}", which has '
            f"{plan.grid.describe(plan.range)}"
        )
    reach = [mark for mark in known if window is None or plan.first + mark - 1 <= window]
    if not reach:
        raise InputError(
            f'replay "{plan.replay_id}" has no checkpoint at or before window '
            f"{plan.grid.describe(window)}"
            if window is not None
            else f'replay "{plan.replay_id}" has no checkpoint yet'
        )
    return reach[-1]


def _look(
    name: str,
    window: int,
    state: OperatorState,
    where: Mapping[str, str],
    limit: int,
) -> OperatorStateRows:
    count = state.num_rows if isinstance(state, pa.Table) else state.rows
    digest = frame_digest(state) if isinstance(state, pa.Table) else state.digest
    return OperatorStateRows(
        name, window, count, digest=digest, rows=first_rows(state, limit, where)
    )
