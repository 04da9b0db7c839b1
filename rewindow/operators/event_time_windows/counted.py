"""Windows with a fixed number of tuples of a key, in the order of their event time.

A tuple is numbered once the watermark has passed it, because all tuples on time that arrive later
have larger timestamps. So the numbers depend only on the sorted tuples on time, not on the order of
their arrival, and a window fires at the first tick whose watermark is after its last tuple. Tuples
with the same timestamp are ordered by arrival, then by stream and by their contribution to the
aggregates.

Tuples of a key are sorted in stretches of event time, in parallel; the number of a stretch's first
tuple is computed from one row per stretch. The state has the tuples without a number, aggregates of
numbered tuples in a window that has not fired, and at least one row per key, with the number of its
tuples so far.

Rules: E13, E14, X36
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rewindow.names import quoted_column
from rewindow.operators.columns import floor_div
from rewindow.operators.event_time.lateness import (
    ON_TIME,
    OUTCOME,
    TIMESTAMP,
    Lateness,
    arrived_us,
    matched,
)
from rewindow.operators.event_time_windows.aggregates import AggregateSpec
from rewindow.operators.event_time_windows.firing import (
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
from rewindow.operators.event_time_windows.settings import CountWindows
from rewindow.spark.columns import aliased, bigint, maxima, named_columns, or_false, union_all
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FIRST_TS = "_rw_first_us"
LAST_TS = "_rw_last_us"
ARRIVED = "_rw_arrived_us"
ORDINAL = "_rw_place"
LAST_ORDINAL = "_rw_last_place"
STATE = (STREAM, FIRST_TS, LAST_TS, ARRIVED, ORDINAL, LAST_ORDINAL, TUPLES)
"""Columns of the carried state in addition to `recording_keys`, keys and parts: stream, first
and last timestamp, the last arrival, the first and the last tuple number, counted from 0, null
for tuples without one, and the number of tuples.
"""
_BASE = "_base"
_TOTAL = "_total"
_HAD = "_had"
_UNTIL = "_until"
_STRETCH = "_stretch"
_AHEAD = "_ahead"
_COUNT = "_count"
_STRETCH_US = 60_000_000
_STEP_US = 1_000_000
_MOST = (1 << 63) - 1


def counted_rows(
    classified: Lateness,
    windows: CountWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    state: DataFrame | None,
    recording_keys: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    """Returns tuples, and rows of several tuples, with their tuple numbers.

    Each row also has the number of tuples of its key that were numbered before this piece and that
    are numbered now. `END` is not above the watermark if the first window of a row has fired;
    `FIRED_UNTIL` is set if it had fired before.
    """
    rows = _tuples(classified, aggregate, own)
    if state is not None:
        rows = rows.unionByName(check_state(state, rows.columns))
    counted = _placed(
        reached(rows, classified.ticks, recording_keys, ended_us=ended_us),
        aggregate,
        own,
    ).drop(REACHED)
    first = _first_end(windows)
    limit = F.col(_TOTAL) if ended_us is None else F.lit(_MOST)
    return counted.withColumns(
        {
            END: F.when(first <= limit, -_MOST).otherwise(_MOST),
            FIRED_UNTIL: F.when(F.col(_HAD) & (first <= F.col(_BASE)), _MOST),
        }
    )


def _tuples(
    classified: Lateness,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    of_streams = []
    for name, frame in classified.tuples.items():
        at = F.col(TIMESTAMP)
        nowhere = bigint(None)
        base = [
            F.lit(name).alias(STREAM), at.alias(FIRST_TS), at.alias(LAST_TS),
            arrived_us(frame, name, classified.clock.settings.arrived_at).alias(ARRIVED),
            nowhere.alias(ORDINAL), nowhere.alias(LAST_ORDINAL),
            bigint(1).alias(TUPLES), F.lit(False).alias(CARRIED),
        ]  # fmt: skip
        parts = aliased(aggregate.parts)
        on_time = frame.where(F.col(OUTCOME) == ON_TIME)
        of_streams.append(on_time.select(*named_columns(own), *base, *parts))
    return union_all(of_streams)


def _placed(
    rows: DataFrame,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Numbers the tuples that the watermark has passed, after those of earlier pieces, and returns
    all rows.

    Adds whether a row was numbered before, and how many tuples of the key were numbered before this
    piece and are now. Rows that were numbered before form a stretch before all others. Tuples
    without a number form a stretch after all others.
    """
    had = F.col(ORDINAL).isNotNull()
    passed = or_false(F.col(LAST_TS) < F.col(REACHED))
    stretch = (
        F.when(had, -_MOST).when(passed, floor_div(F.col(LAST_TS), _STRETCH_US)).otherwise(_MOST)
    )
    rows = rows.withColumns({_HAD: had, _STRETCH: stretch})
    order = Window.partitionBy(*map(quoted_column, own), _STRETCH).orderBy(
        LAST_TS,
        ARRIVED,
        STREAM,
        *aggregate.parts,
    )
    found = matched(rows, _stretches(rows, own), own, on=_STRETCH, how="inner")
    place = (F.col(_AHEAD) + F.row_number().over(order) - 1).cast("bigint")
    is_new = ~F.col(_HAD) & (F.col(_STRETCH) < _MOST)
    found = found.withColumn(ORDINAL, F.when(is_new, place).otherwise(F.col(ORDINAL)))
    last = F.when(is_new, F.col(ORDINAL)).otherwise(F.col(LAST_ORDINAL))
    return found.withColumn(LAST_ORDINAL, last).drop(_STRETCH, _AHEAD)


def _stretches(rows: DataFrame, own: Sequence[str]) -> DataFrame:
    """Returns a row per key and stretch, with the count of tuples before it.

    The row also has the number of tuples of the key that were numbered before this piece and that
    are numbered now.
    """
    # The number of a tuple is its row number within a stretch plus the sizes of all earlier
    # stretches of the key. Only these sizes, one row per stretch, are summed in order.
    columns = named_columns(own)
    is_new = ~F.col(_HAD) & (F.col(_STRETCH) < _MOST)
    before = F.coalesce(F.max(F.when(F.col(_HAD), F.col(LAST_ORDINAL))) + 1, F.lit(0))
    count = F.when(F.col(_STRETCH) == -_MOST, before).otherwise(F.count(F.when(is_new, 1)))
    sizes = rows.groupBy(*columns, _STRETCH).agg(count.alias(_COUNT))
    of_key = Window.partitionBy(*columns)
    so_far = F.sum(_COUNT).over(of_key.orderBy(_STRETCH).rowsBetween(Window.unboundedPreceding, -1))
    base = F.sum(F.when(F.col(_STRETCH) == -_MOST, F.col(_COUNT))).over(of_key)
    return sizes.select(
        *columns,
        _STRETCH,
        F.coalesce(so_far, F.lit(0)).alias(_AHEAD),
        F.coalesce(base, F.lit(0)).alias(_BASE),
        F.sum(_COUNT).over(of_key).alias(_TOTAL),
    )


def _first_end(windows: CountWindows) -> Column:
    """Returns the tuple number after the first window of a row; null if it is not numbered yet."""
    return (floor_div(F.col(ORDINAL), windows.slide) + 1) * windows.slide


def _last_end(windows: CountWindows) -> Column:
    return floor_div(F.col(ORDINAL) + windows.length, windows.slide) * windows.slide


def fired_counted(
    rows: DataFrame,
    classified: Lateness,
    windows: CountWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
    recording_keys: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    """Returns the windows that fire, each with the tick that fires it.

    A window fires when the watermark has passed its last tuple. At the end of the recording, the
    remaining tuples of a key form a shorter window.

    Args:
        rows: the numbered tuples, see `counted_rows`.
        classified: the tuples by lateness.
        windows: length and slide.
        aggregate: the aggregates.
        own: names of the keys, including `recording_keys`.
        recording_keys: names of the keys that separate recordings.
        ended_us: end of the recording; None if this is not its last part.

    Rules: E45
    """
    # Windows end at multiples of the slide in the numbering of a key's tuples. Each tuple is copied
    # into all windows of this piece that contain it, so that a plain aggregate computes them.
    columns = named_columns(own)
    results = aliased(aggregate.results)
    whole = floor_div(F.col(_TOTAL), windows.slide) * windows.slide
    limit = (
        whole
        if ended_us is None
        else whole + F.when(whole < F.col(_TOTAL), windows.slide).otherwise(0)
    )
    first = F.greatest(
        _first_end(windows),
        floor_div(F.col(_BASE), windows.slide) * windows.slide + windows.slide,
    )
    last = F.least(_last_end(windows), limit)
    emit_at = rows.where(F.col(ORDINAL).isNotNull() & (first <= last))
    ends = F.explode(F.sequence(first, last, bigint(windows.slide))).alias(_UNTIL)
    spread = emit_at.select(
        *columns,
        FIRST_TS,
        LAST_TS,
        _TOTAL,
        *aggregate.parts,
        ends,
    )
    bounds = [F.min(FIRST_TS).alias(FIRST_TS), (F.max(LAST_TS) + 1).alias(END)]
    found = spread.groupBy(*columns, _UNTIL, _TOTAL).agg(*bounds, *results)
    ends_of = found.select(*named_columns(recording_keys), END).distinct()
    ticks = first_ticks(ends_of, classified.ticks, _STEP_US, recording_keys=recording_keys)
    joined = matched(
        found,
        ticks,
        recording_keys,
        on=END,
        how="inner" if ended_us is None else "left",
    )
    fired_us = F.when(F.col(_UNTIL) <= F.col(_TOTAL), F.col(FIRED))
    fired_us = fired_us if ended_us is None else F.coalesce(fired_us, bigint(ended_us))
    number = (F.col(_UNTIL) / windows.slide - 1).cast("int")
    about = firing_columns(
        F.col(FIRST_TS),
        F.col(END),
        number,
        kind=F.lit(ON_TIME),
        fired_us=fired_us,
    )
    return joined.select(
        *columns,
        *about,
        *named_columns(aggregate.results),
    )


def first_fired_counted(
    rows: DataFrame,
    fired: DataFrame,
    windows: CountWindows,
    own: Sequence[str],
) -> DataFrame:
    """Returns the rows whose first window had not fired before.

    `FIRED` is the tick that fires it, or null.
    """
    number = (_first_end(windows) / windows.slide - 1).cast("int")
    waiting = rows.where(F.col(FIRED_UNTIL).isNull()).withColumn(_UNTIL, number)
    columns = named_columns(own)
    shown = fired.select(
        *columns,
        F.col("pane").alias(_UNTIL),
        F.col("fired_us").alias(FIRED),
    )
    return matched(waiting, shown, own, on=_UNTIL, how="left")


def left_counted(
    rows: DataFrame,
    windows: CountWindows,
    aggregate: AggregateSpec,
    own: Sequence[str],
) -> DataFrame:
    """Returns the tuples without a number, the tuples in a window that has not fired, and the last
    row of each key.

    Rules: E41
    """
    waits = F.col(ORDINAL).isNull()
    is_last = F.col(LAST_ORDINAL) == F.col(_TOTAL) - 1
    kept = rows.where(waits | is_last | (_last_end(windows) > F.col(_TOTAL)))
    kept = kept.drop(_BASE, _TOTAL, _HAD, END, FIRED_UNTIL, CARRIED)
    if not aggregate.merges:
        return kept
    columns = named_columns(own)
    pane = (F.col(ORDINAL) - F.pmod(F.col(ORDINAL), F.lit(windows.pane))).alias(ORDINAL)
    merged = aliased(aggregate.merged)
    bounds = [
        F.min(FIRST_TS).alias(FIRST_TS),
        *maxima((LAST_TS, ARRIVED, LAST_ORDINAL)),
    ]
    panes = kept.where(~waits).groupBy(*columns, STREAM, pane)
    return panes.agg(*bounds, F.sum(TUPLES).alias(TUPLES), *merged).unionByName(kept.where(waits))
