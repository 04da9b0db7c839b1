"""Heartbeat: adds tuples with only a timestamp where a stream is silent.

Timers are at the multiples of the interval, not an interval after the last tuple. A key whose last
tuple arrived just before a multiple gets the timer of that multiple, although it has hardly been
silent. With an interval of 10 s::

    event time   0         10        20        30        40
                 |---------|---------|---------|---------|-->
    tuples           o 4                   o 26
    timers                 T 10      T 20      T 30      T 40
                                               |
                                               4 s after the tuple of 26

So with an interval of 90 days a key that sent a tuple 7 hours ago gets a timer when a multiple of
90 days is within these hours. The multiples are the same for every key and stream, so their timers
have the same timestamps and can be joined. For silences counted from the last tuple use `rewindow
gaps`, or an interval that is short compared with the silences that you want to find.

Rules: H1 to H14
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.names import quoted_column
from rewindow.operators.columns import AT, TS, WINDOW, floor_div, to_us
from rewindow.operators.heartbeat import clock
from rewindow.operators.heartbeat.aggregates import recorded_us
from rewindow.operators.heartbeat.clock import BASE, CROSSED, LAST, PREV_AT, PREV_TS, SEEN
from rewindow.operators.heartbeat.jumps import split_jumps
from rewindow.operators.heartbeat.settings import HeartbeatProperties, HeartbeatSettings
from rewindow.sequences import excluding, matching_names
from rewindow.spark.columns import (
    aliased,
    bigint,
    maxima,
    named_columns,
    null_of,
    or_false,
    renamed_columns,
)
from rewindow.spark.functions import F
from rewindow.windows import format_duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from rewindow.windows import Grid

__all__ = [
    "ADDED",
    "CAUSE",
    "EMISSION",
    "IS_TIMER",
    "STATE_FIELDS",
    "TIMER_COUNT",
    "HeartbeatResult",
    "HeartbeatSettings",
    "heartbeat",
    "without_clock",
]

IS_TIMER = "_rw_is_timer"
CAUSE = "_rw_cause"
TIMER_COUNT = "_rw_timer_count"
EMISSION = "_rw_emission"
ADDED = (
    IS_TIMER,
    CAUSE,
    TIMER_COUNT,
    EMISSION,
)
"""Columns that a heartbeat adds to those of its stream.

Rules: H19, X22
"""
STATE_FIELDS = list(dict.fromkeys(clock.STATE, pa.int64()).items())
"""Fields of the carried state in addition to the key columns, for an operator's state schema.

Rules: H55
"""
_LAST_TIMER = "timer_index"
_TOO_MANY = (
    "Set max_jump in the settings of the stream or of the Heartbeat, so that tuples whose "
    "timestamp is ahead by more are quarantined; or filter the tuple out with keep."
)


@dataclass(frozen=True)
class HeartbeatResult:
    """The result of `heartbeat` for a frame.

    Attributes:
        tuples: the frame's columns, then `_rw_is_timer BOOLEAN`, `_rw_cause STRING` (crossing or
            timeout, null for data), `_rw_timer_count BIGINT` (number of timers that the row
            represents: 1, or the number in a summary row, where null means all further ones of a
            silence; null for data) and `_rw_emission STRUCT`, which sorts tuples in the order of
            emission. A timer's arrival is the instant of its emission, and its window is the one
            that contains this instant.
        errors: the frame's columns, `_rw_position`, `_rw_reason` and `_rw_detail` of tuples that
            were quarantined because of `max_jump` (reason `jump`) or whose arrival was clamped
            (`clock_back`; these are in `tuples` too).
        state: key columns and `STATE_FIELDS`: arrival and timestamp of the last clock tuple, index
            of the last timer, index at the start of the silence, and the slack of the silence.

    Rules: H45, H52, H55, H56, H61, H62
    """

    tuples: DataFrame
    errors: DataFrame
    state: DataFrame


def heartbeat(
    frame: DataFrame,
    settings: HeartbeatProperties,
    *,
    state: DataFrame | None = None,
    end_us: int | None = None,
    end_included: bool = True,
    grid: Grid | None = None,
) -> HeartbeatResult:
    """Adds timer tuples to a stream. They show that time has passed while the stream is silent.

    The call itself runs no query. The query that reads the result fails if the machine clock steps
    back, if the end is before the last arrival, or if there are too many timers. With a column
    `window_id`, the windows are sorted in parallel. Without it, each clock is sorted in one
    partition.

    Args:
        frame: the tuples; `settings` names their columns.
        settings: interval, slack, columns and options.
        state: `state` of the previous result, if the stream is processed in pieces.
        end_us: timers that are due later are not emitted; by default the last arrival.
        end_included: whether a timer due exactly at the end is emitted; must be False at a window's
            border.
        grid: the windows' grid; required if the frame has a `window_id`.

    Raises:
        InputError: a column or the grid is missing, or a column has the name of one that is added.

    Rules: H1 to H14, H44, H45, H56, H57, H62, X23
    """
    _check(frame, settings, grid)
    grid = grid if WINDOW in frame.columns else None
    accepted, errors = split_jumps(frame, settings, state, grid=grid)
    last_us = end_us if end_us is None or end_included else end_us - 1
    rows = clock.to_clock_rows(accepted, settings, grid)
    indexed = clock.clock_tuples(rows, settings, state, last_us=last_us)
    is_time = frame.schema[settings.event_at].dataType.typeName() != "long"
    timers = _timers(accepted, _expand(indexed, settings, is_time=is_time), settings, grid=grid)
    if settings.arrival_regression == "clamp":
        errors = errors.unionByName(clock.clamped_tuples(accepted, settings, grid))
    return HeartbeatResult(
        _data(accepted, settings, grid).unionByName(timers),
        errors,
        _state(indexed, settings),
    )


def without_clock(
    state: DataFrame,
    settings: HeartbeatProperties | None = None,
    emitted: DataFrame | None = None,
) -> DataFrame:
    """Returns the state after skipped windows.

    The clock starts from scratch, and no timer is emitted twice.

    Args:
        state: the state before the skip; may have further columns unless `emitted` is set.
        settings: the settings with which `emitted` was computed.
        emitted: tuples that were emitted since that state, with `_rw_is_timer`.

    Rules: H10, H58
    """
    gone = excluding(clock.STATE, (_LAST_TIMER,))
    bare = state.withColumns(dict.fromkeys(gone, bigint(None)))
    if settings is None or emitted is None:
        return bare
    ts_us = to_us(emitted, settings.event_at)
    is_answer = (ts_us % settings.interval_us == 0) & F.lit(settings.answered_crossing == "drop")
    index = floor_div(ts_us, settings.interval_us).alias(_LAST_TIMER)
    keys = named_columns(settings.key_by)
    timers = emitted.where(F.col(IS_TIMER) | is_answer).select(*keys, index)
    clocks = bare.unionByName(timers, allowMissingColumns=True).groupBy(*keys)
    return clocks.agg(*maxima(clock.STATE)).where(F.col(_LAST_TIMER).isNotNull())


def _check(frame: DataFrame, settings: HeartbeatProperties, grid: Grid | None) -> None:
    named = [settings.event_at, settings.arrived_at, *settings.order_by, *settings.key_by]
    absent = excluding(named, frame.columns)
    if absent:
        raise InputError(
            f"frame has no column {', '.join(absent)}",
            hint=f"Available columns: {', '.join(frame.columns)}.",
        )
    taken = matching_names(frame.columns, ADDED)
    if taken:
        raise InputError(
            f"frame has a column {', '.join(taken)}, which the heartbeat adds",
            hint="Rename the column.",
        )
    if WINDOW in frame.columns and grid is None:
        raise InputError(
            "frame has a column window_id, so `grid` is required",
            hint="Pass grid=Grid(width_ms, origin_ms).",
        )


def _expand(indexed: DataFrame, settings: HeartbeatProperties, *, is_time: bool) -> DataFrame:
    """Returns one row per timer, with the columns of the tuple that causes it.

    The added columns are `_index`, `_is_crossing`, `_count`, `_emitted_us` and `_is_early`.
    """
    start, stop, count = _timer_range(settings, is_time=is_time)
    timers = indexed.filter(F.col(LAST) > F.col(SEEN)).withColumns({"_start": start, "_stop": stop})
    if settings.on_too_many == "summary":
        timers = timers.filter(F.col("_start") <= F.col("_stop"))
    timers = timers.withColumn("_index", F.explode(F.sequence("_start", "_stop")))
    is_crossing = F.col("_index") <= F.col(CROSSED)
    if settings.answered_crossing == "drop":
        is_answered = (
            is_crossing
            & (F.col("_index") * settings.interval_us == F.col(TS))
            & count.eqNullSafe(F.lit(1))
        )
        timers = timers.where(~or_false(is_answered))
    return timers.withColumns(
        {
            "_is_crossing": is_crossing,
            "_count": count,
            "_emitted_us": F.when(is_crossing, F.col(AT)).otherwise(
                clock.emitted_us(settings, F.col("_index"))
            ),
            "_is_early": is_crossing & _is_early(settings),
        }
    )


def _is_early(settings: HeartbeatProperties) -> Column:
    """Returns whether a crossing timer is emitted before its scheduled time, because its tuple
    arrives earlier.

    Rules: H30
    """
    if settings.early_crossing == "timer_first":
        return F.lit(False)
    wait_us = F.col("_index") * settings.interval_us - F.col(PREV_TS)
    return or_false(recorded_us(F.col(AT) - F.col(PREV_AT), settings) < wait_us)


def _instant_text(index: Column, settings: HeartbeatProperties, *, is_time: bool) -> Column:
    """Returns a timer's timestamp as text for a message."""
    stamp_us = index * settings.interval_us
    if is_time:
        return F.date_format(F.timestamp_micros(stamp_us), "yyyy-MM-dd'T'HH:mm:ssXXX")
    return F.concat(stamp_us.cast("string"), F.lit(" us"))


def _timer_range(
    settings: HeartbeatProperties,
    *,
    is_time: bool,
) -> tuple[Column, Column, Column]:
    """Returns the first and last index of the timers that a clock tuple causes, and the number of
    timers that each row represents.

    Both kinds of timers form one range: crossing timers up to the tuple's index, timeout timers
    after it. Beyond `max_timers`, a crossing is reduced to its last timer, and a silence ends with
    the first timer beyond the limit.

    Rules: H49, H50, H62
    """
    # Crossing and timeout timers are one range of indices, because a silence starts where the
    # crossing ends. `max_timers` limits both parts separately: "summary" cuts each of them, and
    # "stop" fails the query.
    seen = F.col(SEEN)
    crossed = F.col(CROSSED)
    last = F.col(LAST)
    base = F.col(BASE)
    most = settings.max_timers
    beyond_crossing = (crossed - seen > most) if settings.crossing == "all" else F.lit(False)
    beyond_silence = last - base > most
    only_last = (
        crossed
        if settings.crossing == "last"
        else F.when(beyond_crossing, crossed).otherwise(seen + 1)
    )
    start = F.when(crossed > seen, only_last).otherwise(seen + 1)
    if settings.on_too_many == "summary":
        stop = F.when(beyond_silence, F.least(last, base + most + 1)).otherwise(last)
        count = (
            F.when((F.col("_index") == crossed) & beyond_crossing, crossed - seen)
            .when(F.col("_index") == base + most + 1, F.lit(None))
            .otherwise(1)
        )
        return start, stop, count.cast("bigint")
    found = F.greatest(crossed - seen if settings.crossing == "all" else F.lit(0), last - base)
    message = F.format_string(
        f"heartbeat: interval {format_duration(settings.interval_us)} would add %,d timers from "
        f"%s to %s, but at most {most:,} are allowed. Hint: {_TOO_MANY}",
        found,
        _instant_text(seen + 1, settings, is_time=is_time),
        _instant_text(last, settings, is_time=is_time),
    )
    too_many = or_false(beyond_crossing | beyond_silence)
    stop = F.when(too_many, F.raise_error(message).cast("bigint")).otherwise(last)
    return start, stop, bigint(1)


def _timers(
    frame: DataFrame,
    timers: DataFrame,
    settings: HeartbeatProperties,
    grid: Grid | None,
) -> DataFrame:
    """Returns timers with the columns of the frame.

    All columns except timestamp, arrival, keys and window are null.

    Rules: H2
    """
    # A timer has the columns of the stream, so that a union can combine both. They are null, except
    # for its times, its window and its clock's keys. The struct `_rw_emission` sorts it among the
    # tuples.
    emitted = F.col("_emitted_us")
    stamp = F.col("_index") * settings.interval_us
    made = {settings.arrived_at: emitted, settings.event_at: stamp}
    made |= dict(zip(settings.key_by, named_columns(settings.key_by), strict=True))
    if grid is not None:
        made[WINDOW] = floor_div(emitted - grid.origin_us, grid.width_us)
    columns = []
    for field in frame.schema:
        value = made.get(field.name, F.lit(None))
        is_time = (
            field.name in (settings.arrived_at, settings.event_at)
            and field.dataType.typeName() != "long"
        )
        columns.append(
            (F.timestamp_micros(value) if is_time else value).cast(field.dataType).alias(field.name)
        )
    cause = F.when(F.col("_is_crossing"), "crossing").otherwise("timeout")
    phase = F.when(F.col("_is_crossing"), 1).otherwise(0 if settings.tie == "timer_first" else 2)
    rank = F.when(F.col("_is_early"), 2).otherwise(0)
    order = []
    for name in settings.order_by:
        has_value = F.col("_is_crossing") | F.lit(name in settings.key_by)
        order.append(F.when(has_value, F.col(quoted_column(name))))
    emission = _emission(emitted, phase, order, rank=rank, index=F.col("_index"))
    return timers.select(
        *columns,
        F.lit(True).alias(IS_TIMER),
        cause.alias(CAUSE),
        F.col("_count").alias(TIMER_COUNT),
        emission,
    )


def _data(
    frame: DataFrame,
    settings: HeartbeatProperties,
    grid: Grid | None,
) -> DataFrame:
    """Marks the tuples as data and returns them unchanged.

    Rules: H1
    """
    order = named_columns(settings.order_by)
    return frame.select(
        "*",
        F.lit(False).alias(IS_TIMER),
        null_of("string").alias(CAUSE),
        bigint(None).alias(TIMER_COUNT),
        _emission(
            clock.arrived_us(frame, settings, grid), F.lit(1), order, rank=F.lit(1), index=F.lit(0)
        ),
    )


def _emission(
    at: Column,
    phase: Column,
    order: list[Column],
    rank: Column,
    index: Column,
) -> Column:
    """Returns the struct that sorts tuples in the order of emission.

    At one instant, timeout timers come first, then data in recording order. Each data tuple follows
    the crossing timers that it causes. With `tie="tuple_first"`, timeout timers are last.

    Rules: H52
    """
    fields = {"at_us": at, "phase": phase.cast("bigint")}
    for place, value in enumerate(order):
        fields[f"order_{place}"] = value
    fields |= {"rank": rank.cast("bigint"), "index": index.cast("bigint")}
    return F.struct(*aliased(fields)).alias(EMISSION)


def _state(indexed: DataFrame, settings: HeartbeatProperties) -> DataFrame:
    """Returns the state after the end, with one row per clock.

    Rules: H55
    """
    columns = {**clock.STATE, _LAST_TIMER: LAST}
    named = renamed_columns(dict(zip(columns.values(), columns, strict=True)))
    return indexed.filter(clock.IS_LAST).select(*named_columns(settings.key_by), *named)
