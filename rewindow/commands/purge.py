"""`rewindow purge`: deletes staged tables and checkpoints that are no longer needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, out, print_json, print_rows
from rewindow.retention.purge import purge as delete


def purge(
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Delete the files; without this option, only list what would be deleted."
        ),
    ] = False,
    older_than: Annotated[
        int,
        typer.Option(
            help="Age in days from which the tables of a replay that was never published are "
            "deleted.",
            min=0,
            max=36_500,
        ),
    ] = 30,
    as_json: AsJson = False,
) -> None:
    """Delete staged tables and checkpoints of ended replays. This is a dry run unless --yes is
    given.

    Examples:

        rewindow purge

        rewindow purge --older-than 7 --yes
    """
    config = load_project()
    age = timedelta(days=older_than)
    purged = delete(config, age, delete=yes)
    found = purged.deleted
    freed = purged.bytes
    if as_json:
        folders = [str(entry.folder) for entry in found]
        print_json(
            {"deleted": yes, "bytes": freed, "folders": folders, "being_published": purged.busy}
        )
        return
    rows = [(e.replay_id, e.folder.name, round(e.bytes / 1e6, 2), e.reason) for e in found]
    print_rows("", ("replay", "folder", "MB", "why"), rows)
    for replay_id in purged.busy:
        out.print(
            f"{escape(replay_id)} is being published or undone, so its tables are not deleted"
        )
    words = "freed" if yes else "would be freed; to delete, use --yes"
    out.print(f"{freed / 1e6:.1f} MB {words}")
