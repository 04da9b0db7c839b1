"""Copies a source's rows with their positions to scratch Parquet files, in bounded memory."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rewindow.errors import ResourceError
from rewindow.recording.sources.source import BAD, FILE, RAW, ROW, Source, SourceContents

_ROWS_PER_FILE = 1_000_000
_ROOM = 3
"""Required free space as a multiple of the source's bytes: scratch files, typed scratch files, and
the stream.
"""


def copy_rows(
    source: Source,
    contents: SourceContents,
    folder: Path,
    on_rows: Callable[[int], None],
) -> int:
    """Writes a source's rows into a scratch folder and returns their number.

    Shape: `__file INT, __row BIGINT, __bad STRING, __raw STRING` and the source's columns (JSON:
    none, the line is in `__raw`).

    Raises:
        ResourceError: the disk does not have enough free space.
        InputError: a file cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < _ROOM * contents.size:
        raise ResourceError(
            f"not enough disk space in {folder}: {free >> 20} MB are free, but "
            f"{_ROOM * contents.size >> 20} MB are needed",
            hint="Free disk space, or move the state folder (REWINDOW_STATE).",
        )
    fields = [pa.field(FILE, pa.int32()), pa.field(ROW, pa.int64())]
    fields += [pa.field(BAD, pa.string()), pa.field(RAW, pa.string()), *contents.schema]
    parts = _shares(contents, os.cpu_count() or 1)
    tally = _Tally(on_rows)
    with ThreadPoolExecutor(len(parts)) as threads:
        work = [
            threads.submit(
                _copy_parts,
                source,
                contents,
                part,
                folder,
                pa.schema(fields),
                tally,
            )
            for part in parts
        ]
        try:
            for share in work:
                share.result()
        except BaseException:
            tally.stopped = True
            raise
    return tally.rows


def _shares(contents: SourceContents, count: int) -> list[list[int]]:
    """Divides the parts of a source into at most `count` lists of about the same number of
    bytes.
    """
    shares: list[list[int]] = [[] for _ in range(max(1, min(count, len(contents.files))))]
    sizes = [0] * len(shares)
    for index in sorted(range(len(contents.files)), key=lambda index: -contents.files[index].size):
        least = sizes.index(min(sizes))
        shares[least].append(index)
        sizes[least] += contents.files[index].size + 1
    return list(map(sorted, shares))


class _Tally:
    """The number of rows that all threads have copied, and a flag that stops the threads."""

    def __init__(self, on_rows: Callable[[int], None]) -> None:
        self.rows = 0
        self.stopped = False
        self._lock = threading.Lock()
        self._on_rows = on_rows

    def add(self, rows: int) -> None:
        with self._lock:
            self.rows += rows
            self._on_rows(self.rows)


def _copy_parts(
    source: Source,
    contents: SourceContents,
    parts: Sequence[int],
    folder: Path,
    schema: pa.Schema,
    tally: _Tally,
) -> None:
    writer = _Writer(folder, schema, parts[0] if parts else 0)
    try:
        for index in parts:
            for rows in source.rows(contents, contents.files[index]):
                if tally.stopped:
                    return
                writer.write(
                    rows.append_column(FILE, pa.repeat(pa.scalar(index, pa.int32()), rows.num_rows))
                )
                tally.add(rows.num_rows)
    finally:
        writer.close()


class _Writer:
    """Writes scratch files of limited size, so that Spark can read them in parallel."""

    def __init__(self, folder: Path, schema: pa.Schema, number: int) -> None:
        self.rows = 0
        self._number = number
        self._folder = folder
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._from = 0

    def write(self, rows: pa.Table) -> None:
        if self._writer is None or self.rows - self._from >= _ROWS_PER_FILE:
            self.close()
            path = self._folder / f"{self._number:06}-{self.rows:012}.parquet"
            self._writer = pq.ParquetWriter(
                path,
                self._schema,
                compression="lz4",
                store_schema=False,
            )
            self._from = self.rows
        self._writer.write_table(rows.select(self._schema.names))
        self.rows += rows.num_rows

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
