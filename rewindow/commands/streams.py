"""`rewindow streams`: lists, shows, repairs and deletes recorded and published streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands import completion
from rewindow.commands.project import load_project
from rewindow.commands.screen import (
    AsJson,
    JobScreen,
    err,
    out,
    print_facts,
    print_json,
    print_rows,
)
from rewindow.commands.subcommands import Subcommands
from rewindow.errors import InputError
from rewindow.launcher.loop import run_plain
from rewindow.ledger import Ledger
from rewindow.lineage.dependents import dependents
from rewindow.recording import inventory
from rewindow.sequences import quantity
from rewindow.storage.python_rows import python_rows
from rewindow.storage.streams import sealed_streams

DIFFERENT_CODE = 1
Stream = Annotated[
    str,
    typer.Argument(
        help="Name of a recorded or published stream.",
        autocompletion=completion.streams,
    ),
]


class _Streams(Subcommands):
    """Interprets the name of a stream as a request to show it."""

    def meant(self, given: str) -> str:
        is_stream = given in sealed_streams(load_project().state / "streams")
        return f"Did you mean: rewindow streams show {given}? " if is_stream else ""


app = typer.Typer(cls=_Streams, add_completion=False, rich_markup_mode="markdown")


@app.callback(invoke_without_command=True)
def streams(context: typer.Context, as_json: AsJson = False) -> None:
    """List the recorded and published streams. Starts no JVM.

    Examples:

        rewindow streams

        rewindow streams show flights

        rewindow streams rows flights 2013-01-16T07:30Z

        rewindow streams delete flights

        rewindow streams upgrade
    """
    if context.invoked_subcommand is not None:
        return
    entries = inventory.list_streams(load_project())
    if as_json:
        print_json([entry.to_dict() for entry in entries])
        return
    columns = ("stream", "windows", "time", "empty", "missing", "tuples", "MB", "late", "ended")
    body = [
        (
            entry.name,
            str(entry.sealed or ""),
            entry.span(),
            entry.empty,
            entry.missing,
            entry.tuples,
            round(entry.bytes / 1e6, 1),
            entry.late,
            entry.end is not None,
        )
        for entry in entries
    ]
    print_rows("", columns, body)


@app.command()
def show(stream: Stream, as_json: AsJson = False) -> None:
    """Show the sealed range, columns, recording settings and dependents of a stream.

    Examples:

        rewindow streams show flights
    """
    config = load_project()
    entry = inventory.find_stream(config, stream)
    columns = inventory.columns_of(config, stream)
    needed = [dependent.why for dependent in dependents(Ledger.open(config.ledger_url), stream)]
    if as_json:
        settings = inventory.settings_of(config, stream)
        print_json(
            {**entry.to_dict(), "columns": dict(columns), "settings": settings, "needed_by": needed}
        )
        return
    grid = entry.grid
    print_facts(
        {
            "stream": f"{stream} ({'published' if entry.is_published else 'recorded'})",
            **({"in place": inventory.place_of(config, stream)} if entry.in_place else {}),
            "sealed": f"{entry.sealed or ''} {entry.span()}",
            "windows": f"{entry.windows:,} of {grid}, {entry.empty:,} empty, {entry.missing:,} "
            "missing",
            "tuples": entry.tuples,
            "late": f"{entry.late:,} in quarantine" if entry.late else "none",
            "end": "not ended" if entry.end is None else f"ended with window {entry.end}",
        }
    )
    print_rows("", ("column", "type"), columns)
    for words in needed:
        out.print(f"needed because: {escape(words)}")


@app.command()
def rows(
    stream: Stream,
    window: Annotated[str, typer.Argument(help="Window id, or a time inside the window.")],
    limit: Annotated[int, typer.Option(help="Maximum number of tuples.", min=1)] = 40,
    as_json: AsJson = False,
) -> None:
    """Print the tuples of a window, in order. The window must be within the stream's range.

    Examples:

        rewindow streams rows flights 377311
    """
    number, is_sealed, found = inventory.rows_of(load_project(), stream, window, limit)
    state = "sealed" if is_sealed else "missing (not sealed)"
    if found.num_rows and not is_sealed:
        state += ", more may arrive"
    if as_json:
        print_json(
            {"stream": stream, "window": number, "sealed": is_sealed, "tuples": python_rows(found)}
        )
        return
    texts = list(map(_texts, python_rows(found)))
    print_rows(f"{stream}, window {number}, {state}", found.column_names, texts)
    if found.num_rows == limit:
        out.print(f"the first {limit:,} tuples are shown; to see more, use --limit")


def _texts(row: Mapping[str, object]) -> list[str | None]:
    return [None if value is None else str(value) for value in row.values()]


@app.command()
def quarantine(
    stream: Stream,
    limit: Annotated[int, typer.Option(help="Maximum number of rows.", min=1)] = 40,
    as_json: AsJson = False,
) -> None:
    """Print the malformed and late rows of a stream in quarantine, with the reason and the position
    in the source.

    Examples:

        rewindow streams quarantine flights
    """
    config = load_project()
    found = inventory.quarantined(config, stream, limit)
    if as_json:
        print_json(found)
        return
    for reason, rows in inventory.quarantine_counts(config, stream).items():
        out.print(f"{quantity(rows, 'row')}: {reason}", markup=False)
    columns = ("window_id", "problem", "position", "payload")
    texts = [_texts({name: row.get(name) for name in columns}) for row in found]
    print_rows(f"{stream}, quarantine", ("window", "problem", "position", "content"), texts)
    if len(found) == limit:
        out.print(f"the first {limit:,} rows are shown; to see more, use --limit")


@app.command()
def delete(
    stream: Stream,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Delete the stream even if it is still needed; asks for its name."
        ),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Do not ask for confirmation. Does not delete a stream that is still needed.",
        ),
    ] = False,
) -> None:
    """Delete the tables of a stream. Fails if an open replay, a published output or an undo needs
    the stream.

    Examples:

        rewindow streams delete clicks
    """
    config = load_project()
    needed = dependents(Ledger.open(config.ledger_url), stream)
    if needed and not force:
        raise inventory.still_needed(stream, needed)
    for dependent in needed:
        err.print(f"needed because: {dependent.why}", markup=False)
    if force:
        given = typer.prompt(
            f"This cannot be undone. Type the stream's name to delete it ({stream})",
            err=True,
        )
        if given.strip() != stream:
            raise InputError(
                f'stream "{stream}" was not deleted: the typed name is "{given.strip()}"'
            )
    elif not yes:
        typer.confirm(f"Delete stream {stream}? This cannot be undone", abort=True, err=True)
    inventory.delete_stream(config, stream, force=force)
    out.print(f"deleted: stream {escape(stream)}")


@app.command()
def upgrade(
    name: Annotated[
        list[str] | None, typer.Argument(help="Names of streams or applications; all by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Repair damaged seals of streams, and their lists of data files.

    The command compares every window with its seal. It deletes nothing and can be repeated. The
    exit code is 1 if the tuples of a window differ from its seal; these windows are listed.

    Examples:

        rewindow streams upgrade

        rewindow streams upgrade flights weather
    """
    names = name or []
    outcome = run_plain(
        load_project(),
        "upgrade.py",
        names,
        subject=names[0] if len(names) == 1 else "streams",
        listener=JobScreen(),
    )
    if as_json:
        print_json({"streams": outcome.facts["streams"]})
    if any(stream["differing"] for stream in outcome.facts["streams"]):
        raise typer.Exit(DIFFERENT_CODE)
