"""Reads rows of tables without a JVM, either with SQL (DataFusion) or directly from Parquet
files.
"""

from __future__ import annotations

import re
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

_BEGIN = re.compile(r"\s*(explain\s+)?(with\s+)?", re.IGNORECASE)
_PIECES_MIN = 16
_PIECE_ROWS_MIN = 1_000
"""`in_order` rearranges at most `_PIECES_MIN` pieces, and one more for each `_PIECE_ROWS_MIN` rows;
beyond that it sorts all rows."""


def query(sql: str, **tables: Table | Location) -> pa.Table:
    """Returns the result of a SQL query (DataFusion) over tables, which are passed by name.

    No JVM.

    Raises:
        TableError: a file of a table is missing or damaged.
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
    """Copies a batch into pyarrow's memory.

    A small batch of DataFusion can keep all pages in memory from which it was read. The copy is
    made batch by batch, so that a result is never completely in memory twice.
    """
    return pa.concat_batches([batch, batch.slice(0, 0)])


def query_in_parts(sql: str, rows: int, **tables: Table) -> Iterator[pa.Table]:
    """Yields the result of a SQL query in parts of about `rows` rows, in undefined order.

    The result is never completely in memory.

    Raises:
        TableError, ResourceError: see query.
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
    """Returns an iterator over the batches of a result.

    The batches are not read as a stream of pyarrow, because a panic of native code over damaged
    bytes would then end the process.
    """
    builder = QueryBuilder()
    views = []
    for name, table in tables.items():
        if view := table.view(f"{name}__source"):
            views.append(f"{name} as ({view})")
        builder.register(f"{name}__source" if view else name, table.delta)
    if views:
        # A query that starts with named queries gets the views before them.
        begin = _BEGIN.match(sql)
        assert begin is not None, "every part of the pattern is optional"
        comma = "," if begin[2] else ""
        sql = f"{begin[1] or ''}with {', '.join(views)}{comma} {sql[begin.end() :]}"
    return builder.execute(sql)


def _files_of(tables: Mapping[str, Table]) -> reading_tables:
    """Returns a context for reading tables.

    The exception of an invalid query is passed on unchanged.
    """
    return reading_tables({table.path: table.locations for table in tables.values()}, certain=False)


def read_rows(
    files: Sequence[DataFile],
    schema: pa.Schema,
    columns: Sequence[str],
    wanted: pc.Expression | None = None,
) -> pa.Table:
    """Returns rows of Parquet files.

    A column that a file does not have is null.

    Args:
        files: the files.
        schema: columns of the table.
        columns: names of the columns to return.
        wanted: filter of the rows, by default all.
    """
    if not files:
        return pa.schema(list(map(schema.field, columns))).empty_table()
    import pyarrow.dataset as ds  # It imports pandas, which no other verb needs.

    form = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    )
    dataset = ds.dataset(paths_of(files), schema=schema, format=form)
    return dataset.to_table(columns=list(columns), filter=wanted)


def in_order(rows: pa.Table, *names: str) -> pa.Table:
    """Sorts rows in ascending order of columns without nulls. Rows that are already ordered are
    returned unchanged.

    Tables are written in the order of windows, but a query returns pieces of them in any order. So
    the rows consist of few ordered pieces: they are split where the order breaks, the pieces are
    sorted by their first rows, and no row is copied. If the result is not ordered, the same is
    tried with a split at every jump of the first column. Only if that fails too are the rows
    sorted, which copies each of them.
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
            rearranged = pa.concat_tables(pieces)
            if not _descents(rearranged, names):
                return rearranged
    return rows.sort_by([(name, "ascending") for name in names])


def _descents(rows: pa.Table, names: Sequence[str]) -> list[int]:
    """Returns the indexes of rows that sort before their predecessor."""
    ordered: Any = np.True_
    for name in reversed(names):
        column = rows[name].combine_chunks()
        greater, equal = (
            compare(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
            for compare in (pc.greater, pc.equal)
        )
        ordered = greater | (equal & ordered)
    indexes: list[int] = (np.flatnonzero(~ordered) + 1).tolist() if rows.num_rows > 1 else []
    return indexes


def _jumps(column: pa.ChunkedArray) -> list[int]:
    """Returns the indexes of rows whose integer exceeds the previous one by more than 1.

    For a column of another type, there are none.
    """
    if not pa.types.is_integer(column.type):
        return []
    indexes: list[int] = (np.flatnonzero(np.diff(column.to_numpy()) > 1) + 1).tolist()
    return indexes


def in_windows(windows: WindowRange) -> str:
    """Returns the SQL condition that a row's window is in a range.

    >>> in_windows(WindowRange(1, 3))
    'window_id between 1 and 3'
    """
    return f"window_id between {windows.first} and {windows.last}"


def quoted(name: str) -> str:
    """Returns a column's name in quotes for `query`. The name can have any characters."""
    return '"' + name.replace('"', '""') + '"'
