"""The watermark of one or several streams, computed with set operations.

Ticks are at the multiples of an interval on the arrival clock. At each tick, the watermark rises to
the smallest of the streams' largest timestamps, minus the lag, if that is larger than before. So
only a tick with tuples before it, or at which a stream becomes idle, can raise it, and no other
ticks are computed. The watermark is null before the first tick that sets it, so negative timestamps
need no special case.

The computation has no loop over tuples. One aggregation returns the largest timestamp of each
stream for each tick. If there are many ticks, they are divided into blocks of `BLOCK`. Each block
starts with a row that has the largest values of all earlier blocks, computed from one row per
block, so the running maxima within the blocks are computed in parallel.

Rules: E31, X27
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rewindow.operators.columns import floor_div
from rewindow.operators.event_time.arrival_clock import ArrivalClock
from rewindow.operators.event_time.settings import EventTime, StreamTime
from rewindow.spark.columns import bigint, maxima, named_columns, or_true, union_all
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BLOCK = 4_096
"""Ticks per block."""
ONE_TASK = 64 * BLOCK
"""Up to this number of ticks, three days at one per second, one task sorts all of them. It
finishes before a computation in blocks would have started.
"""
STREAM = "_stream"
TICK = "_tick"
AT = "_arrived_us"
TS = "_event_us"
"""Columns of a tuple: number of its stream, index of the first tick that includes it, arrival,
timestamp.
"""
WATERMARK = "_watermark_us"
BEFORE = "_before_us"
"""Watermark after a tick, and the previous one, which its tuples are compared with; null if none
was set yet.
"""
IS_NEWS = "_is_news"
"""Whether a row is a tick of the present range; false for a row that carries values of earlier
ticks.
"""
STATE = ("stream", "until_us", "ahead_us", "arrived_us", "watermark_us")
"""Columns of the carried state, a row per stream: its name; the end of the processed time; the
largest timestamp of all tuples; the last arrival, or, for a stream without tuples that may become
idle, the first tick; the watermark at the last tick, the same in all rows.

Rules: E41
"""
_BLOCK = "_block"
_CANDIDATE = "_candidate_us"


def tick_of(settings: EventTime, arrived_us: Column, origin_us: int) -> Column:
    """Returns the index of the first tick at or after the arrival of a tuple.

    Rules: E15, E26
    """
    since = arrived_us - origin_us
    if settings.tie == "tick_first":
        return floor_div(since, settings.watermark_interval_us) + 1
    return -floor_div(-since, settings.watermark_interval_us)


def tick_table(
    tuples: DataFrame,
    clock: ArrivalClock,
    *,
    state: DataFrame | None,
    recording_keys: Sequence[str] = (),
) -> DataFrame:
    """Returns the ticks that can raise the watermark.

    Columns: `TICK`, `WATERMARK`, `BEFORE`, `IS_NEWS`, and the largest timestamp and arrival of each
    stream.

    Args:
        tuples: those that move the clock, of all streams: `STREAM`, `TICK`, `AT`, `TS`, and
            `recording_keys`.
        clock: declared streams, lag, interval; the start of the recording, from which the timeout
            of a stream without tuples counts; the origin of the ticks.
        state: state of earlier pieces, as returned by `next_state`.
        recording_keys: columns whose values have separate watermarks.

    Rules: X28, X35
    """
    settings = clock.settings
    origin_us = clock.origin_us
    ticks = _shown(tuples, settings, recording_keys)
    more = (
        [_falling_idle(ticks, settings, origin_us, recording_keys=recording_keys)]
        if settings.may_idle
        else []
    )
    more += _before(
        settings,
        ticks,
        state,
        start_us=clock.start_us,
        origin_us=origin_us,
        recording_keys=recording_keys,
    )
    if more:
        every = union_all([ticks, *more], allow_missing=True)
        ticks = _combine(every, settings, recording_keys)
    if recording_keys or not clock.has_few_ticks(ONE_TASK):
        ticks = ticks.withColumn(_BLOCK, floor_div(F.col(TICK), BLOCK))
    return _watermarks(ticks, settings, origin_us, recording_keys=recording_keys)


def next_state(
    ticks: DataFrame,
    settings: EventTime,
    *,
    end_us: int,
    origin_us: int,
    recording_keys: Sequence[str] = (),
) -> DataFrame:
    """Returns the state at an instant: the watermark of the last tick before it, and the largest
    values of all tuples.

    Rules: E41, E46
    """
    known = F.col(TICK) * settings.watermark_interval_us + origin_us < end_us
    totals = [F.max(F.when(known, F.col(WATERMARK))).alias("watermark_us")]
    for number in range(len(settings.streams)):
        totals.append(F.max(_seen(number)).alias(_seen(number)))
        totals.append(F.max(_arrived(number)).alias(_arrived(number)))
    totals += maxima(map(_waits, _idle_streams(settings)))
    # One aggregation has a column for each stream; the state has a row for each. An array of
    # structs turns the columns into rows without reading the ticks again.
    streams = []
    for number, name in enumerate(settings.streams):
        stream = F.struct(
            F.lit(name).alias("stream"),
            bigint(end_us).alias("until_us"),
            F.col(_seen(number)).alias("ahead_us"),
            _since(settings, number).alias("arrived_us"),
            F.col("watermark_us"),
        )
        streams.append(stream)
    rows = F.inline(F.array(*streams))
    return (
        ticks.groupBy(*named_columns(recording_keys))
        .agg(*totals)
        .select(*named_columns(recording_keys), rows)
    )


def raising(
    ticks: DataFrame,
    settings: EventTime,
    origin_us: int,
    end_us: int | None,
    recording_keys: Sequence[str] = (),
) -> DataFrame:
    """Returns the ticks before the end that raise the watermark.

    Columns: `tick_us`, `watermark_us`, `before_us`.

    Rules: E3
    """
    rises = F.coalesce(
        F.col(WATERMARK) > F.col(BEFORE),
        F.col(WATERMARK).isNotNull() & F.col(BEFORE).isNull(),
    )
    tick_us = (F.col(TICK) * settings.watermark_interval_us + origin_us).alias("tick_us")
    values = [F.col(WATERMARK).alias("watermark_us"), F.col(BEFORE).alias("before_us")]
    raised = ticks.where(F.col(IS_NEWS) & rises).select(
        *named_columns(recording_keys),
        tick_us,
        *values,
    )
    return raised if end_us is None else raised.where(F.col("tick_us") < end_us)


def _seen(number: int) -> str:
    return f"_seen_{number}"


def _arrived(number: int) -> str:
    return f"_arrived_{number}"


def _waits(number: int) -> str:
    """Returns the name of the column with the first tick, from which the timeout of a stream
    without tuples is counted.

    Rules: X28
    """
    return f"_waits_{number}"


def _since(settings: EventTime, number: int) -> Column:
    """Returns the instant since which a stream is silent: its last arrival, or the first tick if it
    has sent no tuple.
    """
    arrived = F.col(_arrived(number))
    return F.coalesce(arrived, _waits(number)) if number in _idle_streams(settings) else arrived


def _running(settings: EventTime) -> list[str]:
    """Returns the columns whose values never decrease from tick to tick."""
    return [
        *_shows(settings, _seen),
        *_shows(settings, _arrived),
        *map(_waits, _idle_streams(settings)),
    ]


def _shows(settings: EventTime, name: Callable[[int], str]) -> list[str]:
    return list(map(name, range(len(settings.streams))))


def _shown(
    tuples: DataFrame,
    settings: EventTime,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the largest timestamp and arrival of each stream at each tick.

    Rules: E1
    """
    shown = []
    for number in range(len(settings.streams)):
        is_own = F.col(STREAM) == number
        shown.append(F.max(F.when(is_own, F.col(TS))).alias(_seen(number)))
        shown.append(F.max(F.when(is_own, F.col(AT))).alias(_arrived(number)))
    ticks = tuples.groupBy(*named_columns(recording_keys), TICK).agg(*shown)
    return ticks.withColumns({IS_NEWS: F.lit(True), WATERMARK: bigint(None)})


def _combine(
    ticks: DataFrame,
    settings: EventTime,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Combines the rows of all streams into one row per tick."""
    shown = maxima((*_running(settings), WATERMARK))
    return ticks.groupBy(*named_columns(recording_keys), TICK).agg(
        *shown, F.bool_or(IS_NEWS).alias(IS_NEWS)
    )


def _falling_idle(
    ticks: DataFrame,
    settings: EventTime,
    origin_us: int,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the ticks at which a stream becomes idle if no further tuple arrives.

    Rules: E47
    """
    falls = []
    for number in _idle_streams(settings):
        falls.append(_idle_tick(settings, number, F.col(_arrived(number)), origin_us=origin_us))
    idle = ticks.select(*named_columns(recording_keys), F.explode(F.array(*falls)).alias(TICK))
    idle = idle.where(F.col(TICK).isNotNull())
    return idle.withColumn(IS_NEWS, F.lit(True))


def _idle_streams(settings: EventTime) -> list[int]:
    numbers = []
    for number, stream in enumerate(settings.streams.values()):
        if stream.idle_timeout_us is not None:
            numbers.append(number)
    return numbers


def _idle_tick(
    settings: EventTime,
    number: int,
    since_us: Column,
    origin_us: int,
) -> Column:
    """Returns the first tick at which a stream's silence since an instant is longer than its
    timeout.
    """
    timeout_us = _stream(settings, number).idle_timeout_us or 0
    return floor_div(since_us + timeout_us - origin_us, settings.watermark_interval_us) + 1


def _stream(settings: EventTime, number: int) -> StreamTime:
    return list(settings.streams.values())[number]


def _before(
    settings: EventTime,
    ticks: DataFrame,
    state: DataFrame | None,
    start_us: int | None,
    origin_us: int,
    recording_keys: Sequence[str],
) -> list[DataFrame]:
    """Returns the state as rows of ticks.

    These are the last tick before the state, the first tick after it, and the ticks at which a
    stream becomes idle. The last tick before the state has only the watermark, because later tuples
    belong to the first tick after the state.
    """
    if state is None and (start_us is None or not settings.may_idle):
        return []
    if state is not None:
        carried = _carried(
            settings,
            state,
            start_us,
            origin_us,
            recording_keys,
        )
    if start_us is not None and (state is None or recording_keys):
        new = _nothing_yet(
            settings,
            ticks,
            start_us,
            origin_us=origin_us,
            recording_keys=recording_keys,
        )
        carried = (
            new
            if state is None
            else carried.unionByName(new.join(carried, list(recording_keys), "left_anti"))
        )
    at_last = [(F.col("_first") - 1).alias(TICK), F.lit(False).alias(IS_NEWS), WATERMARK]
    at_first = [F.col("_first").alias(TICK), F.lit(True).alias(IS_NEWS), *_running(settings)]
    rows = [
        carried.select(*named_columns(recording_keys), *at_last),
        carried.select(*named_columns(recording_keys), *at_first),
    ]
    for number in _idle_streams(settings):
        falls = _idle_tick(
            settings,
            number,
            _since(settings, number),
            origin_us=origin_us,
        )
        tick = F.greatest(falls, F.col("_first")).alias(TICK)
        rows.append(
            carried.select(*named_columns(recording_keys), tick, F.lit(True).alias(IS_NEWS))
        )
    return rows


def _nothing_yet(
    settings: EventTime,
    ticks: DataFrame,
    start_us: int,
    origin_us: int,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the initial state in the format of `_carried`.

    The timeout of each stream is counted from the first tick.

    Rules: X28
    """
    keys = (
        ticks.select(*named_columns(recording_keys)).distinct()
        if recording_keys
        else ticks.sparkSession.range(1).select()
    )
    first = -(-(start_us - origin_us) // settings.watermark_interval_us)
    unknown = bigint(None)
    first_us = bigint(first * settings.watermark_interval_us + origin_us)
    shown = dict.fromkeys([*_running(settings), WATERMARK], unknown)
    waiting = dict.fromkeys(map(_waits, _idle_streams(settings)), first_us)
    return keys.withColumns({"_first": bigint(first), **shown, **waiting})


def _carried(
    settings: EventTime,
    state: DataFrame,
    start_us: int | None,
    origin_us: int,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the state in one row: the first tick after it (`_first`), the largest timestamp and
    arrival of each stream, and the watermark.

    The timeout of a stream without tuples is counted from `_first`. If the state is empty, as at
    the start of a recording, this applies to every stream.

    Rules: X28
    """
    until = F.coalesce(
        F.max("until_us"),
        bigint(start_us if settings.may_idle else None),
    )
    totals = [until.alias("_until"), F.max("watermark_us").alias(WATERMARK)]
    for number, name in enumerate(settings.streams):
        for column, alias in (("ahead_us", _seen), ("arrived_us", _arrived)):
            totals.append(
                F.max(F.when(F.col("stream") == name, F.col(column))).alias(alias(number))
            )
    first = -floor_div(-(F.col("_until") - origin_us), settings.watermark_interval_us)
    known = (
        state.groupBy(*named_columns(recording_keys))
        .agg(*totals)
        .where(F.col("_until").isNotNull())
        .withColumn("_first", first)
    )
    first_us = F.col("_first") * settings.watermark_interval_us + origin_us
    waiting = {}
    for number in _idle_streams(settings):
        has_sent = F.col(_seen(number)).isNotNull()
        since_us = F.col(_arrived(number))
        waiting[_waits(number)] = F.when(~has_sent, F.coalesce(since_us, first_us))
        waiting[_arrived(number)] = F.when(has_sent, since_us)
    return known.withColumns(waiting).drop("_until")


def _watermarks(
    ticks: DataFrame,
    settings: EventTime,
    origin_us: int,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Adds the watermark after each tick (`WATERMARK`) and the previous watermark (`BEFORE`, null
    before the first one).

    The watermark never falls. `_candidate` describes how it follows the slowest stream.

    Rules: E2, E3, E25
    """
    ticks = _with_running(ticks, [*_running(settings), WATERMARK], recording_keys)
    candidate = F.greatest(_candidate(settings, origin_us), F.col(WATERMARK))
    ticks = ticks.withColumn(_CANDIDATE, candidate).drop(WATERMARK)
    if settings.may_idle:
        ticks = _with_running(ticks, [_CANDIDATE], recording_keys)
    order = Window.partitionBy(*named_columns(recording_keys), *_block(ticks)).orderBy(TICK)
    before = F.max(_CANDIDATE).over(order.rangeBetween(Window.unboundedPreceding, -1))
    after = F.max(_CANDIDATE).over(order.rangeBetween(Window.unboundedPreceding, 0))
    return ticks.withColumns({BEFORE: before, WATERMARK: after}).drop(_CANDIDATE, _BLOCK)


def _with_running(
    ticks: DataFrame,
    names: list[str],
    recording_keys: Sequence[str],
) -> DataFrame:
    """Replaces columns by their running maxima, in the order of ticks. The first row of a block
    has the maxima of earlier blocks.
    """
    running = (
        Window.partitionBy(*named_columns(recording_keys), *_block(ticks))
        .orderBy(TICK)
        .rangeBetween(Window.unboundedPreceding, 0)
    )
    highest = dict(zip(names, maxima(names, running), strict=True))
    if not _block(ticks):
        return ticks.withColumns(highest)
    # Within a block the maxima are exact only together with those of all earlier blocks. These are
    # computed from one row per block and added to the next block as its first row, so no task sorts
    # more than one block.
    totals = ticks.groupBy(*named_columns(recording_keys), _BLOCK).agg(*maxima(names))
    blocks = (
        Window.partitionBy(*named_columns(recording_keys))
        .orderBy(_BLOCK)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    carry = totals.select(
        *named_columns(recording_keys),
        _BLOCK,
        *maxima(names, blocks),
    )
    carry = carry.withColumns({TICK: F.col(_BLOCK) * BLOCK - 1, IS_NEWS: F.lit(False)})
    return ticks.unionByName(carry, allowMissingColumns=True).withColumns(highest)


def _block(ticks: DataFrame) -> list[str]:
    """Returns a list with the block column, empty if there are few ticks."""
    return [_BLOCK] if _BLOCK in ticks.columns else []


def _candidate(settings: EventTime, origin_us: int) -> Column:
    """Returns the watermark that a tick would set: the smallest of the largest timestamps of all
    streams that are not idle, minus the lag.
    """
    # A stream without a timestamp holds the watermark back, unless it is idle: then its value is
    # null, which `least` ignores.
    shown = []
    waits = F.lit(False)
    for number, stream in enumerate(settings.streams.values()):
        is_active = F.lit(True)
        if stream.idle_timeout_us is not None:
            tick_us = F.col(TICK) * settings.watermark_interval_us + origin_us
            silence = tick_us - _since(settings, number)
            is_active = or_true(silence <= stream.idle_timeout_us)
        shown.append(F.when(is_active, F.col(_seen(number))))
        waits = waits | (is_active & F.col(_seen(number)).isNull())
    smallest = shown[0] if len(shown) == 1 else F.least(*shown)
    return F.when(~waits, smallest - settings.lag_us)
