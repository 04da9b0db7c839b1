"""Gap filling over windows of arrival time: the last rows of each key in earlier windows are kept
as state.

A gap is filled in the window that closes it, from the row that closes it and the row before it,
which may have arrived in any earlier window. The end of a range closes no gap. Only a row that is
later than all rows of the key in earlier windows closes a gap or is a source. So the rows created
in a window do not depend on later windows, however windows are divided into groups.

If the grid has an end, `to_time`, the window that contains it closes all gaps that are still open,
also those of expected keys.

Rules: G34 to G38, X34
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.names import quoted_column
from rewindow.operators.columns import WINDOW
from rewindow.operators.filling.settings import FillRules
from rewindow.operators.filling.sources import (
    bounded_sides,
    filled_nulls,
    no_sides,
    usable,
    with_sides,
    with_usable,
)
from rewindow.operators.filling.values import (
    AT,
    COUNTS,
    HASH,
    NEXT,
    OPEN,
    POINT,
    PREVIOUS,
    ROW,
    START,
    TS,
    UNTIL,
    in_range,
    next_side,
    previous_side,
    row_hash,
    sources,
    with_season,
)
from rewindow.operators.schedule.expected_keys import never_there
from rewindow.sequences import excluding
from rewindow.spark.columns import aliased, bigint, named_columns, null_of
from rewindow.spark.functions import F, Window
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HIGHEST = "_rw_highest"
_BEFORE = "_rw_point_before"
_LAST = "_rw_is_last"
_FRONT = "_rw_front"
_MOVES = "_rw_moves"


def carried_rows(
    placed: DataFrame,
    state: DataFrame | None,
    settings: FillRules,
    first: int,
    closing: int | None,
) -> DataFrame:
    """Returns the rows that close gaps or are sources of values.

    Rows of the state are assigned to the window before the first one.

    Args:
        placed: rows as returned by `place_rows`, with `window_id` and `AT`.
        state: the carried state, None at the start.
        settings: keys and grid.
        first: first window of the group.
        closing: window in which the grid ends; rows in later windows close no gap.
    """
    keys = named_columns(settings.keys)
    rows = placed.select(
        WINDOW,
        *keys,
        TS,
        POINT,
        AT,
        ROW,
        F.lit(True).alias(COUNTS),
    )
    return (
        _moving(rows, state, settings, first=first, closing=closing)
        .where(_MOVES)
        .drop(_MOVES, COUNTS)
    )


def _moving(
    rows: DataFrame,
    state: DataFrame | None,
    settings: FillRules,
    first: int,
    closing: int | None,
) -> DataFrame:
    """Returns the rows of the windows and of the state, and whether each is later than all rows of
    earlier windows that count.
    """
    # A row counts in its window only if it is later than all rows in earlier windows, including the
    # state. The comparison is with whole windows, so the order within a window does not matter.
    keys = named_columns(settings.keys)
    if closing is not None:
        rows = rows.withColumn(COUNTS, F.col(COUNTS) & (F.col(WINDOW) <= closing))
    if state is not None:
        before = bigint(first - 1).alias(WINDOW)
        counts = F.lit(True).alias(COUNTS)
        carried = state.select(before, *keys, TS, POINT, _row(rows), counts)
        rows = rows.unionByName(carried, allowMissingColumns=True)
    earlier = Window.partitionBy(*keys).orderBy(WINDOW).rangeBetween(Window.unboundedPreceding, -1)
    highest = F.max(F.when(F.col(COUNTS), F.col(TS))).over(earlier)
    is_later = F.col(_HIGHEST).isNull() | (F.col(TS) > F.col(_HIGHEST))
    return (
        rows.withColumn(_HIGHEST, highest)
        .withColumn(_MOVES, F.col(COUNTS) & is_later)
        .drop(_HIGHEST)
    )


def carried_nulls(
    marked: DataFrame,
    state: DataFrame | None,
    rows: DataFrame,
    settings: FillRules,
    windows: WindowRange,
    closing: int | None,
) -> DataFrame:
    """Returns the rows of the windows with values for recorded nulls, computed from earlier rows of
    the same key.

    Args:
        marked: all rows, as returned by `with_places`, with `window_id`.
        state: the carried state, None at the start.
        rows: the sources, as returned by `carried_rows`.
        settings: keys, grid and methods.
        windows: the windows of the group.
        closing: window in which the grid ends.

    Rules: G27
    """
    moving = with_usable(
        _moving(marked, state, settings, first=windows.first, closing=closing), settings
    )
    moving = moving.withColumn(HASH, row_hash(moving))
    moving = with_sides(
        moving,
        settings,
        [*settings.keys, _MOVES],
        order=[WINDOW, TS, HASH],
    )
    moving = moving.where(F.col(WINDOW) >= windows.first)
    moving = moving.withColumns(bounded_sides(moving, settings))
    for period_us in settings.periods_us:
        moving = with_season(moving, rows, settings, period_us=period_us)
    return filled_nulls(moving, settings, F.col(_MOVES))


def carried_gaps(
    rows: DataFrame,
    settings: FillRules,
    windows: WindowRange,
    grid: Grid,
    closing: int | None,
) -> DataFrame:
    """Returns one row for each gap that closes in the windows, with `window_id` and `AT` of the row
    that closes it.

    Args:
        rows: as returned by `carried_rows`.
        settings: keys and grid.
        windows: the windows of the group.
        grid: the grid of the windows.
        closing: window in which the grid ends.
    """
    # Rows that move a key forward are in the same order by arrival and by event time. So the row
    # before each of them, from any window, is one side of a gap, and `lag` finds it.
    keys = named_columns(settings.keys)
    order = Window.partitionBy(*keys).orderBy(WINDOW, TS, row_hash(rows))
    rows = with_usable(rows, settings)
    beside = rows.withColumns({PREVIOUS: F.lag(ROW).over(order), _BEFORE: F.lag(POINT).over(order)})
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    last = {}
    sides = []
    for name in settings.source_columns:
        side = previous_side(name)
        last[side] = F.last(usable(name), ignorenulls=True).over(before)
        sides.append(F.col(quoted_column(side)))
    for name in settings.source_columns:
        sides.append(F.col(quoted_column(usable(name))).alias(next_side(name)))
    beside = beside.withColumns(last)
    # Without a start of the grid, a key starts at its first row.
    begin = F.col(POINT) if settings.from_time is None else bigint(settings.first_point)
    gaps = beside.where(F.col(WINDOW) >= windows.first).select(
        WINDOW,
        AT,
        *keys,
        F.coalesce(F.col(_BEFORE) + 1, begin).alias(START),
        F.col(POINT).alias(UNTIL),
        F.col(PREVIOUS).isNull().alias(OPEN),
        PREVIOUS,
        F.col(ROW).alias(NEXT),
        *sides,
    )
    if closing is not None and windows.first <= closing <= windows.last:
        gaps = gaps.unionByName(
            _still_open(rows, settings, grid, closing=closing),
            allowMissingColumns=True,
        )
    empty = no_sides(rows, settings, F.col(START) - 1, behind=F.col(UNTIL))
    known = {}
    for name, side in empty.items():
        known[name] = F.coalesce(F.col(quoted_column(name)), side)
    return in_range(gaps, settings).withColumns(known)


def closing_window(settings: FillRules, grid: Grid) -> int | None:
    """Returns the window that contains the last instant of the grid; None if the grid has no
    end.
    """
    return (
        None
        if settings.to_time is None
        else (settings.to_time - 1 - grid.origin_us) // grid.width_us
    )


def _still_open(
    rows: DataFrame,
    settings: FillRules,
    grid: Grid,
    closing: int,
) -> DataFrame:
    """Returns the gaps that the end of the grid closes: gaps after each key's last row, and gaps of
    expected keys without a row.
    """
    assert settings.to_time is not None, "the grid has an end"
    keys = named_columns(settings.keys)
    nothing = null_of(rows.schema[ROW].dataType)
    at = max(grid.start_us(closing), settings.to_time - 1)
    rest = [bigint(settings.end_point).alias(UNTIL), F.lit(True).alias(OPEN)]
    place = [bigint(closing).alias(WINDOW), bigint(at).alias(AT)]
    at_last = F.struct(TS, row_hash(rows))
    # The last row with a usable value may differ from column to column: each has its own maximum,
    # over the rows in which it is usable.
    totals = [F.max_by(ROW, at_last).alias(PREVIOUS), F.max(POINT).alias(POINT)]
    for name in settings.source_columns:
        value = usable(name)
        at_value = F.when(F.col(value).isNotNull(), at_last)
        totals.append(F.max_by(value, at_value).alias(previous_side(name)))
    last = rows.groupBy(*keys).agg(*totals)
    sides = named_columns(map(previous_side, settings.source_columns))
    behind = last.select(
        *place,
        *keys,
        (F.col(POINT) + 1).alias(START),
        *rest,
        PREVIOUS,
        nothing.alias(NEXT),
        *sides,
    )
    never = None
    if settings.from_time is not None:
        never = never_there(rows, settings.keys, settings.expected_keys)
    if never is None:
        return behind
    begin = bigint(settings.first_point).alias(START)
    whole = never.select(
        *place,
        *keys,
        begin,
        *rest,
        nothing.alias(PREVIOUS),
        nothing.alias(NEXT),
    )
    return behind.unionByName(whole, allowMissingColumns=True)


def state_of(rows: DataFrame, settings: FillRules) -> DataFrame:
    """Returns the rows that later windows need: each key's last row, and the last one with a usable
    value of each column.

    For seasonal values these include the first row at each point within the longest period before
    the last one.

    Rules: G34
    """
    keys = named_columns(settings.keys)
    order = Window.partitionBy(*keys).orderBy(WINDOW, TS, row_hash(rows))
    rows = rows.withColumns(
        {_LAST: F.lead(TS).over(order).isNull(), _BEFORE: F.lag(POINT).over(order)}
    )
    kept = F.col(_LAST)
    rows = with_usable(rows.withColumn(HASH, row_hash(rows)), settings)
    rows = with_sides(rows, settings, [*settings.keys], order=[WINDOW, TS, HASH])
    for name in settings.source_columns:
        found = F.col(quoted_column(usable(name)))
        behind = F.col(quoted_column(next_side(name)))
        kept = kept | (found.isNotNull() & behind.isNull())
    if settings.periods_us:
        points = settings.grid.points_in(settings.periods_us[-1])
        rows = rows.withColumn(_FRONT, F.max(POINT).over(Window.partitionBy(*keys)))
        is_first = F.col(_BEFORE).isNull() | (F.col(_BEFORE) < F.col(POINT))
        kept = kept | (is_first & (F.col(POINT) >= F.col(_FRONT) - points))
    names = excluding(rows.schema[ROW].dataType.names, (TS, *settings.keys))  # type: ignore[attr-defined]
    row = F.col(ROW)
    values = aliased(dict(zip(names, map(row.getField, names), strict=True)))
    return rows.where(kept).select(*keys, TS, POINT, *values)


def _row(rows: DataFrame) -> Column:
    """Returns the source values of rows of the state, as a struct of the type `ROW`."""
    kind = rows.schema[ROW].dataType
    names = kind.names  # type: ignore[attr-defined]
    return F.struct(*named_columns(names)).cast(kind).alias(ROW)


def state_names(names: list[str], settings: FillRules) -> list[str]:
    """Returns the columns of a stream whose values are in the state, except keys and timestamp."""
    return excluding(sources(names, settings), settings.keys)
