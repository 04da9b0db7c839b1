"""Rows of tables without a JVM: by SQL (DataFusion), and as they lie in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import QueryBuilder

from rewindow.location import Location
from rewindow.storage.delta import DataFile, Table, paths_of, plain_schema
from rewindow.storage.failures import reading_tables
from rewindow.windows import WindowRange

_PIECES_MIN = 16
_PIECE_ROWS_MIN = 1_000
"""So many pieces, and one more for so many rows, are moved; more of them are sorted row by row."""


def query(sql: str, **tables: Table | Location) -> pa.Table:
    """Returns the result of an SQL query (DataFusion) over tables given by name; no JVM.

    Raises:
        TableError: a file of a table is gone or damaged.
        ResourceError: the machine cannot read it now.
    """
    opened = {
        name: table if isinstance(table, Table) else Table.open(table)
        for name, table in tables.items()
    }
    with _files_of(opened):
        stream = _executed(sql, opened)
        schema = plain_schema(pa.schema(stream.schema))
        batches = [_own_copy(pa.record_batch(batch).cast(schema)) for batch in stream]
    return pa.Table.from_batches(batches, schema)


def _own_copy(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch in memory of pyarrow: one number of a batch of DataFusion keeps all pages
    alive that it read.

    Batch after batch, as all strings would be there twice if a whole result were made plain at
    once.
    """
    return pa.concat_batches([batch, batch.slice(0, 0)])


def query_in_parts(sql: str, rows: int, **tables: Table) -> Iterator[pa.Table]:
    """Gives the result of an SQL query in parts of about so many rows, in no order: it is never in
    memory as a whole.

    Raises: see query.
    """
    with _files_of(tables):
        stream = _executed(sql, tables)
        schema = plain_schema(pa.schema(stream.schema))
        parts = []
        size = 0
        for batch in map(pa.record_batch, stream):
            parts.append(batch)
            size += batch.num_rows
            if size >= rows:
                yield pa.Table.from_batches(parts).combine_chunks().cast(schema)
                parts = []
                size = 0
        if parts:
            yield pa.Table.from_batches(parts).combine_chunks().cast(schema)


def _executed(sql: str, tables: Mapping[str, Table]) -> Any:
    """Returns the batches of a result; to be iterated.

    As a stream of pyarrow they end the process where native code panics over damaged bytes.
    """
    builder = QueryBuilder()
    for name, table in tables.items():
        builder.register(name, table.delta)
    return builder.execute(sql)


def _files_of(tables: Mapping[str, Table]) -> reading_tables:
    """Returns the context in which files of tables are read; a query that is wrong leaves as it
    is.
    """
    return reading_tables({one.path: one.locations for one in tables.values()}, certain=False)


def read_rows(
    files: Sequence[DataFile],
    schema: pa.Schema,
    columns: Sequence[str],
    wanted: pc.Expression | None = None,
) -> pa.Table:
    """Returns rows of Parquet files; a column that a file does not have is null.

    Args:
        schema: of the table.
        columns: those to return.
        wanted: which rows; all unless given.
    """
    if not files:
        return pa.schema(list(map(schema.field, columns))).empty_table()
    import pyarrow.dataset as ds  # It imports pandas, which no other verb needs.

    form = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    )
    found = ds.dataset(paths_of(files), schema=schema, format=form)
    return found.to_table(columns=list(columns), filter=wanted)


def in_order(rows: pa.Table, *names: str) -> pa.Table:
    """Returns rows in ascending order of columns without nulls; rows that are so already stay as
    they are.

    Tables are written in the order of windows, but a query, and a commit that went through one,
    give it in pieces in any order: then whole pieces change places and no row is copied. Sorting
    would copy each, by SQL even twice.
    """
    descents = _descents(rows, names)
    if not descents:
        return rows
    for breaks in (descents, sorted({*descents, *_jumps(rows[names[0]])})):
        if len(breaks) <= _PIECES_MIN + rows.num_rows // _PIECE_ROWS_MIN:
            ends = [*breaks, rows.num_rows]
            pieces = [
                rows.slice(first, end - first)
                for first, end in zip([0, *breaks], ends, strict=True)
            ]
            pieces.sort(key=lambda piece: tuple(piece[name][0].as_py() for name in names))
            moved = pa.concat_tables(pieces)
            if not _descents(moved, names):
                return moved
    return rows.sort_by([(name, "ascending") for name in names])


def _descents(rows: pa.Table, names: Sequence[str]) -> list[int]:
    """Returns the rows that belong before the one in front of them."""
    ordered: Any = np.True_
    for name in reversed(names):
        column = rows[name].combine_chunks()
        greater, equal = (
            compare(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
            for compare in (pc.greater, pc.equal)
        )
        ordered = greater | (equal & ordered)
    found: list[int] = (np.flatnonzero(~ordered) + 1).tolist() if rows.num_rows > 1 else []
    return found


def _jumps(column: pa.ChunkedArray) -> list[int]:
    """Returns the rows whose number does not follow on that of the row in front of them; others
    have none.
    """
    if not pa.types.is_integer(column.type):
        return []
    found: list[int] = (np.flatnonzero(np.diff(column.to_numpy()) > 1) + 1).tolist()
    return found


def in_windows(windows: WindowRange) -> str:
    """Returns the SQL condition that a row's window is in a range.

    >>> in_windows(WindowRange(1, 3))
    'window_id between 1 and 3'
    """
    return f"window_id between {windows.first} and {windows.last}"


def quoted(name: str) -> str:
    """Returns a column's name as `query` takes it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'
