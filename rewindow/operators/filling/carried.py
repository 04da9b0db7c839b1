"""Gap filling over windows of arrival time: what earlier windows showed of each key is carried as state (G34 to G38).

A gap is filled in the window that closes it, from the row before it, wherever that came, and the one that closes it.
The end of a range closes nothing (X34). Only a row that is later than all of the key in earlier windows closes a gap
or is a source: what is made in a window depends on no window behind it, wherever groups of windows are cut.

With an end of the grid, `to_time`, the window in which it lies closes what is still open, of expected keys too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.names import quoted_column
from rewindow.operators.filling.function import never_there
from rewindow.operators.filling.settings import FillRules
from rewindow.operators.filling.values import FROM, NEXT, OPEN, POINT, PREVIOUS, ROW, TS, UNTIL, row_hash, sources
from rewindow.operators.heartbeat.clock import FIRST, WINDOW
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT = "_rw_arrived_us"
"""Arrival of the row that closes a gap."""
_HIGHEST, _BEFORE, _LAST, _FRONT = "_rw_highest", "_rw_point_before", "_rw_is_last", "_rw_front"


def carried_rows(
    placed: DataFrame, state: DataFrame | None, settings: FillRules, first: int, closing: int | None
) -> DataFrame:
    """Returns the rows that close gaps or are sources, those of the state in the window before the first one.

    Args:
        placed: rows as from `place_rows`, with `window_id` and `AT`.
        state: the carried state, None at the start.
        settings: keys and grid.
        first: first window of the group.
        closing: window in which the grid ends: later rows close nothing.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [F.col(quoted_column(key)) for key in settings.keys]
    rows = placed.select(WINDOW, *keys, TS, POINT, AT, ROW)
    if closing is not None:
        rows = rows.where(F.col(WINDOW) <= closing)
    if state is not None:
        names = rows.schema[ROW].dataType.names  # type: ignore[attr-defined]
        row = F.struct(*(F.col(quoted_column(name)) for name in names)).cast(rows.schema[ROW].dataType)
        before = F.lit(first - 1).cast("bigint").alias(WINDOW), F.lit(None).cast("bigint").alias(AT)
        rows = rows.unionByName(state.select(before[0], *keys, TS, POINT, before[1], row.alias(ROW)))
    earlier = Window.partitionBy(*keys).orderBy(WINDOW).rangeBetween(FIRST, -1)
    rows = rows.withColumn(_HIGHEST, F.max(TS).over(earlier))
    return rows.where(F.col(_HIGHEST).isNull() | (F.col(TS) > F.col(_HIGHEST))).drop(_HIGHEST)


def carried_gaps(
    rows: DataFrame, settings: FillRules, windows: WindowRange, grid: Grid, closing: int | None
) -> DataFrame:
    """Returns a row per gap that closes in the windows, with `window_id` and `AT` of what closes it.

    Args:
        rows: as from `carried_rows`.
        settings: keys and grid.
        windows: those of the group.
        grid: of the windows.
        closing: window in which the grid ends.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [F.col(quoted_column(key)) for key in settings.keys]
    order = Window.partitionBy(*keys).orderBy(WINDOW, TS, row_hash(rows))
    beside = rows.withColumns({PREVIOUS: F.lag(ROW).over(order), _BEFORE: F.lag(POINT).over(order)})
    # Without a begin of the grid, a key begins with its first row.
    begin = F.col(POINT) if settings.from_time is None else F.lit(settings.first_point).cast("bigint")
    gaps = beside.where(F.col(WINDOW) >= windows.first).select(
        WINDOW, AT, *keys, F.coalesce(F.col(_BEFORE) + 1, begin).alias(FROM), F.col(POINT).alias(UNTIL),
        F.col(PREVIOUS).isNull().alias(OPEN), PREVIOUS, F.col(ROW).alias(NEXT),
    )  # fmt: skip
    if closing is not None and windows.first <= closing <= windows.last:
        gaps = gaps.unionByName(_still_open(rows, settings, grid, closing))
    return gaps.where(F.col(FROM) < F.col(UNTIL))


def closing_window(settings: FillRules, grid: Grid) -> int | None:
    """Returns the window in which the last instant of the grid lies, None where it has no end."""
    return None if settings.to_time is None else (settings.to_time - 1 - grid.origin_us) // grid.width_us


def _still_open(rows: DataFrame, settings: FillRules, grid: Grid, closing: int) -> DataFrame:
    """Returns the gaps that the end of the grid closes: behind each key's last row, and those of keys without one."""
    from pyspark.sql import functions as F

    assert settings.to_time is not None, "the grid has an end"
    keys = [F.col(quoted_column(key)) for key in settings.keys]
    nothing = F.lit(None).cast(rows.schema[ROW].dataType)
    at = max(grid.start_us(closing), settings.to_time - 1)
    rest = [F.lit(settings.end_point).cast("bigint").alias(UNTIL), F.lit(True).alias(OPEN)]
    place = [F.lit(closing).cast("bigint").alias(WINDOW), F.lit(at).cast("bigint").alias(AT)]
    last = rows.groupBy(*keys).agg(
        F.max_by(ROW, F.struct(TS, row_hash(rows))).alias(PREVIOUS), F.max(POINT).alias(POINT)
    )
    behind = last.select(*place, *keys, (F.col(POINT) + 1).alias(FROM), *rest, PREVIOUS, nothing.alias(NEXT))
    never = None if settings.from_time is None else never_there(rows, settings)
    if never is None:
        return behind
    begin = F.lit(settings.first_point).cast("bigint").alias(FROM)
    return behind.unionByName(never.select(*place, *keys, begin, *rest, nothing.alias(PREVIOUS), nothing.alias(NEXT)))


def state_of(rows: DataFrame, settings: FillRules) -> DataFrame:
    """Returns what later windows need: each key's last row, and for seasonal values the first of each point (G34).

    Of those only what lies within the longest period of the last one.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [F.col(quoted_column(key)) for key in settings.keys]
    order = Window.partitionBy(*keys).orderBy(WINDOW, TS, row_hash(rows))
    rows = rows.withColumns({_LAST: F.lead(TS).over(order).isNull(), _BEFORE: F.lag(POINT).over(order)})
    kept = F.col(_LAST)
    if settings.periods_us:
        points = -(-settings.periods_us[-1] // settings.grid.least_us)
        rows = rows.withColumn(_FRONT, F.max(POINT).over(Window.partitionBy(*keys)))
        is_first = F.col(_BEFORE).isNull() | (F.col(_BEFORE) < F.col(POINT))
        kept = kept | (is_first & (F.col(POINT) >= F.col(_FRONT) - points))
    names = [name for name in rows.schema[ROW].dataType.names if name not in (TS, *settings.keys)]  # type: ignore[attr-defined]
    values = [F.col(ROW).getField(name).alias(name) for name in names]
    return rows.where(kept).select(*keys, TS, POINT, *values)


def state_names(names: list[str], settings: FillRules) -> list[str]:
    """Returns the columns of a stream whose values are carried, beside keys and timestamp."""
    return [name for name in sources(names, settings) if name not in settings.keys]
