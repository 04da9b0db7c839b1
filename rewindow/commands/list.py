"""`rewindow list`: replays, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from rewindow.commands.completion import applications, states
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, print_json, print_rows
from rewindow.inspection.replay_status import list_replays


def command(
    application: Annotated[
        str | None, typer.Argument(help="Only replays of this application.", autocompletion=applications)
    ] = None,
    state: Annotated[str | None, typer.Option(help="Only replays in this state.", autocompletion=states)] = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """List replays, newest first.

    Examples:

        rewindow list

        rewindow list flight_delays --state failed
    """
    rows = list_replays(load_project(), application, state=state, limit=limit)
    if as_json:
        print_json(
            [
                {
                    "replay": row.replay_id, "application": row.application, "first": str(row.first),
                    "last": str(row.last), "mode": row.mode, "state": row.state, "attempts": row.epoch,
                    "mark": row.mark, "created_at": row.created_at,
                }
                for row in rows
            ]
        )  # fmt: skip
        return
    columns = ("replay", "windows", "mode", "state", "done", "attempts", "planned at")
    body = [
        (
            row.replay_id, str(row.range), row.mode.replace("_", " "), row.state.value,
            f"{100 * row.mark / len(row.range):.0f} %", row.epoch, f"{row.created_at:%Y-%m-%d %H:%M}",
        )
        for row in rows
    ]  # fmt: skip
    print_rows("", columns, body)
