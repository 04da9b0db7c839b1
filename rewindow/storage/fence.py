"""The fence: prevents commits of older attempts.

The transaction version of a table packs the attempt's epoch and the mark, which is the number of
windows of the replay that the table holds: version = (epoch << 40) | mark. An attempt fences a
table by an empty commit with its epoch and the mark carried over, made on the very snapshot on
which it saw a lower epoch. An older attempt then either conflicts, or sees the higher epoch and
stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from rewindow.errors import FencedError
from rewindow.location import Location
from rewindow.storage.delta import DataFile, Table

MARK_BITS = 40


class Log(Protocol):
    """What the protocol needs of a table: its files and transaction ids as of a snapshot, and
    commits on that snapshot.

    `Table` is one, on Delta. The simulation of the protocol has another one, in memory.
    """

    path: Location

    def refresh(self) -> Log:
        """Looks at the newest snapshot."""

    def txn(self, app_id: str) -> int:
        """Returns the last transaction version of an id on the snapshot, -1 if there is none."""

    def check_committable(self) -> None:
        """Refuses a table to which a commit of ours is not known to be safe."""

    def files(self) -> list[DataFile]:
        """Returns the snapshot's files."""

    def read(self, file: DataFile, columns: list[str]) -> pa.Table:
        """Returns columns of one of its files."""

    def sync(self) -> None:
        """Makes the log's newest commits outlive a power cut."""

    def commit_files(
        self,
        files: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds files. A commit since the snapshot that carried the same id makes it a
        FencedError.
        """

    def commit_arrow(
        self,
        frame: pa.Table,
        *,
        app_id: str,
        version: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds a small frame, under the same condition."""

    def replace_files(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
    ) -> None:
        """Puts files into the place of others, under the same condition."""


@dataclass(frozen=True)
class Position:
    """What a table's transaction id says: the epoch that last wrote, and the mark it reached (0: no
    window).
    """

    epoch: int
    mark: int

    @property
    def version(self) -> int:
        """The transaction version that packs both."""
        return (self.epoch << MARK_BITS) | self.mark


def position(table: Log, app_id: str) -> Position:
    """Returns the position of a table on its snapshot; epoch 0, mark 0 before the first attempt."""
    version = max(table.txn(app_id), 0)
    return Position(version >> MARK_BITS, version & ((1 << MARK_BITS) - 1))


@dataclass
class FencedTable:
    """A table that this attempt has fenced; commits go through it and check the epoch on their
    snapshot.

    Attributes:
        done: the table's mark when it was fenced, before the fence changed it.
        previous: the epoch that held the table until then.
    """

    table: Log
    app_id: str
    epoch: int
    done: int
    previous: int

    @property
    def path(self) -> Location:
        """Folder of the table."""
        return self.table.path

    def commit(
        self,
        mark: int,
        rows: Sequence[DataFile] | pa.Table,
        metadata: Mapping[str, Any] | None = None,
        *,
        durable: bool = False,
    ) -> None:
        """Commits rows up to a mark; `durable` when it must outlive a power cut before anything
        else is done.

        Raises:
            FencedError: a newer attempt has fenced the table.
        """
        self._check()
        version = Position(self.epoch, mark).version
        if isinstance(rows, pa.Table):
            self.table.commit_arrow(rows, app_id=self.app_id, version=version, metadata=metadata)
        else:
            self.table.commit_files(rows, app_id=self.app_id, version=version, metadata=metadata)
        if durable:
            self.table.sync()
        self._check()

    def replace(self, added: Sequence[DataFile], removed: Sequence[DataFile]) -> bool:
        """Commits files in the place of others that hold the same rows; the mark stays.

        It is committed on the snapshot from which those were read, so that nobody else's commit is
        undone by it.

        Returns:
            Whether it was committed: not where somebody who is no attempt has written to the table
                meanwhile.

        Raises:
            FencedError: a newer attempt has fenced the table.
        """
        self._check_seen()
        version = self.table.txn(self.app_id)
        done = True
        try:
            self.table.replace_files(added, removed, app_id=self.app_id, version=version)
        except FencedError:
            done = False
        self._check()
        return done

    def _check(self) -> None:
        self.table.refresh()
        self._check_seen()

    def _check_seen(self) -> None:
        now = position(self.table, self.app_id)
        if now.epoch != self.epoch:
            raise _superseded(self.app_id, self.epoch, now.epoch)


def fence(
    path: Location,
    app_id: str,
    epoch: int,
    mark_of: Callable[[int], int] = lambda mark: mark,
    open_table: Callable[[Location], Log] = Table.open,
) -> FencedTable:
    """Fences a table for an attempt and returns it.

    Args:
        path: the table; it must exist, since a table that does not exist cannot be fenced.
        app_id: transaction id, `<replay>/<table>`.
        epoch: this attempt's epoch.
        mark_of: the mark to carry, given the table's mark.
        open_table: opens the table at its newest snapshot.

    Raises:
        FencedError: an attempt with the same or a higher epoch was here already.
        TableError: the table is not there.
    """
    while True:
        table = open_table(path)
        table.check_committable()
        before = position(table, app_id)
        if before.epoch == epoch:
            raise _taken_twice(app_id, epoch)
        if before.epoch > epoch:
            raise _superseded(app_id, epoch, before.epoch)
        try:
            table.commit_files(
                [],
                app_id=app_id,
                version=Position(epoch, mark_of(before.mark)).version,
            )
        except FencedError:
            continue
        after = position(table, app_id)
        if after.epoch != epoch:
            raise _superseded(app_id, epoch, after.epoch)
        return FencedTable(table, app_id, epoch, done=before.mark, previous=before.epoch)


def _superseded(app_id: str, mine: int, newest: int) -> FencedError:
    return FencedError(
        f'attempt {mine} of "{app_id}" was superseded by attempt {newest}',
        detail="It has stopped; what it had committed before stays and is taken over.",
    )


def _taken_twice(app_id: str, epoch: int) -> FencedError:
    return FencedError(
        f'number {epoch} of "{app_id}" belongs to another attempt already',
        detail="Two attempts have one number, so the ledger that gave it out is not the one of "
        "these tables, or is an "
        "older copy of it. Nothing was written.",
        hint="Put the newest ledger back; or move it away and make it again from the tables: "
        "rewindow ledger rebuild",
    )
