"""Sorts rows with few keys, or without keys, by time: in parallel blocks instead of one task per
key.

The neighbours of a row are nearly always in its block of grid points. So rows are first ordered
within blocks. Then the first and last row of each block, which are few, are ordered per key across
blocks. Then each block is processed again, so that its other rows get values from outside the
block. A *step* computes the same columns each time and keeps values that it has found before. Rows
that are not part of the result are dropped after the first pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from rewindow.names import quoted_column
from rewindow.operators.columns import floor_div
from rewindow.operators.filling.settings import FillRules
from rewindow.operators.filling.values import POINT
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

BLOCKS = 4_096
"""Number of blocks of a key's range, including `look_back`. It is larger than the number of
cores, and one task can process the borders of all blocks.
"""
COSTLY = 4
"""Relative cost of blocks if most rows are sorted a second and a third time, as for recorded
nulls.
"""
BLOCK = "_rw_block"
_EDGE = "_rw_edge"
_PLACE = "_rw_place"

Step: TypeAlias = "Callable[[DataFrame, list[str], list[str]], DataFrame]"
"""Adds the neighbours of each row: arguments are the rows, the columns by which they are
grouped, and the columns that order them.
"""


def with_blocks(rows: DataFrame, settings: FillRules, *, cost: int = 1) -> DataFrame:
    """Adds the block of each row, if there are so few keys that a task per key would leave cores
    idle.

    This is the case for rows without keys, or with few expected keys. The number of other keys is
    unknown and assumed to be large.

    Args:
        rows: rows with a grid point.
        settings: keys, grid and range.
        cost: relative cost of processing in blocks; blocks are used only if `cost` times the number
            of keys is below the number of cores.
    """
    keys = len(settings.expected_keys) if settings.keys else 1
    if not 0 < keys * cost < rows.sparkSession.sparkContext.defaultParallelism:
        return rows
    points = settings.end_point - settings.first_point
    if settings.look_back_us is not None:
        points += settings.grid.points_in(settings.look_back_us)
    return rows.withColumn(
        BLOCK,
        floor_div(F.col(POINT) - settings.first_point, -(-points // BLOCKS)),
    )


def in_order(by: list[str], order: list[str]) -> WindowSpec:
    """Returns the order of rows that have equal values in the columns `by`."""
    return Window.partitionBy(*map(quoted_column, by)).orderBy(*order)


def next_known(sql: str, by: list[str], order: list[str]) -> Column:
    """Returns the value of an expression in the next row where it is not null."""
    apart = ", ".join(map(quoted_column, by)) or "1"
    return F.expr(
        f"lead({sql}) ignore nulls over (partition by {apart} order by {', '.join(order)})"
    )


def in_blocks(
    rows: DataFrame,
    step: Step,
    wanted: Column,
    by: list[str],
    order: list[str],
    *,
    is_far: bool = True,
) -> DataFrame:
    """Returns the rows for which `wanted` is true, each with the neighbours that a step has found.

    Args:
        rows: as returned by `with_blocks`; rows without blocks are ordered as a whole.
        step: computes the neighbours.
        wanted: condition for the rows to return. It may be true for more rows as long as neighbours
            are unknown.
        by: columns of which each combination is processed separately.
        order: columns by which rows are ordered; blocks must follow each other in this order.
        is_far: whether rows inside a block may need neighbours from outside it.
    """
    if BLOCK not in rows.columns:
        return step(rows, by, order).where(wanted)
    own = in_order([*by, BLOCK], order)
    # Rows with equal order columns keep the positions of the first pass, because a row at the
    # border of a block must stay there.
    rows = rows.withColumns(
        {_PLACE: F.row_number().over(own), _EDGE: F.lead(F.lit(1)).over(own).isNull()}
    )
    is_edge = (F.col(_PLACE) == 1) | F.col(_EDGE)
    placed = [*order, _PLACE]
    rows = step(rows, [*by, BLOCK], order).withColumn(_EDGE, F.when(~is_edge, F.col(BLOCK)))
    rows = step(rows.where(F.col(_EDGE).isNull() | wanted), [*by, _EDGE], placed)
    if is_far:
        rows = step(rows, [*by, BLOCK], placed)
    return rows.where(wanted).drop(BLOCK, _EDGE, _PLACE)
