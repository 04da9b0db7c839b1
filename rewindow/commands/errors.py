"""`rewindow errors`: lists the tuples that operators emitted on error ports."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.markup import escape

from rewindow.application.error_tuples import COLUMNS, DETAIL, POSITION, REASON
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, ReplayId, out, print_json, print_rows
from rewindow.inspection.error_tuples import ErrorTuples, list_errors
from rewindow.names import BOOKKEEPING
from rewindow.storage.python_rows import python_rows

WINDOWS_SHOWN = 10
"""Number of windows with the most error tuples to show; the JSON has all."""
_OWN = {*BOOKKEEPING, *COLUMNS.names}


def errors(
    replay_id: ReplayId,
    window: Annotated[
        int | None, typer.Option(help="Show only error tuples of this window.")
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(help="Show only error tuples of this error port, as operator.port."),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Maximum number of error tuples to show.", min=1)
    ] = 100,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Show this number of error tuples for each reason, instead of the first ones.",
            min=1,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count and list the error tuples of a replay, which its operators emitted on error ports, with
    reason and position.

    For each window, the error tuples are those of the newest attempt that committed the window, as
    readers see them. If the staged tables were purged, the command reads the published error
    tables.

    Examples:

        rewindow errors clicks-377311-377400-1f2e3d

        rewindow errors clicks-377311-377400-1f2e3d --sample 3

        rewindow errors clicks-377311-377400-1f2e3d --port split.rejected --window 377311 --json
    """
    config = load_project()
    found = list_errors(config, replay_id, window=window, port=port, limit=limit, sample=sample)
    if as_json:
        print_json(_as_dict(found, limit))
    else:
        _show(replay_id, found, limit)


def _cut(found: list[ErrorTuples], limit: int) -> list[tuple[ErrorTuples, pa.Table]]:
    """Returns the rows of each port, so that all together do not exceed the limit."""
    parts = []
    for one in found:
        rows = one.rows.slice(0, limit)
        limit -= rows.num_rows
        parts.append((one, rows))
    return parts


def _as_dict(found: list[ErrorTuples], limit: int) -> dict[str, Any]:
    ports = {}
    counts = []
    for port in found:
        ports[port.port] = {"tuples": port.count, "read_from": port.read_from}
        counts += [{"port": port.port, **vars(count)} for count in port.counts]
    errors = []
    for port, rows in _cut(found, limit):
        for row in python_rows(rows):
            errors.append({"port": port.port, **_told(row), "tuple": _event(row)})
    return {"ports": ports, "counts": counts, "shown": len(errors), "errors": errors}


def _show(replay_id: str, found: list[ErrorTuples], limit: int) -> None:
    if not found:
        out.print(f"the application of replay {escape(replay_id)} has no error port")
        return
    for one, rows in _cut(found, limit):
        where = "" if one.read_from == "staged" else f", {one.read_from}"
        out.print(f"[bold]{escape(one.port)}[/bold]: {one.count:,} error tuples{escape(where)}")
        _show_counts(one)
        if rows.num_rows:
            print_rows(
                "",
                ("window", "attempt", "reason", "detail", "position", "tuple"),
                map(_line, python_rows(rows)),
            )
        if rows.num_rows < one.count:
            out.print(
                f"{rows.num_rows:,} of {one.count:,} are shown; to see more, use --limit, "
                "--window or --port"
            )


def _show_counts(one: ErrorTuples) -> None:
    """Prints the counts by reason, then the windows with the most error tuples."""
    reasons = [
        (total.reason, total.tuples, total.windows, str(total.first), str(total.last))
        for total in one.reasons()
    ]
    if reasons:
        print_rows("", ("reason", "tuples", "windows", "first window", "last window"), reasons)
    most = sorted(one.counts, key=lambda count: (-count.tuples, count.window, count.reason))[
        :WINDOWS_SHOWN
    ]
    if len(one.counts) > len(reasons):
        rows = [(str(count.window), count.reason, count.tuples) for count in most]
        print_rows("windows with the most error tuples", ("window", "reason", "tuples"), rows)


def _line(row: dict[str, Any]) -> tuple[object, ...]:
    told = _told(row)
    words = json.dumps(_event(row), default=str, ensure_ascii=False)
    return (
        str(told["window"]),
        told["attempt"],
        told["reason"],
        told["detail"],
        told["position"],
        words,
    )


def _told(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "window": row["_rw_window"],
        "attempt": row["_rw_attempt"],
        "reason": row[REASON],
        "detail": row[DETAIL],
        "position": row[POSITION],
    }


def _event(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _OWN}
