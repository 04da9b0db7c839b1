"""Gap filling with what was known at the time (G28): a row is made when its grid point has ended on the arrival clock.

A point is filled at its due time: when its step has ended and `wait` has passed. Then it lacks a row if none of it has
arrived (inclusive), and its values come from the latest rows before it that have. So what is made does not change by
what comes later, and rows are made while a silence lasts.

A row is *late* if it has arrived after the due time of its own point: its point was filled, but from the next due time
on it is a source. `EFFECT` is the first point for which a row can be a source. Along a key's rows in order of it, a
gap goes from a row's effect to the next row: up to its point, or up to its effect where it is late.

Of a silence that is longer than `max_rows`, one row stands for the rest (G33). How many that are is known when the
point of the row that ends the silence is due, or the last one of the range: the row is made then, with the values that
a row of the first point of the rest would have had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.names import quoted_column
from rewindow.operators.filling.blocks import in_blocks, in_order, next_known, own_block
from rewindow.operators.filling.expected import expected_rows
from rewindow.operators.filling.settings import FillRules
from rewindow.operators.filling.sides import no_sides, usable, with_usable
from rewindow.operators.filling.values import (
    AT,
    DUE,
    FROM,
    NEXT,
    OPEN,
    POINT,
    PREVIOUS,
    REST,
    ROW,
    START,
    TS,
    UNTIL,
    previous_side,
    row_hash,
)
from rewindow.operators.heartbeat.clock import FIRST
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EFFECT, LATE = "_rw_effect", "_rw_late"
_BEST, _EXPECTED, _DONE, _KEPT = "_rw_best", "_rw_expected", "_rw_done", "_rw_kept"
_CLOSE, _BEGIN, _IN_TIME, _BOUNDARY = "_rw_close", "_rw_begin", "_rw_in_time", "_rw_boundary"


def made_at(settings: FillRules) -> Column:
    """Returns when a row is made, in microseconds on the arrival clock: when its point is due, or a rest is known."""
    from pyspark.sql import functions as F

    return settings.grid.end(F.coalesce(DUE, POINT)) + settings.wait_us


def due_points(settings: FillRules, windows: WindowRange, grid: Grid) -> tuple[int, int]:
    """Returns the first point that is due in windows, and the first one that is due behind them."""
    ends = grid.start_us(windows.first), grid.start_us(windows.last + 1)
    first, end = (settings.grid.first_ending(at_us - settings.wait_us) for at_us in ends)
    return first, end


def timed_rows(rows: DataFrame, settings: FillRules) -> DataFrame:
    """Adds to rows with an arrival from which point on they are sources, and whether they are late for their own."""
    from pyspark.sql import functions as F

    seen = settings.grid.ending(F.col(AT) - settings.wait_us - 1)
    rows = rows.where(F.col(AT).isNotNull())
    return rows.withColumns({EFFECT: F.greatest(F.col(POINT) + 1, seen), LATE: seen > F.col(POINT)})


def causal_gaps(rows: DataFrame, settings: FillRules, points: tuple[int, int]) -> DataFrame:
    """Returns a row per run of points without a row when they were due, and with the same sources.

    Args:
        rows: as from `timed_rows`.
        settings: keys, grid, methods.
        points: the first point that may be filled, and the first one that may not.
    """
    from pyspark.sql import functions as F

    keys = [F.col(quoted_column(key)) for key in settings.keys]
    rows = with_usable(rows.select(*keys, TS, POINT, ROW, EFFECT, LATE, *own_block(rows)), settings)
    rows = rows.withColumn(_BEST, F.struct(TS, row_hash(rows)))
    expected = expected_rows(rows, settings)
    flag = F.lit(False)
    if expected is not None:
        marked = F.broadcast(expected.withColumn(_EXPECTED, F.lit(True)))
        rows, flag = rows.join(marked, list(settings.keys), "left"), F.coalesce(F.col(_EXPECTED), F.lit(False))
    in_time = F.when(~F.col(LATE), F.col(POINT))
    boundary = F.when(F.col(LATE), F.col(EFFECT)).otherwise(F.col(POINT))
    empty = no_sides(rows, settings, F.lit(settings.first_point - 1), F.lit(settings.end_point))
    sides = {previous_side(name): empty[previous_side(name)] for name in settings.choosing}
    begin = F.when(flag, F.lit(settings.first_point)).otherwise(F.col(_BEGIN))
    end = F.lit(settings.end_point).cast("bigint")
    beside = _beside_gaps(rows.withColumns({_IN_TIME: in_time, _BOUNDARY: boundary}), settings)
    beside = beside.withColumns({
        FROM: F.col(EFFECT), UNTIL: F.coalesce(UNTIL, end), _CLOSE: F.coalesce(_CLOSE, end),
        START: F.coalesce(START, begin).cast("bigint"),
        **{name: F.coalesce(F.col(quoted_column(name)), side) for name, side in sides.items()},
    })  # fmt: skip
    nothing = F.lit(None).cast(rows.schema[ROW].dataType)
    names = [*keys, FROM, UNTIL, START, _CLOSE, PREVIOUS, *(F.col(quoted_column(name)) for name in sides)]
    gaps = beside.select(*names)
    if expected is not None:
        first_row = F.min_by(boundary, F.struct(EFFECT, LATE))
        begun = rows.groupBy(*keys).agg(first_row.alias(UNTIL), F.min(in_time).alias(_CLOSE))
        ahead = expected.join(begun, list(settings.keys), "left").select(
            *keys, F.lit(settings.first_point).cast("bigint").alias(FROM),
            F.coalesce(UNTIL, F.lit(settings.end_point)).cast("bigint").alias(UNTIL),
            F.lit(settings.first_point).cast("bigint").alias(START),
            F.coalesce(_CLOSE, F.lit(settings.end_point)).cast("bigint").alias(_CLOSE), nothing.alias(PREVIOUS),
            *(empty[name].alias(name) for name in sides),
        )  # fmt: skip
        gaps = gaps.unionByName(ahead)
    behind = {name: side for name, side in empty.items() if name not in sides}
    return _limited(gaps, settings, points).withColumns({OPEN: F.lit(True), NEXT: nothing, **behind})


def _beside_gaps(rows: DataFrame, settings: FillRules) -> DataFrame:
    """Returns the rows behind which points lack one, with what is known of their key there: a row before, and behind.

    Of the rows so far it is the latest one, `PREVIOUS`, the latest with a usable value of each column that chooses, the
    first point of all (`_BEGIN`) and the one behind the last that had its row (`START`); of rows to come where the next
    one has its effect, `UNTIL`, and the point of the next that comes in time, `_CLOSE`.
    """
    from pyspark.sql import functions as F

    order, unknown, best = [EFFECT, LATE, _BEST], F.lit(None).cast("bigint"), F.col(_BEST)
    latest = {PREVIOUS: (ROW, best)}
    for name in settings.choosing:
        found = quoted_column(usable(name))
        latest[previous_side(name)] = found, F.when(F.col(found).isNotNull(), best)
    rows = rows.withColumns({
        START: F.col(_IN_TIME) + 1, _BEGIN: F.col(EFFECT), UNTIL: unknown, _CLOSE: unknown,
        **{name: F.col(row) for name, (row, _) in latest.items()},
        **{_best_of(name): at for name, (_, at) in latest.items()},
    })  # fmt: skip

    def step(rows: DataFrame, by: list[str], order: list[str]) -> DataFrame:
        over = in_order(by, order)
        past = over.rowsBetween(FIRST, 0)
        so_far = {START: F.max(START), _BEGIN: F.min(_BEGIN)}
        for name in latest:
            at = quoted_column(_best_of(name))
            so_far |= {name: F.max_by(quoted_column(name), at), _best_of(name): F.max(at)}
        return rows.withColumns({
            **{name: found.over(past) for name, found in so_far.items()},
            UNTIL: F.coalesce(UNTIL, F.lead(_BOUNDARY).over(over)),
            # Rows in time are in order of their points, so the next one has the smallest.
            _CLOSE: F.coalesce(_CLOSE, next_known(f"coalesce({_IN_TIME}, {_CLOSE})", by, order)),
        })  # fmt: skip

    lacks = F.col(EFFECT) < F.coalesce(UNTIL, F.lit(settings.end_point))
    return in_blocks(rows, step, lacks, [*settings.keys], order)


def _best_of(name: str) -> str:
    return f"_rw_best_of_{name}"


def _limited(gaps: DataFrame, settings: FillRules, points: tuple[int, int]) -> DataFrame:
    """Returns what is filled row by row, and of each silence that has closed the rest, with `REST` and `DUE` (G33)."""
    from pyspark.sql import functions as F

    limit, close, none = F.col(START) + settings.max_rows, F.col(_CLOSE), F.lit(None).cast("bigint")
    last = F.least(UNTIL, limit, F.lit(min(points[1], settings.end_point)))
    first = F.greatest(FROM, F.lit(max(points[0], settings.first_point)))
    each = gaps.withColumns({FROM: first, UNTIL: last, REST: none, DUE: none}).where(F.col(FROM) < F.col(UNTIL))
    begin = F.greatest(limit, F.lit(settings.first_point))
    known = F.least(close, F.lit(settings.end_point - 1))
    is_known = (begin >= F.col(FROM)) & (begin < F.least(UNTIL, close)) & known.between(points[0], points[1] - 1)
    rest = gaps.where(is_known).withColumns({FROM: begin, REST: close - begin, DUE: known})
    return each.unionByName(rest).drop(_CLOSE)


def causal_state(rows: DataFrame, settings: FillRules, end: int) -> DataFrame:
    """Returns the rows of which later points need something: a few of each key, and what runs ahead.

    Args:
        rows: as from `timed_rows`, the state's too.
        settings: keys, grid, methods.
        end: the first point that is still to be filled.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [F.col(quoted_column(key)) for key in settings.keys]
    rows = with_usable(rows, settings)
    rows = rows.withColumns({_BEST: F.struct(TS, row_hash(rows)), _DONE: F.col(EFFECT) <= end})
    past = Window.partitionBy(*keys, _DONE)
    best = F.col(_BEST)
    kept = ~F.col(_DONE) | (F.max(best).over(past) == best)
    for name in settings.choosing:
        found = F.col(quoted_column(usable(name))).isNotNull()
        kept = kept | (found & (F.max(F.when(found, best)).over(past) == best))
    # A gap begins behind the last point that had its row, or where the key began.
    present = F.when(~F.col(LATE), F.struct(F.col(POINT), best.alias(_BEST)))
    kept = kept | F.coalesce(F.max(present).over(past) == present, F.lit(False))
    start = F.struct(F.col(EFFECT), best.alias(_BEST))
    kept = kept | (F.max(present).over(past).isNull() & (F.min(start).over(past) == start))
    # The row for the rest of a silence has the sources that its first point had (G33).
    on_time = F.max(F.when(~F.col(LATE), F.col(POINT) + 1)).over(past)
    begins = [F.min(EFFECT).over(past), *([F.lit(settings.first_point)] if settings.expected_keys else [])]
    for begin in begins:
        limit = F.greatest(F.coalesce(on_time, begin) + settings.max_rows, F.lit(settings.first_point))
        then = F.col(EFFECT) <= limit
        for found in (F.lit(True), *(F.col(quoted_column(usable(name))).isNotNull() for name in settings.choosing)):
            kept = kept | F.coalesce(F.max(F.when(then & found, best)).over(past) == best, F.lit(False))
        if settings.periods_us:
            points = settings.grid.points_in(settings.periods_us[-1])
            is_first = F.min(best).over(Window.partitionBy(*keys, POINT, LATE)) == best
            kept = kept | (is_first & ~F.col(LATE) & (F.col(POINT) >= F.least(limit, F.lit(end)) - points - 1))
    return rows.withColumn(_KEPT, kept).where(_KEPT)
