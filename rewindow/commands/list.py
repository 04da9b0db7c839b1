"""`rewindow list`: lists replays, newest first."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.completion import applications, states
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, out, print_json, print_rows
from rewindow.inspection.replay_status import (
    attempts_begun,
    covers,
    list_replays,
    lost_windows,
    stopped_unnoticed,
)
from rewindow.inspection.visibility import Visibility, state_words
from rewindow.ledger.replays import Replay, ReplayState


def command(
    application: Annotated[
        str | None,
        typer.Argument(help="Show only replays of this application.", autocompletion=applications),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            help=f"Show only replays in this state: {', '.join(ReplayState)}. The state failed "
            "includes replays whose process has ended.",
            autocompletion=states,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of replays to show.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """List replays, newest first, with the range of each as times and as windows, its state, and
    the time since which it has this state.

    Examples:

        rewindow list

        rewindow list flight_delays --state failed
    """
    config = load_project()
    rows = list_replays(config, application, state=state, limit=limit)
    tries = attempts_begun(config, rows)
    lost = lost_windows(config, rows)
    seen = covers(config, rows)
    gone = stopped_unnoticed(config, rows)
    if as_json:
        entries = []
        for row in rows:
            begin, end = row.times() or (None, None)
            entries.append(
                {
                    "replay": row.replay_id,
                    "application": row.application,
                    "first": row.first,
                    "last": row.last,
                    "from": begin,
                    "to": end,
                    "mode": row.mode,
                    "state": row.state,
                    "has_stopped": row.replay_id in gone,
                    "message": row.message,
                    "covered_by": list(seen[row.replay_id].covered_by),
                    "attempts": tries[row.replay_id],
                    "mark": row.mark,
                    "lost": lost[row.replay_id],
                    "created_at": row.created_at,
                    "changed_at": row.changed_at,
                }
            )
        print_json(entries)
        return
    columns = (
        "replay",
        "application",
        "from",
        "to",
        "windows",
        "mode",
        "state",
        "done",
        "lost",
        "attempts",
        "planned",
        "since",
    )
    body = [
        (
            row.replay_id,
            row.application,
            *map(_minute, row.times() or ("", "")),
            str(row.range),
            row.mode.replace("_", " "),
            _state(row, seen[row.replay_id], row.replay_id in gone),
            f"{100 * row.mark / len(row.range):.0f} %",
            lost[row.replay_id],
            tries[row.replay_id],
            f"{row.created_at:%Y-%m-%d %H:%M}",
            f"{row.changed_at:%Y-%m-%d %H:%M}",
        )
        for row in rows
    ]
    print_rows("", columns, body, whole=1)
    for name, what in seen.items():
        if what.covered_by:
            out.print(escape(f"{name} is {what}, published later"))
    for name in sorted(gone):
        out.print(
            escape(
                f"{name}: its process has ended, and no outcome was recorded. Next: rewindow "
                f"status {name}"
            )
        )


def _state(row: Replay, seen: Visibility, has_stopped: bool) -> str:
    if has_stopped:
        return state_words(row, seen, has_stopped)
    if seen.is_whole:
        return f"{row.state.value}, covered"
    return f"{row.state.value}, partly covered" if seen.covered_by else row.state.value


def _minute(time: str) -> str:
    """Returns a time in the format of the list, without parts that are zero.

    >>> _minute("2013-01-05T00:00:00Z"), _minute("2013-01-05T10:30:00.250000Z")
    ('2013-01-05', '2013-01-05 10:30:00.250000')
    """
    return time.removesuffix("Z").replace("T", " ").removesuffix(" 00:00:00").removesuffix(":00")
