"""What is missing from a recording, one row and one grid point at a time; slow, and short enough to
be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Row(NamedTuple):
    """A tuple: its window and place in it, arrival, event time (None: it has none), key and one
    value.
    """

    window: int
    place: int
    at: int
    t: int | None
    key: str | None
    value: float | None


@dataclass(frozen=True)
class Expectation:
    """What is expected, as in the settings; times and durations in microseconds, factor in
    tenths.
    """

    cadence: int
    begin: int
    end: int
    origin: int
    factor_tenths: int
    lull: int
    keys: tuple[str, ...]
    window: int


class Found(NamedTuple):
    key: str | None
    column: str | None
    kind: str
    begin: int
    end: int
    missing: int
    open_left: bool
    open_right: bool
    closed_by: str | None


class Total(NamedTuple):
    key: str | None
    column: str | None
    is_expected: bool | None
    expected: int
    present: int
    nulls: int | None
    missing: int
    tolerated: int


def report(rows: Sequence[Row], rules: Expectation) -> tuple[list[Found], list[Total]]:
    points = [
        g for g in range(-500, 500) if rules.begin <= rules.origin + g * rules.cadence < rules.end
    ]
    end = rules.origin + (points[-1] + 1) * rules.cadence if points else rules.end
    known = {row.key for row in rows if row.t is not None and row.t < end} if points else set()
    found: list[Found] = []
    totals: list[Total] = []
    for key in known | set(rules.keys):
        own = [row for row in rows if row.key == key and row.t is not None and row.t < end]
        gaps, tolerated = missing_rows(own, points, rules, end)
        nulls, present = recorded_nulls(own, points, rules)
        late = late_repaired(own, points, rules)
        found += [Found(key, *gap) for gap in (*gaps, *nulls, *late)]
        missing = sum(gap[4] for gap in gaps)
        here = len(points) - missing - tolerated
        is_expected = key in rules.keys if rules.keys else None
        totals.append(Total(key, None, is_expected, len(points), here, None, missing, tolerated))
        totals.append(
            Total(key, "v", is_expected, len(points), present, here - present, missing, tolerated)
        )
    for key in {row.key for row in rows}:
        found += [Found(key, *gap) for gap in lulls([row for row in rows if row.key == key], rules)]
    return found, totals


def point(row: Row, rules: Expectation) -> int:
    assert row.t is not None
    return (row.t - rules.origin) // rules.cadence


def stretches(points: Sequence[int], wanted: set[int]) -> list[list[int]]:
    """Returns the maximal runs of wanted points."""
    runs: list[list[int]] = []
    for g in points:
        if g in wanted and runs and runs[-1][-1] == g - 1:
            runs[-1].append(g)
        elif g in wanted:
            runs.append([g])
    return runs


def missing_rows(
    own: Sequence[Row],
    points: Sequence[int],
    rules: Expectation,
    end: int,
) -> tuple[list, int]:
    """Returns the gaps, and how many points the factor bears."""
    at = {point(row, rules) for row in own}
    gaps = []
    tolerated = 0
    for run in stretches(points, set(points) - at):
        before = [row for row in own if point(row, rules) < run[0]]
        after = sorted(
            (row.t or 0, row.window, row.place) for row in own if point(row, rules) > run[-1]
        )
        last = (
            max(row.t or 0 for row in before)
            if before
            else rules.origin + points[0] * rules.cadence - 1
        )
        apart = (after[0][0] if after else end) - last
        never = not before and not after
        if apart * 10 <= rules.factor_tenths * rules.cadence and not never:
            tolerated += len(run)
            continue
        kind = "never_started" if never else "missing_rows" if after else "ended"
        closed = f"{after[0][1]}:{after[0][2]}" if after else None
        gaps.append((None, kind, *bounds(run, points, rules), closed))
    return gaps, tolerated


def recorded_nulls(
    own: Sequence[Row],
    points: Sequence[int],
    rules: Expectation,
) -> tuple[list, int]:
    """Returns the stretches whose rows have no value, and how many points have one."""
    at = {point(row, rules) for row in own}
    valued = {point(row, rules) for row in own if row.value is not None}
    gaps = []
    for run in stretches(points, at - valued):
        after = sorted(
            (row.t, row.window, row.place)
            for row in own
            if point(row, rules) == run[-1] + 1 and row.value is not None
        )
        closed = f"{after[0][1]}:{after[0][2]}" if after else None
        gaps.append(("v", "recorded_nulls", *bounds(run, points, rules), closed))
    return gaps, len(valued & set(points))


def late_repaired(own: Sequence[Row], points: Sequence[int], rules: Expectation) -> list:
    """Returns the stretches whose rows all came in a later window than the one in which their point
    ends.
    """
    ends = {g: (rules.origin + (g + 1) * rules.cadence - 1) // rules.window for g in points}
    at = {point(row, rules) for row in own}
    gaps = []
    in_time = [row for row in own if row.window <= ends.get(point(row, rules), -(10**9))]
    for run in stretches(points, at - {point(row, rules) for row in in_time}):
        after = sorted(
            (row.t, row.window, row.place) for row in in_time if point(row, rules) == run[-1] + 1
        )
        closed = f"{after[0][1]}:{after[0][2]}" if after else None
        gaps.append((None, "late_repaired", *bounds(run, points, rules), closed))
    return gaps


def lulls(own: Sequence[Row], rules: Expectation) -> list:
    """Returns the stretches between two arrivals that are too long, and the one up to the end."""
    ordered = sorted((row.at, row.window, row.place) for row in own)
    ordered = [row for row in ordered if row[0] < rules.end]
    gaps = []
    for number, row in enumerate(ordered):
        following = ordered[number + 1] if number + 1 < len(ordered) else None
        until = following[0] if following else rules.end
        if until - row[0] > rules.lull and until > rules.begin:
            missing = sum(1 for n in range(1, 1000) if row[0] + n * rules.lull < until)
            closed = f"{following[1]}:{following[2]}" if following else None
            gaps.append(
                (
                    None,
                    "lull",
                    row[0],
                    until,
                    missing,
                    row[0] < rules.begin,
                    following is None,
                    closed,
                )
            )
    return gaps


def bounds(
    run: Sequence[int],
    points: Sequence[int],
    rules: Expectation,
) -> tuple[int, int, int, bool, bool]:
    """Returns begin, end, missing points, and whether the run touches the bounds."""
    begin = rules.origin + run[0] * rules.cadence
    return (
        begin,
        begin + len(run) * rules.cadence,
        len(run),
        run[0] == points[0],
        run[-1] == points[-1],
    )
