"""Pages and results of gates: deleted when they are old; findings are kept."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rewindow.config import Config
from rewindow.storage.results import quality_folder

KEEP_DAYS = 90


def prune_results(config: Config, keep_days: float = KEEP_DAYS, *, now: datetime | None = None) -> list[str]:
    """Deletes pages and results that are older, and returns their folders' names; findings are kept."""
    limit = (now or datetime.now(UTC)) - timedelta(days=keep_days)
    folders = quality_folder(config) / "replays"
    old = [
        folder
        for folder in sorted(folders.iterdir() if folders.is_dir() else [])
        if datetime.fromtimestamp(_written(folder), UTC) < limit
    ]
    for folder in old:
        shutil.rmtree(folder)
    return [folder.name for folder in old]


def _written(folder: Path) -> float:
    """Returns when something in a folder was last written: a file that is replaced does not touch its folder."""
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
