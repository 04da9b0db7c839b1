"""`rewindow publish`: makes a replay's output visible to readers."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, JobScreen, ReplayId, out, print_json, print_rows
from rewindow.errors import InputError
from rewindow.launcher import verbs
from rewindow.ledger import Ledger
from rewindow.publication.actions import PublicationAction
from rewindow.publication.objections import flaw_line
from rewindow.publication.preview import PublicationPreview
from rewindow.publication.publish import expected_publication
from rewindow.publication.result import PublicationResult
from rewindow.sequences import quantity
from rewindow.windows import WindowRange, describe_seconds

LeaveOutDamaged = Annotated[
    bool,
    typer.Option(
        "--leave-out-damaged",
        help="Leave out the windows of damaged files; they will be missing from the published "
        "tables.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Change no rows; show the expected changes of each table, and the estimated time.",
    ),
]


def publish(
    replay_id: ReplayId,
    accept: Annotated[
        str | None,
        typer.Option(
            help="Publish even if the gate did not pass or the range has newer or better windows; "
            "the reason is recorded.",
            metavar="REASON",
        ),
    ] = None,
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw",
            help="Withdraw an interrupted publication or undo that cannot be completed.",
        ),
    ] = False,
    leave_out_damaged: LeaveOutDamaged = False,
    dry_run: DryRun = False,
    crash: Annotated[
        str | None, typer.Option(help="Drill: kill the job at STEP:NUMBER.", hidden=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replace the replay's range in the published tables, with one commit per table. `rewindow
    undo` undoes it.

    Examples:

        rewindow publish flight_delays-376949-385704-1f2e3d

        rewindow publish flight_delays-376949-385704-1f2e3d --accept "late flights are known"

        rewindow publish flight_delays-376949-385704-1f2e3d --withdraw

        rewindow publish flight_delays-376949-385704-1f2e3d --dry-run
    """
    config = load_project()
    if dry_run:
        if withdraw:
            raise InputError("--dry-run cannot be combined with --withdraw")
        expected = expected_publication(
            config,
            replay_id,
            accept=accept,
            leave_out_damaged=leave_out_damaged,
        )
        return show_expected(expected, as_json)
    if withdraw:
        if accept:
            raise InputError("--accept cannot be combined with --withdraw")
        result = verbs.withdraw(
            config,
            replay_id,
            leave_out_damaged=leave_out_damaged,
            listener=JobScreen(),
            crash=crash,
        )
        words = (
            "withdrawn; the published tables show the same rows as before. Next: rewindow status "
            f"{replay_id}"
        )
    else:
        result = verbs.publish(
            config,
            replay_id,
            accept=accept,
            leave_out_damaged=leave_out_damaged,
            listener=JobScreen(),
            crash=crash,
        )
        done = (
            f"already published, as publication {result.number}"
            if was_done(result)
            else "published"
        )
        words = f"{done}; to undo: rewindow undo {replay_id}"
    show(result, as_json, words)


def was_done(result: PublicationResult) -> bool:
    """Returns whether everything was done before, so that not even an interrupted publication had
    to be completed.
    """
    return result.already and result.number not in result.rolled_forward


def show_expected(expected: PublicationPreview | PublicationResult, as_json: bool) -> None:
    """Prints the expected changes of a publication or an undo, or that it is already done."""
    if isinstance(expected, PublicationResult):
        done = "published" if expected.kind == PublicationAction.PUBLISH else "undone"
        return show(
            expected,
            as_json,
            f"already {done}, as publication {expected.number}: nothing to do",
        )
    if as_json:
        return print_json({"expected": expected.to_json()})
    ledger = Ledger.open(load_project().ledger_url)
    row = ledger.replays.get(expected.replay_id)
    count = quantity(expected.windows, "window")
    window_range = WindowRange(expected.first, expected.last)
    windows = row.describe(window_range)
    done = "published" if expected.kind == PublicationAction.PUBLISH else "undone"
    out.print(
        escape(
            f"{expected.replay_id} would be {done}: {count} {windows}, about "
            f"{describe_seconds(expected.seconds)}"
        )
    )
    for part in expected.shows:
        shown = f"the rows that replay {part.replay} published" if part.replay else "no rows"
        windows = row.describe(WindowRange(part.first, part.last))
        out.print(escape(f"windows {windows} would show {shown}"))
    columns = (
        "table",
        "way",
        "rows",
        "files",
        "MB",
        "rows written",
        "files cut",
        "files removed",
        "MB written",
    )
    rows = [
        (
            table.table,
            table.way.value,
            table.rows,
            table.files,
            round(table.bytes / 1e6, 1),
            table.rows_written,
            table.files_cut,
            table.files_removed,
            round(table.bytes_written / 1e6, 1),
        )
        for table in expected.tables
    ]
    print_rows("", columns, rows)
    for table in expected.tables:
        if table.why:
            out.print(escape(f"{table.table}: {table.way.value}, because {table.why}"))
        if table.files_joined:
            out.print(
                escape(
                    f"{table.table}: {table.files_joined} small files next to the range would be "
                    "merged into one"
                )
            )
    for flaw, ranges in expected.flaws.items():
        out.print(escape(flaw_line(flaw, ranges)))
    for line in expected.objections:
        out.print(escape(f"requires --accept: {line}"))
    for number in expected.unfinished:
        out.print(escape(f"publication {number} was interrupted and would be completed first"))


def show(result: PublicationResult, as_json: bool, words: str) -> None:
    """Prints the result of a publication or an undo, as JSON or with the given text."""
    if as_json:
        print_json({"publication": result.to_json()})
    else:
        out.print(escape(words))
