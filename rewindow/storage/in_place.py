"""The tuples of a stream over a Delta table that stays where it is.

The folder of such a stream contains no table, only a file that names the source and the columns to
read. `Table.open` returns a `TuplesInPlace` for it, so that all readers of recorded streams can
read it too. Its version is the version of the source at which the windows were sealed, not the
newest one (X57).

Rules: X57
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from rewindow.errors import TableError
from rewindow.location import Location, location
from rewindow.names import windows_name
from rewindow.sequences import names_of
from rewindow.storage.delta import DataFile, Table, plain_schema
from rewindow.storage.failures import reading_table
from rewindow.storage.formats import TableKind, format_property
from rewindow.storage.queries import query, quoted
from rewindow.storage.snapshots import open_delta
from rewindow.windows import Grid, WindowRange

_PHYSICAL = "delta.columnMapping.physicalName"
CUT_US = 999
"""The log has the largest timestamp of a file in whole milliseconds, rounded down."""


@dataclass(frozen=True)
class SourceColumns:
    """The columns of a table that is a stream in place.

    Attributes:
        source: path of the table.
        arrived_at: the column with the arrival timestamp.
        events: the event columns.
        width_ms, origin_ms: the window grid.
    """

    source: str
    arrived_at: str
    events: list[str] = field(default_factory=list)
    width_ms: int = 0
    origin_ms: int = 0

    @property
    def grid(self) -> Grid:
        """The window grid."""
        return Grid(self.width_ms, self.origin_ms)

    def store(self, folder: Location) -> None:
        """Stores in a folder that it is the stream in place with these columns."""
        note = folder / _NOTE
        note.parent.make_folder()
        note.write(json.dumps(asdict(self)))

    def schema(self, table: pa.Schema) -> pa.Schema:
        """Returns the columns of the stream, with the types of the table.

        Raises:
            TableError: the table does not have one of them.
        """
        missing = [name for name in (self.arrived_at, *self.events) if name not in table.names]
        if missing:
            raise TableError(
                f'source table "{self.source}" has no column "{missing[0]}"',
                detail="It was renamed or removed after the stream was sealed.",
                hint="Restore the column, or seal the stream again with its current columns: "
                "rewindow record STREAM --start-over",
            )
        head = [
            ("window_id", pa.int64()),
            ("offset", pa.int64()),
            ("arrived_at", table.field(self.arrived_at).type),
        ]
        return pa.schema([*head, *map(table.field, self.events)])

    def arrived_in(self, first: int, last: int | None) -> str:
        """Returns the SQL condition that a row is in a range of windows, by which files are
        skipped. Without a last window, the range has no end.
        """
        grid = self.grid
        condition = f"{quoted(self.arrived_at)} >= {_time(grid.start_us(first))}"
        if last is not None:
            condition += f" and {quoted(self.arrived_at)} < {_time(grid.end_us(last))}"
        return f"({condition})"

    def sql(self, table: str, windows: WindowRange | None, order: Sequence[str]) -> str:
        """Returns a query for the stream's tuples in a range of windows.

        Args:
            table: the table's name in the query.
            windows: the range; None for no tuple.
            order: columns that order tuples with the same arrival.
        """
        grid = self.grid
        at = f"arrow_cast({quoted(self.arrived_at)}, 'Int64')"
        inside = "false" if windows is None else self.arrived_in(windows.first, windows.last)
        columns = [
            f"({at} - {grid.origin_us}) / {grid.width_us} as window_id",
            # DataFusion numbers the tuples only if the query uses the offset.
            f"cast(row_number() over (partition by ({at} - {grid.origin_us}) / {grid.width_us} "
            f"order by {', '.join(map(quoted, (self.arrived_at, *order)))}) - 1 as bigint) "
            'as "offset"',
            f"{quoted(self.arrived_at)} as arrived_at",
            *map(quoted, self.events),
        ]
        return f"select {', '.join(columns)} from {table} where {inside}"


def _time(time_us: int) -> str:
    return f"arrow_cast({time_us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


_NOTE = "_rewindow/in_place.json"


def position_id(table_id: str) -> str:
    """Returns the transaction id under which a stream's seals store the version of the source with
    this Delta id at which they are valid.
    """
    return f"source/{table_id}"


class TuplesInPlace(Table):
    """The tuples of a stream in place at one version of the source.

    Attributes:
        columns: the columns to read.
        sealed: the sealed windows, whose tuples are read; None if no window is sealed.
        frame: the Spark frame of the source; None until it is opened, which takes seconds.
    """

    def __init__(
        self,
        path: Location,
        delta: DeltaTable,
        columns: SourceColumns,
        sealed: WindowRange | None,
    ) -> None:
        super().__init__(path, delta)
        self.columns = columns
        self.sealed = sealed
        self.frame: Any = None

    @classmethod
    def is_at(cls, path: Location) -> bool:
        """See Table."""
        return (path / _NOTE).exists()

    @classmethod
    def at(cls, path: Location, version: int | None) -> TuplesInPlace:
        """Returns the tuples of the stream in a folder, by default at the version at which they
        were sealed.

        Raises:
            TableError: the source is missing, does not have the version, or was replaced by another
                table.
        """
        columns = read_note(path)
        source = location(columns.source)
        seals = path.with_name(windows_name(path.name))
        sealed = None
        if Table.exists(seals):
            table = Table.open(seals)
            sql = "select min(window_id) as first, max(window_id) as last from w"
            row = query(sql, w=table).to_pylist()[0]
            if row["first"] is not None:
                sealed = WindowRange(row["first"], row["last"])
            if version is None and sealed is not None:
                version = _position(path, source, table)
        wanted = "" if version is None else f" at version {version}"
        with reading_table(source, what=wanted):
            return cls(path, open_delta(source, version), columns, sealed)

    def refresh(self) -> Table:
        """Moves to the version at which the stream is sealed now."""
        now = self.at(self.path, None)
        self._delta, self.sealed, self.frame = now.delta, now.sealed, None
        return self

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream: window_id, offset, arrived_at, then the event columns."""
        return self.columns.schema(plain_schema(pa.schema(self._delta.schema().to_arrow())))

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the source, with the format of a stream."""
        return {**super().properties, **format_property(TableKind.STREAM)}

    def is_plain(self) -> bool:
        """Returns False: the source has no column `window_id`."""
        return False

    def check_committable(self) -> None:
        """Accepts every source, because nothing is committed to it."""

    def txn(self, app_id: str) -> int:
        """Returns -1: no recording commits to a source."""
        return -1

    def view(self, table: str) -> str | None:
        """See Table."""
        # DataFusion cannot sort by nested columns.
        schema = self.schema
        order = [
            name for name in self.columns.events if not pa.types.is_nested(schema.field(name).type)
        ]
        return self.columns.sql(table, self.sealed, order)

    def files(self, first: int | None = None, last: int | None = None) -> list[DataFile]:
        """Returns the files of the source that may have tuples of a range of windows."""
        actions = self._actions()
        bounds = arrival_bounds(self._delta, self.columns)
        sizes = actions["size_bytes"].to_pylist()
        rows = pc.fill_null(actions["num_records"], 0).to_pylist()
        found = []
        for (name, low, high), count, size in zip(bounds, rows, sizes, strict=True):
            found.append(DataFile(self._path_of(name), count, low, high, size))
        return [file for file in found if file.may_hold(first, last)]

    def _path_of(self, path: str) -> str:
        """Returns the path of a file. The log of a shallow clone has absolute paths."""
        if path.startswith("file:"):
            return "/" + path.removeprefix("file:").lstrip("/")
        return path if path.startswith("/") else (location(self.columns.source) / path).uri


def read_note(path: Location) -> SourceColumns:
    """Returns the source of the stream in place in a folder.

    Raises:
        TableError: the file that names it is damaged.
    """
    note = path / _NOTE
    try:
        return SourceColumns(**json.loads(note.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise TableError(
            f'source of stream "{path.name}" is unknown: {note} cannot be read',
            detail=str(error),
            hint="Restore the file from a backup, or seal the stream again: rewindow record "
            f"{path.name} --start-over",
        ) from error


def arrival_bounds(
    delta: DeltaTable,
    columns: SourceColumns,
) -> list[tuple[str, int | None, int | None]]:
    """Returns path, first and last window of each file of a table, according to its log. The
    windows are None if the log has no statistics of the file.
    """
    actions = pa.table(delta.get_add_actions(flatten=True))
    column = physical_name(delta, columns.arrived_at)
    grid = columns.grid
    bounds: list[list[int | None]] = []
    for name, more in ((f"min.{column}", 0), (f"max.{column}", CUT_US)):
        times_us: list[int | None] = [None] * actions.num_rows
        if name in actions.column_names:
            times = actions[name].cast(pa.timestamp("us", "UTC"))
            times_us = times.cast(pa.int64()).to_pylist()
        windows: list[int | None] = []
        for time_us in times_us:
            if time_us is None:
                windows.append(None)
            else:
                windows.append((time_us + more - grid.origin_us) // grid.width_us)
        bounds.append(windows)
    return list(zip(map(unquote, actions["path"].to_pylist()), *bounds, strict=True))


def has_statistics(delta: DeltaTable, column: str) -> bool:
    """Returns whether the log of a table has the bounds of a column for any of its files."""
    names = pa.table(delta.get_add_actions(flatten=True)).column_names
    return f"max.{physical_name(delta, column)}" in names


def physical_name(delta: DeltaTable, column: str) -> str:
    """Returns the name of a column in the log, which differs with column mapping."""
    for found in delta.schema().fields:
        if found.name == column:
            return str(found.metadata.get(_PHYSICAL, column))
    return column


def _position(path: Location, source: Location, seals: Table) -> int:
    """Returns the version of the source at which a stream is sealed.

    Raises:
        TableError: another table is at the path of the source now.
    """
    with reading_table(source):
        newest = open_delta(source, None)
    version = seals.txn(position_id(str(newest.metadata().id)))
    if version < 0:
        raise TableError(
            f'source of stream "{path.name}" was replaced: {source} is another table now',
            detail="The stream's windows were sealed over the former table.",
            hint="Compare all windows with the new table, and seal those that differ: rewindow "
            f"record {path.name}",
        )
    if version > newest.version():
        raise TableError(
            f'source of stream "{path.name}" is at version {newest.version()}, but it was sealed '
            f"at version {version}",
            detail=f"The last commits of {source} are missing from its log.",
            hint="Restore them from a backup. If the table was recreated: rewindow record "
            f"{path.name} --start-over",
        )
    return version


def event_columns_of(schema: pa.Schema, arrived_at: str, keep: list[str] | None) -> list[str]:
    """Returns the event columns of a table: those to keep, by default all but `arrived_at`."""
    names = names_of(schema) if keep is None else keep
    return [name for name in names if name != "arrived_at" or arrived_at != "arrived_at"]
