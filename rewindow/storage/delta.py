"""A Delta table: its log, its transaction ids, its files, and commits to it.

Spark writes Parquet files into a new folder of the table, and `commit_files` adds them to the
table. Small frames are committed as Arrow. Both use delta-rs, whose commit is atomic on a local
file system (it creates a hard link), and both carry a transaction id. Delta detects a conflict
between two concurrent commits with the same id.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from rewindow.errors import FencedError, MissingTableError, TableError
from rewindow.location import Location, location
from rewindow.storage.failures import (
    error_number,
    plain_text,
    reading_table,
    reading_tables,
    table_failure,
)
from rewindow.storage.fields import retyped
from rewindow.storage.new_files import statistics
from rewindow.storage.snapshots import open_delta
from rewindow.windows import WindowRange

WRITER_FEATURES_ALLOWED = {
    "appendOnly",
    "invariants",
    "checkConstraints",
    "changeDataFeed",
    "deletionVectors",
}
WRITER_FEATURES_ALLOWED |= {
    "columnMapping",
    "generatedColumns",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
}
"""Table features that are compatible with commits of this module. Other features, such as row
tracking, are rejected, most of them by delta-rs itself."""

CHECKSUMS = "checksums"
"""Key in a commit's `userMetadata`: the checksums of the files that the commit added."""
_FORGETS = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a table.

    Attributes:
        path: absolute path.
        rows: number of rows.
        first, last: bounds of `window_id` in it; None if the log has no statistics.
        size: size in bytes.
        changed_ms: time of the file's last change, as recorded in the table's log; 0 if unknown.
        statistics: statistics of its columns for the log, as JSON; empty for the bounds only.
        checksum: SHA-256 of its bytes, empty if unknown; see `rewindow.storage.checksums`.
    """

    path: str
    rows: int
    first: int | None
    last: int | None
    size: int
    changed_ms: int = 0
    statistics: str = ""
    checksum: str = ""

    def may_hold(self, first: int | None, last: int | None) -> bool:
        """Returns whether the file may contain windows of a range."""
        below = first is not None and self.last is not None and self.last < first
        above = last is not None and self.first is not None and self.first > last
        return not (below or above)


class Sized(Protocol):
    """A file whose size is known."""

    @property
    def size(self) -> int:
        """The size in bytes."""
        ...


def total_size(files: Iterable[Sized]) -> int:
    """Returns the total size of the given files in bytes."""
    return sum(file.size for file in files)


def paths_of(files: Iterable[DataFile]) -> list[str]:
    """Returns the paths of the given files, in the same order."""
    return [file.path for file in files]


def by_bounds(files: Iterable[DataFile]) -> list[tuple[int, int, DataFile]]:
    """Returns the files with known bounds and these bounds, ordered by first window, last window
    and path.
    """
    known = []
    for file in files:
        if file.first is not None and file.last is not None:
            known.append((file.first, file.last, file))
    return sorted(known, key=lambda entry: (entry[0], entry[1], entry[2].path))


class Table:
    """An open Delta table at one snapshot.

    A commit of delta-rs does not update the snapshot of its handle, so every commit method of this
    class refreshes it afterwards.

    Attributes:
        hidden: windows of a stream that were never sealed, whose rows must not be read.
        counts: window_id and the number of tuples of sealed windows, if they need not be counted.
    """

    hidden: tuple[WindowRange, ...] = ()
    counts: pa.Table | None = None

    def __init__(self, path: Location, delta: DeltaTable) -> None:
        self.path = path
        self._delta = delta

    @classmethod
    def open(cls, path: Location | str, version: int | None = None) -> Table:
        """Returns the table in a folder, at its newest version or at a given one.

        Raises:
            MissingTableError: the folder contains no Delta table.
            TableError: the version does not exist, or the log is damaged.
        """
        path = location(path)
        for form in cls.__subclasses__():
            if form.is_at(path):
                return form.at(path, version)
        wanted = "" if version is None else f" at version {version}"
        try:
            with reading_table(path, what=wanted):
                return cls(path, open_delta(path, version))
        except TableError as error:
            if isinstance(error.__cause__, TableNotFoundError) and not cls.exists(path):
                raise MissingTableError(
                    f'table "{path.name}" does not exist',
                    detail=f"Its expected folder is {path}.",
                ) from error
            raise

    @staticmethod
    def exists(path: Location | str) -> bool:
        """Returns whether a folder contains a Delta table, or a stream in place."""
        path = location(path)
        if (path / "_delta_log").is_dir():
            return DeltaTable.is_deltatable(str(path))
        return any(form.is_at(path) for form in Table.__subclasses__())

    @classmethod
    def is_at(cls, path: Location) -> bool:
        """Returns whether a folder contains a table of this form, whose files are elsewhere."""
        return False

    @classmethod
    def at(cls, path: Location, version: int | None) -> Table:
        """Returns the table of this form in a folder."""
        return cls(path, open_delta(path, version))

    def view(self, table: str) -> str | None:
        """Returns the query that makes the rows of this table from the Delta table `table`; None if
        they are the same.
        """
        return None

    def refresh(self) -> Table:
        """Moves the table to its newest snapshot and returns it."""
        with reading_table(self.path):
            self._delta.update_incremental()
        return self

    def reading(self, *files: DataFile) -> reading_tables:
        """Returns a context for reading files of the snapshot, by default all.

        In it, errors of libraries become errors of Rewindow.
        """
        return reading_table(self.path, lambda: self.locations(files))

    def locations(self, files: Iterable[DataFile] = ()) -> list[Location]:
        """Returns the locations of the given files, or of all files of the table."""
        return list(map(location, paths_of(files or self.files())))

    @property
    def delta(self) -> DeltaTable:
        """The delta-rs handle, for queries."""
        return self._delta

    @property
    def version(self) -> int:
        """The version of the snapshot."""
        return self._delta.version()

    @property
    def schema(self) -> pa.Schema:
        """The schema, with pyarrow's plain types instead of string and binary views."""
        return plain_schema(pa.schema(self._delta.schema().to_arrow()))

    @property
    def id(self) -> str:
        """The id that Delta has assigned to the table.

        It changes if the table is deleted and created again.
        """
        return str(self._delta.metadata().id)

    @property
    def properties(self) -> dict[str, str]:
        """The table properties."""
        return dict(self._delta.metadata().configuration)

    def txn(self, app_id: str) -> int:
        """Returns the last transaction version of an id on this snapshot; -1 if there is none."""
        version = self._delta.transaction_version(app_id)
        return -1 if version is None else version

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Returns the table's commits from the log, newest first."""
        with reading_table(self.path):
            return self._delta.history(limit)

    def files(self, first: int | None = None, last: int | None = None) -> list[DataFile]:
        """Returns the snapshot's files that may contain windows of a range."""
        actions = self._actions()
        empty = [None] * actions.num_rows
        column = actions.to_pydict()
        low = column.get("min.window_id", empty)
        high = column.get("max.window_id", empty)
        rows = column.get("num_records", empty)
        changed = actions["modification_time"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
        paths = [os.path.join(self.path.uri, path) for path in column["path"]]
        counts = [count or 0 for count in rows]
        files = map(
            DataFile,
            paths,
            counts,
            low,
            high,
            column["size_bytes"],
            changed,
        )
        return [file for file in files if file.may_hold(first, last)]

    def read(self, file: DataFile, columns: list[str]) -> pa.Table:
        """Returns columns of one of the table's files.

        Columns that the file does not have are left out.
        """
        with self.reading(file), pq.ParquetFile(file.path) as parquet:
            return parquet.read(columns=columns)

    def _actions(self) -> pa.Table:
        with reading_table(self.path):
            return pa.table(self._delta.get_add_actions(flatten=True))

    def is_plain(self) -> bool:
        """Returns whether the table's Parquet files can be read without Delta (no deletion vectors,
        no column mapping).
        """
        protocol = self._delta.protocol()
        return protocol.min_reader_version < 2 or not (
            protocol.reader_features or protocol.min_reader_version == 2
        )

    def check_committable(self) -> None:
        """Checks that commits to the table are safe.

        Raises:
            TableError: the table has an unsupported feature or property; the message names it.
        """
        if _FORGETS in self.properties:
            raise TableError(
                f'table "{self.path.name}" drops transaction ids after {self.properties[_FORGETS]}',
                detail=f"Its property {_FORGETS} is set. Without the last transaction id, it is "
                "unknown which windows were committed.",
                hint=f"Unset it: ALTER TABLE ... UNSET TBLPROPERTIES ('{_FORGETS}')",
            )
        extra = set(self._delta.protocol().writer_features or []) - WRITER_FEATURES_ALLOWED
        if extra:
            raise TableError(
                f'table "{self.path.name}" has a feature that Rewindow cannot write: '
                f"{sorted(extra)[0]}"
            )

    def sync(self) -> None:
        """Writes the newest commit to disk, because delta-rs leaves it in the operating system's
        cache.
        """
        log = self.path / "_delta_log"
        (log / f"{self.version:020}.json").sync()
        log.sync()

    def commit_files(
        self,
        files: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds Parquet files in the table's folder to the table. Without files, commits an empty
        transaction.

        The commit stores the checksums of the files.

        Raises:
            FencedError: another commit with the same transaction id was made since the snapshot.
        """
        actions = [_add_action(self.path, file) for file in files]
        sums = self._checksums(files)
        metadata = {**(metadata or {}), CHECKSUMS: sums} if sums else metadata
        self._guarded(
            lambda: self._delta.create_write_transaction(
                actions,
                "append",
                self._delta.schema(),
                commit_properties=_properties(app_id, version, metadata),
            )
        )

    def commit_arrow(
        self,
        frame: pa.Table,
        *,
        app_id: str,
        version: int,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Appends a small frame.

        delta-rs is called with the handle instead of the path. With a path, it would commit on the
        newest snapshot instead of this one.

        Raises:
            FencedError: another commit with the same transaction id was made since the snapshot.
        """
        properties = _properties(app_id, version, metadata)
        self._guarded(
            lambda: write_deltalake(self._delta, frame, mode="append", commit_properties=properties)
        )

    def replace_files(
        self,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
    ) -> None:
        """Adds files with their checksums and removes other files, in one commit on this snapshot.

        Raises:
            FencedError: another commit was made since the snapshot.
        """
        now_ms = int(time.time() * 1000)
        removes = [
            RemoveAction(location(file.path).relative_to(self.path), True, now_ms, file.size, {})
            for file in removed
        ]
        actions = [*(_add_action(self.path, file) for file in added), *removes]
        metadata = json.dumps({CHECKSUMS: self._checksums(added)})
        properties = CommitProperties(
            custom_metadata={"userMetadata": metadata, "isBlindAppend": False},  # type: ignore[dict-item]
            app_transactions=[Transaction(app_id, version)],
            max_commit_retries=0,
        )
        self._guarded(
            lambda: self._delta.create_write_transaction(
                actions,
                "append",
                self._delta.schema(),
                commit_properties=properties,
            )
        )

    def _checksums(self, files: Iterable[DataFile]) -> dict[str, str]:
        """Returns the known checksums of files by path in the table's folder."""
        known = (file for file in files if file.checksum)
        return {location(file.path).relative_to(self.path): file.checksum for file in known}

    def single_values(self, column: str) -> dict[str, Any]:
        """Returns the value of a column for each file in which all rows have the same value,
        according to the log.
        """
        actions = self._actions()
        names = ["path", f"min.{column}", f"max.{column}"]
        if not set(names) <= set(actions.column_names):
            return {}
        bounds = zip(*actions.select(names).to_pydict().values(), strict=True)
        return {
            os.path.join(self.path.uri, path): low
            for path, low, high in bounds
            if low is not None and low == high
        }

    def append(self, frame: pa.Table) -> None:
        """Appends a small frame without a fence.

        It is used for rows that may be duplicated and do not conflict with other commits.
        """
        with reading_table(self.path):
            write_deltalake(self._delta, frame, mode="append")
        self.refresh()

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Sets table properties."""
        self._delta.alter.set_table_properties(dict(properties), raise_if_not_exists=False)
        self.refresh()

    def replace(
        self,
        rows: pa.RecordBatchReader,
        predicate: str,
        *,
        app_id: str,
        version: int,
    ) -> None:
        """Replaces the rows that match a predicate by other rows that match it, in one commit.

        Raises:
            FencedError: another commit with the same transaction id was made since the snapshot.
        """
        properties = _properties(app_id, version, None)
        self._guarded(
            lambda: write_deltalake(
                self._delta,
                rows,
                mode="overwrite",
                predicate=predicate,
                commit_properties=properties,
            )
        )

    def _guarded(self, commit: Any) -> None:
        try:
            commit()
        except (DeltaError, OSError) as error:
            if isinstance(error, CommitFailedError) and error_number(error) is None:
                conflict = f'commit to table "{self.path.name}" conflicts with another commit'
                raise FencedError(conflict, detail=plain_text(error)) from error
            raise table_failure(f'table "{self.path.name}" cannot be written', error) from error
        self.refresh()


def create_table(
    path: Location,
    schema: pa.Schema,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Creates an empty table. An existing table is opened unchanged."""
    if not Table.exists(path):
        path.make_folder()
        DeltaTable.create(
            path.uri,
            schema,
            mode="ignore",
            configuration=dict(properties or {}),
            raise_if_key_not_exists=False,
        )
    return Table.open(path)


def data_files(folder: Location) -> list[DataFile]:
    """Returns the Parquet files that a job has written to a folder, with row count and statistics
    from their footers.

    Files without rows are left out.
    """
    files = []
    for path in folder.entries("*.parquet"):
        footer = pq.read_metadata(path.uri)
        if footer.num_rows:
            column_statistics = statistics(footer, footer.schema.to_arrow_schema())
            bounds = json.loads(column_statistics)
            first = bounds["minValues"].get("window_id")
            last = bounds["maxValues"].get("window_id")
            files.append(
                DataFile(
                    path.uri,
                    footer.num_rows,
                    first,
                    last=last,
                    size=path.size(),
                    statistics=column_statistics,
                )
            )
    return files


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Replaces string and binary views in a schema by plain types."""
    return pa.schema(retyped(schema, _plain))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct(retyped(kind, _plain))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


def _add_action(root: Location, file: DataFile) -> AddAction:
    stats: dict[str, Any] = {"numRecords": file.rows}
    if file.first is not None:
        stats |= {
            "minValues": {"window_id": file.first},
            "maxValues": {"window_id": file.last},
            "nullCount": {"window_id": 0},
        }
    place = location(file.path)
    changed_ms = place.modified_ms()
    return AddAction(
        place.relative_to(root),
        file.size,
        {},
        changed_ms,
        True,
        file.statistics or json.dumps(stats),
    )


def _properties(app_id: str, version: int, metadata: Mapping[str, Any] | None) -> CommitProperties:
    custom = {"userMetadata": json.dumps(metadata)} if metadata else None
    return CommitProperties(custom_metadata=custom, app_transactions=[Transaction(app_id, version)])
