"""Windows that fire more than once: early, on time, and again for late tuples.

In each of its windows, a tuple is emitted at one instant on the arrival clock, its due time. If an
early trigger is set and the window has not fired, the due time is the next early instant. Without
an early trigger, it is the tick that fires the window. If the window had fired before the tuple
arrived, the due time is the first tick after the arrival. With late triggers, it is the first
instant at which one of them fires, at the latest the tick that removes the window. So each firing
is a plain aggregate by window and due time, and the content of a window is a running merge over its
firings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rewindow.names import quoted_column
from rewindow.operators.columns import floor_div
from rewindow.operators.event_time import watermarks as marks
from rewindow.operators.event_time.arrival_clock import ArrivalClock
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
    WINDOW,
    check_state,
    first_ticks,
    reached,
)
from rewindow.operators.event_time_windows.grid import PANE, each_begin, first_begin, pane_of
from rewindow.operators.event_time_windows.settings import EventWindows, GlobalWindow
from rewindow.sequences import excluding
from rewindow.spark.columns import (
    aliased,
    bigint,
    named_columns,
    null_of,
    or_false,
    or_true,
    union_all,
)
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

Repeating = EventWindows | GlobalWindow
EARLY = "early"
RETRACTION = "retraction"
IS_LATE = "_rw_is_late"
_DUE = "_rw_due_us"
_PANES = "_rw_panes"
_MANY = "_rw_many"
STATE = (STREAM, BEGIN, IS_LATE, _DUE, _PANES, _MANY, TUPLES, FIRED_UNTIL)
"""Columns of the carried state in addition to `recording_keys`, keys and parts: stream and start
of the window; whether its tuples arrived after it had fired; their due time, null for the firing
of the window; how often the window has emitted the content of the row, 0 for a row that was not
emitted; the number of its tuples; the number of those on time for which it is the first window;
the watermark up to which windows have fired.
"""
_KIND = "_kind"
_PANE = "_pane"
_SHOWN = "_shown"
_ARRIVED = "_arrived_us"
_NUMBER = "_number"
_MULTIPLE = "_multiple"
_NOW = "_now"
_BEFORE = "_before"
_UPDATES = "_updates"
_SEEN = "_seen_us"
_CALLED = "_called_us"
_LIMIT = "_limit_us"
_AGO = -(1 << 63)


def pane_rows(
    classified: Lateness,
    windows: Repeating,
    aggregate: AggregateSpec,
    own: Sequence[str],
    state: DataFrame | None,
) -> DataFrame:
    """Returns the content of windows, with one row per stream, key, window and due time.

    Columns: `STATE`, the parts of aggregates, `END`.
    """
    aggregate.check_merges()
    # Triggers by count need single tuples, because the number of a tuple decides when it is
    # emitted. They are applied before rows with the same instant are merged.
    parts = []
    for name, frame in classified.tuples.items():
        parts.append(_tuples(frame, name, classified.clock, windows, aggregate, own))
    rows = union_all(parts)
    if state is not None:
        known = check_state(state, excluding(rows.columns, (_ARRIVED,)))
        rows = rows.unionByName(known.withColumn(_ARRIVED, bigint(None)))
    if windows.early_tuples is not None or windows.late_tuples is not None:
        rows = _numbered(rows, aggregate, own)
    if windows.early_tuples is not None:
        rows = _early_by_count(rows, windows.early_tuples, own)
    if windows.late_tuples is not None:
        rows = _late_by_count(rows, windows.late_tuples, classified.clock, own=own)
    return _merged(rows, aggregate, own, CARRIED).withColumn(
        END,
        F.col(BEGIN) + windows.length_us + windows.behind_us,
    )


def _merged(rows: DataFrame, aggregate: AggregateSpec, own: Sequence[str], *more: str) -> DataFrame:
    merged = aliased(aggregate.merged)
    by = [*own, STREAM, BEGIN, IS_LATE, _DUE, _PANES, FIRED_UNTIL, *more]
    counts = [F.sum(TUPLES).alias(TUPLES), F.sum(_MANY).alias(_MANY)]
    return rows.groupBy(*named_columns(by)).agg(*counts, *merged)


def _tuples(
    frame: DataFrame,
    name: str,
    clock: ArrivalClock,
    windows: Repeating,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Returns the tuples of a stream that are in windows: tuples on time, and late tuples within
    the allowed lateness.

    Rules: E49
    """
    allowed = (F.col(OUTCOME) == LATE) & (F.col(TIMESTAMP) >= F.col(WATERMARK) - windows.allowed_us)
    on_time = F.col(OUTCOME) == ON_TIME
    arrived = arrived_us(frame, name, clock.settings.arrived_at)
    placed = frame.where(on_time | allowed).withColumns({_ARRIVED: arrived, PANE: pane_of(windows)})
    first = first_begin(windows)
    spread = placed.select("*", each_begin(windows).alias(BEGIN))
    is_late = or_false(F.col(BEGIN) + windows.length_us + windows.behind_us <= F.col(WATERMARK))
    return spread.select(
        *named_columns(own),
        F.lit(name).alias(STREAM),
        BEGIN,
        is_late.alias(IS_LATE),
        F.when(is_late, _late_after(clock, windows))
        .otherwise(_early_after(clock, windows))
        .alias(_DUE),
        bigint(0).alias(_PANES),
        F.when(on_time & (F.col(BEGIN) == first), 1).otherwise(0).cast("bigint").alias(TUPLES),
        bigint(1).alias(_MANY),
        bigint(None).alias(FIRED_UNTIL),
        F.lit(False).alias(CARRIED),
        _ARRIVED,
        *aliased(aggregate.parts),
    )


def tick_after(clock: ArrivalClock, arrived_us: Column) -> Column:
    """Returns the first tick at or after the arrival of a tuple.

    Rules: E15, X29
    """
    tick = marks.tick_of(clock.settings, arrived_us, clock.origin_us)
    return tick * clock.settings.watermark_interval_us + clock.origin_us


def _early_after(clock: ArrivalClock, windows: Repeating) -> Column:
    """Returns the first early instant at or after the arrival of a tuple; null without early
    triggers.

    Rules: E56
    """
    return (
        bigint(None)
        if windows.early_us is None
        else tick_after(_every(clock, windows.early_us), F.col(_ARRIVED))
    )


def _late_after(clock: ArrivalClock, windows: Repeating) -> Column:
    """Returns the first late instant at or after the arrival of a tuple.

    Without late triggers this is a tick. With only a trigger by count, it is null.

    Rules: E56, E58
    """
    if windows.late_us is None and windows.late_tuples is not None:
        return bigint(None)
    return tick_after(
        clock if windows.late_us is None else _every(clock, windows.late_us),
        F.col(_ARRIVED),
    )


def _every(clock: ArrivalClock, interval_us: int) -> ArrivalClock:
    return ArrivalClock(
        clock.settings.model_copy(update={"watermark_interval_us": interval_us}),
        clock.origin_us,
    )


def _numbered(
    rows: DataFrame,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Numbers the tuples of each window in the order of arrival, after those of earlier pieces.

    Late tuples are numbered after all other tuples of their window, because the watermark only
    rises.

    Rules: E57
    """
    window = Window.partitionBy(*named_columns(own), BEGIN)
    order = window.orderBy(_ARRIVED, STREAM, *aggregate.parts).rowsBetween(
        Window.unboundedPreceding,
        0,
    )
    before = F.coalesce(F.sum(F.when(F.col(CARRIED), F.col(_MANY))).over(window), F.lit(0))
    return rows.withColumn(
        _NUMBER,
        before + F.sum(F.when(F.col(CARRIED), 0).otherwise(1)).over(order),
    )


def _early_by_count(rows: DataFrame, every: int, own: Sequence[str]) -> DataFrame:
    """Sets the due time of rows to the arrival of the tuple that completes a multiple, if this
    arrival is earlier.

    Tuples of earlier pieces that were not emitted belong to the last multiple, which was not
    complete.

    Rules: E57
    """
    rows = rows.withColumn(_MULTIPLE, floor_div(F.col(_NUMBER) + every - 1, every))
    of_multiple = Window.partitionBy(
        *named_columns(own),
        BEGIN,
        _MULTIPLE,
    )
    makes_up = ~F.col(CARRIED) & ~F.col(IS_LATE) & (F.col(_NUMBER) == F.col(_MULTIPLE) * every)
    reached_us = F.max(F.when(makes_up, F.col(_ARRIVED))).over(of_multiple)
    waits = ~F.col(IS_LATE) & (F.col(_PANES) == 0)
    emit_at = F.when(waits, F.least(F.col(_DUE), reached_us)).otherwise(F.col(_DUE))
    return rows.withColumn(_DUE, emit_at).drop(_MULTIPLE)


def _late_by_count(
    rows: DataFrame,
    every: int,
    clock: ArrivalClock,
    own: Sequence[str],
) -> DataFrame:
    """Sets the due time of late rows to the first tick after a tuple has completed a multiple, if
    this tick is earlier.

    The tick emits all late tuples that arrived before it. A tuple that a late instant emits before
    its tick does not trigger a firing. Tuples of earlier pieces that wait for an instant are
    emitted together with the tuples that arrive until then.

    Rules: E57
    """
    is_carried = F.col(CARRIED)
    emit_at = F.col(_DUE)
    tick = tick_after(clock, F.col(_ARRIVED))
    waits = F.col(IS_LATE) & (F.col(_PANES) == 0)
    makes_up = (F.pmod(F.col(_NUMBER), F.lit(every)) == 0) & or_true(emit_at >= tick)
    rows = rows.withColumns(
        {
            _SEEN: F.when(
                waits,
                F.when(is_carried, F.coalesce(emit_at, F.lit(_AGO))).otherwise(tick),
            ),
            _CALLED: F.when(waits, F.when(is_carried, emit_at).when(makes_up, tick)),
        }
    )
    # In descending order, because Spark computes a minimum over all following rows again for each
    # row.
    order = Window.partitionBy(*named_columns(own), BEGIN).orderBy(F.desc(_SEEN))
    called_us = F.min(_CALLED).over(order.rangeBetween(Window.unboundedPreceding, 0))
    return rows.withColumn(
        _DUE,
        F.when(waits, F.least(emit_at, called_us)).otherwise(emit_at),
    ).drop(_SEEN, _CALLED)


def emit_at_rows(
    rows: DataFrame,
    classified: Lateness,
    windows: Repeating,
    aggregate: AggregateSpec,
    own: Sequence[str],
    recording_keys: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    """Adds to each row its due time, the kind of firing at that time, and whether the row is
    emitted in this piece.

    A late row is emitted at the latest by the tick that removes its window.

    Rules: E53, E58
    """
    rows = rows.withColumn(
        _LIMIT,
        F.col(END) + F.when(F.col(IS_LATE), windows.allowed_us).otherwise(0),
    )
    ends = rows.select(
        *named_columns(recording_keys),
        F.col(_LIMIT).alias(END),
    ).distinct()
    ticks = first_ticks(
        ends,
        classified.ticks,
        min(windows.slide_us, 1_000_000),
        recording_keys=recording_keys,
    )
    if not recording_keys and classified.clock.is_few(windows.slide_us):
        ticks = F.broadcast(ticks)
    found = matched(
        rows,
        ticks.withColumnRenamed(END, _LIMIT),
        recording_keys,
        on=_LIMIT,
        how="left",
    ).drop(_LIMIT)
    has_fired = or_false(F.col(END) <= F.col(FIRED_UNTIL)) & ~F.col(IS_LATE)
    last = bigint(ended_us)
    found = found.withColumn(FIRED, F.when(~has_fired, F.coalesce(F.col(FIRED), last)))
    if windows.is_early and windows.accumulation != "discarding":
        found = found.unionByName(_closing(found, aggregate, own))
    is_new = F.col(_PANES) == 0
    emit_at = F.when(is_new, F.least(F.col(_DUE), F.col(FIRED), last))
    kind = F.when(F.col(IS_LATE), LATE).when(emit_at == F.col(FIRED), ON_TIME).otherwise(EARLY)
    end_us = classified.clock.end_us
    shows = (
        emit_at.isNotNull()
        if end_us is None or ended_us is not None
        else or_false(emit_at < end_us)
    )
    return found.withColumns({_DUE: emit_at, _KIND: kind, _SHOWN: shows})


def _closing(
    found: DataFrame,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Returns an empty row for each window that fires on time, because a window fires even if it
    has no new tuples.
    """
    columns = [
        *named_columns(own),
        F.col(STREAM),
        F.col(BEGIN),
        F.col(END),
        F.col(FIRED),
    ]
    empty = {}
    for name in (*aggregate.parts, FIRED_UNTIL, _DUE):
        empty[name] = null_of(found.schema[name].dataType)
    empty |= dict.fromkeys((IS_LATE, CARRIED), F.lit(False))
    empty |= dict.fromkeys((_PANES, TUPLES, _MANY), bigint(0))
    return (
        found.where(F.col(FIRED).isNotNull() & ~F.col(IS_LATE))
        .select(*columns)
        .distinct()
        .withColumns(empty)
    )


def fired_rows(
    rows: DataFrame,
    windows: Repeating,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Returns one row for each firing of a window, and one that retracts the previous content.

    Rules: E59 to E61, E65, E66
    """
    columns = named_columns(own)
    firings = _firings(rows, windows, aggregate, own=own).where(_UPDATES)
    firings = firings.select(
        *columns,
        BEGIN,
        END,
        _DUE,
        F.inline(F.array(*_structs(aggregate, windows))),
    )
    if windows.accumulation == "retracting":
        firings = firings.where(F.col("pane") >= 0)
    about = list(map(F.col, WINDOW))
    firings = firings.withColumn(END, F.col(END) - windows.behind_us)
    named = firings.withColumnsRenamed({BEGIN: WINDOW[0], END: WINDOW[1], _DUE: WINDOW[4]})
    return named.select(
        *columns,
        *about,
        *aliased(aggregate.finished),
    )


def _firings(
    rows: DataFrame,
    windows: Repeating,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Returns one row for each firing, and one row for all earlier firings.

    The rows have running values, the pane, and whether the firing is emitted.

    Rules: E62
    """
    # One aggregate per firing, and a running merge over the firings of a window. The panes of
    # earlier pieces are a row before all others, so that the running values include them.
    columns = named_columns(own)
    merged = aliased(aggregate.merged)
    past = rows.where(F.col(_PANES) > 0).withColumns({_DUE: F.lit(_AGO), _KIND: F.lit("")})
    firings = rows.where(F.col(_SHOWN)).unionByName(past)
    firings = firings.groupBy(*columns, BEGIN, END, _DUE, _KIND).agg(
        F.max(_PANES).alias(_PANES),
        *merged,
    )
    order = Window.partitionBy(*columns, BEGIN).orderBy(_DUE)
    so_far = order.rowsBetween(Window.unboundedPreceding, 0)
    firings = firings.select(
        "*",
        *_running(aggregate, windows, so_far, order.rowsBetween(Window.unboundedPreceding, -1)),
    )
    updates = F.col(_DUE) > _AGO
    if windows.only_updated_panes:
        firings = _with_values(
            _with_values(firings, aggregate, _NOW),
            aggregate,
            _BEFORE,
        )
        updates &= (F.row_number().over(order) == 1) | ~F.col(_NOW).eqNullSafe(F.col(_BEFORE))
    firings = firings.withColumn(_UPDATES, updates)
    pane = F.max(_PANES).over(so_far) + F.sum(F.col(_UPDATES).cast("bigint")).over(so_far) - 1
    return firings.withColumn(_PANE, pane.cast("int"))


def _with_values(
    firings: DataFrame,
    aggregate: AggregateSpec,
    ending: str,
) -> DataFrame:
    """Adds the emitted values of a firing as a struct, computed from the running parts with the
    given name ending.
    """
    values = {}
    for part in aggregate.functions:
        values[part] = F.col(f"{part}{ending}")
    return firings.withColumns(values).withColumn(
        ending,
        F.struct(*aliased(aggregate.finished)),
    )


def _running(
    aggregate: AggregateSpec,
    windows: Repeating,
    now: WindowSpec,
    before: WindowSpec,
) -> list[Column]:
    if windows.accumulation == "discarding":
        return []
    values = []
    for order, ending in ((now, _NOW), (before, _BEFORE)):
        for part, function in aggregate.functions.items():
            value = F.call_function(function, F.col(part)).over(order)
            values.append(value.alias(f"{part}{ending}"))
    return values


def _structs(aggregate: AggregateSpec, windows: Repeating) -> list[Column]:
    """Returns the rows of a firing: the retraction of the previous pane, then the new content.

    The pane of the retraction is below 0 if there is no previous pane.
    """

    def shown(kind: Column, pane: Column, end: str) -> Column:
        values = [pane.alias("pane"), kind.alias("kind")]
        for part in aggregate.functions:
            values.append(F.col(f"{part}{end}").alias(part))
        return F.struct(*values)

    if windows.accumulation == "discarding":
        return [shown(F.col(_KIND), F.col(_PANE), "")]
    now = shown(F.col(_KIND), F.col(_PANE), _NOW)
    if windows.accumulation == "accumulating":
        return [now]
    return [shown(F.lit(RETRACTION), F.col(_PANE) - 1, _BEFORE), now]


def left_rows(
    rows: DataFrame,
    ticks: DataFrame,
    windows: Repeating,
    aggregate: AggregateSpec,
    own: Sequence[str],
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the rows that the next piece needs: content that was not emitted, and windows that
    can fire again.

    Rules: E41
    """
    # Emitted rows are merged to one row with the number of panes so far, because a later firing has
    # to number its pane and to retract the last one. Windows that cannot fire again are dropped.
    of_window = Window.partitionBy(*named_columns(own), BEGIN)
    fresh = F.size(F.collect_set(F.when(F.col(_SHOWN), F.col(_DUE))).over(of_window))
    if windows.only_updated_panes:
        updates = (
            _firings(rows, windows, aggregate, own=own)
            .where(_UPDATES)
            .groupBy(*map(quoted_column, own), BEGIN)
        )
        rows = matched(
            rows,
            updates.agg(F.count("*").alias(_UPDATES)),
            own,
            on=BEGIN,
            how="left",
        )
        fresh = F.coalesce(F.col(_UPDATES), F.lit(0))
    panes = F.max(_PANES).over(of_window) + fresh
    is_done = F.col(_SHOWN) | (F.col(_PANES) > 0)
    counted = rows.withColumns({"_all": panes.cast("bigint"), "_came_late": F.col(IS_LATE)})
    counted = counted.withColumns(
        {
            _PANES: F.when(is_done, F.col("_all")).otherwise(0).cast("bigint"),
            _DUE: F.when(~is_done, F.col(_DUE)),
            IS_LATE: F.col(IS_LATE) & ~is_done,
        }
    )
    known = F.coalesce(
        F.col(REACHED),
        F.col(FIRED_UNTIL),
        F.when(F.col("_came_late"), F.col(END)),
    )
    until = reached(counted, ticks, recording_keys, ended_us=None).withColumn(FIRED_UNTIL, known)
    is_open = or_true(F.col(END) > F.col(FIRED_UNTIL) - windows.allowed_us)
    return _merged(until.where(is_open | (F.col(_PANES) == 0)), aggregate, own)
