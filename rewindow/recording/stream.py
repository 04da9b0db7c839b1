"""Opens the tables of a recorded stream for a recording: their state, their stored settings and
their lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake import Schema
from pyspark.sql.types import StructType

from rewindow.errors import InputError, OverlapError, TableError
from rewindow.facts.seals import columns_text, sealed_range, stream_end
from rewindow.location import Location
from rewindow.names import quoted_column
from rewindow.processes.file_lock import file_lock
from rewindow.recording.sources.source import SourcePosition
from rewindow.settings.config import Config, StreamConfig
from rewindow.spark.frames import arrow_schema, spark_schema
from rewindow.storage import Table
from rewindow.storage.fields import fields_without
from rewindow.storage.files import note_files, open_files
from rewindow.storage.formats import TableKind, check_format, format_property
from rewindow.storage.stream_settings import changed_source, check_fixed_settings, fixed_settings
from rewindow.storage.streams import (
    check_reaches,
    create_stream,
    stored_settings,
    stream_properties,
)
from rewindow.windows import WindowRange

_SOURCE = "rewindow.source"


@dataclass
class StreamTables:
    """The tables of a stream and their state.

    Attributes:
        data, windows, files: the tables.
        app_id: transaction id of all recordings of the stream, in both tables.
        run: version of the last recording whose windows are sealed; 0 before the first.
        first, last: the sealed windows; None before the first recording.
        end: last window of a stream that has ended; None while it may continue.

    Rules: X21
    """

    name: str
    data: Table
    windows: Table
    files: Table
    app_id: str
    run: int = 0
    first: int | None = None
    last: int | None = None
    end: int | None = None

    def refresh(self) -> None:
        """Reads the tables' state again."""
        self.windows.refresh()
        self.data.refresh()
        self.run = max(self.windows.txn(self.app_id), 0)
        sealed = sealed_range(self.windows)
        self.first, self.last = (sealed.first, sealed.last) if sealed else (None, None)
        self.end = stream_end(self.windows)

    def note_files(self) -> None:
        """Adds a row to `.files` for each data file that is not listed there."""
        note_files(self.data, self.files)

    @property
    def columns(self) -> str:
        """The event columns, in the format of a seal."""
        return columns_text(self.data.schema)

    @property
    def sealed(self) -> WindowRange | None:
        """The sealed windows; None before the first recording."""
        if self.first is None or self.last is None:
            return None
        return WindowRange(self.first, self.last)

    @property
    def has_unsealed_commit(self) -> bool:
        """Whether a recording was interrupted after it had committed its tuples and before it
        sealed their windows.
        """
        return self.data.txn(self.app_id) > self.run

    @property
    def binding(self) -> bool:
        """Whether anything has been recorded. Then the settings can no longer change."""
        return self.first is not None or self.has_unsealed_commit or bool(self.data.files())

    @property
    def position(self) -> SourcePosition:
        """The position up to which the source has been read.

        It is empty if the stored position belongs to another table or to later windows.
        """
        if text := self.windows.properties.get(_SOURCE):
            return SourcePosition.from_text(text)
        try:
            noted = json.loads(self._taken.read_text())
            position = SourcePosition.from_text(noted["position"])
            is_ours = noted["table"] == self.data.id and noted["run"] <= self.run
        except (OSError, ValueError, KeyError, TypeError):
            return SourcePosition()
        known = (
            position.sealed_last is not None
            and self.last is not None
            and position.sealed_last <= self.last
        )
        return position if is_ours and known else SourcePosition()

    def forget_files(self) -> None:
        """Ensures that the next run reads all files again if this run is interrupted.

        Otherwise a late tuple of a file that is not noted yet would become late again after
        `--reopen` has added it to its window.
        """
        known = self.position
        if known.files:
            self.set_position(replace(known, settings=""))

    def set_position(self, position: SourcePosition) -> None:
        """Stores the position up to which the source has been read.

        It is stored in the table's properties, or for files in a separate file in the table's
        folder. Noting files only saves work. Without the note, or with an older one, files are read
        and compared again.
        """
        if not position.files:
            self._set({_SOURCE: position.to_text()})
            return
        self._taken.write(
            json.dumps({"table": self.data.id, "run": self.run, "position": position.to_text()})
        )

    @property
    def _taken(self) -> Location:
        """The file that lists the source files read so far.

        It is in a folder of the table that Delta ignores, so that it is deleted together with the
        table.
        """
        return self.windows.path / "_rewindow" / "taken.json"

    def set_properties(self, wanted: dict[str, str]) -> None:
        """Stores settings that may change from run to run."""
        changed = {
            key: value for key, value in wanted.items() if self.windows.properties.get(key) != value
        }
        if changed:
            self._set(changed)

    def _set(self, properties: dict[str, str]) -> None:
        self.windows.set_properties(properties)


def open_stream_tables(config: Config, name: str) -> StreamTables | None:
    """Returns a stream's tables; None if the stream was never recorded.

    Raises:
        TableError: one of the tables is missing although the other has content, or lacks its last
            commits; or the tables have the format of another version.
    """
    paths = config.stream_table(name), config.windows_table(name)
    missing = [path for path in paths if not Table.exists(path)]
    if missing:
        held = [path for path in paths if _holds_something(path)]
        if held:
            raise _incomplete(name, missing, held)
        return None
    data = check_format(Table.open(paths[0]), TableKind.STREAM)
    windows = check_format(Table.open(paths[1]), TableKind.SEALS)
    files = open_files(paths[0])
    tables = StreamTables(name, data, windows, files=files, app_id=f"record/{name}")
    for table in (data, windows, files):
        table.check_committable()
    tables.refresh()
    check_reaches(name, tables.data, tables.windows)
    return tables


def _holds_something(path: Location) -> bool:
    """Returns whether a folder contains anything that would be destroyed by creating a table
    there.
    """
    if Table.exists(path):
        return bool(Table.open(path).files())
    return next(iter(path.files()), None) is not None


def _incomplete(name: str, missing: list[Location], held: list[Location]) -> TableError:
    """Returns the error for a stream with a missing table.

    The remaining tables may be the only copy of the stream.
    """
    named = " and ".join(f'"{path.name}"' for path in missing)
    log = "is missing" if not missing[0].exists() else "has no Delta log"
    seal_again = Table.exists(held[0]) and held[0].name == name
    return TableError(
        f'table {named} of stream "{name}" {log}, but {held[0]} contains data',
        detail="Nothing was changed: a new recording would delete the existing data, which may be "
        "the only copy.",
        hint="Restore the table from a "
        f"backup{f', or rebuild the seals: rewindow record {name} --seal-again' * seal_again}.",
    )


def prepare_stream(
    config: Config,
    name: str,
    stream: StreamConfig,
    schema: StructType,
) -> StreamTables:
    """Returns a stream's tables.

    As long as nothing has been recorded, they are created again.

    Raises:
        InputError: width, origin, arrival, zone or columns differ from those stored with the
            recording.
        TableError: one of the tables is missing.

    Rules: W4, W15
    """
    tables = open_stream_tables(config, name)
    if tables is None or not tables.binding:
        for path in (
            config.stream_table(name),
            config.windows_table(name),
            config.files_table(name),
        ):
            path.delete_tree()
        create_stream(
            config.stream_table(name), arrow_schema(schema), settings_to_store(stream, schema)
        )
        tables = open_stream_tables(config, name)
        assert tables is not None
    check_settings(tables, stream, schema)
    new = fields_without(arrow_schema(schema), tables.data.schema.names)
    if new:
        tables.data.delta.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
        tables.data.refresh()
    tables.set_properties(
        stream_properties(settings_to_store(stream, spark_schema(tables.data.schema)))
    )
    return tables


def tuples_without_seals(config: Config, name: str) -> Table:
    """Returns the tuples of a stream whose seals are lost.

    Raises:
        InputError: the seals exist, or the tuples do not.
    """
    data = config.stream_table(name)
    windows = config.windows_table(name)
    if Table.exists(windows) and Table.open(windows).files():
        raise InputError(f'stream "{name}" cannot be sealed again: its seals exist')
    if not Table.exists(data):
        raise InputError(
            f'stream "{name}" cannot be sealed again: it has no tuples',
            hint=f"Record the stream: rewindow record {name}",
        )
    return Table.open(data)


def create_seals(config: Config, name: str, stream: StreamConfig, data: Table) -> None:
    """Creates the other tables of a stream next to its tuples.

    They are empty and have the current settings.
    """
    create_stream(data.path, data.schema, settings_to_store(stream, spark_schema(data.schema)))
    data.set_properties(format_property(TableKind.STREAM))


def check_settings(tables: StreamTables, stream: StreamConfig, schema: StructType) -> None:
    """Checks that the settings are compatible with the recorded stream.

    Additional columns are accepted if the settings allow new columns.

    Raises:
        InputError: names the setting and both values.

    Rules: W4, W15
    """
    stored = stored_settings(tables.windows)
    # A source that may bring new columns may also have its columns in another order than the
    # recording.
    have = _event_types(spark_schema(tables.data.schema))
    want = _event_types(schema)
    same = have == want or (stream.new_columns == "take" and set(have) <= set(want))
    check_fixed_settings(tables.name, stream, stored)
    if not same:
        raise changed_source(tables.name, have, want)


def _event_types(schema: StructType) -> list[str]:
    """Returns the name and type of each event column."""
    return [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields[2:]]


def settings_to_store(stream: StreamConfig, schema: StructType) -> dict[str, object]:
    """Returns the settings that are stored with a stream's seals."""
    return fixed_settings(stream) | {
        "event_at": stream.event_at or "",
        "keys": ",".join(stream.keys),
        "schema": ", ".join(
            f"{quoted_column(field.name)} {field.dataType.simpleString()}"
            for field in schema.fields[2:]
        ),
    }


@contextmanager
def recording_lock(config: Config, name: str) -> Iterator[None]:
    """Locks a stream for this recording on this machine. Commits are safe even without the lock.

    Raises:
        OverlapError: another recording of the stream is running.
    """
    path = (config.state / "streams" / f"{name}.lock").local()
    with file_lock(path, wait=False) as is_ours:
        if not is_ours:
            holder = path.read_text().strip()
            raise OverlapError(
                f'stream "{name}" is being recorded by process {holder or "unknown"}',
                holder=holder,
                detail="This run has changed nothing.",
                hint="Run the command again when the other process has finished.",
            )
        path.write_text(str(os.getpid()))
        yield
