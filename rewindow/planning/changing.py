"""Changes a property of an operator while its replay runs, effective from a given window on.

Rules: O26, O27, X10
"""

from __future__ import annotations

import getpass
from datetime import UTC, datetime

from rewindow.application.configuring import check_changes
from rewindow.application.overrides import PropertyChange, overrides_from
from rewindow.errors import InputError, RangeError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import RUNNABLE
from rewindow.loading.catalog import load_planned
from rewindow.names import check_whole
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.state.changes import ChangeLog, container_log


def change_log(config: Config, plan: Plan) -> ChangeLog:
    """Returns the log of a replay's property changes, including the changes of all its
    containers.
    """
    root = config.replay_root(plan.replay_id)
    changes = [*plan.changes]
    if plan.is_divided:
        for container in plan.containers:
            changes += container_log(root, container.name).changes()
    return ChangeLog(root, changes)


def limit_cores(config: Config, replay_id: str, cores_max: int, *, restart: bool = False) -> None:
    """Changes the number of cores that Spark may use, starting with the next attempt.

    Args:
        config: current settings.
        replay_id: a replay that has not ended.
        cores_max: the largest number of cores.
        restart: end the attempts that run now at the end of their commit group, so that the next
            ones start at once.

    Raises:
        InputError: the replay has ended or is a container, or the number is below 1.
    """
    row = Ledger.open(config.ledger_url).replays.get(replay_id)
    check_whole(replay_id)
    if row.state not in RUNNABLE:
        raise InputError(f'replay "{replay_id}" is {row.state}: it has no window left to compute')
    if cores_max < 1:
        raise InputError(f"cores_max must be at least 1, not {cores_max}")
    Ledger.open(config.ledger_url).replays.limit_cores(replay_id, cores_max, restart=restart)


def set_property(
    config: Config,
    replay_id: str,
    path: str,
    value: object,
    *,
    from_window: int | None = None,
) -> PropertyChange:
    """Sets a changeable property to another value from a given window on.

    A running replay applies it at its next group. Every attempt computes a window with the same
    values. A replay that repeats the range, such as a repair, makes the same changes at the same
    windows.

    Args:
        config: current settings.
        replay_id: a replay that has not ended.
        path: operator.property.
        value: the new value; a text is interpreted as on the command line.
        from_window: the first window with the value; by default the first one that has not started.

    Raises:
        InputError: the replay has ended; the window has started; the operator or property does not
            exist, is not changeable, or rejects the value; the operator is in a container that is
            reused.
        RangeError: the window is not in the range of the replay.
    """
    ledger = Ledger.open(config.ledger_url)
    row = ledger.replays.get(replay_id)
    if row.state not in RUNNABLE:
        raise InputError(
            f'replay "{replay_id}" is {row.state}: it has no window left to compute',
            hint=f"Replay the range again with --set {path}=VALUE.",
        )
    plan = row.read_plan()
    check_whole(replay_id)
    [given] = overrides_from({path: value}, "")
    by = getpass.getuser()
    at = datetime.now(UTC)

    def change(begun: int | None) -> PropertyChange:
        first = plan.first if begun is None else begun + 1
        window = first if from_window is None else from_window
        if window not in plan.range:
            raise RangeError(
                f"window {window} is not in the range of the replay, "
                f"{plan.grid.describe(plan.range)}"
                if from_window is not None
                else f"every window of {part} has started, up to {begun}"
            )
        if window < first:
            raise InputError(
                f"window {plan.grid.describe(window)} has already started with the current "
                f"value of {path}",
                detail=f"Windows up to {begun} have started.",
                hint=f"Change it from a later window on: --from-window {first}",
            )
        return PropertyChange(
            operator=given.operator,
            name=given.name,
            value=value,
            from_window=window,
            at=at,
            by=by,
        )

    [value] = check_changes(load_planned(config, plan).app, [change(None)])
    log = change_log(config, plan)
    part = "the replay"
    if plan.is_divided:
        container = next(part for part in plan.containers if given.operator in part.operators)
        part = f'container "{container.name}"'
        if container.reused:
            raise InputError(
                f"{part} is reused from {container.reused}: none of its windows is computed",
                hint=f"Replay the range again with --set {path}=VALUE.",
            )
        log = container_log(config.replay_root(replay_id), container.name)
    added = log.add(change)
    ledger.replays.keep_changes(replay_id, change_log(config, plan).changes())
    return added
