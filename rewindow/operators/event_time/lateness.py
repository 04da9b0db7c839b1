"""Finds the tuples of a recording that arrived after the watermark had passed their timestamp.

Example:
    time = EventTime(
        streams={"clicks": StreamTime(event_at="clicked_at")},
        lag="5 s",
        watermark_interval="1 min",
    )
    classified = lateness({"clicks": clicks}, time)
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
"""Outcomes of a tuple; each tuple has exactly one of them.

Rules: E39
"""
COUNTED = ("stream", "outcome", "tuples", "late_by_us_max")
"""Columns of counts, in addition to the grouping columns."""
Materialize = Callable[[str, Callable[[], "DataFrame"]], "DataFrame"]
"""Caches a frame by name, so that it is computed only once."""
_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000}


@dataclass(frozen=True)
class Lateness:
    """The classified tuples of each declared stream.

    Attributes:
        tuples: by stream, all its tuples, unchanged, followed by `_rw_outcome STRING` (on_time,
            late, null_ts, far_future, bad_type for a number in a wrong unit, jump for a timestamp
            far ahead of its stream, or timer for a tuple that a Heartbeat created), `_rw_event_us
            BIGINT` (the timestamp in microseconds since 1970-01-01 UTC), `_rw_watermark_us BIGINT`
            (the watermark that the tuple was compared with; null before the first one, and if the
            timestamp cannot be used) and `_rw_late_by_us BIGINT` (how far a late tuple is below the
            watermark; otherwise null).
        ticks: the ticks that raise the watermark, unordered: `tick_us BIGINT` on the arrival clock,
            `watermark_us BIGINT`, and `before_us BIGINT`, the previous watermark, null for the
            first.
        state: the values that the next piece of the recording needs, a row per stream; None unless
            the end was set.
        clock: settings, origin, start and end of this piece on the arrival clock.

    Rules: E41, E50
    """

    tuples: Mapping[str, DataFrame]
    ticks: DataFrame
    state: DataFrame | None
    clock: ArrivalClock

    @property
    def on_time(self) -> dict[str, DataFrame]:
        """The tuples on time, by stream, with only the columns of the stream."""
        on_time = f"{OUTCOME} = '{ON_TIME}'"
        return map_values(lambda frame: frame.where(on_time).drop(*ADDED), self.tuples)

    @property
    def late(self) -> dict[str, DataFrame]:
        """The late tuples, by stream, with all columns of `tuples`."""
        return map_values(lambda frame: frame.where(f"{OUTCOME} = '{LATE}'"), self.tuples)

    @property
    def errors(self) -> dict[str, DataFrame]:
        """The tuples without a usable timestamp, by stream, with all columns of `tuples`.

        Rules: E23
        """
        refused = f"{OUTCOME} IN ('{NULL_TS}', '{FAR_FUTURE}', '{BAD_TYPE}', '{JUMP}')"
        return map_values(lambda frame: frame.where(refused), self.tuples)

    def counts(self, *by: str) -> DataFrame:
        """Returns the number of tuples and the largest delay for each stream, outcome and value of
        the columns `by`.

        The counts of all outcomes add up to the input. Columns: `stream STRING`, the columns `by`,
        `outcome STRING`, `tuples BIGINT`, `late_by_us_max BIGINT`.

        Raises:
            InputError: a column is missing, or has the name of one of these.

        Rules: E40
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
    """Classifies tuples as late or on time, by the watermark of the last tick before their arrival.

    The call itself runs no query. The result contains every tuple with all its columns; a column
    marks tuples that are late, have no timestamp, or are in the far future. The order of the rows
    does not matter, only their arrival.

    Args:
        frames: the tuples of each declared stream, each with the arrival and the columns of its
            timestamp.
        settings: declared streams, lag, ticks.
        state: `state` of the previous result, if the recording is processed in pieces.
        start_us: start of the recording; required for an idle timeout, which counts from the first
            tick. If start and end are known and the ticks between them are few, the tuples need no
            shuffle, which is several times faster.
        end_us: end of this piece, exclusive; if set, the result has a state.
        origin_us: ticks are at multiples of the interval from here; the grid's origin.
        recording_keys: columns whose values are separate recordings, each with a separate
            watermark.
        materialize: `materialize(name, make)` caches the frame that `make` returns, here the ticks,
            so that all readers share one computation. In an operator `context.materialize`; by
            default every reader computes them again.

    Raises:
        InputError: a declared stream has no frame, a frame is not declared, a column is missing or
            has a wrong type.

    Rules: E1 to E4, E26, E42, X28, X35
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
    """Returns the tuples, by stream, that are late only because the watermark did not wait for an
    idle stream.

    The tuples have the columns of `Lateness.late`. The function classifies the whole recording
    twice, with and without idle timeouts. A piece of the recording would not be enough, because it
    does not contain the watermark without timeouts.

    Args:
        frames, settings, start_us, end_us, origin_us, recording_keys: see `lateness`.

    Rules: E48
    """
    about: dict[str, Any] = {
        "start_us": start_us,
        "end_us": end_us,
        "origin_us": origin_us,
        "recording_keys": recording_keys,
    }
    classified = lateness(frames, settings, **about)
    # The first classification stays in the tuples under other names while they are classified
    # without timeouts. So no join is needed to compare both.
    live = dict(zip(ADDED, map("_live{}".format, ADDED), strict=True))
    known = map_values(lambda frame: frame.withColumnsRenamed(live), classified.tuples)
    without_timeout = {"idle_timeout_us": None}
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
            f"frames must be the declared streams {', '.join(settings.streams)}, not "
            f"{', '.join(frames) or 'none'}",
            hint="Pass a frame for each declared stream, and an empty frame for a stream that has "
            "sent nothing.",
        )
    if settings.may_idle and state is None and start_us is None:
        raise InputError(
            "idle_timeout needs start_us, the start of the recording",
            hint="Pass start_us: a stream that has sent no tuple is idle when the timeout has "
            "passed since then.",
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
                f'stream "{name}" has a column {", ".join(taken)}, a name that lateness uses for '
                "its results",
                hint="Rename the column.",
            )


def _check_counted(name: str, frame: DataFrame, by: Sequence[str]) -> None:
    """Raises an error if a grouping column is missing or has the name of a count column."""
    absent = excluding(by, frame.columns)
    if absent:
        raise InputError(
            f'stream "{name}" has no column {", ".join(absent)} to group counts by',
            hint=_has(frame),
        )
    taken = matching_names(by, COUNTED)
    if taken:
        raise InputError(
            f"counts cannot be grouped by column {', '.join(taken)}: they have a column with this "
            "name",
            hint="Rename the column.",
        )


def _has(frame: DataFrame) -> str:
    return f"Available columns: {', '.join(frame.columns)}."


def _timed(
    frame: DataFrame,
    name: str,
    settings: EventTime,
    origin_us: int,
) -> DataFrame:
    """Adds the arrival, the timestamp and the first tick of each tuple."""
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
    """Adds a column that marks the tuples that jump ahead of their stream, if `max_jump` is set.
    The largest timestamp so far is kept in the state.

    Rules: E50
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
    """Returns a description of why a timestamp was rejected, for a tuple that arrived at `at`; null
    if the tuple has no timestamp.
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
            f"; {words} times this value would be close to the arrival: check the unit",
        ).otherwise(hint)
        hint = F.when(
            smaller,
            f"; a value {words} times smaller would be close to the arrival: check the unit",
        ).otherwise(hint)
    way = F.when(stamp > at, "after").otherwise("before")
    return F.concat(
        F.lit("timestamp is "),
        F.abs(stamp - at).cast("string"),
        F.lit(" us "),
        way,
        F.lit(" the arrival"),
        hint,
    )


def _moves_clock(stream: StreamTime) -> Column:
    """Returns whether a tuple moves the clock.

    Every tuple with an accepted timestamp does, even a late one.

    Rules: E1
    """
    return (
        _is_believed(stream) if stream.max_jump_us is None else _is_believed(stream) & ~F.col(JUMPS)
    )


def _is_believed(stream: StreamTime) -> Column:
    far = _far(stream)
    is_known = f"{TS} IS NOT NULL"
    # A SQL text needs one call of the JVM, the same condition built from columns about a hundred.
    return F.expr(
        is_known if far is None else f"{is_known} AND NOT ({far}) AND NOT ({is_shrunk(TS, AT)})"
    )


def cached(materialize: Materialize | None, name: str, frame: DataFrame) -> DataFrame:
    """Returns the frame, computed once and stored if `materialize` is set."""
    return frame if materialize is None else materialize(name, lambda: frame)


def timestamp_us(
    frame: DataFrame,
    name: str,
    event_at: str,
    unit: Literal["us", "ms", "s"] = "us",
) -> Column:
    """Returns the timestamp of a stream in microseconds, from a column or an expression.

    Raises:
        InputError: `event_at` is neither, or has a wrong type.
    """
    return _event_us(frame, name, StreamTime(event_at=event_at, unit=unit))


def _event_us(frame: DataFrame, name: str, stream: StreamTime) -> Column:
    """Returns the timestamp in microseconds.

    If a column is named `event_at`, its value is used; otherwise `event_at` is evaluated as an
    expression.

    Rules: E21, E22
    """
    is_column = stream.event_at in frame.columns
    return _us(
        frame,
        name,
        quoted_column(stream.event_at) if is_column else stream.event_at,
        unit_us=_UNIT_US[stream.unit],
    )


def arrived_us(frame: DataFrame, name: str, column: str) -> Column:
    """Returns the arrivals of a stream in microseconds."""
    return _us(frame, name, quoted_column(column), unit_us=1)


def _us(frame: DataFrame, name: str, expression: str, unit_us: int) -> Column:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.types import IntegralType, TimestampNTZType, TimestampType

    column = F.expr(expression)
    try:
        kind = frame.select(column.alias("at")).schema["at"].dataType
    except (AnalysisException, ParseException) as error:
        raise InputError(
            f'timestamp "{expression}" of stream "{name}" is neither a column nor a valid '
            "expression over the columns",
            detail=str(error).splitlines()[0],
            hint=_has(frame),
        ) from error
    if isinstance(kind, IntegralType | TimestampType | TimestampNTZType):
        return instant_us(column, kind, unit_us)
    raise InputError(
        f'timestamp "{expression}" of stream "{name}" must be a timestamp or an integer, not '
        f"{kind.simpleString()}",
        hint="Convert it with an expression, such as event_at = "
        f'"to_timestamp({expression.strip("`")})".',
    )


def _held(
    ticks: DataFrame,
    clock: ArrivalClock,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the watermark at each tick, for comparison with the tuples of that tick."""
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
    """Joins on a column that is never null and on the columns `recording_keys`.

    Nulls in these columns match each other.
    """
    same = numbered_names((*recording_keys, on), "_same_")
    other = other.withColumnsRenamed(same)
    # Spark converts a null-safe equality to two keys, and then cannot use its hash table for whole
    # numbers.
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
    # One CASE of constants: Spark converts a filter on the outcome to a filter on its conditions,
    # so no text is compared.
    is_late = F.col(TS) < F.col(WATERMARK)
    far = _far(stream)
    outcome = F.when(F.col(TS).isNull(), unreadable)
    if far is not None:
        outcome = outcome.when(F.expr(far), FAR_FUTURE).when(F.expr(is_shrunk(TS, AT)), BAD_TYPE)
    outcome = outcome if stream.max_jump_us is None else outcome.when(F.col(JUMPS), JUMP)
    if IS_TIMER in columns:
        # A timer shows that time has passed and is not a data tuple: it moves the clock, and is
        # never late.
        # Rules: H60
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
