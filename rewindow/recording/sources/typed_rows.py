"""Rows of formats with typed columns. They are converted to types that Spark has, numbered, and
returned in the source's schema.

`parquet_files` and `feather_files` use these functions, and so can any other format that is read as
Arrow batches. `arrow_types` defines which types can be converted to which.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from rewindow.errors import InputError
from rewindow.names import quoted_column
from rewindow.recording.sources.arrow_types import converted, spark_type, wider_type
from rewindow.recording.sources.readers import check_there, with_numbers
from rewindow.recording.sources.source import SourceFile
from rewindow.sequences import excluding
from rewindow.storage.fields import retyped

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def schema_for_spark(schema: pa.Schema) -> pa.Schema:
    """Converts a file's schema to types that Spark can read: microseconds, plain types, no pandas
    index.
    """
    fields = [field for field in schema if not _PANDAS_INDEX.fullmatch(field.name)]
    return pa.schema(retyped(fields, spark_type))


def in_ddl(fields: Iterable[pa.Field]) -> str:
    """Returns fields in the format of the setting `columns`."""
    parts = []
    for field in from_arrow_schema(pa.schema(list(fields)), prefer_timestamp_ntz=True):
        name = field.name if _PLAIN.fullmatch(field.name) else quoted_column(field.name)
        parts.append(f"{name} {field.dataType.simpleString()}")
    return ", ".join(parts)


def columns_inside(
    file: SourceFile,
    schema: pa.Schema,
    optional: Collection[str],
    there: Sequence[str],
) -> list[str]:
    """Returns the columns of a schema to read from a file.

    Raises:
        InputError: the file lacks a column that is neither constant nor optional.
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
    zone: str,
    notes: Counter[str],
) -> Iterator[pa.Table]:
    """Yields a file's batches as rows with the columns of a schema, counted from 1.

    A column that is missing in the batches is constant or null.

    Args:
        file: the file to read.
        schema: schema of the rows, see `arrow_types.converted`.
        batches: rows in the types of the file.
        zone: zone of local times that become instants.
        notes: receives counts of values that are changed or chosen.

    Raises:
        InputError: a column has another type than in the source's first file.
    """
    number = 1
    for batch in batches:
        columns = []
        for field in schema:
            if field.name in batch.schema.names:
                columns.append(_as_type(file, batch[field.name], field, zone, notes))
            else:
                value = constant_of(file, file.constants.get(field.name), field)
                columns.append(pa.repeat(value, batch.num_rows))
        numbers = pa.array(np.arange(number, number + batch.num_rows), pa.int64())
        number += batch.num_rows
        yield with_numbers(pa.table(columns, schema=schema), numbers)


def constant_of(file: SourceFile, text: str | None, field: pa.Field) -> pa.Scalar:
    """Returns the value of a table partition from its text in a Delta log.

    An empty text means null, and times without a zone are in UTC.
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


def _as_type(
    file: SourceFile,
    column: pa.Array,
    field: pa.Field,
    zone: str,
    notes: Counter[str],
) -> pa.Array:
    try:
        return converted(column, field.type, zone, notes)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        wider = wider_type(field.type, spark_type(column.type))
        hint = "Write all files with the same type for this column."
        if wider is not None:
            hint = (
                "Declare the stream's columns in its settings, with a type of this column that "
                f'fits all files: columns = "{in_ddl([field.with_type(wider)])}, ...".'
            )
        raise InputError(
            f'column "{field.name}" of source file "{file.name}" must have type {field.type}, not '
            f"{column.type}",
            detail=f"{' '.join(str(error).split())}.",
            hint=hint,
        ) from error
