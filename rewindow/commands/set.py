"""`rewindow set`: changes a property from a window on, or the number of cores, while a replay is
running.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.application.overrides import PropertyChange
from rewindow.commands.project import load_project
from rewindow.commands.replay_options import pairs
from rewindow.commands.screen import AsJson, ReplayId, out, print_json, print_rows
from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.planning.changing import change_log, limit_cores, set_property
from rewindow.sequences import quantity
from rewindow.settings.config import Config

CORES = "cores_max"


def command(
    replay_id: ReplayId,
    assignment: Annotated[
        str | None,
        typer.Argument(
            help="New value, as operator.property=value or cores_max=number; without it, the "
            "command lists the changes of properties so far."
        ),
    ] = None,
    from_window: Annotated[
        int | None,
        typer.Option(
            help="First window with the new value; by default the first one that has not started."
        ),
    ] = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="With cores_max: end the running attempt at the end of its commit group.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change a property of an operator while its replay runs, starting with a given window; or the
    number of cores that Spark may use, starting with the next attempt.

    The operator must declare the property as changeable. Windows that have started keep the old
    value, also when they are computed again after a crash.

    Examples:

        rewindow set alarms-377000-377999-1f2e3d limits.threshold=7.5

        rewindow set alarms-377000-377999-1f2e3d limits.threshold=7.5 --from-window 377500

        rewindow set alarms-377000-377999-1f2e3d

        rewindow set alarms-377000-377999-1f2e3d cores_max=2 --restart
    """
    config = load_project()
    path = (assignment or "").partition("=")[0]
    if path == CORES:
        if from_window is not None:
            raise InputError(f"--from-window cannot be used with {CORES}")
        return _limit_cores(config, replay_id, assignment or "", restart=restart, as_json=as_json)
    if restart:
        raise InputError(f"--restart can only be used with {CORES}=NUMBER")
    if assignment is None:
        plan = Ledger.open(config.ledger_url).replays.get(replay_id).read_plan()
        changes = change_log(config, plan).changes()
    else:
        [(path, value)] = pairs([assignment]).items()
        changes = [set_property(config, replay_id, path, value=value, from_window=from_window)]
    if as_json:
        print_json(
            {"replay": replay_id, "changes": [one.model_dump(mode="json") for one in changes]}
        )
    elif assignment is not None:
        out.print(
            escape(
                f"{changes[0].path} is {changes[0].value} starting with window "
                f"{changes[0].from_window}"
            )
        )
    elif changes:
        print_changes(changes)
    else:
        out.print(escape(f"no property of replay {replay_id} has been changed"))


def _limit_cores(
    config: Config, replay_id: str, assignment: str, *, restart: bool, as_json: bool
) -> None:
    number = assignment.partition("=")[2].strip()
    if not number.isdecimal():
        raise InputError(f'{CORES} must be a number of cores, not "{number}"')
    limit_cores(config, replay_id, int(number), restart=restart)
    if as_json:
        return print_json({"replay": replay_id, CORES: int(number), "restart": restart})
    when = (
        "the running attempt ends after its commit group, and the next one uses"
        if restart
        else "starting with the next attempt, Spark uses"
    )
    return out.print(escape(f"{when} at most {quantity(int(number), 'core')}"))


def print_changes(changes: list[PropertyChange]) -> None:
    """Prints the properties with their values and the first window of each value."""
    rows = [
        (
            one.path,
            json.dumps(one.value, ensure_ascii=False),
            str(one.from_window),
            f"{one.at:%Y-%m-%d %H:%M:%S}Z",
            one.by,
        )
        for one in changes
    ]
    print_rows("", ("property", "value", "from window", "set at", "by"), rows)
