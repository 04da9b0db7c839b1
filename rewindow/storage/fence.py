"""The fence: prevents commits of older attempts.

Every attempt of a replay has a number, its epoch. The transaction version of a table packs the
epoch and the mark, the number of the replay's windows in the table: version = (epoch << 40) | mark.
An attempt fences a table by an empty commit with its epoch and the existing mark. It commits on the
same snapshot on which it saw a lower epoch. An older attempt then either gets a conflict, or sees
the higher epoch and stops.
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
    """The interface of a table for the commit protocol: files and transaction ids of a snapshot,
    and commits on that snapshot.

    `Table` implements it on Delta, and the protocol simulation implements it in memory.
    """

    path: Location

    def refresh(self) -> Log:
        """Moves the log to its newest snapshot."""

    def txn(self, app_id: str) -> int:
        """Returns the last transaction version of an id on the snapshot; -1 if there is none."""

    def check_committable(self) -> None:
        """Raises an error if commits to the table are not known to be safe."""

    def files(self) -> list[DataFile]:
        """Returns the snapshot's files."""

    def read(self, file: DataFile, columns: list[str]) -> pa.Table:
        """Returns columns of one of the table's files."""

    def sync(self) -> None:
        """Writes the log's newest commits to disk."""

    def commit_files(
        self,
        files: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds files. Raises a FencedError if a commit with the same id was made since the
        snapshot.
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
        """Replaces files by others, under the same condition."""


@dataclass(frozen=True)
class Position:
    """The content of a table's transaction id: the epoch that last wrote, and the mark up to which
    it wrote (0: no window).
    """

    epoch: int
    mark: int

    @property
    def version(self) -> int:
        """The transaction version that packs epoch and mark."""
        return (self.epoch << MARK_BITS) | self.mark


def position(table: Log, app_id: str) -> Position:
    """Returns the position of a table on its snapshot.

    Before the first attempt, epoch and mark are 0.
    """
    version = max(table.txn(app_id), 0)
    return Position(version >> MARK_BITS, version & ((1 << MARK_BITS) - 1))


@dataclass
class FencedTable:
    """A table that this attempt has fenced.

    Its commits check the epoch on their snapshot.

    Attributes:
        done: the table's mark before it was fenced.
        previous: the epoch of the table before it was fenced.
    """

    table: Log
    app_id: str
    epoch: int
    done: int
    previous: int

    @property
    def path(self) -> Location:
        """The folder of the table."""
        return self.table.path

    def commit(
        self,
        mark: int,
        rows: Sequence[DataFile] | pa.Table,
        metadata: Mapping[str, Any] | None = None,
        *,
        durable: bool = False,
    ) -> None:
        """Commits rows up to a mark.

        Args:
            mark: the new mark.
            rows: the rows, as files or as a table in memory.
            metadata: stored in the commit.
            durable: whether the commit must be on disk before the call returns.

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
        """Replaces files by other files with the same rows. The mark does not change.

        The commit is made on the snapshot from which the files were read, so that it cannot undo a
        commit of another process.

        Returns:
            Whether it was committed. It is not if a program other than an attempt has written to
            the table meanwhile.

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

    The loop is a compare-and-set: it reads the epoch on a snapshot and commits its own on the same
    snapshot. If another commit with this transaction id came first, it starts again on the newer
    snapshot. So at the end every older attempt has either committed before the fence, which is then
    taken into account, or can no longer commit.

    Args:
        path: the table, which must exist.
        app_id: transaction id, `<replay>/<table>`.
        epoch: this attempt's epoch.
        mark_of: maps the table's mark to the mark of the fence.
        open_table: opens the table at its newest snapshot.

    Raises:
        FencedError: an attempt with the same or a higher epoch has fenced the table.
        TableError: the table does not exist.
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
        detail="It has stopped. Windows that it had committed are kept.",
    )


def _taken_twice(app_id: str, epoch: int) -> FencedError:
    return FencedError(
        f'number {epoch} of "{app_id}" already belongs to another attempt',
        detail="Two attempts have the same number, so the ledger does not belong to these tables, "
        "or is an older copy. Nothing was written.",
        hint="Restore the newest ledger; or move it away and rebuild it from the tables: "
        "rewindow ledger rebuild",
    )
