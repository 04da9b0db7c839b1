"""Rows of a part, batch by batch, with their numbers; what cannot even be read as a row comes along as text.

Nothing is typed here: CSV's columns are text, JSON's rows are lines, Parquet's columns have their own types.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from rewindow.errors import InputError
from rewindow.recording.sources import Part
from rewindow.tables.delta import plain_schema

FILE, ROW, BAD, RAW = "__file", "__row", "__bad", "__raw"
"""Columns of a scratch file beside the source's own: part, row number, why a row is unreadable, its text."""

_BLOCK_BYTES = 8 << 20
_LINES = 50_000
_ROWS = 100_000
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_NO_TEXT = pa.string()


def csv_columns(part: Part, delimiter: str, names: Sequence[str] | None = None) -> list[str]:
    """Returns the names of a CSV part's columns: those of its first row, or, of a part without header, those given.

    Raises:
        InputError: the part is empty, is not UTF-8, names a column twice, or has not as many columns as names.
    """
    with part.open() as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        try:
            found = next(csv.reader(text, delimiter=delimiter), [])
        except UnicodeDecodeError as error:
            raise InputError(f'source file "{part.name}" is not UTF-8: {error}') from error
    if not found:
        raise InputError(f'source file "{part.name}" is empty', hint="The first row must name the columns.")
    if names is not None and len(names) != len(found):
        raise InputError(
            f'source file "{part.name}" has {len(found)} columns, {len(names)} are named',
            hint="A source without header needs all its columns in the stream's columns, in order.",
        )
    names = found if names is None else list(names)
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(f'source file "{part.name}" names column "{sorted(twice)[0]}" twice')
    return names


def csv_rows(
    part: Part, columns: Sequence[str], delimiter: str, null_values: Sequence[str], *, header: bool = True
) -> Iterator[pa.Table]:
    """Yields a CSV part's rows as text; rows of the wrong width come as text in `__raw`. A header is row 1."""
    known = csv_columns(part, delimiter, None if header else columns)
    _check_there(part, columns, known)
    bad: list[pacsv.InvalidRow] = []
    with part.open() as stream:
        try:
            reader = pacsv.open_csv(
                stream,
                pacsv.ReadOptions(
                    use_threads=False, block_size=_BLOCK_BYTES, column_names=None if header else list(columns)
                ),
                pacsv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: _skip(bad, row)
                ),
                pacsv.ConvertOptions(
                    column_types=dict.fromkeys(known, pa.string()), include_columns=list(columns),
                    null_values=list(null_values), strings_can_be_null=True, check_utf8=True,
                ),
            )  # fmt: skip
            number = 2 if header else 1
            for batch in reader:
                numbers, number = _numbers(number, batch.num_rows, bad)
                yield _batch(pa.Table.from_batches([batch]), numbers)
                done, bad[:] = [row for row in bad if row.number < number], [r for r in bad if r.number >= number]
                yield from _bad_rows(done, columns)
        except pa.ArrowInvalid as error:
            raise InputError(f'source file "{part.name}" cannot be read as CSV: {error}') from error
        yield from _bad_rows(bad, columns)


def json_rows(part: Part) -> Iterator[pa.Table]:
    """Yields a part's lines as they are, in `__raw`; a line that is not UTF-8 is marked. Empty lines are left out."""
    with part.open() as stream:
        numbered = enumerate(io.BufferedReader(cast("io.RawIOBase", stream)), start=1)
        while lines := list(islice(numbered, _LINES)):
            kept = [(number, line.rstrip(b"\r\n")) for number, line in lines if line.strip()]
            raw, bad = _texts([line for _, line in kept])
            numbers = pa.array([number for number, _ in kept], pa.int64())
            yield pa.table({ROW: numbers, BAD: bad, RAW: raw})


def parquet_schema(part: Part) -> pa.Schema:
    """Returns a Parquet part's schema as Spark can read it: microseconds, plain types, no pandas index.

    Raises:
        InputError: the file is not Parquet.
    """
    with _parquet(part) as file:
        fields = [field for field in plain_schema(file.schema_arrow) if not _PANDAS_INDEX.fullmatch(field.name)]
    return pa.schema([field.with_type(spark_type(field.type)) for field in fields])


def parquet_rows(part: Part, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields a Parquet part's rows in a schema; rows count from 1.

    Raises:
        InputError: a column is not in the file, or has another type than in the source's first file.
    """
    with _parquet(part) as file:
        inside = [name for name in schema.names if name not in part.constants]
        _check_there(part, inside, file.schema_arrow.names)
        number = 1
        for batch in file.iter_batches(batch_size=_ROWS, columns=inside):
            columns = []
            for field in schema:
                if field.name in part.constants:
                    value = pa.scalar(part.constants[field.name], pa.string())
                    columns.append(pa.repeat(value, batch.num_rows).cast(field.type))
                else:
                    columns.append(_cast(part, batch[field.name], field))
            numbers = pa.array(np.arange(number, number + batch.num_rows), pa.int64())
            number += batch.num_rows
            yield _batch(pa.table(columns, schema=schema), numbers)


def _check_there(part: Part, wanted: Sequence[str], known: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in known]
    if missing:
        raise InputError(
            f'column "{missing[0]}" is not in source file "{part.name}"', hint=f"It has: {', '.join(known)}."
        )


def _skip(bad: list[pacsv.InvalidRow], row: pacsv.InvalidRow) -> str:
    bad.append(row)
    return "skip"


def _numbers(first: int, count: int, bad: Sequence[pacsv.InvalidRow]) -> tuple[pa.Array, int]:
    """Returns the numbers of the next rows that could be read, and the number after the last of them."""
    skipped = np.array([row.number for row in bad], dtype=np.int64)
    candidates = np.arange(first, first + count + len(skipped), dtype=np.int64)
    numbers = candidates[~np.isin(candidates, skipped)][:count]
    return pa.array(numbers), int(numbers[-1]) + 1 if count else first


def _bad_rows(bad: Sequence[pacsv.InvalidRow], columns: Sequence[str]) -> Iterator[pa.Table]:
    if not bad:
        return
    reasons = [f"row has {row.actual_columns} columns, {row.expected_columns} expected" for row in bad]
    yield pa.table(
        {ROW: pa.array([row.number for row in bad], pa.int64()), BAD: pa.array(reasons), RAW: [row.text for row in bad]}
        | {name: pa.nulls(len(bad), pa.string()) for name in columns}
    )


def _batch(rows: pa.Table, numbers: pa.Array) -> pa.Table:
    nothing = pa.nulls(rows.num_rows, _NO_TEXT)
    return rows.append_column(ROW, numbers).append_column(BAD, nothing).append_column(RAW, nothing)


def _texts(lines: Sequence[bytes]) -> tuple[pa.Array, pa.Array]:
    try:
        return pa.array(lines, pa.binary()).cast(pa.string()), pa.nulls(len(lines), _NO_TEXT)
    except pa.ArrowInvalid:
        texts = [line.decode(errors="replace") for line in lines]
        bad = ["line is not UTF-8" if "\ufffd" in text else None for text in texts]
        return pa.array(texts), pa.array(bad, pa.string())


def _parquet(part: Part) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(str(part.path))
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise InputError(f'source file "{part.name}" cannot be read as Parquet: {error}') from error


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type under which Spark reads a column; nanoseconds become microseconds."""
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_date64(kind):
        return pa.date32()
    return pa.int64() if kind in (pa.uint32(), pa.uint64()) else kind


def _cast(part: Part, column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type, safe=not pa.types.is_timestamp(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f'column "{field.name}" of source file "{part.name}" has type {column.type}, expected {field.type}'
        ) from error
