"""Sources of columns for which only rows with a usable value count.

Such a column has two sides at each row or gap, `previous_side` and `next_side`. Each side is a
struct of the timestamp, the grid point and the value of the nearest row with a usable value. If
there is no such row, timestamp and value are null and the point is the one next to the range.

Rules: G27
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.names import quoted_column
from rewindow.operators.filling.blocks import in_order, next_known
from rewindow.operators.filling.settings import FillRules
from rewindow.operators.filling.values import (
    METHODS,
    POINT,
    ROW,
    SOURCES,
    TS,
    filled_column,
    filled_value,
    is_within_bounds,
    looking_back,
    next_side,
    previous_side,
)
from rewindow.spark.columns import bigint, column_types, null_of
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def usable(name: str) -> str:
    """Returns the name of the column that has a row's value as a source; the value is null if it is
    not usable.
    """
    return f"_rw_usable_{name}"


def with_usable(rows: DataFrame, settings: FillRules) -> DataFrame:
    """Adds the values of each row as a source, for each column that has separate sources."""
    for name, fill in settings.source_columns.items():
        value = F.col(ROW).getField(name)
        side = F.struct(
            F.col(TS).alias(TS),
            F.col(POINT).alias(POINT),
            value.alias(name),
        )
        rows = rows.withColumn(usable(name), F.when(is_within_bounds(value, fill), side))
    return rows


def nothing(rows: DataFrame, name: str, point: Column) -> Column:
    """Returns the side of a column without a usable value: a struct with only the point."""
    kind = rows.schema[usable(name)].dataType[name].dataType  # type: ignore[index]
    null_ts = bigint(None).alias(TS)
    null = null_of(kind).alias(name)
    return F.struct(null_ts, point.cast("bigint").alias(POINT), null)


def with_sides(
    rows: DataFrame,
    settings: FillRules,
    by: list[str],
    order: list[str],
) -> DataFrame:
    """Adds both sides of each row: the nearest usable row at or before it, and the nearest usable
    row after it.

    Values from an earlier call are kept.

    Args:
        rows: as returned by `with_usable`.
        settings: settings of the columns with their own sources.
        by: columns of which each combination is processed separately.
        order: columns by which rows are ordered.
    """
    so_far = in_order(by, order).rowsBetween(Window.unboundedPreceding, 0)
    found = {}
    for name in settings.source_columns:
        own = usable(name)
        before = previous_side(name)
        behind = next_side(name)
        if before not in rows.columns:
            unknown = null_of(rows.schema[own].dataType)
            rows = rows.withColumns({before: F.col(quoted_column(own)), behind: unknown})
        own = quoted_column(own)
        known = quoted_column(behind)
        found[before] = F.last(quoted_column(before), ignorenulls=True).over(so_far)
        found[behind] = F.coalesce(F.col(known), next_known(f"coalesce({own}, {known})", by, order))
    return rows.withColumns(found)


def bounded_sides(
    rows: DataFrame,
    settings: FillRules,
    *,
    is_ahead: bool = False,
) -> dict[str, Column]:
    """Returns both sides of the gaps after rows, or of the gaps before rows if `is_ahead` is
    set.
    """
    empty = no_sides(
        rows,
        settings,
        F.lit(settings.first_point - 1),
        behind=F.lit(settings.end_point),
    )
    sides = {}
    for name in settings.source_columns:
        before = previous_side(name)
        behind = next_side(name)
        itself = F.col(quoted_column(usable(name)))
        found = (
            [itself, F.col(quoted_column(behind))] if is_ahead else [F.col(quoted_column(behind))]
        )
        sides[before] = (
            empty[before] if is_ahead else F.coalesce(F.col(quoted_column(before)), empty[before])
        )
        sides[behind] = F.coalesce(*found, empty[behind])
    return sides


def no_sides(
    rows: DataFrame,
    settings: FillRules,
    before: Column,
    behind: Column,
) -> dict[str, Column]:
    """Returns the sides of columns without a usable value, for a gap between the given points."""
    sides = {}
    for name in settings.source_columns:
        sides[previous_side(name)] = nothing(rows, name, before)
        sides[next_side(name)] = nothing(rows, name, behind)
    return sides


def filled_nulls(
    frame: DataFrame,
    settings: FillRules,
    is_counted: Column,
) -> DataFrame:
    """Adds the values and methods for recorded nulls to recorded rows.

    The nulls themselves are unchanged.

    Args:
        frame: rows with both sides of the columns with their own sources, and with the rows of
            their periods.
        settings: the methods.
        is_counted: whether a row can be filled.

    Rules: G27, G40
    """
    # Method and sources are recorded for each column that is filled. Columns that are not null have
    # a null entry, which is dropped, and a map without entries becomes null.
    types = column_types(frame.schema)
    methods = []
    sources = []
    values = {}
    frame = looking_back(frame, settings)
    is_counted = is_counted & (F.col(POINT) >= settings.first_point)
    for name in settings.nulls:
        lacks = is_counted & F.col(quoted_column(name)).isNull()
        value, word, rows = filled_value(name, types[name], settings)
        values[filled_column(name)] = F.when(lacks, value).cast(types[name])
        key = F.lit(name).alias("key")
        methods.append(F.when(lacks, F.struct(key, word.alias("value"))))
        rows = rows.cast("array<bigint>")
        sources.append(F.when(lacks, F.struct(key, rows.alias("value"))))
    for column, entries in ((METHODS, methods), (SOURCES, sources)):
        by_name = F.map_from_entries(F.array_compact(F.array(*entries)))
        values[column] = F.when(F.size(by_name) > 0, by_name)
    return frame.withColumns(values)
