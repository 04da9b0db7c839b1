"""`rewindow streams`: look after recorded and published streams."""

from __future__ import annotations

from typing import Annotated

import typer

from rewindow.commands.job import run_plain
from rewindow.commands.screen import AsJson, print_json
from rewindow.config import Config

DIFFERENT_CODE = 1

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Look after recorded and published streams.")


@app.callback()
def _group() -> None:
    """Look after recorded and published streams."""


@app.command()
def upgrade(
    name: Annotated[list[str] | None, typer.Argument(help="Streams or applications; all unless given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Lift streams that an older version has written to the format of this one.

    Every window is held against its old digest while the new one is taken. Nothing is deleted, and it may be repeated.
    Exit code 1 when windows do not hold what was sealed; they are named, and planning refuses them.

    Examples:

        rewindow streams upgrade

        rewindow streams upgrade flights weather
    """
    names = name or []
    outcome = run_plain(Config.load(), "upgrade.py", names, " ".join(names) or "streams")
    if as_json:
        print_json({"streams": outcome.facts["streams"]})
    if any(stream["differing"] for stream in outcome.facts["streams"]):
        raise typer.Exit(DIFFERENT_CODE)
