"""A source's rows into scratch Parquet files, with their positions, in bounded memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rewindow.config import StreamConfig
from rewindow.errors import InputError, ResourceError
from rewindow.recording.sources import readers
from rewindow.recording.sources.delta import SourcePosition, find_delta_files
from rewindow.recording.sources.files import SourceFile, find_source_files, source_format

_ROWS_PER_FILE = 1_000_000
_OWN = ("window_id", "offset", "arrived_at")
_ROOM = 3
"""Free space asked for, as a multiple of the source's bytes: scratch, typed scratch, and the stream itself."""


@dataclass(frozen=True)
class SourceContents:
    """What a source has: its files and columns, not its rows.

    Attributes:
        kind: its format.
        files: its files in order; a scratch row's `__file` is an index into them.
        columns: its columns that were read.
        schema: their pyarrow types; CSV's are text; JSON's are not known before Spark reads the lines.
        version: a Delta source's version, else None.
        warnings: what is not taken of the source.
        optional: columns that are null in a file that lacks them.
        whole: whether all of the source was read, so that what it lacks is missing from it.
        rows: rows read, also unreadable ones.
    """

    kind: str
    files: list[SourceFile]
    columns: list[str]
    schema: pa.Schema
    version: int | None = None
    warnings: Sequence[str] = ()
    optional: frozenset[str] = frozenset()
    whole: bool = True
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes of the source's files."""
        return sum(file.size for file in self.files)


def inspect_source(
    name: str,
    stream: StreamConfig,
    root: Path,
    position: SourcePosition,
    declared: Sequence[str] | None,
    recorded: pa.Schema | None = None,
) -> SourceContents:
    """Returns what the source of a stream has, without its rows.

    Args:
        name: the stream.
        stream: its settings.
        root: folder that relative paths count from.
        position: how far a Delta source has been recorded.
        declared: names of the columns in the settings, None if there are none.
        recorded: columns of the recorded stream, None before its first recording.

    Raises:
        InputError: the source is not there, cannot be read, or lacks a declared column.
    """
    source = stream.source if stream.source.startswith("package:") else str(root / stream.source)
    kind = source_format(name, source, stream.format)
    if kind == "delta":
        found = find_delta_files(name, Path(source), position, skip_changes=stream.changed_rows == "skip")
        contents = SourceContents(
            kind, found.files, [], pa.schema([]), found.version, found.warnings, whole=found.whole
        )
        chosen = _choose(name, stream, contents, [("", found.schema)], declared, recorded)
        return replace(chosen, optional=frozenset(found.schema.names))
    contents = SourceContents(kind, find_source_files(name, source, kind), [], pa.schema([]))
    if kind == "json":
        if declared is None:
            raise InputError(
                f'stream "{name}" has a JSON source and no columns',
                hint='Name them in rewindow.toml, such as columns = "key STRING, amount BIGINT, at TIMESTAMP".',
            )
        return replace(contents, columns=list(declared))
    if kind == "csv" and not stream.header and declared is None:
        raise InputError(
            f'stream "{name}" has a CSV source without header and no columns',
            hint='Name them in order in rewindow.toml, such as columns = "key STRING, at TIMESTAMP".',
        )
    looked_at = contents.files if _grows(stream, declared) else contents.files[:1]
    schemas = [(file.name, _schema_of(kind, stream, file, declared)) for file in looked_at]
    return _choose(name, stream, contents, schemas, declared, recorded)


def _schema_of(kind: str, stream: StreamConfig, file: SourceFile, declared: Sequence[str] | None) -> pa.Schema:
    if kind == "parquet":
        return readers.parquet_schema(file)
    names = readers.csv_columns(file, stream.delimiter, None if stream.header else declared, stream.encoding)
    return pa.schema([(column, pa.string()) for column in names])


def _grows(stream: StreamConfig, declared: Sequence[str] | None) -> bool:
    """Returns whether a column that appears in the source is one of the stream's: where the settings name none."""
    return declared is None and stream.keep is None


def _choose(
    name: str,
    stream: StreamConfig,
    contents: SourceContents,
    schemas: list[tuple[str, pa.Schema]],
    declared: Sequence[str] | None,
    recorded: pa.Schema | None,
) -> SourceContents:
    """Returns the contents with the columns to read: those declared, else those recorded before, else the first file's.

    Columns that appeared later are reported, or taken, as the setting `new_columns` says.
    """
    first = schemas[0][1]
    if declared is not None:
        missing = [column for column in declared if column not in first.names]
        if missing:
            source = contents.files[0].name if contents.files else contents.kind
            raise InputError(
                f'column "{missing[0]}" is not in source file "{source}"', hint=f"It has: {', '.join(first.names)}."
            )
        return _with(contents, [first.field(column) for column in declared])
    if not _grows(stream, declared):
        return _with(contents, list(first))
    fields = {field.name: field for _, schema in reversed(schemas) for field in schema}
    order = list(dict.fromkeys(field.name for _, schema in schemas for field in schema))
    known = set(first.names) if recorded is None else {*recorded.names, "arrived_at", *stream.select}
    new = [column for column in order if column not in known]
    if stream.new_columns == "report":
        chosen = _with(contents, [fields[column] for column in order if column in known])
        return replace(chosen, warnings=[*contents.warnings, *_reported(name, new, schemas)])
    gone = [field for field in recorded or [] if field.name not in {*order, *stream.select, *_OWN}]
    optional = frozenset([*new, *(field.name for field in gone), *(c for c in order if c not in first.names)])
    return replace(_with(contents, [*(fields[column] for column in order), *gone]), optional=optional)


def _with(contents: SourceContents, fields: list[pa.Field]) -> SourceContents:
    schema = pa.schema(fields)
    return replace(contents, columns=schema.names, schema=schema)


def _reported(name: str, new: list[str], schemas: list[tuple[str, pa.Schema]]) -> list[str]:
    """Returns a warning if columns of the source are not recorded."""
    if not new:
        return []
    where = next(file for file, schema in schemas if new[0] in schema.names)
    listed = ", ".join(f'"{column}"' for column in new) + (f' (first in "{where}")' if where else "")
    return [
        f"columns that appeared in the source are not recorded: {listed}; take them with "
        f'new_columns = "take" of stream "{name}", or name the columns that you want'
    ]


def copy_rows(stream: StreamConfig, contents: SourceContents, folder: Path, on_rows: Callable[[int], None]) -> int:
    """Writes a source's rows into a scratch folder and returns their number.

    Shape: `__file INT, __row BIGINT, __bad STRING, __raw STRING` and the source's columns (JSON: none, the line is
    in `__raw`).

    Raises:
        ResourceError: there is not room enough on the disk.
        InputError: a file cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < _ROOM * contents.size:
        raise ResourceError(
            f"disk of {folder} has {free >> 20} MB free, {_ROOM * contents.size >> 20} MB are needed",
            hint="Make room, or move the state folder (REWINDOW_STATE).",
        )
    fields = [pa.field(readers.FILE, pa.int32()), pa.field(readers.ROW, pa.int64())]
    fields += [pa.field(readers.BAD, pa.string()), pa.field(readers.RAW, pa.string()), *contents.schema]
    writer = _Writer(folder, pa.schema(fields))
    try:
        for index, file in enumerate(contents.files):
            for rows in _rows(stream, contents, file):
                writer.write(rows.append_column(readers.FILE, pa.repeat(pa.scalar(index, pa.int32()), rows.num_rows)))
                on_rows(writer.rows)
    finally:
        writer.close()
    return writer.rows


def _rows(stream: StreamConfig, contents: SourceContents, file: SourceFile) -> Iterator[pa.Table]:
    if contents.kind == "csv":
        return readers.csv_rows(file, contents.columns, stream, contents.optional)
    if contents.kind == "json":
        return readers.json_rows(file, stream.encoding)
    return readers.parquet_rows(file, contents.schema, contents.optional)


class _Writer:
    """Scratch files of a bounded number of rows, so that Spark can read them side by side."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._folder = folder
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._from = 0

    def write(self, rows: pa.Table) -> None:
        if self._writer is None or self.rows - self._from >= _ROWS_PER_FILE:
            self.close()
            path = self._folder / f"{self.rows:012}.parquet"
            self._writer = pq.ParquetWriter(path, self._schema, compression="lz4", store_schema=False)
            self._from = self.rows
        self._writer.write_table(rows.select(self._schema.names))
        self.rows += rows.num_rows

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
