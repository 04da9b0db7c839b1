"""Finds tuples that are in no window: late tuples, and tuples between two windows.

Rules: E5, E20
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.operators.event_time.lateness import ON_TIME, OUTCOME, TIMESTAMP, Lateness
from rewindow.operators.event_time_windows.grid import (
    PANE,
    first_begin,
    inside,
    last_begin,
    pane_of,
)
from rewindow.operators.event_time_windows.settings import AnyWindows, EventWindows, SessionWindows
from rewindow.sequences import map_values
from rewindow.spark.columns import bigint
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TARGET = ("_rw_window_begin_us", "_rw_window_end_us")
"""Range of the windows of a late tuple: the start of the first, the end of the last."""
BETWEEN = "between_windows"


def late_tuples(classified: Lateness, windows: AnyWindows) -> dict[str, DataFrame]:
    """Returns the late tuples, by stream, with the range of the windows that they missed.

    Rules: E5
    """
    if not isinstance(windows, EventWindows):
        begin = end = bigint(None)
        if isinstance(windows, SessionWindows):
            begin = F.col(TIMESTAMP)
            end = F.col(TIMESTAMP) + windows.gap_us
        target = dict(zip(TARGET, (begin, end), strict=True))
        return map_values(lambda frame: frame.withColumns(target), classified.late)
    ends = (inside(windows, first_begin(windows)), inside(windows, last_begin(windows)))
    late = {}
    for name, frame in classified.late.items():
        placed = frame.withColumn(PANE, pane_of(windows))
        late[name] = placed.withColumns(
            {TARGET[0]: ends[0], TARGET[1]: ends[1] + windows.length_us}
        ).drop(PANE)
    return late


def with_between(frame: DataFrame, windows: AnyWindows) -> DataFrame:
    """Changes the outcome of tuples on time that are between two windows to `BETWEEN`."""
    if not isinstance(windows, EventWindows) or windows.slide_us <= windows.length_us:
        return frame
    outside = (F.col(OUTCOME) == ON_TIME) & (first_begin(windows) > last_begin(windows))
    outcome = F.when(outside, BETWEEN).otherwise(F.col(OUTCOME))
    return frame.withColumn(PANE, pane_of(windows)).withColumn(OUTCOME, outcome).drop(PANE)


def tuples_between(classified: Lateness, windows: AnyWindows) -> dict[str, DataFrame]:
    """Returns the tuples on time, by stream, that are between two windows.

    Rules: E20
    """
    if not isinstance(windows, EventWindows):
        return map_values(lambda frame: frame.where(F.lit(False)), classified.tuples)
    outside = first_begin(windows) > last_begin(windows)
    between = {}
    for name, frame in classified.tuples.items():
        placed = frame.where(F.col(OUTCOME) == ON_TIME).withColumn(PANE, pane_of(windows))
        between[name] = placed.where(outside).drop(PANE)
    return between
