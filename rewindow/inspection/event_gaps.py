"""Reports missing rows of a stream in event time.

It is the report of `operators.gaps`, computed with SQL over the stream's table, without a JVM.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from rewindow.errors import InputError
from rewindow.inspection.gap_rows import OPEN, Gap, key_text, with_nulls
from rewindow.location import location
from rewindow.names import BOOKKEEPING, did_you_mean
from rewindow.operators.columns import within_reach
from rewindow.operators.event_time.timestamp_checks import is_far, is_shrunk
from rewindow.operators.gaps.hours_sql import clock_sql
from rewindow.operators.gaps.settings import GapSettings
from rewindow.operators.gaps.sql import ENDED, LATE_REPAIRED, NEVER_STARTED, RUN, GapSql
from rewindow.operators.schedule.hours_grid import HoursGrid
from rewindow.operators.schedule.opening_hours import OpeningHours
from rewindow.sequences import excluding
from rewindow.settings.config import Config
from rewindow.storage import Table, query, quoted
from rewindow.storage.streams import stored_settings
from rewindow.windows import Grid, WindowRange, format_duration, format_time, parse_duration

ARRIVAL = "arrow_cast(arrived_at, 'Int64')"
"""The arrival in microseconds, as SQL."""


@dataclass(frozen=True)
class StreamRows:
    """The tuples of a stream, and its settings.

    Attributes:
        keys: its key columns.
        only: restricts the keys to these values, by column.
        event_at: the column of its event time; None if no setting names it.
        cadence_us: expected period between rows of a key in event time; None if no setting defines
            it.
        expected_keys: keys that must appear, as text.
        hours: settings of the hours in which rows are expected; empty if they are expected at all
            times.
    """

    name: str
    table: Table
    keys: Sequence[str]
    only: Mapping[str, str]
    event_at: str | None = None
    cadence_us: int | None = None
    expected_keys: Sequence[Sequence[str]] = ()
    hours: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, config: Config, stream: str, only: Mapping[str, str]) -> StreamRows:
        """Returns a stream's tuples.

        If the settings do not contain the stream, the keys stored with it are used.

        Raises:
            InputError: a name in `only` is not a key column.
        """
        table = Table.open(config.stream_table(stream))
        settings = config.streams.get(stream)
        if settings is None:
            text = stored_settings(Table.open(config.windows_table(stream))).get("keys", "")
            rows = cls(stream, table, list(filter(None, text.split(","))), only)
        else:
            cadence_us = settings.cadence_us or settings.interval_us
            keys = settings.keys
            fill = settings.fill or {}
            hours: dict[str, Any] = {}
            if "hours" in fill:
                hours = {name: fill[name] for name in OpeningHours.model_fields if name in fill}
                cadence_us = parse_duration(fill["step"]) if "step" in fill else cadence_us
            rows = cls(
                stream,
                table,
                keys,
                only,
                settings.event_at,
                cadence_us,
                settings.expected_values,
                hours,
            )
        for name in only:
            if name not in rows.keys:
                known = ", ".join(rows.keys) or "none"
                hint = f"{did_you_mean(name, rows.keys)}Its keys: {known}."
                raise InputError(f'stream "{stream}" has no key "{name}"', hint=hint)
        return rows

    @property
    def of_keys(self) -> str:
        """SQL conditions that restrict a query to the requested keys.

        They are appended to another condition.
        """
        conditions = ""
        for name, value in self.only.items():
            conditions += f" and cast({quoted(name)} as varchar) = {_text(value)}"
        return conditions

    @property
    def key_names(self) -> list[str]:
        """The names of the key columns in a query.

        The original names could clash with other names in the query.
        """
        return [f"key_{n}" for n in range(len(self.keys))]

    @property
    def listed_keys(self) -> str:
        """The key columns in a query, as the start of a longer list of columns."""
        return "".join(f"{name}, " for name in self.key_names)

    @property
    def selected_keys(self) -> str:
        """Expressions that select the key columns as text, as the start of a longer list of
        columns.
        """
        return "".join(
            f"cast({quoted(key)} as varchar) as {name}, "
            for key, name in zip(self.keys, self.key_names, strict=True)
        )

    def key_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the key of a row from a query with these names."""
        return {key: row[name] for key, name in zip(self.keys, self.key_names, strict=True)}

    @property
    def has_times(self) -> bool:
        """Whether the tuples have an event time of a supported type."""
        if self.event_at not in self.table.schema.names:
            return False
        column_type = self.table.schema.field(self.event_at).type
        return pa.types.is_timestamp(column_type) or pa.types.is_integer(column_type)

    @cached_property
    def time_sql(self) -> str:
        """The event time in microseconds, as SQL.

        Raises:
            InputError: the column is missing, or is neither a time nor a whole number.
        """
        assert self.event_at is not None, "asked for where there is an event time"
        schema = self.table.schema
        if self.event_at not in schema.names:
            raise InputError(
                f'event_at of stream "{self.name}" is "{self.event_at}", which is not a column'
            )
        if not self.has_times:
            kind = schema.field(self.event_at).type
            raise InputError(
                f'event time "{self.event_at}" of stream "{self.name}" is {kind}, not a timestamp '
                "or a whole number",
                hint="Make an event column of it by `select`, and name that in event_at.",
            )
        instant_us = f"arrow_cast({quoted(self.event_at)}, 'Int64')"
        return f"({within_reach(instant_us)})"

    @property
    def usable(self) -> str:
        """A SQL condition that excludes tuples with an impossible event time, as `lateness` does.

        It is appended to another condition. A tuple without an arrival or without an event time is
        not excluded.
        """
        if not self.can_judge:
            return ""
        wrong = (is_far(self.time_sql, ARRIVAL), is_shrunk(self.time_sql, ARRIVAL))
        return f" and not coalesce({' or '.join(wrong)}, false)"

    @property
    def can_judge(self) -> bool:
        """Whether event times can be compared with arrivals."""
        return self.has_times and "arrived_at" in self.table.schema.names


@dataclass(frozen=True)
class Completeness:
    """The completeness of a key, or of one of its columns.

    All counts are numbers of rows or values in the range.

    Attributes:
        is_expected: whether the key is among the expected keys; None if no keys are expected.
        nulls: rows without a value; None for whole rows.
        tolerated: missing rows that belong to no reported gap.
    """

    key: Mapping[str, Any]
    column: str
    is_expected: bool | None
    expected: int
    present: int
    nulls: int | None
    missing: int
    tolerated: int

    @property
    def share(self) -> float | None:
        """The share of the expected rows that are present; None if no rows are expected.

        Rules: G17
        """
        return self.present / self.expected if self.expected else None

    @property
    def keys(self) -> str:
        """The key as text."""
        return key_text(self.key)

    def row(self) -> dict[str, Any]:
        """Returns the completeness as plain values."""
        return {
            "key": self.keys,
            "column": self.column,
            "is_expected": self.is_expected,
            "expected": self.expected,
            "present": self.present,
            "nulls": self.nulls,
            "missing": self.missing,
            "tolerated": self.tolerated,
            "completeness": self.share,
        }


@dataclass(frozen=True)
class EventGaps:
    """The missing rows and values of a stream in event time.

    Attributes:
        cadence_us: expected period between rows of each key.
        learned: if the cadence was learned: the number of distances between two rows of a key that
            have this length, and the number of all distances.
        from_us, to_us: the examined period.
        completeness: by key and column.
        gaps: by key, column and time.
        hours: points inside opening hours; None if rows are expected at all times.
    """

    cadence_us: int
    learned: tuple[int, int] | None
    from_us: int
    to_us: int
    completeness: Sequence[Completeness]
    gaps: Sequence[Gap]
    hours: HoursGrid | None = None

    @property
    def silent_now(self) -> list[Gap]:
        """Keys that are silent at the end, the longest silence first.

        These are keys that never sent a tuple, and keys that ended before the others. The end is
        the end of the sealed windows. If no key has a row there, the end is the newest event time
        of all keys, because a single straggler can extend the range beyond the last row of every
        key.
        """
        silent = [
            gap for gap in self._open_gaps if self._all_end_at is None or self._ends_before(gap)
        ]
        return sorted(silent, key=lambda gap: (gap.from_us, gap.keys))

    @property
    def all_end_by_us(self) -> int | None:
        """The time after which no key has a row.

        It is None if a key sends until the end, or if no key has ever sent a tuple.
        """
        at = self._all_end_at
        return (
            at if at is None or self.hours is None else self.hours.end_us(self.hours.first(at) - 1)
        )

    @property
    def _open_gaps(self) -> list[Gap]:
        return [gap for gap in self.gaps if gap.kind in (ENDED, NEVER_STARTED)]

    @property
    def _all_end_at(self) -> int | None:
        """The point after the newest row of all keys, if no key has a row at the end."""
        if len(self._open_gaps) < sum(not row.column for row in self.completeness):
            return None
        return max((_since(gap) for gap in self._open_gaps if gap.kind == ENDED), default=None)

    def _ends_before(self, gap: Gap) -> bool:
        """Returns whether a key ended more than one cadence before the newest key.

        Closed hours are not counted.
        """
        if gap.kind == NEVER_STARTED:
            return True
        return self._point(self._all_end_at or 0) - self._point(_since(gap)) > 1

    def _point(self, at_us: int) -> int:
        return at_us // self.cadence_us if self.hours is None else self.hours.first(at_us)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, without the gaps.

        `GapReport` lists these together with the gaps in arrival time.
        """
        found, steps = self.learned or (0, 0)
        return {
            "cadence_us": self.cadence_us,
            "learned_from": steps or None,
            "learned_share": found / steps if steps else None,
            "from": format_time(self.from_us),
            "to": format_time(self.to_us),
            "completeness": [with_nulls(row.row()) for row in self.completeness],
            "silent_now": [gap.keys or None for gap in self.silent_now],
            "all_end_by": None if self.all_end_by_us is None else format_time(self.all_end_by_us),
        }


def _since(gap: Gap) -> int:
    """Returns the start of a gap, which can be before the range."""
    return gap.from_us if gap.since_us is None else gap.since_us


def event_gaps(
    rows: StreamRows,
    windows: WindowRange,
    grid: Grid,
    cadence_us: int | None,
    columns: Sequence[str],
) -> EventGaps | None:
    """Returns the gaps in the event time of the given windows, based on the tuples that had arrived
    by the end of the windows.

    Args:
        rows: the stream.
        windows: windows, all sealed up to the last one.
        grid: their grid.
        cadence_us: replaces the stream's cadence; if neither is set, it is learned.
        columns: columns whose nulls are reported; "*" means all.

    Returns:
        None if the stream has no event time.

    Raises:
        InputError: a column, a key or a cadence is invalid, or a cadence cannot be learned.
    """
    if rows.event_at is None:
        if columns or cadence_us is not None:
            raise InputError(
                f'stream "{rows.name}" has no event time, so its gaps cannot be found',
                hint=f"Set its column in rewindow.toml: event_at, in [streams.{rows.name}].",
            )
        return None
    names = _columns(rows, columns)
    cadence_us = cadence_us if cadence_us is not None else rows.cadence_us
    learned = None
    if cadence_us is None:
        cadence_us, learned = _learned(rows, windows)
    expected = []
    # With `only`, the other expected keys have no row in the query, but are not missing.
    for values in rows.expected_keys:
        key = dict(zip(rows.keys, values, strict=True))
        if rows.only.items() <= key.items():
            expected.append([*values])
    settings = GapSettings(
        event_at=rows.event_at,
        cadence=format_duration(cadence_us),
        from_time=grid.start_us(windows.first),
        to_time=grid.end_us(windows.last),
        keys=rows.keys,
        columns=names,
        expected_keys=expected,
        **rows.hours,
    )
    settings = _with_late(rows, windows, settings, grid=grid)
    gaps, totals = _asked(rows, windows, settings)
    if rows.only and not totals:
        raise InputError(
            f'stream "{rows.name}" has no tuple of key {key_text(rows.only)} up to window '
            f"{windows.last}"
        )
    return EventGaps(
        cadence_us,
        learned,
        settings.from_time,
        to_us=settings.to_time,
        completeness=totals,
        gaps=gaps,
        hours=settings.grid,
    )


def _with_late(
    rows: StreamRows,
    windows: WindowRange,
    settings: GapSettings,
    grid: Grid,
) -> GapSettings:
    """Returns settings that also report periods whose rows all arrived late, if any row was late.

    Otherwise the settings are unchanged, because most streams have no late rows.
    """
    if rows.hours:
        return settings
    late = settings.model_copy(update={"window_us": grid.width_us, "window_origin": grid.origin_us})
    in_time = GapSql(late, "/").columns[-1]
    # One late row is enough, so the query stops at it.
    found = query(
        f"select 1 from ({_rows(rows, windows, late)}) as s where {in_time} = 0 limit 1",
        s=rows.table,
    )
    return late if len(found) else settings


def _columns(rows: StreamRows, asked: Sequence[str]) -> list[str]:
    """Returns the columns whose nulls are reported."""
    beside = {*rows.keys, rows.event_at, "arrived_at", *BOOKKEEPING}
    known = excluding(rows.table.schema.names, beside)
    if "*" in asked:
        return known
    for name in asked:
        if name not in known:
            hint = f"{did_you_mean(name, known)}Columns that may be null: {', '.join(known)}."
            raise InputError(
                f'stream "{rows.name}" has no column "{name}"that may be null',
                hint=hint,
            )
    return list(dict.fromkeys(asked))


def _learned(rows: StreamRows, windows: WindowRange) -> tuple[int, tuple[int, int]]:
    """Returns the most frequent time between two rows of a key, how often it occurs, and the number
    of all such times.

    Raises:
        InputError: no distance exists, or fewer than half of them are equal, so the stream has no
            cadence.
    """
    settings = GapSettings(
        event_at=rows.event_at,
        cadence=1,
        from_time=0,
        to_time=1,
        keys=rows.keys,
    )
    found = query(
        GapSql(settings, "/").cadences(f"({_rows(rows, windows, settings)})"),
        s=rows.table,
    ).to_pylist()
    why = "" if found else "no key has two tuples of different event times"
    if found and 2 * found[0]["found"] < found[0]["total"]:
        step = format_duration(found[0]["step"])
        share = f"{found[0]['found'] / found[0]['total']:.1%}"
        why = (
            "tuples of a key do not arrive at regular intervals: the most frequent interval, "
            f"{step}, is {share} of all"
        )
    if why:
        hint = f"Set one: --cadence, or cadence in [streams.{rows.name}]."
        raise InputError(f'cadence of stream "{rows.name}" cannot be determined: {why}', hint=hint)
    return found[0]["step"], (found[0]["found"], found[0]["total"])


def _rows(rows: StreamRows, windows: WindowRange, settings: GapSettings) -> str:
    """Returns the query for the tuples, with the column names of the report. Keys are text."""
    sql = GapSql(settings, "/")
    names = rows.table.schema.names
    taken = [
        f"cast({quoted(key)} as varchar) as {name}"
        for key, name in zip(settings.keys, sql.keys, strict=True)
    ]
    taken += [f"{rows.time_sql} as t", "cast(null as bigint) as a", "window_id"]
    taken.append(
        f"{quoted('offset')} as place" if "offset" in names else "cast(null as bigint) as place"
    )
    for column, name in zip(settings.columns, sql.columns, strict=False):
        taken.append(f"case when {quoted(column)} is null then 0 else 1 end as {name}")
    if settings.window_us is not None:
        taken.append(f"{sql.in_time(rows.time_sql, 'window_id')} as {sql.columns[-1]}")
    found = (
        f"select {', '.join(taken)} from s where window_id <= "
        f"{windows.last}{rows.of_keys}{rows.usable}"
    )
    hours = settings.grid
    return (
        found
        if hours is None
        else clock_sql(hours, found, [*sql.keys, "a", "window_id", "place", *sql.columns])
    )


def _asked(
    rows: StreamRows,
    windows: WindowRange,
    settings: GapSettings,
) -> tuple[list[Gap], list[Completeness]]:
    """Runs the queries and returns the report.

    Several queries use the runs of the report, so these are written to a temporary table.
    """
    sql = GapSql(settings, "/")
    merged = query(sql.merged(f"({sql.runs(f'({_rows(rows, windows, settings)})')})"), s=rows.table)
    expected = ""
    if settings.expected_keys:
        values = ", ".join(f"({', '.join(map(_text, key))})" for key in settings.expected_keys)
        expected = f"select * from (values {values}) as x({', '.join(sql.keys)})"
    with tempfile.TemporaryDirectory(prefix="rewindow-gaps-") as folder:
        write_deltalake(folder, merged.select([*sql.keys, "part", *RUN]))
        runs = Table.open(location(folder))
        order = ", ".join([*sql.keys, "part"])
        gaps = query(
            f"select * from ({sql.gaps('r', expected)}) as g order by {order}, from_us",
            r=runs,
        )
        totals = query(
            f"select * from ({sql.completeness('r', expected)}) as c order by {order}",
            r=runs,
        )
    completeness = [_total(row, sql) for row in totals.to_pylist()]
    return [_gap(row, sql) for row in gaps.to_pylist()], completeness


def _gap(row: Mapping[str, Any], sql: GapSql) -> Gap:
    closed = f"tuple {row['window_id']}:{row['place']}"
    if row["window_id"] is None:
        closed = "" if row["kind"] == LATE_REPAIRED else OPEN
    from_us = row["from_us"]
    to_us = row["to_us"]
    since_us = row["since_us"]
    length_us = to_us - from_us
    hours = sql.settings.grid
    step_us = sql.settings.cadence_us
    if hours is not None:
        # In opening hours the report counts points of a clock that skips closed hours.
        from_us = hours.start_us(from_us // step_us)
        since_us = hours.start_us(since_us // step_us)
        to_us = hours.end_us(to_us // step_us - 1)
    return Gap(
        row["kind"],
        None,
        from_us,
        to_us=to_us,
        count=row["missing"],
        key=_key(row, sql),
        closed_by=closed,
        column=_column(row, sql),
        open_left=row["open_left"],
        open_right=row["open_right"],
        since_us=since_us,
        open_us=length_us,
    )


def _total(row: Mapping[str, Any], sql: GapSql) -> Completeness:
    """Checks that the counts of a completeness row add up, and returns the row.

    Rules: G18
    """
    settings = sql.settings
    is_column = row["part"] > 0
    counts = [row[name] for name in ("present", "nulls", "missing", "tolerated")]
    points = max(settings.end_point - settings.first_point, 0)
    if sum(counts) != points:  # Not a bare assertion, so that python -O checks it too.
        raise AssertionError(f"counts of the gap report do not add up: {row} of {points}")
    is_expected = bool(row["is_expected"]) if settings.expected_keys else None
    present, nulls, missing, tolerated = counts
    key = _key(row, sql)
    return Completeness(
        key,
        _column(row, sql),
        is_expected,
        expected=points,
        present=present,
        nulls=nulls if is_column else None,
        missing=missing,
        tolerated=tolerated,
    )


def _key(row: Mapping[str, Any], sql: GapSql) -> dict[str, Any]:
    return {key: row[name] for key, name in zip(sql.settings.keys, sql.keys, strict=True)}


def _column(row: Mapping[str, Any], sql: GapSql) -> str:
    return dict(enumerate(sql.settings.columns, start=1)).get(row["part"], "")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
