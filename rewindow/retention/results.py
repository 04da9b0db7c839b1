"""Deletes old pages and results of gates. Findings are kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rewindow.location import Location
from rewindow.settings.config import Config
from rewindow.storage.results import quality_folder

KEEP_DAYS = 90


def prune_results(config: Config) -> list[str]:
    """Deletes pages and results older than `KEEP_DAYS`, and returns the names of their folders.

    Findings are kept.
    """
    limit = datetime.now(UTC) - timedelta(days=KEEP_DAYS)
    folders = quality_folder(config) / "replays"
    deleted = []
    for folder in list(folders.folders()):
        if datetime.fromtimestamp(_written(folder), UTC) < limit:
            folder.delete_tree()
            deleted.append(folder.name)
    return deleted


def _written(folder: Location) -> float:
    """Returns when a file in a folder was last written.

    The time of the folder is not enough, because replacing a file may not change it.
    """
    return max((file.modified() for file in folder.files()), default=0.0)
