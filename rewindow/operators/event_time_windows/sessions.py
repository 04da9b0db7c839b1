"""Sessions: windows that start with a tuple and end a gap after their last tuple.

A tuple on time never belongs to a session that has fired: its timestamp is not below the watermark,
and the watermark is not below the session's end. So the sessions depend only on the sorted tuples
on time, not on the order of their arrival.

Tuples of a key within one multiple of the gap are always in the same session, so they are
aggregated first. Only these aggregates are sorted, those of a key in one partition.

Rules: E70
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rewindow.operators.event_time.lateness import ON_TIME, OUTCOME, TIMESTAMP, Lateness, matched
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
from rewindow.operators.event_time_windows.settings import SessionWindows
from rewindow.spark.columns import aliased, bigint, named_columns, or_true, union_all
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FIRST_TS = "_rw_first_us"
LAST_TS = "_rw_last_us"
TICKS_APART_US = 1_000_000
"""Assumed minimal distance, in event time, of ticks that raise the watermark."""
STATE = (STREAM, FIRST_TS, LAST_TS, TUPLES)
"""Columns of the carried state in addition to `recording_keys`, keys and parts of aggregates:
the stream, its first and last timestamp in a session that has not fired, and the number of
tuples.
"""
_IS_NEW = "_is_new"
_NUMBER = "_number"
_BUCKET = "_bucket"


def session_rows(
    classified: Lateness,
    sessions: SessionWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    state: DataFrame | None,
) -> DataFrame:
    """Aggregates tuples that are close to each other and adds the session of each row: `BEGIN`,
    `END`, `LAST_TS`.
    """
    rows = _buckets(_tuples(classified, sessions, aggregate, own), aggregate, own)
    if state is not None:
        rows = rows.unionByName(check_state(state, rows.columns))
    rows = numbered(rows, sessions, own, name=_NUMBER)
    whole = Window.partitionBy(*named_columns(own), _NUMBER)
    ends = F.max(LAST_TS).over(whole) + sessions.behind_us
    return rows.withColumns(
        {BEGIN: F.min(FIRST_TS).over(whole), END: ends, FIRED_UNTIL: bigint(None)}
    )


def bucket_of(at: Column, sessions: SessionWindows) -> Column:
    """Rounds a timestamp down to a multiple of the gap.

    Tuples of a key with the same multiple are always in one session.
    """
    return at - F.pmod(at, F.lit(sessions.gap_us))


def numbered(
    rows: DataFrame,
    sessions: SessionWindows,
    by: Sequence[str],
    name: str,
) -> DataFrame:
    """Numbers the sessions that have the same values in the columns `by`, and adds the number to
    each row.

    Rules: E67, E68
    """
    order = Window.partitionBy(*named_columns(by)).orderBy(
        FIRST_TS,
        LAST_TS,
    )
    apart_us = F.col(FIRST_TS) - F.max(LAST_TS).over(
        order.rowsBetween(Window.unboundedPreceding, -1)
    )
    # The first row of a key opens its first session. Two rows may be equal, so the number counts
    # rows, not timestamps.
    opens = or_true(apart_us >= sessions.behind_us).cast("int")
    return (
        rows.withColumn(_IS_NEW, opens)
        .withColumn(name, F.sum(_IS_NEW).over(order.rowsBetween(Window.unboundedPreceding, 0)))
        .drop(_IS_NEW)
    )


def _tuples(
    classified: Lateness,
    sessions: SessionWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    at = F.col(TIMESTAMP)
    of_streams = []
    for name, frame in classified.tuples.items():
        base = [
            F.lit(name).alias(STREAM), bucket_of(at, sessions).alias(_BUCKET),
            at.alias(FIRST_TS), at.alias(LAST_TS), bigint(1).alias(TUPLES),
            F.lit(False).alias(CARRIED),
        ]  # fmt: skip
        parts = aliased(aggregate.parts)
        on_time = frame.where(F.col(OUTCOME) == ON_TIME)
        of_streams.append(on_time.select(*named_columns(own), *base, *parts))
    return union_all(of_streams)


def _buckets(
    rows: DataFrame,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Combines the rows of each stream, key and multiple of the gap if aggregates can be merged;
    otherwise returns the rows unchanged.
    """
    if not aggregate.merges:
        return rows.drop(_BUCKET)
    columns = named_columns(own)
    return rows.groupBy(*columns, STREAM, CARRIED, _BUCKET).agg(*_totals(aggregate)).drop(_BUCKET)


def _totals(aggregate: AggregateSpec) -> list[Column]:
    merged = aliased(aggregate.merged)
    bounds = [F.min(FIRST_TS).alias(FIRST_TS), F.max(LAST_TS).alias(LAST_TS)]
    return [*bounds, F.sum(TUPLES).alias(TUPLES), *merged]


def fired_sessions(
    rows: DataFrame,
    classified: Lateness,
    sessions: SessionWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    recording_keys: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    """Returns the sessions that fire.

    Each fires at the first tick whose watermark is not below its end.

    Rules: E28, E67
    """
    columns = named_columns(own)
    results = aliased(aggregate.results)
    found = rows.groupBy(*columns, BEGIN, END).agg(*results)
    ends = rows.select(*named_columns(recording_keys), END).distinct()
    ticks = first_ticks(
        ends,
        classified.ticks,
        min(sessions.gap_us, TICKS_APART_US),
        recording_keys=recording_keys,
    )
    joined = matched(
        found,
        ticks,
        recording_keys,
        on=END,
        how="inner" if ended_us is None else "left",
    )
    fired_us = F.col(FIRED) if ended_us is None else F.coalesce(FIRED, bigint(ended_us))
    end_us = F.col(END) + sessions.gap_us - sessions.behind_us
    about = firing_columns(
        F.col(BEGIN),
        end_us,
        F.lit(0),
        kind=F.lit(ON_TIME),
        fired_us=fired_us,
    )
    return joined.select(
        *columns,
        *about,
        *named_columns(aggregate.results),
    )


def left_sessions(
    rows: DataFrame,
    ticks: DataFrame,
    aggregate: AggregateSpec,
    own: Sequence[str],
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the sessions that have not fired.

    Rules: E41
    """
    waiting = reached(rows, ticks, recording_keys, ended_us=None).where(
        F.col(REACHED).isNull() | (F.col(END) > F.col(REACHED))
    )
    if not aggregate.merges:
        return waiting.drop(REACHED, BEGIN, END, FIRED_UNTIL, CARRIED, _NUMBER)
    columns = named_columns(own)
    return waiting.groupBy(*columns, STREAM, BEGIN).agg(*_totals(aggregate)).drop(BEGIN)
