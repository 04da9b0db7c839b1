"""Snapshots of tables that a verb has opened, kept while it runs: a log is read again only when it
has grown.

Reading a log takes longer the more files a table has, and a publication looks at its tables some
eighty times. A kept snapshot is given out again while the commit that it ends with is the same file
and no other has come after it. One that was moved on, as by `Table.refresh`, counts as what it has
become.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from deltalake import DeltaTable

from rewindow.location import Location


@dataclass
class _Kept:
    """A snapshot, and the size and time of the commit that it ends with."""

    delta: DeltaTable
    version: int
    commit: tuple[int, int] | None


_snapshots: ContextVar[dict[tuple[str, int | None], _Kept] | None] = ContextVar(
    "snapshots",
    default=None,
)


@contextmanager
def snapshot_cache() -> Iterator[None]:
    """Keeps what is opened within it, for one verb; outside nothing is kept."""
    token = _snapshots.set({})
    try:
        yield
    finally:
        _snapshots.reset(token)


def open_delta(path: Location, version: int | None) -> DeltaTable:
    """Returns a table at its newest or at a given version; within `snapshot_cache` one that was
    opened before.

    Raises:
        DeltaError, OSError: it is not there, or cannot be read.
    """
    snapshots = _snapshots.get()
    if snapshots is None:
        return DeltaTable(path.uri, version=version)
    kept = snapshots.get((path.uri, version))
    if kept is None or not _is_current(path, version, kept):
        delta = DeltaTable(path.uri, version=version)
        kept = snapshots[path.uri, version] = _Kept(
            delta,
            delta.version(),
            _commit(path, delta.version()),
        )
    return kept.delta


def _is_current(path: Location, version: int | None, kept: _Kept) -> bool:
    now = kept.delta.version()
    if version is None and now != kept.version:
        kept.version = now
        kept.commit = _commit(path, now)
    elif kept.commit is None or kept.commit != _commit(path, now):
        return False
    return now == version if version is not None else not _entry(path, now + 1).exists()


def _commit(path: Location, version: int) -> tuple[int, int] | None:
    """Returns what tells a commit's file from another one of its name; None once the log was
    cleaned of it.
    """
    entry = _entry(path, version)
    return (entry.size(), entry.modified_ms()) if entry.exists() else None


def _entry(path: Location, version: int) -> Location:
    return path / "_delta_log" / f"{version:020}.json"
