"""Computes the delays of tuples: from event time to arrival, and relative to the newest event time
that had arrived before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewindow.inspection.event_gaps import ARRIVAL, StreamRows
from rewindow.inspection.gap_rows import key_text
from rewindow.storage import query, quoted
from rewindow.windows import Grid, WindowRange

_HOUR_US = 3_600_000_000
_DAY_US = 86_400_000_000
STEPS_MAX = 120
"""Largest number of time steps in a report."""
LATER_THAN_US = (0, 60_000_000, 600_000_000, 3_600_000_000, 86_400_000_000)
"""Limits for the delay of a tuple relative to the newest event time. For each, the report counts
the tuples whose delay is greater; with such a lag they would be late.
"""


@dataclass(frozen=True)
class LagStep:
    """The lag of the tuples that arrived in several windows, in microseconds.

    The lag is the arrival minus the event time, and can be negative.
    """

    windows: WindowRange
    begin_us: int
    tuples: int
    mean_us: float
    least_us: int
    most_us: int


@dataclass(frozen=True)
class KeyLateness:
    """The delay of a key's tuples relative to the newest event time, of any key, that had arrived
    before them.

    Attributes:
        hour: hour of the day, in UTC, in which these tuples arrived; None for all.
        behind: for each limit in `LATER_THAN_US`, the number of tuples with a greater delay, which
            would be late with that lag.
        most_us: the largest delay.
    """

    key: Mapping[str, Any]
    tuples: int
    behind: Sequence[int]
    most_us: int
    hour: int | None = None

    @property
    def keys(self) -> str:
        """The key as text."""
        return key_text(self.key)


def lag_over_time(rows: StreamRows, windows: WindowRange, grid: Grid) -> list[LagStep]:
    """Returns the lag for steps with the same number of windows each.

    Steps without tuples are left out.
    """
    size = -(-len(windows) // STEPS_MAX)
    sql = f"""
    select step, count(*) as tuples, avg(cast(a - t as double)) as mean, min(a - t) as least,
        max(a - t) as most
    from (select (window_id - {windows.first}) / {size} as step, a, t
        from ({_times(rows, windows)}) as s
          where window_id >= {windows.first}) as s
    group by step order by step"""
    found = []
    for row in query(sql, s=rows.table).to_pylist():
        first = windows.first + row["step"] * size
        span = WindowRange(first, min(first + size - 1, windows.last))
        found.append(
            LagStep(
                span,
                grid.start_us(first),
                row["tuples"],
                mean_us=row["mean"],
                least_us=row["least"],
                most_us=row["most"],
            )
        )
    return found


def lateness_by_key(rows: StreamRows, windows: WindowRange) -> list[KeyLateness]:
    """Returns the delays of each key's tuples, the most delayed key first, and the delays by hour
    of the day.
    """
    counts = ", ".join(
        f"sum(case when behind > {us} then 1 else 0 end) as later_{n}"
        for n, us in enumerate(LATER_THAN_US)
    )
    newest = (
        "max(t) over (order by a, window_id, place rows between unbounded preceding and 1 "
        "preceding)"
    )
    hour = f"(a % {_DAY_US} + {_DAY_US}) % {_DAY_US} / {_HOUR_US}"
    # A tuple is compared with the newest event time of all keys before it, so the inner query also
    # reads tuples from before the range. Grouping sets return each key as a whole, where the hour
    # is null, and by hour of the day in one pass.
    listed = rows.listed_keys
    sql = f"""
    select {listed} hour, count(*) as tuples, {counts}, max(behind) as most
    from (select {listed} window_id, {hour} as hour, {newest} - t as behind
        from ({_times(rows, windows)}) as s) as s
    where window_id >= {windows.first}
    group by grouping sets (({", ".join(rows.key_names)}), ({listed} hour))"""
    found = []
    for row in query(sql, s=rows.table).to_pylist():
        later = [row[f"later_{n}"] or 0 for n in range(len(LATER_THAN_US))]
        most = max(row["most"] or 0, 0)
        found.append(
            KeyLateness(rows.key_of(row), row["tuples"], later, most_us=most, hour=row["hour"])
        )
    furthest = {row.keys: row.most_us for row in found if row.hour is None}
    return sorted(
        found,
        key=lambda row: (-furthest[row.keys], row.keys, -1 if row.hour is None else row.hour),
    )


def _times(rows: StreamRows, windows: WindowRange) -> str:
    """Returns the query for tuples that have both arrival and event time.

    Impossible event times are excluded.
    """
    place = quoted("offset") if "offset" in rows.table.schema.names else "window_id"
    return (
        f"select {rows.selected_keys} window_id, {place} as place, {ARRIVAL} as a, "
        f"{rows.time_sql} as t from s "
        f"where window_id <= {windows.last} and {quoted(rows.event_at or '')} is not "
        f"null{rows.of_keys}{rows.usable}"
    )
