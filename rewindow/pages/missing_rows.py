"""Computes missing rows in event time: per window for the calendar, and per day as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from rewindow.inspection.event_gaps import EventGaps
from rewindow.inspection.gap_rows import Gap
from rewindow.operators.gaps.sql import LATE_REPAIRED, MISSING_ROWS, RECORDED_NULLS
from rewindow.operators.schedule.hours_grid import HoursGrid
from rewindow.pages.calendar import short
from rewindow.pages.replay_report import Layer
from rewindow.windows import Grid, WindowRange, to_datetime

_KEYS_MAX = 8
"""Number of keys with a separate layer and column: those with the most missing rows."""
_DAYS = Grid(86_400_000)


@dataclass(frozen=True)
class MissingDays:
    """The missing rows by day and key, as the numbers for the calendar.

    Attributes:
        keys: the keys with the most missing rows, in descending order.
        rows: day, missing rows of all keys, and of each of `keys`, in order of time.
        day_count, key_count: numbers of days and keys with missing rows.
    """

    keys: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]
    day_count: int
    key_count: int


def missing_by_day(event: EventGaps, rows_max: int) -> MissingDays:
    """Returns missing rows by day, in UTC, and key.

    The number of days is limited. The days with the most missing rows are chosen.
    """
    days = WindowRange(
        _DAYS.window(event.from_us),
        max(_DAYS.window(event.to_us - 1), _DAYS.window(event.from_us)),
    )
    by_key = _by_key(event)
    counts = {
        key: missing_by_window(_open_parts(found, event.hours), event.cadence_us, days, grid=_DAYS)
        for key, found in by_key.items()
    }
    total = sum(counts.values(), np.zeros(len(days)))
    # The days with the most missing rows are selected by count, and listed in order of time.
    shown = np.sort(np.argsort(-total, kind="stable")[: min(rows_max, np.count_nonzero(total))])
    keys = tuple(by_key)[:_KEYS_MAX]
    rows = []
    for day in shown:
        date = f"{to_datetime(_DAYS.start_us(days.first + int(day))):%Y-%m-%d}"
        of_keys = tuple(short(float(counts[key][day])) for key in keys)
        rows.append((date, short(float(total[day])), of_keys))
    return MissingDays(keys, tuple(rows), int(np.count_nonzero(total)), key_count=len(by_key))


def _by_key(event: EventGaps) -> dict[str, list[Gap]]:
    """Returns the gaps without rows for each key.

    The key with the most missing rows comes first.
    """
    by_key: dict[str, list[Gap]] = {}
    for gap in event.gaps:
        if gap.kind not in (RECORDED_NULLS, LATE_REPAIRED):
            by_key.setdefault(gap.keys, []).append(gap)
    return dict(most_missing_first(by_key))


def most_missing_first(gaps: dict[str, list[Gap]]) -> list[tuple[str, list[Gap]]]:
    """Returns names with their gaps. The name with the most missing rows comes first."""

    def rank(named: tuple[str, list[Gap]]) -> tuple[int, str]:
        name, gaps = named
        return -sum(gap.count for gap in gaps), name

    return sorted(gaps.items(), key=rank)


def calendar_layers(event: EventGaps, windows: WindowRange, grid: Grid) -> list[Layer]:
    """Returns layers with the missing rows in the time of each window: of all keys, of the worst
    keys, and the completeness of all keys.
    """
    by_key = _by_key(event)
    count = max(sum(not row.column for row in event.completeness), 1)

    def missing(found: Sequence[Gap]) -> npt.NDArray[np.float64]:
        return missing_by_window(
            _open_parts(found, event.hours), event.cadence_us, windows, grid=grid
        )

    every = missing(list(chain.from_iterable(by_key.values())))
    layers = [Layer("missing", "missing, all keys", "rows", values=every, hue="red")]
    whole = Gap(
        MISSING_ROWS,
        windows,
        grid.start_us(windows.first),
        to_us=grid.end_us(windows.last),
        count=0,
    )
    expected = count * missing([whole])
    share = np.divide(every, expected, out=np.zeros(len(every)), where=expected > 0)
    layers.append(
        Layer(
            "complete",
            "completeness",
            "%",
            values=100 * (1 - share).clip(0, 1),
            total=False,
            hue="green",
        )
    )
    for key, found in list(by_key.items())[:_KEYS_MAX] if count > 1 else []:
        layers.append(Layer(key, key, "rows", values=missing(found), hue="amber"))
    return layers


def _open_parts(found: Sequence[Gap], hours: HoursGrid | None) -> list[Gap]:
    """Divides gaps at closing times into the parts in which rows were expected."""
    if hours is None:
        return [*found]
    parts = []
    for gap in found:
        for start, end in hours.openings(gap.from_us, gap.to_us):
            parts.append(replace(gap, from_us=start, to_us=end))
    return parts


def missing_by_window(
    found: Sequence[Gap],
    cadence_us: int,
    windows: WindowRange,
    grid: Grid,
) -> npt.NDArray[np.float64]:
    """Returns the number of missing rows in each window's time.

    It is the length of gaps within the window, divided by the cadence.
    """
    begin = grid.start_us(windows.first)
    width = grid.width_us
    size = len(windows)
    length = np.zeros(size)
    steps = np.zeros(size + 1)
    if found:
        from_us = np.array([gap.from_us for gap in found], dtype=np.int64) - begin
        to_us = np.array([gap.to_us for gap in found], dtype=np.int64) - begin
        from_us = from_us.clip(0, size * width)
        to_us = to_us.clip(0, size * width)
        first = from_us // width
        last = to_us // width
        # A gap adds a whole width to each window from its first up to the one before its last: one
        # step up and one down, summed up over all gaps at once. The part of its first window before
        # the gap is subtracted, and the part of its last one in the gap is added.
        np.add.at(steps, first, 1)
        np.add.at(steps, last, -1)
        length += np.cumsum(steps)[:-1] * width
        np.subtract.at(length, first.clip(max=size - 1), (from_us % width) * (first < size))
        np.add.at(length, last.clip(max=size - 1), (to_us % width) * (last < size))
    return length / cadence_us
