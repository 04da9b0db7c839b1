"""Opening hours by a look at every five minutes, and filling of their points one by one, to judge
ours (G3).

Nothing here is shared with the library. All openings, steps and changes of clocks lie at multiples
of five minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

TICK = 300
"""Seconds between two looks."""


@dataclass(frozen=True)
class Hours:
    """Opening hours; times in minutes of the day, step in seconds."""

    zone: str
    opens: int
    closes: int
    weekdays: tuple[int, ...]
    closed: tuple[date, ...]
    step: int


@dataclass(frozen=True)
class Clock:
    """What was seen from one time to another.

    Attributes:
        starts: the points, in seconds since 1970.
        lies_in: tick to the number of the point in whose step it is.
        ends: where the step of each point ends.
    """

    starts: list[int]
    lies_in: dict[int, int]
    ends: list[int]

    def point(self, ts: float) -> int | None:
        return self.lies_in.get(int(ts // TICK) * TICK)


def walk(hours: Hours, begin: int, end: int) -> Clock:
    """Looks at the local clock every five minutes of [begin, end), which begins between the close
    and the opening.
    """
    starts: list[int] = []
    ends: list[int] = []
    lies_in: dict[int, int] = {}
    current = None
    zone = ZoneInfo(hours.zone)
    for tick in range(begin // TICK * TICK, end + 2 * 86_400, TICK):
        local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=tick)).astimezone(zone)
        minute = local.hour * 60 + local.minute
        is_open = hours.opens <= minute < hours.closes
        is_open = is_open and local.weekday() in hours.weekdays and local.date() not in hours.closed
        begins = is_open and (minute - hours.opens) * 60 % hours.step == 0
        if current is not None and (begins or not is_open):
            ends.append(tick)
            current = None
        if begins:
            if tick >= end:
                break
            current = len(starts)
            starts.append(tick)
        if current is not None:
            lies_in[tick] = current
    return Clock(starts, lies_in, ends)


class Row(NamedTuple):
    """A row of one key: arrival, timestamp, a value; seconds."""

    at: int
    ts: int
    a: float


class Found(NamedTuple):
    """A gap: column (None: whole rows), kind, begin, end, missing, length, the bounds that it
    touches, what closed it.

    Begin and end are seconds, and so is the length, in which only hours count. `closed_by` is a
    timestamp.
    """

    column: str | None
    kind: str
    begin: int
    end: int
    missing: int
    length: int
    open_left: bool
    open_right: bool
    closed_by: int | None


class Made(NamedTuple):
    """A made row: its timestamp, whether its gap is open, values of the columns."""

    ts: int
    is_open: bool
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Bounds:
    """How values are bounded; in seconds."""

    max_gap: int
    max_carry: int
    period: int


def fill(rows: Sequence[Row], clock: Clock, bounds: Bounds, step: int) -> list[Made]:
    """Returns the made rows of a key, with the columns backward, forward (max_carry), linear
    (max_gap), seasonal.
    """
    inside = sorted(
        (row for row in rows if clock.point(row.ts) is not None), key=lambda row: row.ts
    )
    there = {clock.point(row.ts) for row in inside}
    made: list[Made] = []
    gap: list[int] = []
    for point in range(len(clock.starts) + 1):
        if point < len(clock.starts) and point not in there:
            gap.append(point)
            continue
        for missing in gap:
            ts = clock.starts[missing]
            before = [row for row in inside if row.ts < ts]
            behind = [row for row in inside if row.ts > ts]
            line = None
            if before and behind and len(gap) * step <= bounds.max_gap:
                one = before[-1]
                other = behind[0]
                line = one.a + (other.a - one.a) * (ts - one.ts) / (other.ts - one.ts)
            values = (
                behind[0].a if behind else None,
                before[-1].a if before and ts - before[-1].ts <= bounds.max_carry else None,
                line,
                _season(inside, clock, ts - bounds.period),
            )
            is_open = gap[0] == 0 or gap[-1] == len(clock.starts) - 1
            made.append(Made(ts, is_open, values))
        gap = []
    return made


def _season(rows: Sequence[Row], clock: Clock, ts: int) -> float | None:
    """Returns the first value in the point in which a time lies."""
    point = clock.point(ts)
    there = sorted(
        (row.ts, row.a) for row in rows if point is not None and clock.point(row.ts) == point
    )
    return there[0][1] if there else None


def gaps(
    rows: Sequence[Row],
    clock: Clock,
    first: int,
    step: int,
    factor: float,
) -> tuple[list[Found], list[int]]:
    """Returns the gaps of a key from a point on, and how many points are present, null, missing and
    tolerated.

    A value below 10 is null. The clock may have points before the first one.
    """
    points = range(first, len(clock.starts))
    rows = sorted((row for row in rows if clock.point(row.ts) is not None), key=lambda row: row.ts)
    at = [clock.point(row.ts) or 0 for row in rows]
    valued = {point for point, row in zip(at, rows, strict=True) if row.a >= 10}
    inside = set(at) & set(points)
    values = valued & set(points)
    found = []
    tolerated = 0
    missing = 0
    for run in _runs(points, set(points) - set(at)):
        before = [row for row, point in zip(rows, at, strict=True) if point < run[0]]
        after = [row for row, point in zip(rows, at, strict=True) if point > run[-1]]
        last = _opened(before[-1], clock, step) if before else first * step - 1e-6
        until = _opened(after[0], clock, step) if after else len(clock.starts) * step
        if until - last <= factor * step and (before or after):
            tolerated += len(run)
            continue
        kind = "missing_rows" if after else "ended" if before else "never_started"
        found.append(_found(None, kind, run, clock, first, step, after[0].ts if after else None))
        missing += len(run)
    for run in _runs(points, inside - valued):
        behind = [
            row.ts
            for row, point in zip(rows, at, strict=True)
            if point == run[-1] + 1 and row.a >= 10
        ]
        found.append(
            _found("a", "recorded_nulls", run, clock, first, step, behind[0] if behind else None)
        )
    return found, [len(values), len(inside - values), missing, tolerated]


def _runs(points: Sequence[int], wanted: set[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for point in points:
        if point in wanted and runs and runs[-1][-1] == point - 1:
            runs[-1].append(point)
        elif point in wanted:
            runs.append([point])
    return runs


def _opened(row: Row, clock: Clock, step: int) -> float:
    """Returns for how long it had been open at a row."""
    point = clock.point(row.ts)
    assert point is not None
    return point * step + min(row.ts - clock.starts[point], step - 1e-6)


def _found(
    column: str | None,
    kind: str,
    run: list[int],
    clock: Clock,
    first: int,
    step: int,
    closed_by: int | None,
) -> Found:
    begin = clock.starts[run[0]]
    end = clock.ends[run[-1]]
    is_last = run[-1] == len(clock.starts) - 1
    return Found(
        column,
        kind,
        begin,
        end,
        len(run),
        len(run) * step,
        run[0] == first,
        is_last,
        closed_by,
    )
