"""Rows of formats whose columns have types of their own: those that Spark has, numbered, in the
source's schema.

`parquet_files` and `feather_files` are made of this; so may be another format that gives Arrow
batches.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from rewindow.errors import InputError
from rewindow.recording.sources.readers import check_there, with_numbers
from rewindow.recording.sources.source import SourceFile
from rewindow.sequences import excluding
from rewindow.storage.delta import plain_schema
from rewindow.storage.fields import retyped

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def schema_for_spark(schema: pa.Schema) -> pa.Schema:
    """Returns a file's schema as Spark can read it: microseconds, plain types, no pandas index."""
    fields = [field for field in plain_schema(schema) if not _PANDAS_INDEX.fullmatch(field.name)]
    return pa.schema(retyped(fields, spark_type))


def columns_inside(
    file: SourceFile,
    schema: pa.Schema,
    optional: Collection[str],
    there: Sequence[str],
) -> list[str]:
    """Returns which columns of a schema are to be read from a file.

    Raises:
        InputError: the file lacks one that is neither constant nor optional.
    """
    check_there(
        file,
        excluding(schema.names, {*file.constants, *optional}),
        there,
    )
    return [name for name in schema.names if name in there and name not in file.constants]


def rows_as(
    file: SourceFile,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.Table]:
    """Yields a file's batches as rows in a schema, counted from 1; a column that they lack is
    constant or null.

    Raises:
        InputError: a column has another type than in the source's first file.
    """
    number = 1
    for batch in batches:
        columns = []
        for field in schema:
            if field.name in batch.schema.names:
                columns.append(_as_type(file, batch[field.name], field))
            else:
                value = constant_of(file, file.constants.get(field.name), field)
                columns.append(pa.repeat(value, batch.num_rows))
        numbers = pa.array(np.arange(number, number + batch.num_rows), pa.int64())
        number += batch.num_rows
        yield with_numbers(pa.table(columns, schema=schema), numbers)


def constant_of(file: SourceFile, text: str | None, field: pa.Field) -> pa.Scalar:
    """Returns the value of a table partition, which a Delta log holds as text: empty is null, times
    are in UTC.
    """
    if not text:
        return pa.scalar(None, field.type)
    try:
        if pa.types.is_timestamp(field.type):
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return pa.scalar(moment.astimezone(UTC).replace(tzinfo=None), pa.timestamp("us")).cast(
                pa.timestamp("us", "UTC") if field.type.tz else field.type
            )
        return pa.scalar(text, pa.string()).cast(field.type)
    except (pa.ArrowInvalid, ValueError) as error:
        raise InputError(
            f'partition value "{text}" of column "{field.name}" of source file "{file.name}" is '
            f"not {field.type}"
        ) from error


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type under which Spark reads a column; nanoseconds become microseconds, also
    within lists.
    """
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct(retyped(kind, spark_type))
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(spark_type(kind.value_type)))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_date64(kind):
        return pa.date32()
    return pa.int64() if kind in (pa.uint32(), pa.uint64()) else kind


def _as_type(file: SourceFile, column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type, safe="timestamp" not in str(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f'column "{field.name}" of source file "{file.name}" has type {column.type}, expected '
            f"{field.type}"
        ) from error
