"""Purge: deletes staged tables and checkpoints of ended replays (docs/rules/windows_and_checkpoints.md W83 to W86).

Kept are: whatever an open replay still writes or starts from, what has not been published unless it is old, and the
facts of every replay, which `certify` and `why` read. Recordings, their quarantine and the ledger are never touched.
A replay's tables are deleted under the locks of its publishers and after another look at it, so that no publication or
undo that begins in between loses what it needs. Nothing is deleted but below the folder of staged replays, and nothing
of a replay whose plan is not known. Undo puts back older versions of the published tables and needs nothing that is
deleted here.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rewindow.config import Config
from rewindow.errors import OverlapError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay, State
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.storage.published_tables import targets_of

DELETED = frozenset({State.ABANDONED, State.PUBLISHED})
AGED = frozenset({State.ENDED, State.CHECKED, State.UNDONE})
LIMIT = 100_000


@dataclass(frozen=True)
class Purgeable:
    """A folder that may go, with its size and the reason."""

    replay_id: str
    folder: Path
    bytes: int
    reason: str


@dataclass(frozen=True)
class Purged:
    """What was deleted, and the replays that were left alone because somebody publishes their tables."""

    deleted: list[Purgeable]
    busy: list[str]

    @property
    def bytes(self) -> int:
        """Bytes freed."""
        return sum(entry.bytes for entry in self.deleted)


def purgeable(config: Config, older_than: timedelta) -> list[Purgeable]:
    """Returns the folders that nobody needs any more.

    Args:
        older_than: age beyond which a replay that ended but was not published counts as not needed.
    """
    ledger = Ledger.open(config.ledger_url)
    rows = [row for row in ledger.replays.newest(limit=LIMIT) if row.plan]
    locked = _locked(config, rows)
    return [entry for row in rows for entry in _folders(config, ledger, row, older_than, locked)]


def purge(config: Config, older_than: timedelta) -> Purged:
    """Deletes the folders that nobody needs; what changes meanwhile is left alone, and so is what is being published.

    Args:
        older_than: see purgeable.
    """
    ledger = Ledger.open(config.ledger_url)
    deleted: list[Purgeable] = []
    busy: list[str] = []
    for replay_id in dict.fromkeys(entry.replay_id for entry in purgeable(config, older_than)):
        tables = [table.name for table in targets_of(ledger.replays.get(replay_id).read_plan())]
        try:
            with ledger.publications.publishing(tables, wait_s=0):
                rows = [row for row in ledger.replays.newest(limit=LIMIT) if row.plan]
                row, locked = next(row for row in rows if row.replay_id == replay_id), _locked(config, rows)
                deleted += [_delete(entry) for entry in _folders(config, ledger, row, older_than, locked)]
        except OverlapError:
            busy.append(replay_id)
    return Purged(deleted, busy)


def _delete(entry: Purgeable) -> Purgeable:
    """Deletes a folder; one that is gone already is no error (W86)."""
    draft = entry.folder.with_name(f".{entry.folder.name}.purged")
    if entry.folder.exists():
        entry.folder.rename(draft)
    shutil.rmtree(draft, ignore_errors=True)
    return entry


def _folders(config: Config, ledger: Ledger, row: Replay, older_than: timedelta, locked: set[Path]) -> list[Purgeable]:
    reason = _reason(row, older_than)
    if not reason or not _is_staged(config, row) or _is_open(ledger, row):
        return []
    return [
        Purgeable(row.replay_id, folder, _size(folder), reason)
        for folder in sorted(config.replay_root(row.replay_id).glob("*/"))
        if folder.name != FACTS and folder not in locked
    ]


def _reason(row: Replay, older_than: timedelta) -> str:
    if row.state in DELETED:
        return f"the replay is {row.state.value}"
    age = datetime.now(UTC) - row.changed_at
    if row.state in AGED and age > older_than:
        return f"not published, unchanged for {age.days} days"
    return ""


def _locked(config: Config, rows: list[Replay]) -> set[Path]:
    """Returns the checkpoint tables that planned or running replays start from (W85)."""
    plans = [row.read_plan() for row in rows if row.state in (State.PLANNED, State.RUNNING, State.FAILED)]
    return {plan.start.table(config.state) for plan in plans if plan.start.taken_from.endswith(CHECKPOINTS)}


def _is_staged(config: Config, row: Replay) -> bool:
    """Returns whether a replay's folder lies among the staged ones, and no link leads out: nothing else is deleted."""
    root = config.replay_root(row.replay_id)
    return root.resolve().parent == root.parent.resolve()


def _is_open(ledger: Ledger, row: Replay) -> bool:
    return any(entry.replay_id == row.replay_id for entry in ledger.publications.unfinished())


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
