"""A source's rows into scratch Parquet files, with their positions, in bounded memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rewindow.config import StreamConfig
from rewindow.errors import InputError, ResourceError
from rewindow.recording import readers
from rewindow.recording.delta_source import SourcePosition, find_delta_parts
from rewindow.recording.sources import Part, find_parts, source_format

_ROWS_PER_FILE = 1_000_000
_ROOM = 3
"""Free space asked for, as a multiple of the source's bytes: scratch, typed scratch, and the stream itself."""


@dataclass(frozen=True)
class Intake:
    """A source as it was read.

    Attributes:
        kind: its format.
        parts: its parts in order; a scratch row's `__file` is an index into them.
        columns: its columns that were read.
        schema: their pyarrow types; CSV's are text; JSON's are not known before Spark reads the lines.
        version: a Delta source's version, else None.
        removed: files that a Delta source has lost since the last run.
        rows: rows read, also unreadable ones.
    """

    kind: str
    parts: list[Part]
    columns: list[str]
    schema: pa.Schema
    version: int | None = None
    removed: int = 0
    rows: int = 0

    @property
    def size(self) -> int:
        """Bytes of the source's parts."""
        return sum(part.size for part in self.parts)


def look_at(
    name: str, stream: StreamConfig, root: Path, position: SourcePosition, declared: Sequence[str] | None
) -> Intake:
    """Returns a stream's source without its rows.

    Args:
        name: the stream.
        stream: its settings.
        root: folder that relative paths count from.
        position: how far a Delta source has been recorded.
        declared: names of the columns in the settings, None if there are none.

    Raises:
        InputError: the source is not there, cannot be read, or lacks a declared column.
    """
    source = stream.source if stream.source.startswith("package:") else str(root / stream.source)
    kind = source_format(name, source, stream.format)
    if kind == "delta":
        found = find_delta_parts(name, Path(source), position)
        return _intake(kind, found.parts, found.schema, declared, found.version, found.removed)
    parts = find_parts(name, source, kind)
    if kind == "json":
        if declared is None:
            raise InputError(
                f'stream "{name}" has a JSON source and no columns',
                hint='Name them in rewindow.toml, such as columns = "key STRING, amount BIGINT, at TIMESTAMP".',
            )
        return Intake(kind, parts, list(declared), pa.schema([]))
    if kind == "csv":
        if not stream.header and declared is None:
            raise InputError(
                f'stream "{name}" has a CSV source without header and no columns',
                hint='Name them in order in rewindow.toml, such as columns = "key STRING, at TIMESTAMP".',
            )
        names = readers.csv_columns(parts[0], stream.delimiter, None if stream.header else declared)
        return _intake(kind, parts, pa.schema([(column, pa.string()) for column in names]), declared)
    return _intake(kind, parts, readers.parquet_schema(parts[0]), declared)


def _intake(
    kind: str,
    parts: list[Part],
    schema: pa.Schema,
    declared: Sequence[str] | None,
    version: int | None = None,
    removed: int = 0,
) -> Intake:
    missing = [column for column in declared or [] if column not in schema.names]
    if missing:
        source = parts[0].name if parts else kind
        raise InputError(
            f'column "{missing[0]}" is not in source file "{source}"', hint=f"It has: {', '.join(schema.names)}."
        )
    if declared is not None:
        schema = pa.schema([schema.field(column) for column in declared])
    return Intake(kind, parts, schema.names, schema, version, removed)


def take_in(stream: StreamConfig, intake: Intake, folder: Path, on_rows: Callable[[int], None]) -> int:
    """Writes a source's rows into a scratch folder and returns their number.

    Shape: `__file INT, __row BIGINT, __bad STRING, __raw STRING` and the source's columns (JSON: none, the line is
    in `__raw`).

    Raises:
        ResourceError: there is not room enough on the disk.
        InputError: a part cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < _ROOM * intake.size:
        raise ResourceError(
            f"disk of {folder} has {free >> 20} MB free, {_ROOM * intake.size >> 20} MB are needed",
            hint="Make room, or move the state folder (REWINDOW_STATE).",
        )
    fields = [pa.field(readers.FILE, pa.int32()), pa.field(readers.ROW, pa.int64())]
    fields += [pa.field(readers.BAD, pa.string()), pa.field(readers.RAW, pa.string()), *intake.schema]
    writer = _Writer(folder, pa.schema(fields))
    try:
        for index, part in enumerate(intake.parts):
            for rows in _rows(stream, intake, part):
                writer.write(rows.append_column(readers.FILE, pa.repeat(pa.scalar(index, pa.int32()), rows.num_rows)))
                on_rows(writer.rows)
    finally:
        writer.close()
    return writer.rows


def _rows(stream: StreamConfig, intake: Intake, part: Part) -> Iterator[pa.Table]:
    if intake.kind == "csv":
        return readers.csv_rows(part, intake.columns, stream.delimiter, stream.null_values, header=stream.header)
    if intake.kind == "json":
        return readers.json_rows(part)
    return readers.parquet_rows(part, intake.schema)


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
