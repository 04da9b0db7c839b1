"""The progress of each table of a replay.

It shows whether tables have lost commits, or the ledger does not belong to the tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from rewindow.errors import TableError
from rewindow.location import Location
from rewindow.names import whole_replay
from rewindow.recovery import Plan
from rewindow.sequences import names_of
from rewindow.storage.delta import Table
from rewindow.storage.failures import reading_table
from rewindow.storage.fence import Position, position
from rewindow.storage.layout import CHECKPOINTS, FACTS, app_id
from rewindow.storage.log_gaps import check_log
from rewindow.storage.queries import query
from rewindow.windows import WindowRange


def staged_positions(root: Location, plan: Plan) -> dict[str, Position]:
    """Returns the position (epoch and mark) of every existing table of a replay; empty if the
    replay was purged.

    Raises:
        TableError: the log of a table has a gap.
    """
    names = [*names_of(plan.staged), FACTS, CHECKPOINTS]
    for name in names:
        check_log(root / name)
    return {
        name: position(Table.open(root / name), app_id(plan.replay_id, name))
        for name in names
        if Table.exists(root / name)
    }


def lost_commits(plan: Plan, positions: dict[str, Position]) -> str:
    """Returns a text that lists the tables of an ended replay that lack its last windows; empty if
    there are none.

    Only the tables in `positions` are compared, so a deleted table is not listed. If the mode can
    lose windows, the outputs are not compared, because they may lack the last windows; see
    `check_sealed_rows`.
    """
    windows = len(plan.range)
    compared = [FACTS, CHECKPOINTS] if plan.may_lose else positions
    marks = held_marks(plan, positions)
    behind = {name: marks[name] for name in compared if name in marks and marks[name] < windows}
    return ", ".join(
        f'table "{name}" has {mark} of {windows} windows' for name, mark in behind.items()
    )


def held_marks(plan: Plan, positions: Mapping[str, Position]) -> dict[str, int]:
    """Returns the mark up to which each table has valid rows.

    An attempt fences the facts last. If windows may repeat, a table with an older epoch than the
    facts has lost the rows that the facts seal. Its mark refers to older rows, so it counts as 0.
    """
    newest = positions[FACTS].epoch if FACTS in positions and plan.mode.may_repeat else 0
    marks = {}
    for name, place in positions.items():
        marks[name] = place.mark if place.epoch >= newest else 0
    return marks


def check_sealed_rows(root: Location, plan: Plan, positions: dict[str, Position]) -> None:
    """Checks that, in the mode at most once, the outputs have all windows that the facts seal.

    A missing sealed window is not a loss that the mode allows, because a seal is committed after
    its rows. The other modes compute such windows again. The mode at most once computes no window
    twice.

    Raises:
        TableError: sealed windows are missing; the message has the table and the windows.
    """
    if not plan.may_lose or FACTS not in positions:
        return
    sql = (
        "select port, max(window_id) as last from f where direction in ('out', 'error') and not "
        "lost group by port"
    )
    for seal in query(sql, f=Table.open(root / FACTS)).to_pylist():
        place = positions.get(seal["port"])
        if place is not None and place.mark < plan.mark_of(seal["last"]):
            windows = WindowRange(plan.window_of(place.mark + 1), seal["last"])
            raise TableError(
                f'table "{seal["port"]}" of replay "{plan.replay_id}" has lost its newest commits: '
                f"windows {windows} are sealed, but their rows are missing",
                detail="At most once computes no window twice, so they cannot be computed again. "
                "Nothing was changed.",
                hint=f"Restore the newest files of {root / seal['port'] / '_delta_log'} from a "
                f"backup. Without a backup: {_plan_again(plan)}",
            )


def check_ledger(root: Location, plan: Plan, positions: dict[str, Position], epoch: int) -> None:
    """Checks that the ledger belongs to a replay's tables and is not an older copy.

    Args:
        root: folder of the replay's tables.
        plan: the plan in the ledger.
        positions: the positions of the tables.
        epoch: the newest epoch in the ledger, read after the positions.

    Raises:
        TableError: a table has a later epoch, or the tables contain another plan.
    """
    hint = (
        "Restore the newest ledger; or move this one away and rebuild it from the tables: "
        "rewindow ledger rebuild"
    )
    if CHECKPOINTS in positions and _as_made(plan_in(root)) != _as_made(plan):
        raise TableError(
            f'plan of replay "{plan.replay_id}" differs between its tables and the ledger',
            detail="The ledger does not belong to the tables, or is an older copy. Nothing was "
            "started or changed.",
            hint=hint,
        )
    newest = max((place.epoch for place in positions.values()), default=0)
    if newest > epoch:
        raise TableError(
            f'ledger is older than the tables of replay "{plan.replay_id}": its newest attempt is '
            f"{epoch}, but the tables contain attempt {newest}",
            detail="The ledger does not belong to the tables, or is an older copy. Nothing was "
            "started or changed.",
            hint=hint,
        )


def _as_made(plan: Plan) -> Plan:
    """Returns a plan without what `rewindow set` has changed in the ledger while the replay ran.

    Rules: X10
    """
    return plan.model_copy(update={"changes": [], "cores_max": None, "restart_epoch": 0})


def _plan_again(plan: Plan) -> str:
    whole = whole_replay(plan.replay_id)
    return f"abandon the replay (rewindow abandon {whole}) and plan its range again."


def plan_in(root: Location) -> Plan:
    """Returns the plan that is stored with a replay's tables.

    Raises:
        TableError: the plan is missing, or cannot be read.
    """
    table = Table.open(root / CHECKPOINTS)
    with reading_table(table.path, what=": its plan is damaged"):
        return Plan.model_validate_json(table.properties["rewindow.plan"])
