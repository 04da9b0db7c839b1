"""`rewindow record`: records new tuples of a source and seals their windows."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.completion import sources
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, JobScreen, err, out, print_json
from rewindow.errors import InputError
from rewindow.launcher import verbs
from rewindow.ledger import Ledger
from rewindow.lineage.dependents import readers, readers_of_end
from rewindow.recording.inventory import (
    check_unchanged,
    check_unneeded,
    late_windows,
    list_streams,
)
from rewindow.sequences import quantity
from rewindow.settings.config import Config

SHOWN = 20


def record(
    stream: Annotated[
        list[str],
        typer.Argument(help="Streams, as named in rewindow.toml.", autocompletion=sources),
    ],
    sealed_to: Annotated[
        str | None,
        typer.Option(
            help="Seal windows up to this time (exclusive); default: rewindow.toml, or the newest "
            "tuple."
        ),
    ] = None,
    end: Annotated[
        bool,
        typer.Option(
            "--end",
            help="Nothing more will come: seal the window of the newest tuple too.",
        ),
    ] = False,
    seal_again: Annotated[
        bool,
        typer.Option(
            "--seal-again",
            help="The table of seals is lost: make it anew from the tuples there.",
        ),
    ] = False,
    reopen: Annotated[
        bool,
        typer.Option(
            "--reopen",
            help="Take late tuples from the quarantine into their windows; asks first.",
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="With --reopen: take windows that differ from the source as it has them now; asks "
            "first.",
        ),
    ] = False,
    start_over: Annotated[
        bool,
        typer.Option(
            "--start-over",
            help="Remove what was recorded, which nobody needs yet, and record anew; asks first.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before windows are opened again, or removed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Record what is new of a stream. A second run over the same source changes nothing.

    The window of the newest tuple stays open, since more may arrive in it: later tuples seal it, or
    a time, or the end.

    Examples:

        rewindow record flights weather

        rewindow record clicks --sealed-to 2026-03-01T12:00Z

        rewindow record clicks --end

        rewindow record clicks --reopen

        rewindow record clicks --reopen --replace

        rewindow record clicks --start-over
    """
    config = load_project()
    if replace and not reopen:
        raise InputError(
            "--replace goes with --reopen",
            hint=f"rewindow record {' '.join(stream)} --reopen --replace",
        )
    for name in stream:
        config.stream(name)
    results = {}
    for name in stream:
        if replace:
            _ask_to_replace(config, name, yes)
        elif reopen:
            _ask(config, name, yes)
        if start_over:
            _ask_to_remove(config, name, yes)
        results[name] = verbs.record(
            config,
            name,
            sealed_to=sealed_to,
            end=end,
            seal_again=seal_again,
            reopen=reopen,
            replace=replace,
            start_over=start_over,
            listener=JobScreen(),
        )
    if as_json:
        print_json({name: result.to_json() for name, result in results.items()})
    else:
        out.print(escape(f"recorded: {', '.join(results)}"))


def _ask(config: Config, name: str, yes: bool) -> None:
    """Prints which windows get a new seal and which replays have read the older one, and asks for
    confirmation.

    Raises:
        InputError: there are no late tuples and the stream has not ended, so nothing can be
            reopened; or windows were changed in the source.
    """
    check_unchanged(config, name)
    late, end = late_windows(config, name)
    if not late and end is None:
        raise InputError(
            f'stream "{name}" has no late tuple of a sealed window in quarantine',
            hint=f"Take what its source has first: rewindow record {name}",
        )
    for windows, count in late[:SHOWN]:
        err.print(f"windows {windows}: {quantity(count, 'late tuple')}, a new seal", markup=False)
    if len(late) > SHOWN:
        err.print(f"... and {len(late) - SHOWN:,} stretches more")
    ledger = Ledger.open(config.ledger_url)
    if end is not None:
        err.print(
            f"the end of the stream after window {end} is taken back if there are tuples behind it",
            markup=False,
        )
        for reader, _ in readers_of_end(ledger, name, None):
            err.print(
                f"becomes stale then, from window {reader.windows.first} on: {reader.why}",
                markup=False,
            )
    for reader in readers(ledger, name, [windows for windows, _ in late]):
        err.print(f"has read the older seal, and becomes stale: {reader.why}", markup=False)
    if not yes:
        typer.confirm("Open these windows again?", abort=True, err=True)


def _ask_to_replace(config: Config, name: str, yes: bool) -> None:
    """Shows which replays may become stale by a replacement, and asks for confirmation."""
    err.print(
        f"{name}: the whole source is read. Sealed windows that differ from it get what it has now "
        "in place of what was recorded, and a new seal.",
        markup=False,
    )
    for reader in readers(Ledger.open(config.ledger_url), name):
        err.print(f"becomes stale if its windows differ: {reader.why}", markup=False)
    if not yes:
        typer.confirm("Replace these windows?", abort=True, err=True)


def _ask_to_remove(config: Config, name: str, yes: bool) -> None:
    """Shows what would be removed, and asks for confirmation.

    Raises:
        OverlapError: a replay needs the stream.
    """
    check_unneeded(config, name)
    entry = next((entry for entry in list_streams(config) if entry.name == name), None)
    if entry is None or not entry.windows:
        return
    err.print(
        f"{name}: recorded are {quantity(entry.tuples, 'tuple')}, "
        f"{quantity(entry.windows, 'window')} {entry.sealed}",
        markup=False,
    )
    err.print(
        "They are removed once the source has been read again; what it no longer has is lost.",
        markup=False,
    )
    if not yes:
        typer.confirm("Remove them and record anew?", abort=True, err=True)
