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
    find_stream,
    late_windows,
    list_streams,
)
from rewindow.sequences import quantity
from rewindow.settings.config import Config

SHOWN = 20


def record(
    stream: Annotated[
        list[str],
        typer.Argument(help="Names of streams in rewindow.toml.", autocompletion=sources),
    ],
    sealed_to: Annotated[
        str | None,
        typer.Option(
            help="Seal windows up to this time (exclusive); by default up to sealed_to in "
            "rewindow.toml, or the newest tuple."
        ),
    ] = None,
    end: Annotated[
        bool,
        typer.Option(
            "--end",
            help="End the stream: seal the window of the newest tuple too, because no more tuples "
            "will arrive.",
        ),
    ] = False,
    seal_again: Annotated[
        bool,
        typer.Option(
            "--seal-again",
            help="Rebuild a lost table of seals from the recorded tuples.",
        ),
    ] = False,
    reopen: Annotated[
        bool,
        typer.Option(
            "--reopen",
            help="Move late tuples from the quarantine to their windows; asks for confirmation.",
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="With --reopen: replace windows that differ from the source with its current "
            "contents; asks for confirmation.",
        ),
    ] = False,
    start_over: Annotated[
        bool,
        typer.Option(
            "--start-over",
            help="Delete the recorded stream, which must not be in use, and record it again; asks "
            "for confirmation.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="With --reopen: change nothing; show the windows and the replays that read them.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Record the new tuples of streams. A second run on the same source changes nothing.

    The window of the newest tuple stays open, because more tuples may arrive in it. It is sealed by
    later tuples, by a time (--sealed-to) or by the end of the stream (--end).

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
            "--replace can only be used with --reopen",
            hint=f"rewindow record {' '.join(stream)} --reopen --replace",
        )
    if dry_run and not reopen:
        raise InputError("--dry-run can only be used with --reopen")
    for name in stream:
        config.stream(name)
    results = {}
    for name in stream:
        if replace:
            _show_replacement(config, name)
        elif reopen:
            _show_reopening(config, name)
        if dry_run:
            continue
        if reopen and not yes:
            what = "Replace" if replace else "Reopen"
            typer.confirm(f"{what} these windows?", abort=True, err=True)
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
    if dry_run:
        return
    if as_json:
        print_json({name: result.to_json() for name, result in results.items()})
    else:
        out.print(escape(f"recorded: {', '.join(results)}"))


def _show_reopening(config: Config, name: str) -> None:
    """Prints which windows get a new seal, and which replays have read the older one.

    Raises:
        InputError: there are no late tuples and the stream has not ended, so nothing can be
            reopened; or windows were changed in the source.
    """
    check_unchanged(config, name)
    late, end = late_windows(config, name)
    if not late and end is None:
        raise InputError(
            f'stream "{name}" has no late tuples of sealed windows in quarantine',
            hint=f"Record the new tuples of its source first: rewindow record {name}",
        )
    grid = find_stream(config, name).grid
    for windows, count in late[:SHOWN]:
        err.print(
            f"windows {grid.describe(windows)}: {quantity(count, 'late tuple')}, sealed again",
            markup=False,
        )
    if len(late) > SHOWN:
        err.print(f"... and {len(late) - SHOWN:,} more ranges of windows")
    ledger = Ledger.open(config.ledger_url)
    if end is not None:
        err.print(
            f"the end of the stream after window {end} is removed if tuples after it exist",
            markup=False,
        )
        for reader, _ in readers_of_end(ledger, name, None):
            err.print(
                f"will become stale from window {reader.windows.first}: {reader.why}",
                markup=False,
            )
    for reader in readers(ledger, name, [windows for windows, _ in late]):
        err.print(f"read the old seal and will become stale: {reader.why}", markup=False)


def _show_replacement(config: Config, name: str) -> None:
    """Prints which replays may become stale by a replacement."""
    err.print(
        f"{name}: the whole source will be read. Sealed windows that differ from it will be "
        "replaced with the current contents of the source, and sealed again.",
        markup=False,
    )
    for reader in readers(Ledger.open(config.ledger_url), name):
        err.print(f"will become stale if its windows differ: {reader.why}", markup=False)


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
        f"{name} has {quantity(entry.tuples, 'tuple')}, {quantity(entry.windows, 'window')} "
        f"{entry.sealed}",
        markup=False,
    )
    err.print(
        "They will be deleted after the source has been read again. Tuples that are no longer in "
        "the source will be lost.",
        markup=False,
    )
    if not yes:
        typer.confirm("Delete them and record the stream again?", abort=True, err=True)
