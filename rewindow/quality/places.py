"""Where results lie: outside the repository, one folder a replay, written anew by each check of it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rewindow.config import Config
from rewindow.names import check_replay_id

KEEP_DAYS = 90


def quality_folder(config: Config) -> Path:
    """Returns the folder of everything that the gate leaves behind."""
    return config.results / "quality"


def replay_folder(config: Config, replay_id: str) -> Path:
    """Returns the folder of a replay's pages and results."""
    return quality_folder(config) / "replays" / check_replay_id(replay_id)


def findings_table(config: Config) -> Path:
    """Returns the Delta table that keeps every check of every run."""
    return quality_folder(config) / "findings"


def index_page(config: Config) -> Path:
    """Returns the page over time."""
    return quality_folder(config) / "index.html"


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
