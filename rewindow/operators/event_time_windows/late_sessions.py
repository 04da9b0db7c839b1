"""Sessions that late tuples change: they grow, merge and fire again.

A tuple on time is never in a session that fired before its arrival. So tuples on time can be
treated as present from the start, and the sessions of a key change only at the ticks at which late
tuples are applied, called *steps*. The extent of a session between two steps is called a *form*. A
form is emitted when the watermark has passed its end, unless the next step has changed it by then.
If a step changes a form that was emitted, the form is retracted.

Tuples on time are combined to sessions first, as in `sessions`. Only sessions with late tuples have
more than one step, so only their few rows are copied into each step.

Rules: E49, E69, X29
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rewindow.operators.event_time.lateness import (
    LATE,
    ON_TIME,
    OUTCOME,
    TIMESTAMP,
    WATERMARK,
    Lateness,
    arrived_us,
    matched,
)
from rewindow.operators.event_time_windows.aggregates import AggregateSpec
from rewindow.operators.event_time_windows.firing import (
    BEGIN,
    CARRIED,
    END,
    FIRED,
    FIRED_UNTIL,
    REACHED,
    STREAM,
    TUPLES,
    check_state,
    firing_columns,
    first_ticks,
    reached,
)
from rewindow.operators.event_time_windows.retriggering import RETRACTION, tick_after
from rewindow.operators.event_time_windows.sessions import (
    FIRST_TS,
    LAST_TS,
    TICKS_APART_US,
    bucket_of,
    numbered,
)
from rewindow.operators.event_time_windows.settings import SessionWindows
from rewindow.spark.columns import (
    aliased,
    bigint,
    maxima,
    named_columns,
    or_false,
    or_true,
    union_all,
)
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DUE = "_rw_due_us"
PANES = "_rw_panes"
IS_SHOWN = "_rw_is_shown"
STATE = (STREAM, FIRST_TS, LAST_TS, DUE, PANES, IS_SHOWN, TUPLES, FIRED_UNTIL)
"""Columns of the carried state in addition to `recording_keys`, keys and parts: stream, its
first and last timestamp in a session; the tick at which late tuples will be applied, otherwise
null; how often a session with this start was emitted; whether this one was; the number of tuples
on time that were not; the last watermark.
"""
_SESSION = "_session"
_GROUP = "_group"
_STEP = "_step"
_STEPS = "_steps"
_NUMBER = "_number"
_LAST = "_last_us"
_ROWS = "_rows"
_FROM = "_from"
_UNTIL = "_until"
_AT = "_at"
_WAS = "_was"
_SHOWS = "_shows"
_EVER = "_ever"
_FIRST = "_first"
_WAITS = "_waits"
_AGO = -(1 << 63)
_NEVER = (1 << 63) - 1


def changed_rows(
    classified: Lateness,
    sessions: SessionWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    state: DataFrame | None,
    recording_keys: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    """Returns the rows of sessions that late tuples can change, with the extent of the session at
    each step.

    A row has a copy for each step at which it is present. Late tuples that a later piece will apply
    have one row, without a step.
    """
    rows = _rows(classified, sessions, aggregate, own, state)
    last = bigint(_NEVER if ended_us is None else ended_us)
    rows = rows.withColumns(
        {DUE: F.when(F.col(DUE).isNotNull(), F.least(DUE, last)), END: _end(LAST_TS, sessions)}
    )
    ends = rows.select(*named_columns(recording_keys), END).distinct()
    ticks = first_ticks(
        ends,
        classified.ticks,
        min(sessions.gap_us, TICKS_APART_US),
        recording_keys=recording_keys,
    )
    had_passed = or_false(F.col(END) <= F.col(FIRED_UNTIL))
    fired = F.when(had_passed, _AGO).otherwise(F.coalesce(FIRED, last))
    rows = (
        matched(rows, ticks, recording_keys, on=END, how="left").withColumn(FIRED, fired).drop(END)
    )
    end_us = classified.clock.end_us
    goes_on = end_us is not None and ended_us is None
    waits = or_false(F.col(DUE) >= end_us) if goes_on else F.lit(False)
    return _with_forms(rows.withColumn(_WAITS, waits), sessions, own)


def _end(last: str, sessions: SessionWindows) -> Column:
    return F.col(last) + sessions.behind_us


def _rows(
    classified: Lateness,
    sessions: SessionWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    state: DataFrame | None,
) -> DataFrame:
    """Returns a row per stream and session for the tuples on time, and separate rows for the late
    tuples that are applied at the same tick.
    """
    at = F.col(TIMESTAMP)
    is_late = F.col(OUTCOME) == LATE
    columns = named_columns(own)
    allowed = is_late & (at >= F.col(WATERMARK) - sessions.allowed_us)
    of_streams = []
    for name, frame in classified.tuples.items():
        emit_at = tick_after(
            classified.clock,
            arrived_us(frame, name, classified.clock.settings.arrived_at),
        )
        about = [
            F.lit(name).alias(STREAM), at.alias(FIRST_TS), at.alias(LAST_TS),
            F.when(is_late, emit_at).alias(DUE),
            bigint(0).alias(PANES), F.lit(False).alias(IS_SHOWN),
            F.when(is_late, 0).otherwise(1).cast("bigint").alias(TUPLES),
            F.when(is_late, F.col(WATERMARK)).alias(FIRED_UNTIL), F.lit(False).alias(CARRIED),
        ]  # fmt: skip
        parts = aliased(aggregate.parts)
        placed = frame.where((F.col(OUTCOME) == ON_TIME) | allowed)
        of_streams.append(
            placed.select(*columns, *about, *parts, bucket_of(at, sessions).alias(_NUMBER))
        )
    tuples = union_all(of_streams)
    rows = _merged(tuples, aggregate, own, _NUMBER).drop(_NUMBER)
    if state is not None:
        rows = rows.unionByName(check_state(state, rows.columns))
    return _merged(
        numbered(rows, sessions, [*own, DUE], name=_NUMBER), aggregate, own, _NUMBER
    ).drop(_NUMBER)


def _merged(rows: DataFrame, aggregate: AggregateSpec, own: Sequence[str], *more: str) -> DataFrame:
    most = maxima((LAST_TS, PANES, IS_SHOWN, FIRED_UNTIL))
    totals = [F.min(FIRST_TS).alias(FIRST_TS), *most, F.sum(TUPLES).alias(TUPLES)]
    merged = aliased(aggregate.merged)
    by = named_columns((*own, STREAM, CARRIED, DUE, *more))
    return rows.groupBy(*by).agg(*totals, *merged)


def _with_forms(
    rows: DataFrame,
    sessions: SessionWindows,
    own: Sequence[str],
) -> DataFrame:
    """Adds the steps at which a row is present and the extent of its session at each of these
    steps.

    Each extent has its first and last step, and whether it is emitted.
    """
    # Every step computes the sessions of a group again from the rows that are present by then. So a
    # row is copied into each step from its first one on. Groups without late tuples have one step,
    # so only the few rows of groups with late tuples are copied.
    columns = named_columns(own)
    shown_from = F.coalesce(DUE, F.lit(_AGO))
    # Rows that wait for a later piece are in separate groups, which do not affect the others.
    rows = numbered(rows, sessions, [*own, _WAITS], name=_GROUP)
    rows = rows.withColumn(_GROUP, F.when(F.col(_WAITS), -F.col(_GROUP)).otherwise(F.col(_GROUP)))
    steps = F.collect_set(shown_from).over(Window.partitionBy(*columns, _GROUP))
    rows = rows.withColumn(_STEPS, steps).withColumn("_shown_from", shown_from)
    each = F.expr(f"filter({_STEPS}, step -> step >= _shown_from)")
    each = F.explode(F.when(F.col(_WAITS), F.array(bigint(None))).otherwise(each))
    rows = rows.withColumn(_STEP, each).drop("_shown_from")
    rows = numbered(rows, sessions, [*own, _GROUP, _STEP], name=_SESSION)
    whole = Window.partitionBy(*columns, _GROUP, _STEP, _SESSION)
    rows = rows.withColumns({
        BEGIN: F.min(FIRST_TS).over(whole), _LAST: F.max(LAST_TS).over(whole),
        _ROWS: F.count("*").over(whole),
        FIRED: F.max(FIRED).over(whole),
    })  # fmt: skip
    # Sessions only grow, so a session with the same number of rows is unchanged.
    form = Window.partitionBy(*columns, _GROUP, BEGIN, _LAST, _ROWS)
    rows = rows.withColumns({_FROM: F.min(_STEP).over(form), _NUMBER: F.max(_STEP).over(form)})
    rows = rows.withColumn(_UNTIL, F.expr(f"array_min(filter({_STEPS}, step -> step > {_NUMBER}))"))
    was = F.max(IS_SHOWN).over(form) & (F.col(_FROM) == _AGO)
    fires = (F.col(FIRED) < _NEVER) & or_true(F.col(FIRED) < F.col(_UNTIL))
    rows = rows.withColumn(_WAS, was).withColumn(
        _SHOWS,
        F.when(~F.col(_WAITS), F.col(_WAS) | fires),
    )
    of_begin = Window.partitionBy(*columns, _GROUP, BEGIN)
    before = F.max(F.when(F.col(FIRST_TS) == F.col(BEGIN), F.col(PANES))).over(of_begin)
    shown = F.collect_set(F.when(F.col(_SHOWS) & ~F.col(_WAS), F.col(_FROM)))
    so_far = F.size(shown.over(of_begin.orderBy(_FROM).rangeBetween(Window.unboundedPreceding, 0)))
    at = F.when(~F.col(_WAS), F.greatest(FIRED, _FROM))
    return rows.withColumns({_AT: at, PANES: before + so_far}).drop(
        _STEPS,
        _NUMBER,
        _SESSION,
        _WAITS,
    )


def fired_changed(
    rows: DataFrame,
    sessions: SessionWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Returns one row for each firing of a session, and a retraction for each fired session that a
    later step changed.

    Rules: E61, E69
    """
    # A form has at most two events: it fires, and a later step retracts it. Both rows are created
    # from one aggregate, as an array of structs; structs without a time are dropped.
    columns = named_columns(own)
    results = aliased(aggregate.results)
    about = (BEGIN, _LAST, _WAS, _AT, _FROM, _UNTIL, FIRED, PANES)
    forms = (
        rows.where(F.col(_SHOWS) & (F.col(_STEP) == F.col(_FROM)))
        .groupBy(*columns, _GROUP, *about)
        .agg(*results)
    )
    kind = F.when(F.col(FIRED) >= F.col(_FROM), ON_TIME).otherwise(LATE)
    firings = F.array(
        F.struct(kind.alias("kind"), F.col(_AT).alias("fired_us")),
        F.struct(F.lit(RETRACTION).alias("kind"), F.col(_UNTIL).alias("fired_us")),
    )
    shown = forms.select("*", F.inline(F.filter(firings, lambda one: one["fired_us"].isNotNull())))
    pane = (F.col(PANES) - 1).cast("int")
    end_us = F.col(_LAST) + sessions.gap_us
    named = firing_columns(
        F.col(BEGIN),
        end_us,
        pane,
        kind=F.col("kind"),
        fired_us=F.col("fired_us"),
    )
    return shown.select(
        *columns,
        *named,
        *named_columns(aggregate.results),
    )


def left_changed(
    rows: DataFrame,
    ticks: DataFrame,
    sessions: SessionWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the sessions that have not fired or can still change, and the late tuples that are
    not yet applied.

    Rules: E41
    """
    rows = _ever_shown(reached(rows, ticks, recording_keys, ended_us=None), own)
    rows = rows.withColumn(FIRED_UNTIL, F.coalesce(REACHED, FIRED_UNTIL))
    waits = F.col(_STEP).isNull()
    is_last = F.col(_UNTIL).isNull()
    is_open = ~F.col(_SHOWS) | (_end(_LAST, sessions) > F.col(FIRED_UNTIL) - sessions.allowed_us)
    had = rows.where(waits | (is_last & or_true(is_open))).withColumns({
        CARRIED: F.lit(True), DUE: F.when(waits, F.col(DUE)),
        IS_SHOWN: F.coalesce(_SHOWS, IS_SHOWN),
        TUPLES: F.when(F.col(_EVER), 0).otherwise(F.col(TUPLES)).cast("bigint"),
        # Waiting tuples are not in a session yet. Only those that are close enough to be in the
        # same session in any case are merged to one row.
        BEGIN: F.when(waits, bucket_of(F.col(FIRST_TS), sessions)).otherwise(F.col(BEGIN)),
    })  # fmt: skip
    return _merged(had, aggregate, own, _GROUP, BEGIN).drop(CARRIED, _GROUP, BEGIN)


def waiting_changed(rows: DataFrame, own: Sequence[str]) -> DataFrame:
    """Returns each tuple on time once, for the counts.

    The watermark has passed `END` if the tuple was emitted. `FIRED` is the instant at which the
    first session of a tuple was emitted. It is null if that happened in an earlier piece, or has
    not happened yet.
    """
    materialize = _ever_shown(rows.where(F.col(_STEP).isNotNull()), own).where(F.col(_STEP) == _AGO)
    end_us = F.when(F.col(_EVER), _AGO).otherwise(_NEVER)
    return materialize.withColumns({END: end_us, FIRED: F.col(_FIRST), FIRED_UNTIL: bigint(None)})


def _ever_shown(rows: DataFrame, own: Sequence[str]) -> DataFrame:
    """Adds whether the tuples on time of a row were emitted at any step, and the first such instant
    in this piece.
    """
    columns = named_columns((*own, _GROUP, STREAM, CARRIED, FIRST_TS, DUE))
    every_step = Window.partitionBy(*columns)
    ever = or_false(F.max(_SHOWS).over(every_step))
    return rows.withColumns(
        {_EVER: ever, _FIRST: F.min(F.when(F.col(_SHOWS), F.col(_AT))).over(every_step)}
    )
