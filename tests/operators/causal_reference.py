"""Gap filling as it would have been at the time (docs/rules/heartbeat.md G28), point by point, to judge ours.

At the time when a point is due, it looks at the rows that had arrived by then, and at nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.operators.filling_reference import Method


class Arrived(NamedTuple):
    """A row of one key: arrival, timestamp, a value."""

    at: int
    ts: int
    a: float | None


class Emitted(NamedTuple):
    """A made row: when, its timestamp, the begin of its gap, value and method of each column."""

    at: int
    ts: int
    begin: int
    values: tuple[tuple[Any, str], ...]
    rows: int = 1


def fill_causally(
    rows: Sequence[Arrived],
    methods: Sequence[Method],
    step: int,
    points: tuple[int, int],
    wait: int = 0,
    max_rows: int = 10**9,
    *,
    is_expected: bool = False,
    look_back: int | None = None,
) -> list[Emitted]:
    """Returns the made rows of a key for grid points [first, end)."""
    made: list[Emitted] = []
    begin: int | None = None
    rest: Emitted | None = None
    counts = 0
    oldest = points[0] * step - (look_back or 0)
    for point in range(oldest // step, points[1]):
        due = (point + 1) * step + wait
        known = [row for row in rows if row.at <= due and oldest <= row.ts < points[1] * step]
        if any(row.ts // step == point for row in known):
            if rest is not None:
                made.append(rest._replace(at=due, rows=counts))
            begin, rest = point + 1, None
            continue
        before = sorted((row for row in known if row.ts // step < point), key=lambda row: row.ts)
        if begin is None and is_expected:
            begin = points[0]
        if begin is None and before:
            begin = point
        if begin is None or point < points[0]:
            continue
        if rest is not None:
            counts += 1
            if point == points[1] - 1:
                made.append(rest._replace(at=due, rows=counts))
            continue
        if look_back is not None:
            known = [row for row in known if point * step - row.ts <= look_back]
            before = [row for row in before if row in known]
        in_time = [row for row in rows if row.at <= (row.ts // step + 1) * step + wait and row in known]
        values = tuple(_value(method, point * step, before, in_time, step) for method in methods)
        one = Emitted(due, point * step, begin * step, values)
        if point - begin < max_rows:
            made.append(one)
            continue
        rest, counts = one, 1
        if point == points[1] - 1:
            made.append(rest)
    return sorted(made, key=lambda one: one.ts)


def _value(method: Method, ts: int, before: list[Arrived], in_time: list[Arrived], step: int) -> tuple[Any, str]:
    if method.name == "constant":
        return method.constant, "constant"
    name = method.name
    if name == "seasonal":
        for period in method.periods:
            there = sorted((row for row in in_time if row.ts // step == (ts - period) // step), key=lambda row: row.ts)
            if there and method.uses(there[0]):  # type: ignore[arg-type]
                return there[0].a, "seasonal"
        name = method.fallback
    used = [row for row in before if method.uses(row)]  # type: ignore[arg-type]
    if name == "null" or not used:
        return None, name
    if method.max_carry is not None and ts - used[-1].ts > method.max_carry:
        return None, "expired"
    return used[-1].a, name
