"""Digests: fingerprints of the rows of windows that do not depend on order.

A digest of a window has the number of tuples and two sums of 64-bit row hashes, modulo 2^64. It
does not depend on order, partitioning or files, but a duplicate row changes it. Columns that
contain a float at any level are treated separately, because sums of doubles depend on grouping:
`digest` covers the exact columns; `float_digest` covers whole rows, floats together with the exact
columns of their row. If only the float digests differ, the rows are compared within a tolerance.

A digest protects against errors, not against an adversary: someone who can choose the tuples can
construct two windows with equal sums, since sums of hashes are linear (docs/tables.md).

Definition of equality:

- Names and types of all columns are part of a schema hash, so true and 1, or a date and its day
  number, differ. Nullability and the order of columns do not matter; precision and scale of
  decimals do.
- At every level the null bitmap comes before the values: (null, x) and (x, null), [] and null,
  struct(1, null) and struct(null, 1) differ. Arrays are hashed with their sizes, maps as sorted
  entries.
- Floats are compared as Spark compares them: -0.0 equals 0.0, and every NaN equals every other.
- Strings are compared byte by byte; columns with another collation are rejected.

Rules: X17
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.application.error_tuples import OF_THE_REPLAY
from rewindow.errors import InputError
from rewindow.names import BOOKKEEPING, quoted_column
from rewindow.sequences import excluding, not_named
from rewindow.spark.columns import null_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NOT_DIGESTED = (*BOOKKEEPING, *OF_THE_REPLAY)
"""Columns that describe the position of a tuple, not its content."""

_PLAIN = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DecimalType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
    T.YearMonthIntervalType,
)
_FLOATS = (T.FloatType, T.DoubleType)
SALTS = (0x52657769_6E646F77, 0x776F646E_69776552)
_BITMAP_COLUMNS = 62
_LOW_HALF = 0xFFFFFFFF
_ZERO = "0" * 16


def window_digests(frame: DataFrame, exclude: Collection[str] = NOT_DIGESTED) -> DataFrame:
    """Computes the digests of the windows that have a tuple, in one aggregate pass.

    Shape: window_id BIGINT, tuples BIGINT, digest STRING, float_digest STRING (null without float
    columns). A window without a tuple has no row; see `empty_digests`.

    Raises:
        InputError: a column's type cannot be digested.
    """
    return frame.groupBy("window_id").agg(*digest_columns(frame.schema, exclude))


def digest_columns(schema: T.StructType, exclude: Collection[str] = NOT_DIGESTED) -> list[Column]:
    """Returns the aggregates `tuples`, `digest` and `float_digest` over the event columns of a
    schema.

    For callers that group rows themselves, for example to compute the digests of several outputs in
    one job.

    Raises:
        InputError: a column's type cannot be digested.
    """
    fields = _event_fields(schema, exclude)
    check_digestible(schema, exclude)
    name = schema_hash(schema, exclude)
    floats = list(filter(_has_float, fields))
    exact = excluding(fields, floats)
    nothing = null_of("string")
    return [
        F.count(F.lit(1)).alias("tuples"),
        _sums(name, exact, []).alias("digest"),
        (_sums(name, exact, floats) if floats else nothing).alias("float_digest"),
    ]


def row_hashes(
    schema: T.StructType,
    exclude: Collection[str] = NOT_DIGESTED,
) -> tuple[Column, Column]:
    """Returns two hashes of a tuple over all event columns. Together they identify its content."""
    check_digestible(schema, exclude)
    values = _values_of(_event_fields(schema, exclude))
    return _hash_fields(SALTS[0], values), _hash_fields(SALTS[1], values[::-1])


def content_order(schema: T.StructType) -> list[Column]:
    """Returns the sort order of tuples that depends only on their content: by arrival, then by two
    hashes of the event columns, then by the columns, in case that different tuples have equal
    hashes.

    Args:
        schema: schema of the recorded stream.

    Rules: X56
    """
    order = [F.col("arrived_at"), *row_hashes(schema)]
    for field in schema.fields[3:]:
        # Spark cannot sort by a map.
        if "map<" not in field.dataType.simpleString():
            order.append(F.col(quoted_column(field.name)))
    return order


def hash_of(values: Mapping[str, tuple[Column, T.DataType]]) -> Column:
    """Returns the hash of a row with the given named values, each with its type.

    `state.row_hash` computes the same hash.
    """
    return _hash_fields(SALTS[0], list(map(values.__getitem__, sorted(values))))


def sum_of_rows(schema: T.StructType) -> Column:
    """Returns the aggregate that sums the hashes of whole rows, in hexadecimal, for the digest of a
    state.

    Rules: X48
    """
    return _sum_of(row_hashes(schema, ())[0])


def bucket_of(schema: T.StructType, key: Collection[str], buckets: int) -> Column:
    """Returns the bucket of a row of a state.

    Without a key, the whole row is the key.

    Rules: X47
    """
    fields = [field for field in schema.fields if not key or field.name in key]
    return row_hashes(T.StructType(fields), ())[0].bitwiseAND(F.lit(buckets - 1)).cast("int")


def empty_digests(
    schema: T.StructType,
    exclude: Collection[str] = NOT_DIGESTED,
) -> tuple[str, str | None]:
    """Returns the digest and the float digest of a window without tuples."""
    floats = any(map(_has_float, _event_fields(schema, exclude)))
    empty = f"{schema_hash(schema, exclude)}-{_ZERO}-{_ZERO}"
    return empty, empty if floats else None


def schema_hash(schema: T.StructType, exclude: Collection[str] = NOT_DIGESTED) -> str:
    """Returns a hash of the names and types of the event columns, sorted by name, as eight
    hexadecimal digits.
    """
    text = _describe(T.StructType(_event_fields(schema, exclude)))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def check_digestible(schema: T.StructType, exclude: Collection[str] = NOT_DIGESTED) -> None:
    """Checks that no column has a type for which equal values may have different hashes.

    Raises:
        InputError: names the column and its type.
    """
    for field in _event_fields(schema, exclude):
        found = _undigestible(field.dataType)
        if found is not None:
            raise InputError(
                f'column "{field.name}" of type {field.dataType.simpleString()} cannot be digested',
                detail=f"Values of type {found.simpleString()} have no order-free hash.",
                hint="Leave the column out, or cast it to STRING or BINARY.",
            )


def _event_fields(schema: T.StructType, exclude: Collection[str]) -> list[T.StructField]:
    return _sorted(not_named(schema.fields, exclude))


def _sorted(fields: list[T.StructField]) -> list[T.StructField]:
    return sorted(fields, key=lambda field: field.name)


def _undigestible(kind: T.DataType) -> T.DataType | None:
    if isinstance(kind, T.StructType):
        wrong = (_undigestible(field.dataType) for field in kind.fields)
        return next(filter(None, wrong), None)
    if isinstance(kind, T.ArrayType):
        return _undigestible(kind.elementType)
    if isinstance(kind, T.MapType):
        return _undigestible(kind.keyType) or _undigestible(kind.valueType)
    if isinstance(kind, T.StringType):
        return None if kind.collation == "UTF8_BINARY" else kind
    return None if isinstance(kind, _PLAIN + _FLOATS) else kind


def holds_float(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return any(map(_has_float, kind.fields))
    if isinstance(kind, T.ArrayType):
        return holds_float(kind.elementType)
    if isinstance(kind, T.MapType):
        return holds_float(kind.keyType) or holds_float(kind.valueType)
    return isinstance(kind, _FLOATS)


def _describe(kind: T.DataType) -> str:
    """Returns the text of a type without nullability. Struct fields are sorted by name."""
    if isinstance(kind, T.StructType):
        fields = [f"{field.name!r}:{_describe(field.dataType)}" for field in _sorted(kind.fields)]
        return f"struct<{','.join(fields)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{_describe(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{_describe(kind.keyType)},{_describe(kind.valueType)}>"
    return "string" if isinstance(kind, T.StringType) else kind.simpleString()


def _sums(
    name: str,
    exact: list[T.StructField],
    floats: list[T.StructField],
) -> Column:
    """Returns the two sums of a digest as text.

    If floats are given, they are hashed together with the hash of the other columns of their row.
    """
    hashes = []
    for salt, order in zip(SALTS, (1, -1), strict=True):
        row_hash = _hash_fields(salt, _values_of(exact[::order]))
        if floats:
            values = _values_of(floats[::order])
            row_hash = _hash_fields(salt, [(row_hash, T.LongType()), *values])
        hashes.append(_sum_of(row_hash))
    return F.concat_ws("-", F.lit(name), *hashes)


def _values_of(fields: list[T.StructField]) -> list[tuple[Column, T.DataType]]:
    """Returns the columns of the given fields, each with its type."""
    return [(F.col(quoted_column(field.name)), field.dataType) for field in fields]


def _has_float(field: T.StructField) -> bool:
    return holds_float(field.dataType)


def _sum_of(row_hash: Column) -> Column:
    """Returns the sum modulo 2^64 in hexadecimal.

    The two halves are summed separately, because a plain sum overflows in ANSI mode.
    """
    high = F.sum(F.shiftrightunsigned(row_hash, 32))
    low = F.sum(row_hash.bitwiseAND(F.lit(_LOW_HALF)))
    carried = (high + F.shiftrightunsigned(low, 32)).bitwiseAND(F.lit(_LOW_HALF))
    kept = low.bitwiseAND(F.lit(_LOW_HALF))
    return F.lower(F.concat(F.lpad(F.hex(carried), 8, "0"), F.lpad(F.hex(kept), 8, "0")))


def _hash_fields(salt: int, values: list[tuple[Column, T.DataType]]) -> Column:
    """Returns the hash of one level: salt, null bitmaps, then values."""
    # xxhash64 skips nulls, so (null, x) and (x, null) would have the same hash. A bit for each
    # column shows which of them are null; each BIGINT covers 62 columns.
    bitmaps: list[Column] = []
    hashable = []
    for number, (column, kind) in enumerate(values):
        bit = F.shiftleft(F.isnull(column).cast("bigint"), number % _BITMAP_COLUMNS)
        if number % _BITMAP_COLUMNS:
            bitmaps[-1] = bitmaps[-1].bitwiseOR(bit)
        else:
            bitmaps.append(bit)
        hashable.append(_hashable(salt, column, kind))
    return F.xxhash64(F.lit(salt), *bitmaps, *hashable)


def _hashable(salt: int, column: Column, kind: T.DataType) -> Column:
    """Returns the expression that represents a value in the hash of its level.

    A plain value represents itself. Any other value is represented by a separate hash.
    """
    if isinstance(kind, T.StructType):
        fields = [(column.getField(field.name), field.dataType) for field in _sorted(kind.fields)]
        return F.when(column.isNotNull(), _hash_fields(salt, fields))
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        hashes = F.transform(column, lambda value: _hash_fields(salt, [(value, element)]))
        return F.when(column.isNotNull(), F.xxhash64(F.lit(salt), F.size(column), hashes))
    if isinstance(kind, T.MapType):
        key = kind.keyType
        value = kind.valueType
        hashes = F.transform(
            F.map_entries(column),
            lambda entry: _hash_fields(
                salt,
                [(entry.getField("key"), key), (entry.getField("value"), value)],
            ),
        )
        return F.when(
            column.isNotNull(),
            F.xxhash64(F.lit(salt), F.size(column), F.sort_array(hashes)),
        )
    return column
