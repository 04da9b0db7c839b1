"""Which tuples of a recording were late, as it would have been decided when they arrived
(docs/rules/event_time.md).

time = EventTime(streams={"clicks": StreamTime(event_at="clicked_at")}, lag="5 s",
watermark_interval="1 min") classified = lateness({"clicks": clicks}, time)
classified.late["clicks"].show()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rewindow.errors import InputError
from rewindow.names import quoted_column
from rewindow.operators.columns import floor_div, instant_us
from rewindow.operators.event_time import watermarks as marks
from rewindow.operators.event_time.arrival_clock import ArrivalClock
from rewindow.operators.event_time.jumps import JUMPS, mark_jumps
from rewindow.operators.event_time.settings import EventTime, StreamTime
from rewindow.operators.event_time.timestamp_checks import DAY_US, FACTORS, is_far, is_shrunk
from rewindow.operators.event_time.watermarks import AT, BEFORE, IS_NEWS, STREAM, TICK, TS
from rewindow.operators.heartbeat.function import IS_TIMER
from rewindow.sequences import excluding, map_values, matching_names, numbered_names
from rewindow.spark.columns import equal_or_null, named_columns, or_false, union_all
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OUTCOME = "_rw_outcome"
TIMESTAMP = "_rw_event_us"
WATERMARK = "_rw_watermark_us"
LATE_BY = "_rw_late_by_us"
ADDED = (
    OUTCOME,
    TIMESTAMP,
    WATERMARK,
    LATE_BY,
)
"""Columns that `lateness` adds."""
ON_TIME = "on_time"
LATE = "late"
NULL_TS = "null_ts"
FAR_FUTURE = "far_future"
BAD_TYPE = "bad_type"
JUMP = "jump"
TIMER = "timer"
OUTCOMES = (
    ON_TIME,
    LATE,
    NULL_TS,
    FAR_FUTURE,
    BAD_TYPE,
    JUMP,
    TIMER,
)
"""What becomes of a tuple; each has exactly one of these (E39)."""
COUNTED = ("stream", "outcome", "tuples", "late_by_us_max")
"""Columns of counts, beside those that are counted by."""
Materialize = Callable[[str, Callable[[], "DataFrame"]], "DataFrame"]
"""Keeps a frame by name: what is asked for again is not computed again."""
_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000}


@dataclass(frozen=True)
class Lateness:
    """Tuples of each declared stream, classified.

    Attributes:
        tuples: by stream, all its tuples, unchanged, and behind them `_rw_outcome STRING` (on_time,
            late, null_ts, far_future, bad_type for a number in a wrong unit, jump for one far ahead
            of its stream (E50), or timer for one that a Heartbeat made), `_rw_event_us BIGINT` (the
            timestamp in microseconds since 1970-01-01 UTC), `_rw_watermark_us BIGINT` (the
            watermark that the tuple was held against; null before the first, and where the
            timestamp cannot be used) and `_rw_late_by_us BIGINT` (how far a late tuple lies behind
            it, else null).
        ticks: the ticks that raise the watermark, in no order: `tick_us BIGINT` on the arrival
            clock, `watermark_us BIGINT` and `before_us BIGINT`, what it was before; null for the
            first.
        state: what the next piece of the recording needs, a row per stream (E41); None unless the
            end was given.
        clock: how arrivals, ticks and this piece's end lie on the arrival clock.
    """

    tuples: Mapping[str, DataFrame]
    ticks: DataFrame
    state: DataFrame | None
    clock: ArrivalClock

    @property
    def on_time(self) -> dict[str, DataFrame]:
        """By stream, the tuples on time, with the columns of the stream alone."""
        on_time = f"{OUTCOME} = '{ON_TIME}'"
        return map_values(lambda frame: frame.where(on_time).drop(*ADDED), self.tuples)

    @property
    def late(self) -> dict[str, DataFrame]:
        """By stream, the late tuples with all columns of `tuples`."""
        return map_values(lambda frame: frame.where(f"{OUTCOME} = '{LATE}'"), self.tuples)

    @property
    def errors(self) -> dict[str, DataFrame]:
        """By stream, the tuples whose timestamp cannot be used, with all columns of `tuples`
        (E23).
        """
        refused = f"{OUTCOME} IN ('{NULL_TS}', '{FAR_FUTURE}', '{BAD_TYPE}', '{JUMP}')"
        return map_values(lambda frame: frame.where(refused), self.tuples)

    def counts(self, *by: str) -> DataFrame:
        """Returns tuples by stream, the columns `by` and outcome, with the largest delay: what went
        in, came out (E40).

        Columns: `stream STRING`, those of `by`, `outcome STRING`, `tuples BIGINT`, `late_by_us_max
        BIGINT`.

        Raises:
            InputError: a column is not there, or has the name of one of these.
        """
        columns = named_columns(by)
        parts = []
        for name, frame in self.tuples.items():
            _check_counted(name, frame, by)
            grouped = frame.groupBy(*columns, F.col(OUTCOME).alias("outcome"))
            counted = grouped.agg(
                F.count("*").alias("tuples"),
                F.max(LATE_BY).alias("late_by_us_max"),
            )
            parts.append(counted.select(F.lit(name).alias("stream"), *columns, *COUNTED[1:]))
        return union_all(parts)


def lateness(
    frames: Mapping[str, DataFrame],
    settings: EventTime,
    *,
    state: DataFrame | None = None,
    start_us: int | None = None,
    end_us: int | None = None,
    origin_us: int = 0,
    recording_keys: Sequence[str] = (),
    materialize: Materialize | None = None,
) -> Lateness:
    """Returns which tuples are late, held against the watermark of the last tick before their
    arrival (E1 to E4, E26).

    Nothing runs here. Every tuple keeps its columns, and none is left out: what is late, has no
    timestamp or lies in the far future says so. Tuples need no order: their arrival alone decides.

    Args:
        frames: the tuples of each declared stream, each with the arrival and what its timestamp is
            made of.
        settings: declared streams, lag, ticks.
        state: `state` of the result before, where the recording is taken in pieces (E42).
        start_us: when the recording began; needed for an idle timeout, which counts from the first
            tick (X28). With it and the end, ticks that are few need no shuffle of the tuples:
            several times faster.
        end_us: where this piece ends, exclusive; with it the result has a state.
        origin_us: ticks stand at multiples of the interval from here; the grid's origin (X35).
        apart: columns whose values are recordings of their own, each with its own watermark.
        once: `once(name, make)` keeps what `make` returns, so that it is computed once for all that
            read it: the ticks here. In an operator `context.once`; by default whoever reads
            computes it again.

    Raises:
        InputError: a declared stream has no frame, a frame is not declared, a column is missing or
            has a wrong type.
    """
    _check(frames, settings, state, start_us)
    timed = {}
    moving = []
    for number, (name, stream) in enumerate(settings.streams.items()):
        frame = _timed(frames[name], name, settings, origin_us=origin_us)
        timed[name] = _jumps_marked(
            frame,
            name,
            settings,
            state=state,
            recording_keys=recording_keys,
        )
        moves = timed[name].where(_moves_clock(stream))
        moving.append(
            moves.select(*named_columns(recording_keys), F.lit(number).alias(STREAM), TICK, AT, TS)
        )
    clock = ArrivalClock(settings, origin_us, start_us, end_us=end_us)
    every = union_all(moving)
    ticks = cached(
        materialize,
        "ticks",
        marks.tick_table(every, clock, state=state, recording_keys=recording_keys),
    )
    held = _held(ticks, clock, recording_keys)
    classified = {}
    for name, frame in timed.items():
        columns = frames[name].columns
        classified[name] = _classify(
            frame,
            name,
            settings,
            columns,
            held,
            recording_keys,
        )
    after = None
    if end_us is not None:
        after = marks.next_state(
            ticks,
            settings,
            end_us=end_us,
            origin_us=origin_us,
            recording_keys=recording_keys,
        )
    return Lateness(
        classified,
        marks.raising(ticks, settings, origin_us, end_us=end_us, recording_keys=recording_keys),
        after,
        clock=clock,
    )


def late_by_idleness(
    frames: Mapping[str, DataFrame],
    settings: EventTime,
    *,
    start_us: int,
    end_us: int | None = None,
    origin_us: int = 0,
    recording_keys: Sequence[str] = (),
) -> dict[str, DataFrame]:
    """Returns by stream the tuples that are late only because an idle stream was not waited for
    (E48).

    They have the columns of `Lateness.late`. The recording is classified twice, with and without
    the idle timeouts, as a whole: a piece of it cannot tell what the watermark would have been
    without them.

    Args:
        frames, settings, start_us, end_us, origin_us, apart: see `lateness`.
    """
    about: dict[str, Any] = {
        "start_us": start_us,
        "end_us": end_us,
        "origin_us": origin_us,
        "recording_keys": recording_keys,
    }
    classified = lateness(frames, settings, **about)
    # The first verdict travels along under other names while the same tuples are judged without
    # timeouts. So no join has to bring both verdicts of a tuple together.
    live = dict(zip(ADDED, map("_live{}".format, ADDED), strict=True))
    known = map_values(lambda frame: frame.withColumnsRenamed(live), classified.tuples)
    without_timeout = {"idle_timeout": None}
    patient = map_values(lambda one: one.model_copy(update=without_timeout), settings.streams)
    again = lateness(known, settings.model_copy(update={"streams": patient}), **about)
    only = f"{live[OUTCOME]} = '{LATE}' AND {OUTCOME} = '{ON_TIME}'"
    back = dict(zip(live.values(), live, strict=True))
    late = {}
    for name, frame in again.tuples.items():
        late[name] = frame.where(only).drop(*ADDED).withColumnsRenamed(back)
    return late


def _check(
    frames: Mapping[str, DataFrame],
    settings: EventTime,
    state: DataFrame | None,
    start_us: int | None,
) -> None:
    if set(frames) != set(settings.streams):
        raise InputError(
            f"streams {', '.join(frames) or 'none'} are given, declared are "
            f"{', '.join(settings.streams)}",
            hint="Give a frame for each declared stream, an empty one where it has sent nothing.",
        )
    if settings.may_idle and state is None and start_us is None:
        raise InputError(
            "an idle timeout needs the start of the recording",
            hint="Pass start_us: a stream that has not sent anything is idle after the timeout "
            "from then on.",
        )
    for name, frame in frames.items():
        if settings.arrived_at not in frame.columns:
            raise InputError(
                f'stream "{name}" has no column {settings.arrived_at}',
                hint=_has(frame),
            )
        taken = matching_names(frame.columns, ADDED)
        if taken:
            raise InputError(
                f'stream "{name}" has the column {", ".join(taken)}, which lateness adds'
            )


def _check_counted(name: str, frame: DataFrame, by: Sequence[str]) -> None:
    """Refuses columns to count by that are not there, or that counts have themselves."""
    absent = excluding(by, frame.columns)
    if absent:
        raise InputError(
            f'stream "{name}" has no column {", ".join(absent)} to count by',
            hint=_has(frame),
        )
    taken = matching_names(by, COUNTED)
    if taken:
        raise InputError(
            f"column {', '.join(taken)} is one that counts have themselves",
            hint="Rename it before.",
        )


def _has(frame: DataFrame) -> str:
    return f"It has {', '.join(frame.columns)}."


def _timed(
    frame: DataFrame,
    name: str,
    settings: EventTime,
    origin_us: int,
) -> DataFrame:
    """Adds arrival, timestamp and first tick of each tuple."""
    timed = frame.withColumns(
        {
            AT: arrived_us(frame, name, settings.arrived_at),
            TS: _event_us(frame, name, settings.streams[name]),
        }
    )
    missing = F.raise_error(F.lit(f'event time: a tuple of stream "{name}" has no arrival')).cast(
        "bigint"
    )
    return timed.withColumn(
        TICK,
        F.coalesce(marks.tick_of(settings, F.col(AT), origin_us), missing),
    )


def _jumps_marked(
    timed: DataFrame,
    name: str,
    settings: EventTime,
    state: DataFrame | None,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Adds which tuples jump ahead of their stream, where that is asked; the state has its largest
    timestamp (E50).
    """
    stream = settings.streams[name]
    if stream.max_jump_us is None:
        return timed
    known = None
    if state is not None:
        own = (F.col("stream") == name) & F.col("ahead_us").isNotNull()
        known = state.where(own).select(*named_columns(recording_keys), F.col("ahead_us").alias(TS))
    return mark_jumps(
        timed,
        _is_believed(stream),
        stream.max_jump_us,
        highest=known,
        recording_keys=recording_keys,
    )


def _far(stream: StreamTime) -> str | None:
    return None if stream.max_ahead_us is None else is_far(TS, AT, stream.max_ahead_us)


def refused_because(at: Column, ts: str = TIMESTAMP) -> Column:
    """Returns in words what is wrong with one of `Lateness.errors` that arrived at `at`; null
    without a timestamp.
    """
    # A timestamp in the wrong unit is off by a factor of a thousand or a million. The hint names a
    # factor if the timestamp times it, or divided by it, is within a day of the arrival.
    stamp = F.col(ts)
    hint = F.lit("")
    for factor, words in FACTORS.items():
        larger = F.abs(stamp - floor_div(at, factor)) <= DAY_US // factor
        smaller = F.abs(floor_div(stamp, factor) - at) <= DAY_US
        hint = F.when(
            larger,
            f"; {words} times as much would be close to it: is the unit right?",
        ).otherwise(hint)
        hint = F.when(
            smaller,
            f"; {words} times less would be close to it: is the unit right?",
        ).otherwise(hint)
    way = F.when(stamp > at, "ahead of").otherwise("behind")
    return F.concat(
        F.lit("lies "),
        F.abs(stamp - at).cast("string"),
        F.lit(" us "),
        way,
        F.lit(" its arrival"),
        hint,
    )


def _moves_clock(stream: StreamTime) -> Column:
    """Returns whether a tuple moves the clock: one with a timestamp that is believed, a late one
    too (E1).
    """
    return (
        _is_believed(stream) if stream.max_jump_us is None else _is_believed(stream) & ~F.col(JUMPS)
    )


def _is_believed(stream: StreamTime) -> Column:
    far = _far(stream)
    is_known = f"{TS} IS NOT NULL"
    # A text is one call of the JVM, columns of it are a hundred.
    return F.expr(
        is_known if far is None else f"{is_known} AND NOT ({far}) AND NOT ({is_shrunk(TS, AT)})"
    )


def cached(materialize: Materialize | None, name: str, frame: DataFrame) -> DataFrame:
    """Returns a frame that is computed once where somebody keeps it."""
    return frame if materialize is None else materialize(name, lambda: frame)


def timestamp_us(
    frame: DataFrame,
    name: str,
    event_at: str,
    unit: Literal["us", "ms", "s"] = "us",
) -> Column:
    """Returns a timestamp of a stream in microseconds, from a column or an expression.

    Raises:
        InputError: it is neither, or of a wrong type.
    """
    return _event_us(frame, name, StreamTime(event_at=event_at, unit=unit))


def _event_us(frame: DataFrame, name: str, stream: StreamTime) -> Column:
    """Returns the timestamp in microseconds; a column of that name is meant before an expression
    (E21, E22).
    """
    is_column = stream.event_at in frame.columns
    return _us(
        frame,
        name,
        quoted_column(stream.event_at) if is_column else stream.event_at,
        unit_us=_UNIT_US[stream.unit],
    )


def arrived_us(frame: DataFrame, name: str, column: str) -> Column:
    """Returns a column of a stream's arrivals in microseconds."""
    return _us(frame, name, quoted_column(column), unit_us=1)


def _us(frame: DataFrame, name: str, expression: str, unit_us: int) -> Column:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.types import IntegralType, TimestampNTZType, TimestampType

    column = F.expr(expression)
    try:
        kind = frame.select(column.alias("at")).schema["at"].dataType
    except (AnalysisException, ParseException) as error:
        raise InputError(
            f'timestamp "{expression}" of stream "{name}" is neither a column nor an expression '
            "over its columns",
            detail=str(error).splitlines()[0],
            hint=_has(frame),
        ) from error
    if isinstance(kind, IntegralType | TimestampType | TimestampNTZType):
        return instant_us(column, kind, unit_us)
    raise InputError(
        f'timestamp "{expression}" of stream "{name}" is {kind.simpleString()}, not a timestamp or '
        "a whole number",
        hint="Read it by an expression, such as event_at = "
        f'"to_timestamp({expression.strip("`")})".',
    )


def _held(
    ticks: DataFrame,
    clock: ArrivalClock,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns for each tick that tuples wait for, the watermark that they are held against."""
    held = ticks.where(F.col(IS_NEWS)).select(
        *named_columns(recording_keys),
        TICK,
        F.col(BEFORE).alias(WATERMARK),
    )
    return F.broadcast(held) if not recording_keys and clock.has_few_ticks() else held


def matched(
    frame: DataFrame,
    other: DataFrame,
    recording_keys: Sequence[str],
    on: str,
    how: str,
) -> DataFrame:
    """Joins on a column that is never null and on those of apart, whose nulls are equal."""
    same = numbered_names((*recording_keys, on), "_same_")
    other = other.withColumnsRenamed(same)
    # Of a null-safe equality Spark makes two keys, for which its table of whole numbers cannot be
    # used.
    renamed = same.copy()
    keys = [F.col(on) == F.col(renamed.pop(on)), *equal_or_null(renamed)]
    return frame.join(other, keys, how).drop(*same.values())


def _classify(
    timed: DataFrame,
    name: str,
    settings: EventTime,
    columns: Sequence[str],
    held: DataFrame,
    recording_keys: Sequence[str],
) -> DataFrame:
    # Rules: E4, E39
    stream = settings.streams[name]
    unreadable = F.lit(NULL_TS)
    if settings.on_unreadable == "fail":
        text = F.concat(
            F.lit(f'event time: a tuple of stream "{name}" has no timestamp: '),
            F.to_json(F.struct("*")),
        )
        unreadable = F.raise_error(text).cast("string")
    # One CASE of constants: a filter on the outcome becomes one on its conditions, and no text is
    # compared.
    is_late = F.col(TS) < F.col(WATERMARK)
    far = _far(stream)
    outcome = F.when(F.col(TS).isNull(), unreadable)
    if far is not None:
        outcome = outcome.when(F.expr(far), FAR_FUTURE).when(F.expr(is_shrunk(TS, AT)), BAD_TYPE)
    outcome = outcome if stream.max_jump_us is None else outcome.when(F.col(JUMPS), JUMP)
    if IS_TIMER in columns:
        # A timer shows that time has passed and is not a tuple (H60): it moves the clock, and is
        # never late.
        outcome = outcome.when(F.col(IS_TIMER), TIMER)
        is_late = is_late & ~or_false(IS_TIMER)
    outcome = outcome.when(is_late, LATE).otherwise(ON_TIME)
    moves = _moves_clock(stream)
    added = [
        outcome.alias(OUTCOME),
        F.col(TS).alias(TIMESTAMP),
        F.when(moves, F.col(WATERMARK)).alias(WATERMARK),
        F.when(moves & is_late, F.col(WATERMARK) - F.col(TS)).alias(LATE_BY),
    ]
    joined = matched(timed, held, recording_keys, on=TICK, how="left")
    return joined.select(*named_columns(columns), *added)
