"""The clock of the Heartbeat, computed with set operations: finds the tuples that move the clock
and the timers that each of them causes.

Section 4 of docs/rules/heartbeat.md has the formulas.

With keys, each clock is sorted in one partition. A single clock would put the whole stream into one
partition, so each window is sorted separately instead. A carry row (the largest timestamp and
arrival of all earlier windows) is added before the first tuple of a window. Of its clock tuples,
only the first, the last and those that raise the timer index are kept, and these few rows are
sorted together. This reads the stream a second time, for the carry rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.application.error_tuples import DETAIL, POSITION, REASON
from rewindow.names import quoted_column
from rewindow.operators.columns import AT, TS, WINDOW, floor_div, to_us
from rewindow.operators.heartbeat.aggregates import fold_indices, recorded_us
from rewindow.operators.heartbeat.settings import HeartbeatProperties
from rewindow.sequences import excluding
from rewindow.spark.columns import bigint, maxima, named_columns, or_false, renamed_columns
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

    from rewindow.windows import Grid

IS_TUPLE = "_is_tuple"
"""1 for a tuple, 0 for a row with values of earlier tuples. Such a carry row sorts before all
tuples of its partition.
"""
END = "_end_us"
IS_LAST = "_is_last"
NEXT = "_next_us"
PREV_AT = "_prev_arrived_us"
PREV_TS = "_prev_event_us"
"""Arrival of the next clock tuple; arrival and timestamp of the previous one."""
SEEN = "_seen_index"
CROSSED = "_crossed_index"
LAST = "_last_index"
BASE = "_silence_index"
"""Timer indices of a clock tuple: before it, m(j); of its timestamp, c(j); after its silence,
m(j+1); at the start of its silence.

Rules: H48
"""
SLACK = "_slack_us"
"""Slack of the silence after a clock tuple."""
STATE = {
    "clock_arrived_us": AT,
    "clock_event_us": TS,
    "timer_index": SEEN,
    "silence_index": BASE,
    "silence_slack_us": SLACK,
}
"""State columns in addition to the key columns, mapped to their names in this module.

Rules: H55
"""


def clock_tuples(
    rows: DataFrame,
    settings: HeartbeatProperties,
    state: DataFrame | None,
    last_us: int | None,
) -> DataFrame:
    """Returns the clock tuples that can cause timers, with their indices, and the row carried from
    earlier groups for each clock.

    Args:
        rows: the tuples as returned by `to_clock_rows`.
        settings: the Heartbeat's settings.
        state: the carried state, None at the start.
        last_us: the last instant at which a timer may be emitted, None for the last arrival.
    """
    # With keys each clock is sorted whole, in one partition. The only clock of a stream without
    # keys is sorted window by window instead. The second sort, over all windows, receives only the
    # tuples that can cause timers, which are few.
    end = F.lit(last_us)
    carried = None if state is None else _state_rows(state, settings)
    if settings.key_by or not blocks(rows) or settings.slack_varies:
        clock = _select_clock(
            _append(rows, carried),
            settings,
            ordered(rows, settings),
            last_us=last_us,
        )
    else:
        whole = _add_carry(rows, carried)
        clock = _select_clock(
            whole, settings, ordered(rows, settings, WINDOW), last_us=last_us
        ).where(F.col(IS_TUPLE) == 1)
        clock = _append(_thin(clock, settings), carried)
    if last_us is None:
        clock = clock.crossJoin(F.broadcast(rows.agg(F.max(AT).alias(END))))
        end = F.col(END)
    return _index(clock, settings, end)


def to_clock_rows(
    frame: DataFrame,
    settings: HeartbeatProperties,
    grid: Grid | None,
) -> DataFrame:
    """Returns the columns that the clock needs: keys, order, arrival and timestamp."""
    columns = dict.fromkeys([*settings.key_by, *blocks(frame), *settings.order_by])
    return frame.select(
        *named_columns(columns),
        *times(frame, settings, grid),
        F.lit(1).alias(IS_TUPLE),
    )


def times(
    frame: DataFrame,
    settings: HeartbeatProperties,
    grid: Grid | None,
) -> list[Column]:
    """Returns the arrival and timestamp of the tuples in microseconds."""
    return [arrived_us(frame, settings, grid).alias(AT), to_us(frame, settings.event_at).alias(TS)]


def arrived_us(
    frame: DataFrame,
    settings: HeartbeatProperties,
    grid: Grid | None,
) -> Column:
    """Returns the arrivals of the tuples, or their running maximum if `clamp` is set.

    With `clamp`, an arrival before the start of its window is moved to the start. So a result does
    not depend on tuples of other windows or on the division into commit groups.

    Rules: H45
    """
    at_us = to_us(frame, settings.arrived_at)
    if settings.arrival_regression == "reject":
        return at_us
    least = (
        at_us if grid is None else F.greatest(at_us, F.col(WINDOW) * grid.width_us + grid.origin_us)
    )
    highest = F.max(least).over(ordered(frame, settings).rowsBetween(Window.unboundedPreceding, 0))
    return F.when(at_us.isNotNull(), highest)


def clamped_tuples(
    frame: DataFrame,
    settings: HeartbeatProperties,
    grid: Grid | None,
) -> DataFrame:
    """Returns the tuples whose arrival `clamp` has moved, as error tuples.

    Rules: H45
    """
    at_us = to_us(frame, settings.arrived_at)
    clamped = frame.withColumn("_rw_clamped", arrived_us(frame, settings, grid)).where(
        at_us < F.col("_rw_clamped")
    )
    words = (
        "arrival is %d us before that of an earlier tuple, or before the window; it was replaced "
        "by that time"
    )
    detail = F.format_string(words, F.col("_rw_clamped") - at_us)
    return as_errors(clamped, settings, "clock_back", detail).drop("_rw_clamped")


def as_errors(
    frame: DataFrame,
    settings: HeartbeatProperties,
    reason: str,
    detail: Column,
) -> DataFrame:
    """Adds the columns of error tuples: the position (the columns of `order_by`), the reason and
    the detail.

    Rules: X14
    """
    order = named_columns(settings.order_by)
    position = order[0].cast("string") if len(order) == 1 else F.to_json(F.struct(*order))
    return frame.withColumns({POSITION: position, REASON: F.lit(reason), DETAIL: detail})


def blocks(frame: DataFrame) -> list[str]:
    """Returns a list with the window column. It is empty for a frame without windows."""
    return [WINDOW] if WINDOW in frame.columns else []


def ordered(frame: DataFrame, settings: HeartbeatProperties, *apart: str) -> WindowSpec:
    """Returns the recording order of each clock, also partitioned by the columns `apart`.

    Tuples with equal order columns are sorted by arrival, then by timestamp. Without that, their
    order could differ from run to run.

    Rules: H53
    """
    order = []
    for name in excluding(order_columns(frame, settings), apart):
        if name in frame.columns:
            order.append(F.asc_nulls_first(quoted_column(name)))
    return Window.partitionBy(*named_columns((*settings.key_by, *apart))).orderBy(*order)


def order_columns(frame: DataFrame, settings: HeartbeatProperties) -> list[str]:
    """Returns the columns that order the tuples of a clock."""
    times = [settings.arrived_at, settings.event_at] if settings.arrived_at in frame.columns else []
    return list(dict.fromkeys([*blocks(frame), IS_TUPLE, *settings.order_by, AT, TS, *times]))


def _append(rows: DataFrame, more: DataFrame | None) -> DataFrame:
    return rows if more is None else rows.unionByName(more, allowMissingColumns=True)


def _state_rows(state: DataFrame, settings: HeartbeatProperties) -> DataFrame:
    named = renamed_columns(STATE)
    return state.select(*named_columns(settings.key_by), *named, F.lit(0).alias(IS_TUPLE))


def _add_carry(rows: DataFrame, carried: DataFrame | None) -> DataFrame:
    """Adds a first row to each window, with the largest arrival and timestamp of all earlier
    windows.
    """
    totals = rows.groupBy(WINDOW).agg(F.max(AT).alias(AT), F.max(TS).alias(TS))
    totals = _append(totals, None if carried is None else carried.select(AT, TS))
    before = Window.orderBy(F.asc_nulls_first(WINDOW)).rowsBetween(Window.unboundedPreceding, -1)
    highest = maxima((AT, TS), before)
    carry = totals.select(WINDOW, *highest, F.lit(0).alias(IS_TUPLE)).where(
        F.col(WINDOW).isNotNull()
    )
    return rows.unionByName(carry, allowMissingColumns=True)


def _select_clock(
    rows: DataFrame,
    settings: HeartbeatProperties,
    order: WindowSpec,
    last_us: int | None,
) -> DataFrame:
    """Returns the tuples that move the clock, and the carry rows.

    The query fails with an error that names the tuple if the machine clock steps back or an arrival
    is after the end.

    Rules: H3, H13, H45, H47
    """
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    place_columns = dict.fromkeys([*settings.key_by, *blocks(rows), *settings.order_by])
    place = F.to_json(F.struct(*named_columns(place_columns)))
    past = F.lit(False) if last_us is None else F.col(AT) > last_us
    wrong = (
        F.when(F.col(AT).isNull(), F.lit("is null"))
        .when(
            F.col(AT) < F.col(PREV_AT),
            F.format_string("%d us is before that of the previous tuple, %d us", AT, PREV_AT),
        )
        .when(past, F.format_string(f"%d us is after the end of the range, {last_us} us", AT))
    )
    failed = F.raise_error(
        F.concat(F.lit("heartbeat: arrival of tuple "), place, F.lit(" "), wrong)
    ).cast("bigint")
    is_carried = F.col(IS_TUPLE) == 0
    is_wrong = ~is_carried & (F.col(AT).isNull() | past | or_false(F.col(AT) < F.col(PREV_AT)))
    moves = F.col(TS) >= F.coalesce(F.col(PREV_TS), F.col(TS))
    rows = rows.select(
        "*",
        F.max(TS).over(before).alias(PREV_TS),
        F.max(AT).over(before).alias(PREV_AT),
    )
    rows = rows.where(is_carried | moves | is_wrong)
    return rows.withColumn(AT, F.when(is_wrong, failed).otherwise(F.col(AT))).drop(PREV_AT)


def _thin(clock: DataFrame, settings: HeartbeatProperties) -> DataFrame:
    """Returns the clock tuples of each window that can cause a timer, with their neighbours in the
    window.

    A tuple between the first and the last of its window can cause a timer only if it raises the
    index above that of all earlier tuples.
    """
    order = ordered(clock, settings, WINDOW)
    clock = clock.select(
        "*",
        F.lead(AT).over(order).alias(NEXT),
        F.lag(AT).over(order).alias(PREV_AT),
    )
    clock = clock.withColumn(
        LAST,
        F.greatest(_own_index(settings), _reached(settings, _bound(F.col(NEXT), settings))),
    )
    clock = clock.withColumn(
        SEEN,
        F.max(LAST).over(order.rowsBetween(Window.unboundedPreceding, -1)),
    )
    at_border = F.col(PREV_AT).isNull() | F.col(NEXT).isNull()
    return clock.where(at_border | (F.col(LAST) > F.col(SEEN))).drop(LAST, SEEN)


def _index(clock: DataFrame, settings: HeartbeatProperties, end: Column) -> DataFrame:
    """Adds the timer indices in the order of each clock. If the slack does not vary, the index is a
    running maximum.

    Rules: H48
    """
    # One pass over each clock computes all indices. The indices of a carried row are read from the
    # state; those of a tuple follow from its timestamp and from the previous tuple.
    known = dict(zip(clock.columns, named_columns(clock.columns), strict=True))
    unknown = bigint(None)
    order = ordered(clock, settings)
    after = F.lead(AT).over(order)
    carried = F.col(IS_TUPLE) == 0
    own = _own_index(settings)
    columns = {
        NEXT: F.coalesce(_bound(F.coalesce(known.get(NEXT, unknown), after), settings), end),
        IS_LAST: after.isNull(),
        CROSSED: F.when(carried, known.get(SEEN, unknown)).otherwise(own),
        "_first_index": own
        if settings.first_on_multiple == "none"
        else floor_div(F.col(TS) - 1, settings.interval_us),
        SEEN: known.get(SEEN, unknown),
        BASE: known.get(BASE, unknown),
        SLACK: bigint(settings.slack_us)
        if not settings.slack_varies
        else known.get(SLACK, unknown),
    }
    if settings.early_crossing == "data_first" or settings.slack_varies:
        columns[PREV_AT] = F.coalesce(known.get(PREV_AT, unknown), F.lag(AT).over(order))
    clock = clock.withColumns(columns)
    if settings.slack_varies:
        return fold_indices(
            clock,
            settings,
            [*blocks(clock), IS_TUPLE, *settings.order_by, AT, TS],
        )
    clock = clock.withColumn(LAST, F.greatest(F.col(CROSSED), _reached(settings, F.col(NEXT))))
    before = F.max(LAST).over(order.rowsBetween(Window.unboundedPreceding, -1))
    seen = F.when(F.col(PREV_TS).isNull(), F.greatest(before, "_first_index")).otherwise(before)
    clock = clock.withColumn(SEEN, F.when(carried, F.col(SEEN)).otherwise(seen))
    base = F.when(carried, F.col(BASE)).otherwise(F.greatest(SEEN, CROSSED))
    return clock.withColumns({BASE: base, LAST: F.greatest(SEEN, LAST)})


def _own_index(settings: HeartbeatProperties) -> Column:
    """Returns c(j), the index of the last multiple of the interval at or below a tuple's timestamp.

    Rules: H48
    """
    return floor_div(F.col(TS), settings.interval_us)


def _bound(arrival: Column, settings: HeartbeatProperties) -> Column:
    """Returns the last instant at which a timer is emitted before a tuple with this arrival.

    Rules: H11, H38
    """
    return arrival if settings.tie == "timer_first" else arrival - 1


def _reached(settings: HeartbeatProperties, bound: Column) -> Column:
    """Returns q(j), the index of the last timer that is due in the silence from a tuple to `bound`.

    Rules: H48, H51
    """
    silence_us = recorded_us(bound - F.col(AT), settings)
    return floor_div(F.col(TS) - settings.slack_us + silence_us, settings.interval_us)


def emitted_us(settings: HeartbeatProperties, index: Column) -> Column:
    """Returns the instant at which a timeout timer is emitted. If the speed leads to a fraction, it
    is rounded up to a whole microsecond.

    Rules: H50
    """
    speed, per = settings.speed_ratio
    wait = (index * settings.interval_us - F.col(TS) + F.col(SLACK)) * per
    return F.col(AT) + wait if speed == 1 else F.col(AT) - floor_div(-wait, speed)
