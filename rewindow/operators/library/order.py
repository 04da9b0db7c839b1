"""The order of tuples, for library operators whose results depend on it.

Tuples are ordered by window, then by the columns `order_by`, then by all other columns.

Rules: E76, X43
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from rewindow.operators.columns import WINDOW
from rewindow.spark.columns import named_columns
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OFFSET = "offset"
"""Column with the position of a recorded tuple in its window."""


def ordering(columns: Iterable[pa.Field], order_by: Iterable[str]) -> list[Column]:
    """Returns the columns that order the tuples of a window.

    Maps are excluded, because they have no order.
    """
    names = [*order_by]
    for field in columns:
        if not pa.types.is_map(field.type):
            names.append(field.name)
    return named_columns(dict.fromkeys(names))


def with_running_max(
    rows: DataFrame,
    of: str,
    name: str,
    order: Iterable[Column],
) -> DataFrame:
    """Adds a column `name`: the largest value of the column `of` up to and including each tuple.

    Args:
        rows: the tuples, with `window_id`.
        of: the column whose largest value is added.
        name: name of the added column.
        order: columns that order the tuples of a window.
    """
    # Tuples are sorted window by window, so that windows can be sorted in parallel.
    so_far = Window.orderBy(WINDOW).rowsBetween(
        Window.unboundedPreceding,
        -1,
    )
    peaks = rows.groupBy(WINDOW).agg(F.max(of).alias("_peak"))
    before = peaks.select(
        WINDOW,
        F.max("_peak").over(so_far).alias("_before"),
    )
    inside = Window.partitionBy(WINDOW).orderBy(*order)
    inside = inside.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    largest = F.greatest("_before", F.max(of).over(inside))
    return (
        rows.join(F.broadcast(before), WINDOW)
        .withColumn(
            name,
            largest,
        )
        .drop("_before")
    )


def no_nulls(names: Iterable[str], null_keys: str) -> Column:
    """Returns whether a key can equal another key.

    With `null_keys="equal"` this is always true. Otherwise it is true only if the key has no null.

    Rules: E78, X25
    """
    known = F.lit(True)
    if null_keys == "apart":
        for column in named_columns(names):
            known &= column.isNotNull()
    return known
