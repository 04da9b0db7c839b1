"""Merge: combines streams with the same columns into one, in the order of event time.

Rules: H59
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.names import quoted_column
from rewindow.operators.columns import AT, BIGINT_MIN, TS, WINDOW, to_us
from rewindow.sequences import excluding, map_values, matching_names, only_named
from rewindow.spark.columns import (
    aliased,
    bigint,
    column_types,
    maxima,
    named_columns,
    renamed_columns,
    union_all,
)
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

SOURCE = "_rw_source"
RELEASED_AT = "_rw_released_at"
EMISSION = "_rw_emission"
"""Columns that the Merge adds.

Rules: X22
"""
BLOCK_WINDOWS = 32
"""Windows per block. The window of a release is searched first among blocks, then within one
block.
"""
_COVER = "_cover_us"
_FROM = "_from_us"
_BLOCK = "_block"
"""Event time that every input has reached, the lowest one that a window newly covers, and the
window's block.
"""
_BEYOND = 1 << 62
"""An event time after all others."""
_RELEASED_US = "_released_us"
_ARRIVED_IN = "_arrived_in"


@dataclass(frozen=True)
class MergeResult:
    """The result of `merge`.

    Attributes:
        tuples: `window_id` of the release, the inputs' columns, `_rw_source STRING` (the port),
            `_rw_released_at` (instant of the release, in the arrival's type) and `_rw_emission
            BIGINT` (position within the window, from 0).
        state: `window_id`, `_rw_source` and the inputs' columns. A row with a window is a waiting
            tuple and the window of its arrival; a row without one is a port and the latest event
            time that it has reached.
    """

    tuples: DataFrame
    state: DataFrame


def merge(
    frames: Mapping[str, DataFrame],
    *,
    event_at: str,
    arrived_at: str = "arrived_at",
    order_by: Sequence[str] = ("offset",),
    state: DataFrame | None = None,
    ended: tuple[int, int] | None = None,
) -> MergeResult:
    """Returns one stream in which a tuple with event time T is emitted as soon as every input has
    reached a time >= T.

    A timer moves the time of its input forward like a data tuple, and is also passed on. If every
    input has already reached T, the tuple is late and is passed on when it arrives. A tuple without
    an event time is also passed on when it arrives, and does not move the time. Tuples that arrive
    at the same instant are processed together. The order in a window is: release, event time (null
    first), port, arrival. Each window is sorted separately; only a frame with one row per window is
    sorted as a whole.

    Args:
        frames: the inputs by port, in the order of the ports, with `window_id`.
        event_at: column of the event timestamp: TIMESTAMP, or BIGINT as microseconds on a relative
            clock.
        arrived_at: column of the arrival; a null in it fails the query that reads the result.
        order_by: columns that order the tuples of one input at one instant.
        state: `state` of the previous result, if the streams are processed in pieces.
        ended: the window with which all inputs have ended, and its last instant in microseconds;
            waiting tuples are then emitted. Omit it at the end of a piece that is not the end of
            the recording.

    Raises:
        InputError: there are fewer than two inputs, or they differ in their columns, or a column is
            missing or has a reserved name.

    Rules: H1, H3, H59, R86, X34
    """
    ports = list(frames)
    types = _types(frames)
    if wrong := find_fault(ports, list(types), event_at, arrived_at=arrived_at, order_by=order_by):
        raise InputError(f"streams cannot be merged: {wrong}")
    columns = list(map(quoted_column, types))
    arrivals = []
    for port, frame in frames.items():
        arrivals.append(frame.select(WINDOW, F.lit(port).alias(SOURCE), *columns))
    rows = _with_times(union_all(arrivals), event_at, arrived_at)
    clocks = rows
    waiting = rows
    if state is not None:
        before = _with_times(state, event_at, arrived_at)
        clocks = rows.unionByName(before.where(F.col(WINDOW).isNull()))
        waiting = rows.unionByName(before.where(F.col(WINDOW).isNotNull()))
    last = [] if ended is None else [_last_times(rows, ports, *ended)]
    shown = _shown(_with(clocks, last), ports)
    released = _release(
        _find_windows(waiting, shown),
        _cover_steps(_with(rows, last), shown, ports),
    )
    waiting = waiting if ended is None else waiting.where(F.lit(False))
    return MergeResult(
        _in_order(released, types, ports, arrived_at, order_by),
        _state(clocks, waiting, types, ports, event_at),
    )


def _with(rows: DataFrame, more: Sequence[DataFrame]) -> DataFrame:
    return union_all([rows, *more], allow_missing=True)


def _last_times(
    rows: DataFrame,
    ports: Sequence[str],
    window: int,
    at_us: int,
) -> DataFrame:
    """Returns one row per port, with a time after all tuples.

    A port reaches this time when the recording ends.
    """
    port = F.explode(F.array(*map(F.lit, ports))).alias(SOURCE)
    values = map_values(bigint, {WINDOW: window, AT: at_us, TS: _BEYOND})
    return rows.sparkSession.range(1).select(port, *aliased(values))


def without_waiting(state: DataFrame) -> DataFrame:
    """Returns the state after skipped windows, without waiting tuples.

    The skipped windows may have emitted these tuples, and no tuple is emitted twice.

    Args:
        state: the state before the skipped windows.
    """
    return state.where(F.col(WINDOW).isNull())


def count_waiting(state: DataFrame, emitted: DataFrame | None) -> DataFrame:
    """Counts the tuples that waited in a state and were not emitted.

    Returns one row for each window in which such tuples arrived, with `window_id` and `tuples`.

    Args:
        state: the state before skipped windows.
        emitted: tuples that were emitted in these windows, None if unknown.
    """
    from pyspark.sql.types import MapType

    waiting = state.where(F.col(WINDOW).isNotNull())
    passed = waiting.limit(0) if emitted is None else emitted
    # A multiset difference by counting: waiting tuples count 1, emitted ones -1, and a positive sum
    # is the number that was not emitted. Spark cannot group by maps, so they are not compared.
    same = []
    for field in only_named(state.schema, passed.columns):
        if field.name != WINDOW and not isinstance(field.dataType, MapType):
            same.append(quoted_column(field.name))
    both = waiting.select(WINDOW, *same, F.lit(1).alias("_rw_n"))
    both = both.unionByName(
        passed.select(bigint(None).alias(WINDOW), *same, F.lit(-1).alias("_rw_n"))
    )
    left = both.groupBy(*same).agg(
        F.max(WINDOW).alias(WINDOW),
        F.greatest(F.sum("_rw_n"), F.lit(0)).alias("_rw_n"),
    )
    counts = left.where(F.col(WINDOW).isNotNull() & (F.col("_rw_n") > 0)).groupBy(WINDOW)
    return counts.agg(F.sum("_rw_n").cast("bigint").alias("tuples"))


def find_fault(
    ports: Sequence[str],
    names: Sequence[str],
    event_at: str,
    arrived_at: str,
    order_by: Sequence[str],
) -> str | None:
    """Returns a description of an error in the ports or their columns; None if there is none.

    Args:
        ports: names of the input ports.
        names: names of the columns that all inputs have.
        event_at, arrived_at, order_by: see `merge`.
    """
    if len(set(ports)) < max(2, len(ports)):
        return f"ports must be two or more different names, not {', '.join(ports) or 'none'}"
    absent = excluding(dict.fromkeys([event_at, arrived_at, *order_by]), names)
    if absent:
        return (
            f"the streams have no column {', '.join(absent)}; available columns: {', '.join(names)}"
        )
    own = {WINDOW, SOURCE, RELEASED_AT, EMISSION}
    may_be_there = {RELEASED_AT, EMISSION} & {arrived_at, *order_by}
    taken = sorted(excluding(matching_names(names, own), may_be_there))
    if taken:
        return f"column {', '.join(taken)} has a name that Merge adds: rename it or leave it out"
    return None


def _types(frames: Mapping[str, DataFrame]) -> dict[str, DataType]:
    """Returns names and types of the input columns. They must be the same for all inputs."""
    kinds = map_values(lambda frame: column_types(frame.schema), frames)
    first, types = next(iter(kinds.items()), ("", {}))
    for port, of_port in kinds.items():
        differing = set()
        for name in types.keys() | of_port.keys():
            if types.get(name) != of_port.get(name):
                differing.add(name)
        if differing or WINDOW not in of_port:
            named = ", ".join(sorted(differing)) or WINDOW
            raise InputError(
                f'inputs "{first}" and "{port}" must both have column {named}, with the same type'
            )
    types = types.copy()
    types.pop(WINDOW, None)
    return types


def _with_times(frame: DataFrame, event_at: str, arrived_at: str) -> DataFrame:
    """Adds arrival and event time in microseconds. The query fails if a tuple has no arrival."""
    lacking = F.concat(
        F.lit("merge: a tuple has no arrival in input "),
        SOURCE,
        F.lit(", window "),
        WINDOW,
    )
    is_lacking = F.col(WINDOW).isNotNull() & F.col(quoted_column(arrived_at)).isNull()
    at_us = F.when(is_lacking, F.raise_error(lacking).cast("bigint")).otherwise(
        to_us(frame, arrived_at)
    )
    return frame.withColumns({AT: at_us, TS: to_us(frame, event_at)})


def _shown(clocks: DataFrame, ports: Sequence[str]) -> DataFrame:
    """Returns one row per window, with the event times that the ports have reached before it and
    `_cover_us` after it.

    The event time of each port is a separate column.
    """
    # The window function runs over one row per window, so its cost depends on the number of windows
    # only. Clocks of the state have no window and sort before all others.
    times = _port_columns(ports)
    so_far = Window.orderBy(F.asc_nulls_first(WINDOW)).rowsBetween(Window.unboundedPreceding, -1)
    totals = []
    before = {}
    after = []
    for name, time in times.items():
        totals.append(F.max(time).alias(name))
        before[f"{name}_before"] = F.max(name).over(so_far)
        after.append(F.greatest(name, f"{name}_before"))
    window = F.coalesce(WINDOW, F.lit(BIGINT_MIN)).alias(WINDOW)
    by_window = clocks.groupBy(WINDOW).agg(*totals).select("*", *aliased(before))
    shown = renamed_columns(dict(zip(before, times, strict=True)))
    return by_window.select(window, *shown, _least(after).alias(_COVER))


def _port_columns(ports: Sequence[str]) -> dict[str, Column]:
    """Returns one column per port: the event time of a tuple of that port, and null for other
    tuples.
    """
    columns = {}
    for place, port in enumerate(ports):
        columns[f"_shown_{place}_us"] = F.when(F.col(SOURCE) == port, F.col(TS))
    return columns


def _least(shown: Sequence[Column]) -> Column:
    """Returns the event time that every input has reached; null if an input has not sent one
    yet.
    """
    all_shown = shown[0].isNotNull()
    for time in shown[1:]:
        all_shown &= time.isNotNull()
    return F.when(all_shown, F.least(*shown))


def _find_windows(waiting: DataFrame, shown: DataFrame) -> DataFrame:
    """Returns the tuples that are released, with the window of their release.

    `_arrived_in` is the window of the arrival. A tuple is released in the window of its arrival, or
    in the first window in which every input has reached its event time, whichever is later.
    """
    # The cover only rises from window to window, so each window releases one range of event times.
    # A join of tuples with ranges compares all pairs; a first join with blocks of windows leaves
    # few ranges to compare for each tuple.
    in_order = Window.orderBy(WINDOW)
    steps = shown.select(
        F.col(WINDOW).alias("_reached_in"),
        F.coalesce(F.lag(_COVER).over(in_order) + 1, F.lit(BIGINT_MIN)).alias(_FROM),
        F.col(_COVER),
        F.floor(F.row_number().over(in_order) / BLOCK_WINDOWS).alias(_BLOCK),
    ).where(F.col(_COVER) >= F.col(_FROM))
    blocks = steps.groupBy(F.col(_BLOCK).alias("_in_block")).agg(
        F.min(_FROM).alias("_block_from_us"),
        F.max(_COVER).alias("_block_cover_us"),
    )
    in_block = F.col(TS).between(F.col("_block_from_us"), F.col("_block_cover_us"))
    in_step = (F.col("_in_block") == F.col(_BLOCK)) & F.col(TS).between(F.col(_FROM), F.col(_COVER))
    found = waiting.join(F.broadcast(blocks), in_block, "left").join(
        F.broadcast(steps),
        in_step,
        "left",
    )
    found = found.where(F.col(TS).isNull() | F.col("_reached_in").isNotNull())
    released_in = F.greatest(WINDOW, "_reached_in")
    return found.withColumns({WINDOW: released_in, _ARRIVED_IN: F.col(WINDOW)})


def _cover_steps(rows: DataFrame, shown: DataFrame, ports: Sequence[str]) -> DataFrame:
    """Returns the event times that the tuples of each window cover, and the instant at which each
    is covered.

    A time that was covered before the window has the smallest instant.
    """
    names = _port_columns(ports)
    times = rows.where(F.col(TS).isNotNull()).select(
        WINDOW,
        AT,
        *aliased(names),
    )
    times = times.unionByName(shown.select(WINDOW, F.lit(BIGINT_MIN).alias(AT), *names))
    so_far = Window.partitionBy(WINDOW).orderBy(AT)
    times = times.select(WINDOW, AT, *maxima(names, so_far))
    cover = _least(list(map(F.col, names))).alias(_COVER)
    return times.groupBy(WINDOW, cover).agg(F.min(AT).alias(AT)).where(F.col(_COVER).isNotNull())


def _release(found: DataFrame, steps: DataFrame) -> DataFrame:
    """Adds `_released_us`: the arrival of a tuple or the instant at which its event time is
    covered, whichever is later.
    """
    # Sorted from the highest event time down, the running minimum of the instants is the first one
    # that covers a tuple, because an instant that covers a later time covers this tuple too.
    covered = steps.select(
        WINDOW,
        F.col(_COVER).alias(TS),
        F.col(AT).alias("_covered_us"),
    )
    both = found.unionByName(covered, allowMissingColumns=True)
    from_above = Window.partitionBy(WINDOW).orderBy(F.desc_nulls_last(TS))
    since = F.when(F.col(TS).isNotNull(), F.min("_covered_us").over(from_above))
    return both.withColumn(_RELEASED_US, F.greatest(AT, since)).where(F.col(SOURCE).isNotNull())


def _in_order(
    released: DataFrame,
    types: Mapping[str, DataType],
    ports: Sequence[str],
    arrived_at: str,
    order_by: Sequence[str],
) -> DataFrame:
    """Returns the input columns and the columns that the Merge adds, in the order of emission."""
    port = F.array_position(F.array(*map(F.lit, ports)), F.col(SOURCE))
    arrival = [_ARRIVED_IN, AT, *map(F.asc_nulls_first, map(quoted_column, order_by))]
    order = Window.partitionBy(WINDOW).orderBy(
        _RELEASED_US,
        F.asc_nulls_first(TS),
        port,
        *arrival,
    )
    place = F.row_number().over(order) - 1
    kept = named_columns(excluding(types, (RELEASED_AT, EMISSION)))
    released_at = _from_us(F.col(_RELEASED_US), types[arrived_at]).alias(RELEASED_AT)
    return released.select(
        WINDOW,
        *kept,
        SOURCE,
        released_at,
        place.cast("bigint").alias(EMISSION),
    )


def _state(
    clocks: DataFrame,
    waiting: DataFrame,
    types: Mapping[str, DataType],
    ports: Sequence[str],
    event_at: str,
) -> DataFrame:
    """Returns the tuples that are not covered at the end, and the latest event time of each
    port.
    """
    highest = clocks.groupBy(SOURCE).agg(F.max(TS).alias(TS)).where(F.col(TS).isNotNull())
    cover = highest.agg(F.when(F.count("*") == len(ports), F.min(TS)).alias(_COVER))
    still = F.col(TS) > F.coalesce(F.col(_COVER), F.col(TS) - 1)
    left = (
        waiting.crossJoin(F.broadcast(cover))
        .where(still)
        .select(WINDOW, SOURCE, *map(quoted_column, types))
    )
    shown = highest.select(SOURCE, _from_us(F.col(TS), types[event_at]).alias(event_at))
    return left.unionByName(shown, allowMissingColumns=True)


def _from_us(time_us: Column, kind: DataType) -> Column:
    """Returns microseconds converted to a column's type, the inverse of `to_us`."""
    from pyspark.sql.types import IntegralType

    return (time_us if isinstance(kind, IntegralType) else F.timestamp_micros(time_us)).cast(kind)
