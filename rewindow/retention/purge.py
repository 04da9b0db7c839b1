"""Purge: deletes staged tables and checkpoints of ended replays
(docs/rules/windows_and_checkpoints.md).

It keeps everything that an open replay writes or starts from, replays that are not published unless
they are old, and the facts of every replay, which `certify` and `why` read. Recordings, their
quarantine and the ledger are never changed. A replay's tables are deleted while the locks of its
publication are held and after its state is read again, so that no publication or undo that starts
in between loses tables that it needs. Only folders below the folder of staged replays are deleted,
and only of replays whose plan is known. Undo restores older versions of the published tables. Of
the files that it needs, only those of states could be deleted here; they are deleted when no
checkpoint that an undo could restore refers to them.

Rules: W83 to W86
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

import pyarrow.parquet as pq

from rewindow.errors import OverlapError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay, ReplayState
from rewindow.location import Location
from rewindow.names import container_id
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.state.files import folder_of, leaves_in
from rewindow.storage import Table
from rewindow.storage.failures import reading_table
from rewindow.storage.layout import CHECKPOINTS, FACTS
from rewindow.storage.names import checkpoints_name
from rewindow.storage.published_tables import targets_of

DELETED = frozenset({ReplayState.ABANDONED, ReplayState.PUBLISHED})
AGED = frozenset({ReplayState.ENDED, ReplayState.CHECKED, ReplayState.UNDONE})
LIMIT = 100_000
OLD = timedelta(days=30)


@dataclass(frozen=True)
class Purgeable:
    """A folder that can be deleted, with its size and the reason.

    Attributes:
        replay_id: the replay that it belongs to; for a published state, the application.
    """

    replay_id: str
    folder: Location
    bytes: int
    reason: str
    published: bool = False


@dataclass(frozen=True)
class Purged:
    """Folders that were deleted or would be deleted, and the replays that were skipped because
    their tables are being published.
    """

    deleted: list[Purgeable]
    busy: list[str]

    @property
    def bytes(self) -> int:
        """The number of bytes that were freed."""
        return sum(entry.bytes for entry in self.deleted)


def purgeable(config: Config, older_than: timedelta) -> list[Purgeable]:
    """Returns the folders that are no longer needed.

    Args:
        older_than: age after which a replay that ended but was not published counts as not needed.
    """
    ledger = Ledger.open(config.ledger_url)
    rows = _planned(ledger)
    locked = _locked(config, rows)
    found: list[Purgeable] = []
    for row in rows:
        found += _folders(config, ledger, row, older_than=older_than, locked=locked)
    for _, states in _states(config, ledger):
        found += states
    return found


def _planned(ledger: Ledger) -> list[Replay]:
    """Returns the replays that still have a plan, newest first."""
    return [row for row in ledger.replays.newest(limit=LIMIT) if row.plan]


def purge(config: Config, older_than: timedelta = OLD, *, delete: bool = False) -> Purged:
    """Deletes the folders that are no longer needed. Skips replays that have changed in the
    meantime or are being published.

    Args:
        config: current settings.
        older_than: see purgeable.
        delete: without it nothing is deleted; the result lists what would be deleted.
    """
    if not delete:
        return Purged(purgeable(config, older_than), [])
    ledger = Ledger.open(config.ledger_url)
    deleted: list[Purgeable] = []
    busy: list[str] = []
    staged = (entry.replay_id for entry in purgeable(config, older_than) if not entry.published)
    for replay_id in dict.fromkeys(staged):
        tables = names_of(targets_of(ledger.replays.get(replay_id).read_plan()))
        try:
            with ledger.publications.publishing(tables, wait_s=0):
                # Another process may have published it since, so its state is read again.
                rows = _planned(ledger)
                row = next(row for row in rows if row.replay_id == replay_id)
                locked = _locked(config, rows)
                deleted += map(
                    _delete, _folders(config, ledger, row, older_than=older_than, locked=locked)
                )
        except OverlapError:
            busy.append(replay_id)
    for name, _ in _states(config, ledger):
        try:
            with ledger.publications.publishing([checkpoints_name(name)], wait_s=0):
                again = dict(_states(config, ledger)).get(name, [])
                deleted += map(_delete, again)
        except OverlapError:
            busy.append(name)
    return Purged(deleted, busy)


def _delete(entry: Purgeable) -> Purgeable:
    """Deletes a folder.

    A missing folder is not an error.

    Rules: W86
    """
    entry.folder.delete_tree()
    return entry


def _folders(
    config: Config,
    ledger: Ledger,
    row: Replay,
    older_than: timedelta,
    locked: set[Location],
) -> list[Purgeable]:
    reason = _reason(row, older_than)
    if not reason or not _is_staged(config, row) or _is_open(ledger, row):
        return []
    root = config.replay_root(row.replay_id)
    roots = [root, *root.parent.folders(container_id(root.name, "*"))]
    return [
        Purgeable(row.replay_id, folder, _size(folder), reason=reason)
        for folder in chain.from_iterable(one.folders() for one in roots)
        if folder.name != FACTS and folder not in locked
    ]


def _reason(row: Replay, older_than: timedelta) -> str:
    if row.state in DELETED:
        return f"the replay is {row.state.value}"
    age = datetime.now(UTC) - row.changed_at
    if row.state in AGED and age > older_than:
        return f"not published, unchanged for {age.days} days"
    return ""


def _locked(config: Config, rows: list[Replay]) -> set[Location]:
    """Returns the checkpoint tables from which planned or running replays start.

    Rules: W85
    """
    tables = set()
    for row in rows:
        if row.state in (ReplayState.PLANNED, ReplayState.RUNNING, ReplayState.FAILED):
            start = row.read_plan().start
            if start.taken_from.endswith(CHECKPOINTS):
                tables.add(start.table(config.state))
    return tables | {*map(folder_of, tables)}


def _states(config: Config, ledger: Ledger) -> Iterator[tuple[str, list[Purgeable]]]:
    """Yields each application with published states in files, and the folders of states that are no
    longer referenced.

    The start state of a replay was linked into its own folder when it was planned. An undo needs
    the earlier checkpoints: those whose rows a VACUUM would not remove yet, because of the table's
    retention.
    """
    for folder in (config.state / "streams").folders("*.checkpoints.state"):
        table = Table.open(folder.with_name(folder.stem))
        name = folder.name.removesuffix(".checkpoints.state")
        if any(one.details.application == name for one in ledger.publications.unfinished()):
            continue
        needed = _needed_states(table)
        why = "no checkpoint that an undo could restore uses this state"
        gone = [folder / leaf for leaf in leaves_in(folder) if leaf not in needed]
        yield (
            name,
            [Purgeable(name, leaf, _size(leaf), reason=why, published=True) for leaf in gone],
        )


def _needed_states(table: Table) -> set[str]:
    """Returns the folders that the table's checkpoints refer to, including checkpoints that an undo
    can still restore.
    """
    every = table.path.entries("*.parquet")
    with reading_table(table.path, lambda: every):
        expired = {table.path / path for path in table.delta.vacuum(dry_run=True)}
        return stored.leaves_of(
            pq.read_table(path.uri, columns=["files"], partitioning=None)
            for path in excluding(every, expired)
        )


def _is_staged(config: Config, row: Replay) -> bool:
    """Returns whether a replay's folder is directly in the folder of staged replays, and not a link
    to another place. Other folders are never deleted.
    """
    root = config.replay_root(row.replay_id)
    return root.real().parent == root.parent.real()


def _is_open(ledger: Ledger, row: Replay) -> bool:
    return any(entry.replay_id == row.replay_id for entry in ledger.publications.unfinished())


def _size(folder: Location) -> int:
    return sum(file.size() for file in folder.files())
