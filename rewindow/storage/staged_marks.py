"""How far each table of a replay says that it came: what has lost commits, and what another ledger
wrote.
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
    """Returns the position of every table of a replay that is there; none when it was purged.

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
    """Returns, in words, which tables of a replay that has ended are behind its last window; empty
    when none is.

    Where the mode may lose, the outputs do not tell (`check_sealed_rows`): one may lack the last
    windows as lost.
    """
    windows = len(plan.range)
    told = [FACTS, CHECKPOINTS] if plan.may_lose else positions
    marks = held_marks(plan, positions)
    behind = {name: marks[name] for name in told if name in marks and marks[name] < windows}
    return ", ".join(
        f'table "{name}" holds {mark} of {windows} windows' for name, mark in behind.items()
    )


def held_marks(plan: Plan, positions: Mapping[str, Position]) -> dict[str, int]:
    """Returns the mark up to which each table holds rows that count.

    An attempt fences the facts last. Where windows may repeat, a table that has seen fewer attempts
    than the facts has lost the rows that the facts seal; its mark is that of older rows, so it
    counts for nothing.
    """
    newest = positions[FACTS].epoch if FACTS in positions and plan.mode.may_repeat else 0
    marks = {}
    for name, place in positions.items():
        marks[name] = place.mark if place.epoch >= newest else 0
    return marks


def check_sealed_rows(root: Location, plan: Plan, positions: dict[str, Position]) -> None:
    """Refuses a replay in at most once whose facts seal windows that an output's table no longer
    holds.

    That is no loss that the mode allows and lists: a seal is committed after the rows that it
    seals. The other modes compute such windows again; at most once computes none twice.

    Raises:
        TableError: names the table and the windows.
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
                f"windows {windows} "
                "are sealed, and their rows are gone",
                detail="At most once computes no window twice, so they cannot be computed again. "
                "Nothing was changed.",
                hint=f"Put the newest files of {root / seal['port'] / '_delta_log'} back from a "
                "copy. Without one: "
                f"{_plan_again(plan)}",
            )


def check_ledger(root: Location, plan: Plan, positions: dict[str, Position], epoch: int) -> None:
    """Refuses a ledger that is not the one of a replay's tables: an older copy, or another one.

    Args:
        root: folder of the replay's tables.
        plan: the plan in the ledger.
        epoch: the newest one that the ledger has given out, read after the positions.

    Raises:
        TableError: a table has seen a later attempt, or the tables hold another plan.
    """
    hint = (
        "Put the newest ledger back; or move this one away and make it again from the tables: "
        "rewindow ledger rebuild"
    )
    if CHECKPOINTS in positions and _as_made(plan_in(root)) != _as_made(plan):
        raise TableError(
            f'tables of replay "{plan.replay_id}" hold another plan than the ledger',
            detail="The ledger is another one, or an older copy. Nothing was started or changed.",
            hint=hint,
        )
    newest = max((place.epoch for place in positions.values()), default=0)
    if newest > epoch:
        raise TableError(
            f'ledger is older than the tables of replay "{plan.replay_id}": it knows of attempts '
            f"up to {epoch}, "
            f"the tables hold attempt {newest}",
            detail="It is an older copy, or another ledger. Nothing was started or changed.",
            hint=hint,
        )


def _as_made(plan: Plan) -> Plan:
    """Returns a plan without what was changed while it ran, which the ledger adds to it (X10)."""
    return plan.model_copy(update={"changes": []})


def _plan_again(plan: Plan) -> str:
    whole = whole_replay(plan.replay_id)
    return f"abandon the replay (rewindow abandon {whole}) and plan its range again."


def plan_in(root: Location) -> Plan:
    """Returns the plan that a replay's tables carry.

    Raises:
        TableError: it is missing, or cannot be read.
    """
    table = Table.open(root / CHECKPOINTS)
    with reading_table(table.path, what=": its plan is damaged"):
        return Plan.model_validate_json(table.properties["rewindow.plan"])
