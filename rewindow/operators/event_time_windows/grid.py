"""Finds the windows that contain a timestamp, by panes.

A pane is a stretch of event time whose tuples are always in the same windows.

Rules: E27, E63
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.operators.event_time.lateness import TIMESTAMP
from rewindow.operators.event_time_windows.settings import EventWindows, GlobalWindow
from rewindow.spark.columns import bigint
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column

PANE = "_rw_pane_us"
"""Start of a pane."""
FEW_WINDOWS = 4
"""Up to this number of windows per tuple, tuples are copied into their windows one by one;
otherwise they are first aggregated to panes.
"""


def pane_of(windows: EventWindows | GlobalWindow) -> Column:
    if isinstance(windows, GlobalWindow):
        return F.lit(windows.begin_us)
    return F.col(TIMESTAMP) - F.pmod(F.col(TIMESTAMP), F.lit(windows.pane_us))


def first_begin(windows: EventWindows | GlobalWindow) -> Column:
    """Returns the start of the first window that contains a pane.

    Rules: E27, E63
    """
    if isinstance(windows, GlobalWindow):
        return F.lit(windows.begin_us)
    if windows.length_us % windows.slide_us == 0:
        return last_begin(windows) - windows.length_us + windows.slide_us
    before = F.col(PANE) - windows.length_us
    return before - F.pmod(before, F.lit(windows.slide_us)) + windows.slide_us


def last_begin(windows: EventWindows | GlobalWindow) -> Column:
    if windows.pane_us == windows.slide_us:
        return F.col(PANE)
    return F.col(PANE) - F.pmod(F.col(PANE), F.lit(windows.slide_us))


def inside(windows: EventWindows | GlobalWindow, value: Column) -> Column:
    """Returns a value if its pane is in a window, and null otherwise."""
    if windows.slide_us <= windows.length_us:
        return value
    return F.when(first_begin(windows) <= last_begin(windows), value)


def begins(windows: EventWindows | GlobalWindow) -> Column:
    step = bigint(windows.slide_us)
    return inside(windows, F.sequence(first_begin(windows), last_begin(windows), step))


def each_begin(windows: EventWindows | GlobalWindow) -> Column:
    """Returns the start of each window that contains a pane, one row per window if windows
    overlap.
    """
    last = last_begin(windows)
    if windows.slide_us >= windows.length_us:
        return last
    most = -(-windows.length_us // windows.slide_us)
    if most > FEW_WINDOWS or windows.length_us % windows.slide_us:
        return F.explode(begins(windows))
    return F.explode(F.array(*(last - number * windows.slide_us for number in range(most))))
