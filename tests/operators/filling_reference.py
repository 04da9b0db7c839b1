"""Gap filling point by point, written from the rules (docs/rules/heartbeat.md sections 9 and 10),
to judge ours.

It asks of every grid point whether a row is there, and looks along the rows for the sources of one
that is not. Nothing here is shared with the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Row(NamedTuple):
    ts: int
    a: float | None
    b: int | None


class Made(NamedTuple):
    """A made row: timestamp, how many rows it stands for, whether its gap is open, value and method
    of each column.
    """

    ts: int
    rows: int
    is_open: bool
    values: tuple[tuple[Any, str], ...]


@dataclass(frozen=True)
class Method:
    """How a column is filled from the column `source` of rows; durations in the unit of
    timestamps.
    """

    name: str
    source: str
    max_gap: int | None = None
    max_carry: int | None = None
    periods: tuple[int, ...] = ()
    fallback: str = "null"
    constant: Any = None
    extrapolate: bool = False
    fills_nulls: bool = False
    low: float | None = None
    high: float | None = None

    @property
    def chooses(self) -> bool:
        """Whether some rows are no sources."""
        return self.fills_nulls or self.low is not None or self.high is not None

    def uses(self, row: Row) -> bool:
        value = getattr(row, self.source)
        if value is None:
            return not self.fills_nulls
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high)


def fill(
    rows: Sequence[Row],
    methods: Sequence[Method],
    step: int,
    begin: int,
    end: int,
    max_rows: int = 10**9,
    look_back: int | None = None,
) -> list[Made]:
    """Returns the made rows of a key for the grid points in [begin, end), multiples of the step."""
    first = -(-begin // step)
    last = -(-end // step) - 1
    inside = _seen(rows, step, (first, last), begin, look_back)
    there = {row.ts // step for row in inside}
    made = []
    gap = list[int]()
    for point in range(first, last + 2):
        if point <= last and point not in there:
            gap.append(point)
        elif gap:
            made += _of_gap(gap, inside, methods, step, max_rows, (first, last), look_back)
            gap = []
    return made


def _seen(
    rows: Sequence[Row],
    step: int,
    ends: tuple[int, int],
    begin: int,
    look_back: int | None,
) -> list[Row]:
    """Returns the rows of the range in order, and those up to `look_back` before it (inclusive)."""
    seen = [row for row in rows if row.ts // step <= ends[1]]
    if look_back is None:
        seen = [row for row in seen if row.ts // step >= ends[0]]
    else:
        seen = [row for row in seen if row.ts >= begin - look_back]
    return sorted(seen, key=lambda row: row.ts)


def _near(row: Row | None, ts: int, look_back: int | None) -> Row | None:
    """Returns a row before a time, None if it is too far back to be looked at."""
    return None if row is None or (look_back is not None and ts - row.ts > look_back) else row


def fill_nulls(
    rows: Sequence[Row],
    methods: Sequence[Method],
    step: int,
    begin: int,
    end: int,
    look_back: int | None = None,
) -> dict[tuple[int, int], tuple[Any, str]]:
    """Returns value and method for the recorded nulls, by timestamp and number of the column."""
    first = -(-begin // step)
    last = -(-end // step) - 1
    inside = _seen(rows, step, (first, last), begin, look_back)
    return {
        (row.ts, number): _chosen(method, row.ts, inside, step, (first, last), look_back)
        for row in inside
        if row.ts // step >= first
        for number, method in enumerate(methods)
        if method.fills_nulls and getattr(row, method.source) is None
    }


def _chosen(
    method: Method,
    ts: int,
    rows: list[Row],
    step: int,
    ends: tuple[int, int],
    look_back: int | None,
) -> tuple[Any, str]:
    """Returns value and method at a time, where rows without a usable value are none."""
    first_of: dict[int, Row] = {}
    for row in rows:
        first_of.setdefault(row.ts // step, row)
    used = [row for row in rows if method.uses(row)]
    before = [row for row in used if row.ts < ts]
    after = [row for row in used if row.ts > ts]
    begin = before[-1].ts // step + 1 if before else ends[0]
    end = after[0].ts // step if after else ends[1] + 1
    seasons = [row for row in first_of.values() if method.uses(row) and _near(row, ts, look_back)]
    previous = before[-1] if before else None
    following = after[0] if after else None
    return _value(
        method,
        ts,
        (end - begin) * step,
        _near(previous, ts, look_back),
        following,
        seasons,
        step,
    )


def _of_gap(
    gap: list[int],
    rows: list[Row],
    methods: Sequence[Method],
    step: int,
    max_rows: int,
    ends: tuple[int, int],
    look_back: int | None,
) -> list[Made]:
    before = [row for row in rows if row.ts < gap[0] * step]
    after = [row for row in rows if row.ts > gap[-1] * step]
    previous = before[-1] if before else None
    following = after[0] if after else None
    count = len(gap)
    whole = len(gap) if previous is None else gap[-1] - previous.ts // step
    is_open = previous is None or following is None
    first_of: dict[int, Row] = {}
    for row in rows:
        first_of.setdefault(row.ts // step, row)
    points, stands_for = (gap, 1) if count <= max_rows else (gap[:1], count)
    found = []
    for point in points:
        values = tuple(
            _chosen(one, point * step, rows, step, ends, look_back)
            if one.chooses
            else _value(
                one,
                point * step,
                whole * step,
                _near(previous, point * step, look_back),
                following,
                [row for row in first_of.values() if _near(row, point * step, look_back)],
                step,
            )
            for one in methods
        )
        found.append(Made(point * step, stands_for, is_open, values))
    return found


def _value(
    method: Method,
    ts: int,
    length: int,
    previous: Row | None,
    following: Row | None,
    rows: list[Row],
    step: int,
) -> tuple[Any, str]:
    if method.max_gap is not None and length > method.max_gap:
        return None, "none"
    name = method.name
    if name == "seasonal":
        for period in method.periods:
            found = [row for row in rows if row.ts // step == (ts - period) // step]
            if found:
                if method.max_carry is not None and period > method.max_carry:
                    return None, "expired"
                return getattr(found[0], method.source), "seasonal"
        name = method.fallback
    sources = {
        "forward": [previous], "previous_of": [previous], "backward": [following],
        "linear": [previous, following],
        "nearest": [_nearest(ts, previous, following)],
    }.get(name, [])  # fmt: skip
    known = [row for row in sources if row is not None]
    if method.max_carry is not None and any(abs(row.ts - ts) > method.max_carry for row in known):
        return None, "expired"
    if name == "constant":
        return method.constant, name
    if name == "linear":
        if len(known) == 1 and method.extrapolate:
            return getattr(known[0], method.source), "extrapolated"
        if len(known) < 2:
            return None, name
        start, end = (getattr(row, method.source) for row in known)
        if start is None or end is None:
            return None, name
        return start + (end - start) * (ts - known[0].ts) / (known[1].ts - known[0].ts), name
    return (getattr(known[0], method.source) if known else None), name


def _nearest(ts: int, previous: Row | None, following: Row | None) -> Row | None:
    if previous is None or following is None:
        return previous or following
    return previous if ts - previous.ts <= following.ts - ts else following
