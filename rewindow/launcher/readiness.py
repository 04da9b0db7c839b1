"""Checks whether a replay can continue.

The check is used before an attempt starts, and by `status`.
"""

from __future__ import annotations

from rewindow.errors import RewindowError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import ReplayState
from rewindow.loading.catalog import check_code, load_planned
from rewindow.names import whole_replay
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.spark.heap import is_repeated
from rewindow.storage import Position, TuplesInPlace
from rewindow.storage.inputs import InputFiles, open_input
from rewindow.storage.layout import check_replay_format
from rewindow.storage.staged_marks import check_ledger, check_sealed_rows, staged_positions


def obstacle(config: Config, plan: Plan) -> RewindowError | None:
    """Returns the error that would prevent the next attempt of a replay, or stop it before its
    first group; None if there is none.

    Nothing is changed. The application is loaded, because changed code cannot continue from the
    checkpoints.
    """
    ledger = Ledger.open(config.ledger_url)
    for container in ledger.replays.containers(plan.replay_id):
        if container.state is ReplayState.FAILED:
            return obstacle(config, container.read_plan())
    try:
        check_tables(config, ledger, plan)
        check_inputs(config, plan)
        check_code(plan, load_planned(config, plan))
        check_attempts(config, ledger, plan)
    except RewindowError as error:
        return error
    return None


def check_tables(config: Config, ledger: Ledger, plan: Plan) -> dict[str, Position]:
    """Returns the position of each table of a replay.

    Raises:
        TableError: the ledger is older than the tables, or does not belong to them; a table has
            permanently lost commits.
    """
    root = config.replay_root(plan.replay_id)
    positions = staged_positions(root, plan)
    check_replay_format(root)
    check_ledger(root, plan, positions, epoch=ledger.replays.get(plan.replay_id).epoch)
    check_sealed_rows(root, plan, positions)
    return positions


def check_inputs(config: Config, plan: Plan) -> None:
    """Checks that the inputs of a replay exist and are the planned streams.

    It looks for the files of tables in place too, because users can remove them at any time.
    """
    for entry in plan.inputs:
        table = open_input(entry, config.state)
        if isinstance(table, TuplesInPlace):
            InputFiles(entry.stream, table, checksums=False).compare(plan.range)


def check_attempts(config: Config, ledger: Ledger, plan: Plan) -> None:
    """Checks that a replay can be attempted again.

    It must not have failed more often than its plan allows without a new checkpoint. It must not
    have exhausted its JVM's heap twice at the same place.

    Rules: R90, R91
    """
    *_, before, last = None, None, *ledger.attempts.of(plan.replay_id)
    memory = config.spark.driver_memory
    if before and last and not last.mark and is_repeated(last.message, before.message, memory):
        raise RewindowError(
            f"{last.message.splitlines()[0]}, in two attempts in a row",
            detail="The last one committed no window; windows that were committed before are kept.",
            hint="Set a larger spark.driver_memory in rewindow.toml, or reduce the memory that "
            f"the operator needs, then: rewindow replay --resume {plan.replay_id}",
        )
    unnoticed = 1 if last is not None and last.outcome is None else 0
    used = ledger.attempts.since_checkpoint(plan.replay_id) + unnoticed
    if used > plan.attempts:
        raise RewindowError(
            f'replay "{plan.replay_id}" has failed {used} times without a new checkpoint, allowed '
            f"are {plan.attempts}",
            detail="Windows that it had committed are kept.",
            hint=f"Find the cause (rewindow status {plan.replay_id}) and correct it, then: "
            f"rewindow replay --resume {plan.replay_id} --again; or abandon the replay: rewindow "
            f"abandon {whole_replay(plan.replay_id)}",
        )
