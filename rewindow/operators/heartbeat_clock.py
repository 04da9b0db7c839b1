"""The clock of the Heartbeat in its set-based form (rules/heartbeat.md section 4): which tuples move it, which timers each brings.

One clock would ask for one sorted partition of the whole stream. Instead each window is sorted by itself; it begins with
a carry row (the largest timestamp and arrival of all windows before), and of its clock tuples only the first, the last
and those that raise the timer index go on. Only these few are put in one order per clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.operators.heartbeat_settings import HeartbeatProperties

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

WINDOW = "window_id"
AT, TS = "_arrived_us", "_event_us"
"""Arrival and timestamp of a tuple: a(j) and t(j) of H48."""
IS_TUPLE = "_is_tuple"
"""1 for a tuple, 0 for a row that carries what came before; a carry row precedes all tuples of its partition."""
FIRST = -(1 << 63)
"""Bound of a Spark window that begins with the first row of its partition."""
END, IS_LAST = "_end_us", "_is_last"
NEXT, PREV_AT, PREV_TS = "_next_us", "_prev_arrived_us", "_prev_event_us"
SEEN, CROSSED, LAST, BASE = "_seen_index", "_crossed_index", "_last_index", "_silence_index"
"""Timer index before a clock tuple, m(j); of its own timestamp, c(j); after its silence, m(j+1); when its silence began."""
STATE = {"clock_arrived_us": AT, "clock_event_us": TS, "timer_index": SEEN, "silence_index": BASE}
"""Columns of the carried state beside the key columns (H55), and what they are called here."""


def floor_div(value: Column, divisor: int) -> Column:
    """Returns the floor of a BIGINT division, also below zero (H54)."""
    from pyspark.sql import functions as F

    return F.call_function("div", value - F.pmod(value, F.lit(divisor)), F.lit(divisor))


def clock_tuples(
    rows: DataFrame, settings: HeartbeatProperties, state: DataFrame | None, last_us: int | None
) -> DataFrame:
    """Returns the clock tuples that can bring timers, with their indices, and the carried row of each clock.

    Args:
        rows: the tuples as from `to_clock_rows`.
        settings: the Heartbeat's settings.
        state: the carried state, None at the start.
        last_us: the last instant at which a timer may be emitted, None for the last arrival.
    """
    from pyspark.sql import functions as F

    carried = None if state is None else _state_rows(state, settings)
    clock = _local(_select_clock(_add_carry(rows, settings, carried), settings, last_us), settings)
    if carried is not None:
        clock = clock.unionByName(carried, allowMissingColumns=True)
    if last_us is None:
        clock = clock.crossJoin(F.broadcast(rows.agg(F.max(AT).alias(END))))
    else:
        clock = clock.withColumn(END, F.lit(last_us))
    return _index(clock, settings)


def to_clock_rows(frame: DataFrame, settings: HeartbeatProperties) -> DataFrame:
    """Returns the columns that the clock needs: keys, order, arrival and timestamp."""
    from pyspark.sql import functions as F

    columns = dict.fromkeys([*settings.key_by, *blocks(frame), *settings.order_by])
    rows = frame.select(
        *columns,
        to_us(frame, settings.arrived_at).alias(AT),
        to_us(frame, settings.event_at).alias(TS),
        F.lit(1).alias(IS_TUPLE),
    )
    if settings.arrival_regression == "clamp":
        rows = rows.withColumn(AT, F.max(AT).over(ordered(rows, settings).rowsBetween(FIRST, 0)))
    return rows


def to_us(frame: DataFrame, name: str) -> Column:
    """Returns a TIMESTAMP column in microseconds since the epoch; a BIGINT is taken as microseconds."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegralType

    column = F.col(name)
    is_count = isinstance(frame.schema[name].dataType, IntegralType)
    return column.cast("bigint") if is_count else F.unix_micros(column.cast("timestamp"))


def blocks(frame: DataFrame) -> list[str]:
    """Returns the column of the windows that can be sorted apart, none where the frame has no windows."""
    return [WINDOW] if WINDOW in frame.columns else []


def ordered(frame: DataFrame, settings: HeartbeatProperties, *apart: str) -> WindowSpec:
    """Returns the recording order of each clock (H53), or within each value of the columns `apart`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    names = dict.fromkeys([*blocks(frame), IS_TUPLE, *settings.order_by])
    order = [name for name in names if name in frame.columns and name not in apart]
    return Window.partitionBy(*settings.key_by, *apart).orderBy(*(F.asc_nulls_first(name) for name in order))


def _state_rows(state: DataFrame, settings: HeartbeatProperties) -> DataFrame:
    from pyspark.sql import functions as F

    named = [F.col(name).alias(inner) for name, inner in STATE.items()]
    return state.select(*settings.key_by, *named, F.lit(0).alias(IS_TUPLE))


def _add_carry(frame: DataFrame, settings: HeartbeatProperties, carried: DataFrame | None) -> DataFrame:
    """Adds to each window a first row with the largest arrival and timestamp before it; without windows, to the frame."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = list(settings.key_by)
    if not blocks(frame):
        return frame if carried is None else frame.unionByName(carried.drop(SEEN, BASE), allowMissingColumns=True)
    totals = frame.groupBy(*keys, WINDOW).agg(F.max(AT).alias(AT), F.max(TS).alias(TS))
    if carried is not None:
        totals = totals.unionByName(carried.select(*keys, AT, TS), allowMissingColumns=True)
    before = Window.partitionBy(*keys).orderBy(F.asc_nulls_first(WINDOW)).rowsBetween(FIRST, -1)
    carry = totals.select(
        *keys, WINDOW, F.max(AT).over(before).alias(AT), F.max(TS).over(before).alias(TS), F.lit(0).alias(IS_TUPLE)
    )
    return frame.unionByName(carry.filter(F.col(WINDOW).isNotNull()), allowMissingColumns=True)


def _select_clock(rows: DataFrame, settings: HeartbeatProperties, last_us: int | None) -> DataFrame:
    """Returns the tuples that move the clock (H3, H47); fails where the machine clock steps back (H45) or past the end."""
    from pyspark.sql import functions as F

    before = ordered(rows, settings, *blocks(rows)).rowsBetween(FIRST, -1)
    rows = rows.select("*", F.max(TS).over(before).alias(PREV_TS), F.max(AT).over(before).alias(PREV_AT))
    moves = F.col(TS).isNotNull() & (F.col(PREV_TS).isNull() | (F.col(TS) >= F.col(PREV_TS)))
    past = F.lit(False) if last_us is None else F.col(AT) > last_us
    place = F.to_json(F.struct(*dict.fromkeys([*settings.key_by, *blocks(rows), *settings.order_by])))
    wrong = (
        F.when(F.col(AT).isNull(), F.lit("is null (H45)"))
        .when(F.col(AT) < F.col(PREV_AT), F.format_string("%d us goes back from %d us (H45)", AT, PREV_AT))
        .when(past, F.format_string(f"%d us is after the end, {last_us} us (H13)", AT))
    )
    kept = rows.filter((F.col(IS_TUPLE) == 1) & (moves | wrong.isNotNull()))
    failed = F.raise_error(F.concat(F.lit("heartbeat: arrival of tuple "), place, F.lit(" "), wrong)).cast("bigint")
    return kept.withColumn(AT, F.when(wrong.isNotNull(), failed).otherwise(F.col(AT)))


def _local(clock: DataFrame, settings: HeartbeatProperties) -> DataFrame:
    """Adds neighbours within the window and leaves out tuples that cannot bring a timer.

    A tuple between the first and the last of its window brings one only if it raises the index above that of the
    tuples before it.
    """
    from pyspark.sql import functions as F

    apart = ordered(clock, settings, *blocks(clock))
    clock = clock.select(
        "*",
        F.lead(AT).over(apart).alias(NEXT),
        F.lag(AT).over(apart).alias(PREV_AT + "_"),
        F.lag(TS).over(apart).alias(PREV_TS + "_"),
    ).drop(PREV_AT, PREV_TS)
    clock = clock.withColumnsRenamed({PREV_AT + "_": PREV_AT, PREV_TS + "_": PREV_TS})
    raised = F.greatest(own_index(settings), _reached(settings, _bound(F.col(NEXT), settings)))
    clock = clock.select("*", raised.alias(LAST))
    clock = clock.withColumn(SEEN, F.max(LAST).over(apart.rowsBetween(FIRST, -1)))
    at_border = F.col(PREV_AT).isNull() | F.col(NEXT).isNull()
    return clock.filter(at_border | (F.col(LAST) > F.col(SEEN))).drop(LAST, SEEN)


def _index(clock: DataFrame, settings: HeartbeatProperties) -> DataFrame:
    """Adds the indices of H48 in the order of each clock; m is a running maximum."""
    from pyspark.sql import functions as F

    clock = clock.select("*", *(F.lit(None).cast("bigint").alias(name) for name in (SEEN, BASE) if name not in clock.columns))
    whole = ordered(clock, settings)
    after, at_before, ts_before = F.lead(AT).over(whole), F.lag(AT).over(whole), F.lag(TS).over(whole)
    clock = clock.withColumns(
        {
            NEXT: F.coalesce(_bound(F.coalesce(F.col(NEXT), after), settings), F.col(END)),
            PREV_AT: F.coalesce(F.col(PREV_AT), at_before),
            PREV_TS: F.coalesce(F.col(PREV_TS), ts_before),
            IS_LAST: after.isNull(),
        }
    )
    carried = F.col(IS_TUPLE) == 0
    clock = clock.withColumn(CROSSED, F.when(carried, F.col(SEEN)).otherwise(own_index(settings)))
    clock = clock.withColumn(LAST, F.greatest(F.col(CROSSED), _reached(settings, F.col(NEXT))))
    before = F.max(LAST).over(whole.rowsBetween(FIRST, -1))
    first = F.col(CROSSED) if settings.first_on_multiple == "none" else floor_div(F.col(TS) - 1, settings.interval_us)
    seen = F.when(F.col(PREV_TS).isNull(), F.greatest(before, first)).otherwise(before)
    clock = clock.withColumn(SEEN, F.when(carried, F.col(SEEN)).otherwise(seen))
    base = F.when(carried, F.col(BASE)).otherwise(F.greatest(SEEN, CROSSED))
    return clock.withColumns({BASE: base, LAST: F.greatest(SEEN, LAST)})


def own_index(settings: HeartbeatProperties) -> Column:
    """Returns c(j) of H48: the last multiple at or below a tuple's timestamp."""
    from pyspark.sql import functions as F

    return floor_div(F.col(TS), settings.interval_us)


def _bound(arrival: Column, settings: HeartbeatProperties) -> Column:
    """Returns the last instant at which a timer goes before a tuple of this arrival (H11, H38)."""
    return arrival if settings.tie == "timer_first" else arrival - 1


def _reached(settings: HeartbeatProperties, bound: Column) -> Column:
    """Returns q(j) of H48: the last timer that the silence from a tuple up to `bound` brings (H51)."""
    from pyspark.sql import functions as F

    speed, per = settings.speed_ratio
    elapsed = (F.col(TS) - settings.slack_us) * per + (bound - F.col(AT)) * speed
    return floor_div(elapsed, settings.interval_us * per)


def emitted_us(settings: HeartbeatProperties, index: Column) -> Column:
    """Returns when a timeout timer is emitted (H50); where the speed leaves a fraction, the microsecond after."""
    from pyspark.sql import functions as F

    speed, per = settings.speed_ratio
    wait = (index * settings.interval_us - F.col(TS) + settings.slack_us) * per
    return F.col(AT) - floor_div(-wait, speed)
