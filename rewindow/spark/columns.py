"""Expressions and frames of Spark that several operators use. pyspark is imported only when one is
created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rewindow.names import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec
    from pyspark.sql.types import DataType, StructType

_SAMPLE_BUCKETS = 10_000


def named_columns(names: Iterable[str]) -> list[Column]:
    """Returns the columns with the given names, which may contain any characters."""
    from pyspark.sql import functions as F

    return [F.col(quoted_column(name)) for name in names]


def aliased(columns: Mapping[str, Column]) -> list[Column]:
    """Renames the columns to their keys."""
    return [column.alias(name) for name, column in columns.items()]


def renamed_columns(names: Mapping[str, str]) -> list[Column]:
    """Selects the columns that are the keys, and renames each to its value."""
    return aliased(dict(zip(names.values(), named_columns(names), strict=True)))


def maxima(names: Iterable[str], over: WindowSpec | None = None) -> list[Column]:
    """Returns the maximum of each column with the same name, for a group or over a window."""
    from pyspark.sql import functions as F

    columns = []
    for name in names:
        maximum = F.max(name)
        columns.append((maximum if over is None else maximum.over(over)).alias(name))
    return columns


def equal_or_null(names: Mapping[str, str]) -> list[Column]:
    """Returns conditions that are true if two columns are equal. Two nulls count as equal."""
    from pyspark.sql import functions as F

    return [F.col(quoted_column(name)).eqNullSafe(F.col(other)) for name, other in names.items()]


def bigint(value: int | None) -> Column:
    """Returns a constant of type BIGINT."""
    from pyspark.sql import functions as F

    return F.lit(value).cast("bigint")


def null_of(kind: DataType | str) -> Column:
    """Returns a null of a given type."""
    from pyspark.sql import functions as F

    return F.lit(None).cast(kind)


def or_false(condition: Column | str) -> Column:
    """Returns a condition that is false if the given condition is null."""
    from pyspark.sql import functions as F

    return F.coalesce(condition, F.lit(False))


def or_true(condition: Column | str) -> Column:
    """Returns a condition that is true if the given condition is null."""
    from pyspark.sql import functions as F

    return F.coalesce(condition, F.lit(True))


def column_types(schema: StructType) -> dict[str, DataType]:
    """Returns the type of each column by its name."""
    return {field.name: field.dataType for field in schema.fields}


def union_all(frames: Iterable[DataFrame], *, allow_missing: bool = False) -> DataFrame:
    """Returns the rows of all frames.

    At least one frame is required. Columns are matched by name.

    Args:
        allow_missing: whether a frame may lack columns, which are then null in its rows.
    """
    first, *others = frames
    for frame in others:
        first = first.unionByName(frame, allowMissingColumns=allow_missing)
    return first


def in_sample(columns: Iterable[str], fraction: float) -> Column:
    """Returns whether the key of a row is in a sample.

    The result is the same in every run, and a larger sample includes every smaller one. Keys are
    hashed as text, so a key has the same hash in streams that store it with different types.

    Rules: O143
    """
    from pyspark.sql import functions as F

    key = [column.cast("string") for column in named_columns(columns)]
    bucket = F.pmod(F.xxhash64(*key), F.lit(_SAMPLE_BUCKETS))
    return bucket < F.lit(fraction * _SAMPLE_BUCKETS)
