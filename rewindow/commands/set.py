"""`rewindow set`: changes a property from a window on, while its replay is running."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.application.overrides import PropertyChange
from rewindow.commands.project import load_project
from rewindow.commands.replay_options import pairs
from rewindow.commands.screen import AsJson, ReplayId, out, print_json, print_rows
from rewindow.ledger import Ledger
from rewindow.planning.changing import change_log, set_property


def command(
    replay_id: ReplayId,
    assignment: Annotated[
        str | None,
        typer.Argument(
            help="New value, as operator.property=value; without it, the command lists "
            "the changes so far."
        ),
    ] = None,
    from_window: Annotated[
        int | None,
        typer.Option(
            help="First window with the new value; by default the first one that has not started."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a property of an operator while its replay runs, starting with a given window.

    The operator must declare the property as changeable. Windows that have started keep the old
    value, also when they are computed again after a crash.

    Examples:

        rewindow set alarms-377000-377999-1f2e3d limits.threshold=7.5

        rewindow set alarms-377000-377999-1f2e3d limits.threshold=7.5 --from-window 377500

        rewindow set alarms-377000-377999-1f2e3d
    """
    config = load_project()
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
