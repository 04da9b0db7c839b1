"""`rewindow state`: shows the values that the operators of a replay keep from window to window."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.replay_options import pairs
from rewindow.commands.screen import AsJson, ReplayId, out, print_json, print_rows
from rewindow.errors import InputError
from rewindow.inspection.operator_states import OperatorStateRows, operator_states
from rewindow.inspection.verified_checkpoints import VerifiedReplay, verify_checkpoints
from rewindow.storage.python_rows import python_rows

DAMAGED_CODE = 1
"""Exit code of `--verify` if a checkpoint is damaged."""
_COLUMNS = ("operator", "rows", "bytes", "digest", "code_version", "configuration_digest")


def command(
    replay_id: ReplayId,
    operator: Annotated[
        str | None, typer.Argument(help="Show only the state of this operator.")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="Show the newest checkpoint at or before this window, instead of the newest one."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            help="Show only rows of the state with this value, as column=value; repeatable.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Maximum number of rows of each operator.", min=1)
    ] = 20,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Verify all checkpoints; show which one a resume would restore, and the cost of "
            "each damaged one.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the states of a replay's operators that are stored in a checkpoint. The replay may still
    be running.

    Examples:

        rewindow state totals-377311-377400-1f2e3d

        rewindow state totals-377311-377400-1f2e3d totals --where user=ann

        rewindow state totals-377311-377400-1f2e3d totals --window 377350 --json

        rewindow state totals-377311-377400-1f2e3d --verify
    """
    if verify:
        if operator is not None or window is not None or where:
            raise InputError(
                "--verify cannot be combined with an operator, --window or --where",
                hint="Use --verify alone: it reads all checkpoints.",
            )
        _verify(replay_id, as_json=as_json)
        return
    wanted = pairs(where or [])
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
                f"{one.rows.num_rows:,} of {one.count:,} are shown; to see more, use --limit or "
                "--where"
            )


def _verify(replay_id: str, *, as_json: bool) -> None:
    """Prints the checkpoints of each container. Exits with DAMAGED_CODE if one is damaged."""
    found = verify_checkpoints(load_project(), replay_id)
    if as_json:
        print_json({"replay": replay_id, "containers": list(map(asdict, found))})
    for one in found if not as_json else ():
        _show_checkpoints(one)
    if any(one.is_damaged for one in found):
        raise typer.Exit(DAMAGED_CODE)


def _show_checkpoints(found: VerifiedReplay) -> None:
    out.print(f"[bold]{escape(found.replay)}[/bold], {found.mode}")
    rows: list[tuple[object, ...]] = []
    for one in found.checkpoints:
        word = "damaged" if one.damage else "intact"
        for state in one.states or [{}]:
            rows.append((str(one.window), one.attempt, word, *map(state.get, _COLUMNS)))
    print_rows("", ("window", "attempt", "", *_COLUMNS), rows)
    for one in found.checkpoints:
        if one.damage:
            out.print(escape(f"window {one.window}: {one.damage}; {one.cost}"))
    if found.restored is None:
        out.print(escape(f"a resume cannot restore any checkpoint: {found.why}"))
    else:
        out.print(
            escape(f"a resume restores the checkpoint of window {found.restored}: {found.why}")
        )
        out.print(escape(found.recovery))


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
