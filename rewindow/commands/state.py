"""`rewindow state`: what the operators of a replay keep from window to window."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.markup import escape

from rewindow.commands.plan import parameters
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, ReplayId, out, print_json, print_rows
from rewindow.inspection.operator_states import OperatorStateRows, operator_states
from rewindow.storage.python_rows import python_rows


def command(
    replay_id: ReplayId,
    operator: Annotated[str | None, typer.Argument(help="Only the state of this operator.")] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="From the newest checkpoint at or before this window, not the newest of all."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            help="column=value: only rows of the state with this value, such as a key; repeatable.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="How many rows of each operator at most.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the states of a replay's operators, as a checkpoint holds them; the replay may still
    run.

    Examples:

        rewindow state totals-377311-377400-1f2e3d

        rewindow state totals-377311-377400-1f2e3d totals --where user=ann

        rewindow state totals-377311-377400-1f2e3d totals --window 377350 --json
    """
    wanted = parameters(where or [])
    found = operator_states(
        load_project(),
        replay_id,
        operator,
        window=window,
        where=wanted,
        limit=limit,
    )
    if as_json:
        print_json({"replay": replay_id, "states": list(map(_as_dict, found))})
        return
    if not found:
        out.print(f"no operator of replay {escape(replay_id)} has a state")
    for one in found:
        rows = "1 row" if one.count == 1 else f"{one.count:,} rows"
        out.print(f"[bold]{escape(one.operator)}[/bold] after window {one.window}: {rows}")
        if one.rows.num_rows:
            print_rows(
                "",
                one.rows.column_names,
                [list(map(_shown, row.values())) for row in python_rows(one.rows)],
            )
        if one.rows.num_rows < one.count:
            out.print(
                f"{one.rows.num_rows:,} of {one.count:,} are shown; see others with --limit or "
                "--where"
            )


def _as_dict(one: OperatorStateRows) -> dict[str, Any]:
    return {
        "operator": one.operator,
        "window": one.window,
        "rows": one.count,
        "digest": one.digest,
        "shown": python_rows(one.rows),
    }


def _shown(value: object) -> object:
    return (
        json.dumps(value, default=str, ensure_ascii=False)
        if isinstance(value, list | dict)
        else value
    )
