"""`rewindow record`: take what is new of a source into a recorded stream and seal its windows."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.job import run_plain
from rewindow.commands.screen import AsJson, out, print_json
from rewindow.config import Config


def record(
    stream: Annotated[list[str], typer.Argument(help="Streams, as named in rewindow.toml.")],
    sealed_to: Annotated[
        str | None,
        typer.Option(help="Seal windows up to this time (exclusive); default: rewindow.toml, or the newest tuple."),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="Nothing more will come: seal the window of the newest tuple too.")
    ] = False,
    seal_again: Annotated[
        bool, typer.Option("--seal-again", help="The table of seals is lost: make it anew from the tuples there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Record what is new of a stream. A second run over the same source changes nothing.

    The window of the newest tuple stays open, since more may arrive in it: later tuples seal it, or a time, or the end.

    Examples:

        rewindow record flights weather

        rewindow record clicks --sealed-to 2026-03-01T12:00Z

        rewindow record clicks --end
    """
    config = Config.load()
    for name in stream:
        config.stream(name)
    results = {}
    for name in stream:
        arguments = ["--stream", name] + (["--sealed-to", sealed_to] if sealed_to else []) + ["--end"] * end
        arguments += ["--seal-again"] * seal_again
        outcome = run_plain(config, "record.py", arguments, name)
        results[name] = {key: value for key, value in outcome.facts.items() if key not in ("exit_code", "message")}
    if as_json:
        print_json(results)
    else:
        out.print(escape(f"recorded: {', '.join(results)}"))
