"""Replaces a range of a published table by files, in one commit of delta-rs that adds and removes
files. No JVM.

A commit is built on one snapshot of the table and can only be committed on that snapshot. If
another commit comes first, it fails and is built again (`rewindow.publication.commits`). Files
inside the range are removed completely. Files on its edge are cut: their rows outside of the range
are written to a new file.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.transaction import RemoveAction

from rewindow.errors import TableError
from rewindow.ledger import Publication, publish_app_id
from rewindow.ledger.publication_details import PutBack
from rewindow.location import Location, location
from rewindow.progress.steps import counted
from rewindow.publication.contents import files_of
from rewindow.publication.joining import files_to_join
from rewindow.publication.spark_needed import reason_for_spark
from rewindow.publication.staged_files import StagedFiles
from rewindow.publication.staged_output import inside, outside
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.checksums import with_noted
from rewindow.storage.delta import DataFile
from rewindow.storage.failures import table_failure
from rewindow.storage.names import open_published
from rewindow.storage.new_files import NewFile, link_file, put_right, sync_folders, write_file
from rewindow.storage.queries import read_rows
from rewindow.windows import WindowRange


@dataclass
class Replacement:
    """A commit under construction, with the files that it adds to a table and removes from it, on
    one snapshot.

    Attributes:
        table: the published table, pinned to that snapshot.
        publication: the publication or undo that the commit belongs to.
    """

    table: Table
    publication: Publication
    added: list[NewFile] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)
    _written: list[Location] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.version = self.table.version

    def write(self, rows: pa.Table) -> NewFile:
        """Adds rows as a new file. A column that the rows lack becomes null."""
        schema = self.table.schema
        ordered = [name for name in schema.names if name in rows.column_names]
        file = write_file(self.table.path, folder_of(self.publication), rows.select(ordered))
        self._written.append(self.table.path / file.path)
        self.added.append(file)
        return file

    def clear(self, windows: WindowRange) -> None:
        """Removes the rows of a range: all rows of files inside the range, and the matching rows of
        files on its edge.
        """
        for file in self.table.files(windows.first, windows.last):
            self.removed.append(file)
            if not within(file, windows):
                self.keep(file, self.table.schema, outside(windows))

    def keep(self, file: DataFile, schema: pa.Schema, wanted: object) -> None:
        """Adds the given rows of a file as a new file, then reads the new file back and compares
        it.
        """
        rows = read_rows([file], schema, schema.names, wanted)
        if rows.num_rows:
            self._check_equal(self.write(rows), rows)

    def join(self, files: Sequence[DataFile]) -> None:
        """Joins several files outside of the range into one file, see `joining`."""
        if files:
            schema = self.table.schema
            rows = read_rows(files, schema, schema.names, outside(self.publication.range))
            self._check_equal(self.write(rows), rows)
            self.removed += files

    def link(self, file: DataFile, schema: pa.Schema) -> None:
        """Adds an unchanged file under a new name."""
        path = f"{folder_of(self.publication)}/{link_name(file)}"
        source = location(file.path)
        self.added.append(
            link_file(
                source,
                self.table.path,
                path,
                changed_ms=file.changed_ms,
                schema=schema,
                checksum=file.checksum,
            )
        )

    def read_back(self, file: NewFile) -> pa.Table:
        """Returns the rows of a new file."""
        return pq.read_table((self.table.path / file.path).uri, partitioning=None)

    def _check_equal(self, file: NewFile, rows: pa.Table) -> None:
        if not self.read_back(file).equals(rows.select(self.read_back(file).column_names)):
            raise TableError(
                f'file "{file.path}" of table "{self.table.path.name}" differs from the rows that '
                "were written to it",
                detail="It was read back before the commit; nothing was changed.",
                hint="The disk or the memory of this machine may be failing; check them, then try "
                "again.",
            )

    def commit(self) -> None:
        """Commits the replacement on the snapshot on which it was built.

        Raises:
            CommitFailedError: another commit came first.
        """
        publication = self.publication
        delta = self.table.delta
        assert delta.version() == self.version, "it was built on another snapshot"
        name = self.table.path.name
        sync_folders(self.table.path, [folder_of(self.publication)] if self.added else [])
        now_ms = int(time.time() * 1000)
        removes = [
            RemoveAction(_log_path(self.table, file), True, now_ms, file.size, {})
            for file in self.removed
        ]
        metadata = {
            "userMetadata": json.dumps(publication.commit_metadata()),
            "isBlindAppend": False,
        }
        properties = CommitProperties(
            custom_metadata=metadata,  # type: ignore[arg-type]
            # A retry by delta-rs would keep rows that another writer has added to the range, or
            # add ours twice.
            max_commit_retries=0,
            app_transactions=[Transaction(publish_app_id(name), publication.number)],
        )
        actions = [*(file.action() for file in self.added), *removes]
        delta.create_write_transaction(
            actions,
            "append",
            delta.schema(),
            commit_properties=properties,
        )
        self.table.refresh().sync()

    def drop(self) -> None:
        """Deletes the written files of a replacement that is not committed."""
        for path in self._written:
            path.delete()


def publish_files(
    config: Config,
    publication: Publication,
    name: str,
    staged: StagedFiles,
) -> list[NewFile]:
    """Replaces a publication's range in a published stream with the visible rows of a staged
    output.

    Returns:
        The new files: those of the range, and those with the remaining rows of cut files.

    Raises:
        TableError: written rows differ from the sealed ones; columns do not match.
        CommitFailedError: another commit came first.
    """
    with _replacement(config, publication, name) as change:
        change.clear(publication.range)
        check_columns(change.table, staged.rows.stream_schema)
        schema = change.table.schema
        for file in counted(f"{name}: linking files", staged.whole, len(staged.whole), "files"):
            change.link(file, schema)
        parts = list(staged.rows.parts())
        for windows in counted(f"{name}: writing rows", parts, len(parts), "parts"):
            rows = staged.rows.as_stream(staged.rows.rows(windows))
            if rows.num_rows:
                written = change.write(rows)
                staged.rows.check(change.read_back(written), windows)
        change.join(files_to_join(change.table, publication.range))
    return change.added


def put_back(
    config: Config,
    publication: Publication,
    name: str,
    pieces: Sequence[PutBack],
) -> list[NewFile]:
    """Restores a publication's range in a published stream from earlier versions.

    Returns:
        The new files: those of the range, and those with the remaining rows of cut files.

    Raises:
        TableError: a version or a file of it was removed.
        CommitFailedError: another commit came first.
    """
    with _replacement(config, publication, name) as change:
        change.clear(publication.range)
        for piece in pieces:
            schema = open_published(config, name, piece.version).schema
            files = with_noted(change.table, files_of(config, name, piece))
            for file in counted(f"{name}: linking files", files, len(files), "files"):
                if within(file, piece.windows):
                    change.link(file, schema)
                else:
                    change.keep(file, schema, inside(piece.windows))
    return change.added


def reason_to_publish_with_spark(config: Config, name: str, windows: WindowRange) -> str:
    """Returns the reason why the range of a published stream cannot be replaced without Spark;
    empty if Spark is not needed.
    """
    if not Table.exists(config.stream_table(name)):
        return ""
    table = open_published(config, name)
    return reason_for_spark(table, lambda: table.files(windows.first, windows.last))


def reason_to_put_back_with_spark(
    config: Config,
    name: str,
    windows: WindowRange,
    pieces: Sequence[PutBack],
) -> str:
    """Returns the reason why earlier versions of a published stream cannot be restored without
    Spark; empty if Spark is not needed.
    """
    now = open_published(config, name)
    if reason := reason_for_spark(now, lambda: now.files(windows.first, windows.last)):
        return reason
    for piece in pieces:
        table = open_published(config, name, piece.version)
        if reason := reason_for_spark(table, partial(files_of, config, name, piece)):
            return reason
        then = zip(table.schema.names, table.schema.types, strict=True)
        if not set(then) <= set(zip(now.schema.names, now.schema.types, strict=True)):
            return f'table "{name}" had other columns at version {piece.version}'
    return ""


def verify_links(
    config: Config,
    publication: Publication,
    name: str,
    sources: Callable[[], Sequence[DataFile]],
) -> None:
    """Checks that the files that a publication has added exist, and restores missing links.

    Args:
        config: current settings.
        publication: the publication or undo.
        name: name of the published table.
        sources: returns the files that may have been linked; called if a file is missing.

    Raises:
        TableError: a file is missing and its source, too.
    """
    table = open_published(config, name)
    schema = table.schema
    folder = (table.path / folder_of(publication)).uri + "/"
    for file in table.files(publication.first, publication.last):
        path = location(file.path)
        if not path.uri.startswith(folder):
            continue
        if not path.exists():
            source = next(
                (location(file.path) for file in sources() if link_name(file) == path.name), None
            )
            if source is None or not source.exists():
                raise TableError(
                    f'file "{path.name}" of table "{name}" was deleted after it was published',
                    detail="Another program deleted it before the publication was finished.",
                    hint="Withdraw the unfinished publication: rewindow publish "
                    f"{publication.replay_id} --withdraw",
                )
            link_file(
                source,
                table.path,
                _log_path(table, file),
                changed_ms=file.changed_ms,
                schema=schema,
            )
        put_right(path, file.changed_ms)


def folder_of(publication: Publication) -> str:
    """Returns the folder for a publication's files, relative to the folder of each table."""
    return f"publication-{publication.number}"


def link_name(file: DataFile) -> str:
    """Returns the short name with which a file is linked.

    It is derived from the file's folder and name.
    """
    path = location(file.path)
    digest = hashlib.sha256(f"{path.parent.name}/{path.name}".encode()).hexdigest()
    return f"linked-{digest[:32]}.parquet"


def within(file: DataFile, windows: WindowRange) -> bool:
    """Returns whether all rows of a file are in a range."""
    return (
        file.first is not None
        and file.last is not None
        and file.first in windows
        and file.last in windows
    )


def check_columns(table: Table, schema: pa.Schema) -> None:
    """Checks that a table has the columns of files, with the same types.

    Raises:
        TableError: a column does not match; the message names it.
    """
    for column in schema:
        if (
            column.name not in table.schema.names
            or table.schema.field(column.name).type != column.type
        ):
            raise TableError(
                f'column "{column.name}" of type {column.type} does not fit table '
                f'"{table.path.name}"',
                detail="Another program changed the table during the publication. This "
                "publication changed nothing.",
                hint="Publish again; or restore the column of the table.",
            )


@contextmanager
def _replacement(config: Config, publication: Publication, name: str) -> Iterator[Replacement]:
    """Yields a replacement to build, and commits it at the end.

    If building fails, the files that it has written are deleted.
    """
    change = Replacement(open_published(config, name), publication)
    try:
        yield change
    except BaseException as error:
        change.drop()
        if isinstance(error, OSError):
            raise table_failure(f'table "{name}" cannot be written', error) from error
        raise
    change.commit()


def _log_path(table: Table, file: DataFile) -> str:
    path = location(file.path)
    return path.relative_to(table.path) if path.is_below(table.path) else file.path
