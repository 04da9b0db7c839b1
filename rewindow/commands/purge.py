"""`rewindow purge`: delete staged tables and checkpoints that nobody needs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from rewindow.commands.screen import AsJson, out, print_json, print_rows
from rewindow.config import Config
from rewindow.publication.purge import purge as delete
from rewindow.publication.purge import purgeable


def purge(
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it only say what would be deleted.")] = False,
    older_than: Annotated[
        int, typer.Option(help="Days after which a replay that was never published may go.", min=0, max=36_500)
    ] = 30,
    as_json: AsJson = False,
) -> None:
    """Delete what ended replays have staged. A dry run unless --yes is given.

    Examples:

        rewindow purge

        rewindow purge --older-than 7 --yes
    """
    found = purgeable(Config.load(), timedelta(days=older_than))
    freed = delete(found) if yes else sum(entry.bytes for entry in found)
    if as_json:
        print_json({"deleted": yes, "bytes": freed, "folders": [str(entry.folder) for entry in found]})
        return
    rows = [(e.replay_id, e.folder.name, round(e.bytes / 1e6, 2), e.reason) for e in found]
    print_rows("", ("replay", "folder", "MB", "why"), rows)
    words = "freed" if yes else "would be freed; delete with --yes"
    out.print(f"{freed / 1e6:.1f} MB {words}")
