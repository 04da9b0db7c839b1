"""Caches table snapshots during one command. A log is read again only if it has grown.

Reading a log takes longer the more files a table has, and a publication opens its tables about
eighty times. A cached snapshot is valid as long as the file of its last commit is unchanged and no
later commit exists. If a cached snapshot was moved, for example by `Table.refresh`, its new version
is checked.
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
    """A snapshot, with the size and the time of the file of its last commit."""

    delta: DeltaTable
    version: int
    commit: tuple[int, int] | None


_snapshots: ContextVar[dict[tuple[str, int | None], _Kept] | None] = ContextVar(
    "snapshots",
    default=None,
)


@contextmanager
def snapshot_cache() -> Iterator[None]:
    """Caches opened tables within the context, for one command. Outside of it nothing is cached."""
    token = _snapshots.set({})
    try:
        yield
    finally:
        _snapshots.reset(token)


def open_delta(path: Location, version: int | None) -> DeltaTable:
    """Returns a table at its newest version or at a given one.

    Within `snapshot_cache`, it comes from the cache if possible.

    Raises:
        DeltaError, OSError: the table does not exist, or cannot be read.
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
    """Returns the size and time of a commit's file, which identify it; None if the file was removed
    when the log was cleaned.
    """
    entry = _entry(path, version)
    return (entry.size(), entry.modified_ms()) if entry.exists() else None


def _entry(path: Location, version: int) -> Location:
    return path / "_delta_log" / f"{version:020}.json"
