"""Parquet files that Spark reads directly, with the positions of their rows, without a copy.

This applies to files from which Spark reads the same values as Python's reader. Files are copied
instead if they have nanoseconds, unsigned integers, other types than the first file, or names that
Spark would interpret as patterns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from rewindow.names import quoted_column
from rewindow.recording.sources.arrow_types import spark_type
from rewindow.recording.sources.source import BAD, FILE, RAW, ROW, SourceContents, SourceFile
from rewindow.recording.sources.typed_rows import constant_of
from rewindow.storage.delta import plain_schema
from rewindow.storage.fields import fields_without

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./=+,@:-]+")
_PLACE = "__path"


def parquet_frame(spark: SparkSession, contents: SourceContents) -> DataFrame | None:
    """Returns the rows of Parquet files as Spark reads them; None if Spark would read wrong values.

    Shape: `__file, __row, __bad, __raw` and the columns of the contents.
    """
    if not contents.files or not all(_is_plain(file, contents) for file in contents.files):
        return None
    constants: set[str] = set()
    for file in contents.files:
        constants.update(file.constants)
    constants.intersection_update(contents.schema.names)
    inside = pa.schema(fields_without(contents.schema, constants))
    if _has_twins(contents.schema.names) or not inside.names:
        return None
    schema = from_arrow_schema(inside, prefer_timestamp_ntz=True)
    reader = spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
    rows = reader.parquet(*[str(file.path) for file in contents.files])
    rows = rows.withColumns(
        {ROW: F.col("_metadata.row_index") + 1, _PLACE: F.col("_metadata.file_path")}
    )
    if len(contents.files) == 1 and not constants:
        placed = rows.withColumn(FILE, F.lit(0))
    else:
        parts = spark.createDataFrame(_parts(contents, sorted(constants)))
        foreign = F.raise_error(
            F.concat(F.lit("rows of a file that is not part of the source: "), _PLACE)
        ).cast("int")
        placed = rows.join(F.broadcast(parts), _PLACE, "left").withColumn(
            FILE,
            F.coalesce(FILE, foreign),
        )
    nothing = F.lit(None).cast(T.StringType())
    return placed.select(
        FILE,
        ROW,
        nothing.alias(BAD),
        nothing.alias(RAW),
        *map(quoted_column, contents.schema.names),
    )


def _parts(contents: SourceContents, constants: Sequence[str]) -> pa.Table:
    """Returns the path, the index and the constant columns of every file.

    Each file has two rows, because Spark may write its path in two formats.
    """
    files = contents.files
    columns: dict[str, pa.Array] = {
        _PLACE: pa.array(
            [*map("file:{0.path}".format, files), *map("file://{0.path}".format, files)]
        ),
        FILE: pa.array([*range(len(files))] * 2, pa.int32()),
    }
    for name in constants:
        field = contents.schema.field(name)
        values = [constant_of(file, file.constants.get(name), field).as_py() for file in files]
        columns[name] = pa.array(values * 2, field.type)
    return pa.table(columns)


def _has_twins(names: Collection[str]) -> bool:
    """Returns whether two names differ only in case. Spark treats them as one column."""
    return len(set(map(str.lower, names))) < len(names)


def _is_plain(file: SourceFile, contents: SourceContents) -> bool:
    path = str(file.path)
    hidden = file.path.name[0] in "._"
    if file.in_zip or hidden or os.path.normpath(path) != path or not _PLAIN_PATH.fullmatch(path):
        return False
    written = pq.read_metadata(path).schema.to_arrow_schema()
    there = dict(zip(written.names, written.types, strict=True))
    plain = dict(zip(written.names, plain_schema(written).types, strict=True))
    if _has_twins(there):
        return False
    for field in contents.schema:
        if field.name in file.constants:
            continue
        if field.name not in there:
            if field.name not in contents.optional:
                return False
        elif not _is_read_as(there[field.name], plain[field.name], field.type):
            return False
    return True


def _is_read_as(kind: pa.DataType, plain: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether Spark can read a column of one type as the wanted type without changing
    values.
    """
    if pa.types.is_timestamp(kind):
        return kind.unit in ("us", "ms") and spark_type(kind) == wanted
    # Python's reader converts the units of timestamps within nested types.
    is_plain = "null" not in str(kind) and not (pa.types.is_nested(kind) and "time" in str(kind))
    return bool(plain == wanted and is_plain)
