"""Rows of few keys, or of none, in order of time: sorted in blocks beside each other, not a key in
one task.

What lies before and behind a row is nearly always in its block of grid points. So rows are put in
order block by block; then the first and last row of each block, which are few, in one order for a
key, from block to block; and then each block again, where its other rows learn from these what lies
outside. A *step* looks for the same each time, and what it has found before stays. Rows that nobody
asks for go after the first time.
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
"""Blocks of the range of a key and what it looks back to: more than cores; one task can see the
borders of all."""
COSTLY = 4
"""What blocks cost where most rows are sorted a second and a third time, as for recorded nulls."""
BLOCK = "_rw_block"
_EDGE = "_rw_edge"
_PLACE = "_rw_place"

Step: TypeAlias = "Callable[[DataFrame, list[str], list[str]], DataFrame]"
"""Adds to rows what lies before and behind each: of those that are equal in some columns, in the
order of others."""


def with_blocks(rows: DataFrame, settings: FillRules, *, cost: int = 1) -> DataFrame:
    """Adds the block that a row lies in, where keys are so few that one task each would leave cores
    idle.

    Those are rows without keys, or with few that are expected; keys that nobody has counted are
    taken for many.

    Args:
        rows: with a grid point.
        settings: keys, grid and range.
        cost: about how many times as much the cores have to do in blocks; so many times as few must
            the keys be.
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
    """Returns the order of rows that are equal in the columns `by`."""
    return Window.partitionBy(*map(quoted_column, by)).orderBy(*order)


def next_known(sql: str, by: list[str], order: list[str]) -> Column:
    """Returns the value of an expression in the next row behind in which it is not null."""
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
    """Returns the rows that are wanted, with what a step finds before and behind them.

    Args:
        rows: as from `with_blocks`; those without blocks are put in order whole.
        step: what is looked for.
        wanted: which rows are asked for. It may hold for more rows while less is found.
        by: columns of which each combination is looked at by itself.
        order: columns by which rows are in order; blocks follow each other in it.
        is_far: whether rows inside of a block may need more than what lies in it.
    """
    if BLOCK not in rows.columns:
        return step(rows, by, order).where(wanted)
    own = in_order([*by, BLOCK], order)
    # Rows that are equal in the order keep the places that they have at first: a border must stay
    # at the border.
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
