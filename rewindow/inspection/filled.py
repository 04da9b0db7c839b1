"""Shows the rows that gap filling has created in a stream: counts by column and method, and the
rows around the longest gaps.

Starts no JVM.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from rewindow.inspection.event_gaps import StreamRows
from rewindow.inspection.gap_rows import key_text
from rewindow.operators.filling.settings import FillRules
from rewindow.operators.filling.values import EXPIRED, NONE
from rewindow.sequences import excluding, present
from rewindow.settings.config import FILLED, Config
from rewindow.storage import Table, in_windows, query, quoted
from rewindow.windows import WindowRange

GAPS_MAX = 6
COLUMNS_MAX = 3
AROUND = 12
"""Numbers of gaps and of columns to show, and of rows before and after each gap."""
_TRIED_MAX = 10 * GAPS_MAX
"""Largest number of gaps that are checked for values in and around them."""
RECORDED = "recorded"
NULL = "recorded null"
_VALUELESS = {NONE, EXPIRED, "null"}
"""Methods that mean that a row has no value. With any other method, the source may have had no
value.
"""


@dataclass(frozen=True)
class FilledRow:
    """A recorded or created row. A created row has a method for each column, and may represent
    several rows.
    """

    at_us: int
    is_made: bool
    values: Mapping[str, float | None]
    methods: Mapping[str, str]
    before_us: int | None
    after_us: int | None
    stands_for: int


@dataclass(frozen=True)
class FilledGap:
    """A gap, with the rows of its key in and around it in order of time."""

    key: str
    from_us: int
    last_us: int
    missing: int
    rows: Sequence[FilledRow]

    @property
    def has_values(self) -> bool:
        """Whether any column has a value in or around the gap. Only then can the gap be plotted."""
        return any(present(row.values.values()) for row in self.rows)


@dataclass(frozen=True)
class FilledStream:
    """The result of filling the gaps of a stream.

    Attributes:
        columns: the columns to show, numbers with a method.
        gaps: the gaps with the most created values first, then the longest, without gaps that have
            no value in and around them.
        gap_count: number of all gaps.
        counts: number of rows by column and origin of the value.
        step_us: distance between the points of the grid.
    """

    name: str
    columns: Sequence[str]
    gaps: Sequence[FilledGap]
    gap_count: int
    counts: Mapping[tuple[str, str], int]
    step_us: int


def filled_stream(config: Config, stream: str, windows: WindowRange) -> FilledStream | None:
    """Returns the published output of the application `filled_<stream>` for the given windows; None
    if there is none.
    """
    settings = config.streams.get(stream)
    name = f"{FILLED}{stream}.filled"
    if settings is None or settings.fill is None or not Table.exists(config.stream_table(name)):
        return None
    step_us = settings.cadence_us or settings.interval_us
    if "step" in settings.fill:
        zone = None if "hours" in settings.fill else settings.fill.get("zone")
        step_us = FillRules(event_at="at", step=settings.fill["step"], zone=zone).step_us
    rows = StreamRows(
        name,
        Table.open(config.stream_table(name)),
        settings.keys,
        only={},
        event_at=settings.event_at,
    )
    schema = rows.table.schema
    filled = [column for column in settings.fill.get("columns", {}) if column in schema.names]
    columns = [column for column in filled if _is_number(schema.field(column).type)][:COLUMNS_MAX]
    if settings.event_at is None or step_us is None or not columns:
        return None
    gaps = query(_gaps_sql(rows, columns, windows), f=rows.table).to_pylist()
    made = sorted((gap for gap in gaps if gap["made"]), key=lambda gap: -gap["made"])[
        : GAPS_MAX // 2
    ]
    ordered = [*made, *excluding(gaps, made)][:_TRIED_MAX]
    # Each gap needs a query, so the loop ends as soon as enough gaps are found.
    shown: list[FilledGap] = []
    for gap in ordered:
        around = _around(rows, columns, gap, windows, step_us)
        if around.has_values:
            shown.append(around)
        if len(shown) == GAPS_MAX:
            break
    counts = _counts(rows, filled, windows)
    return FilledStream(name, columns, shown, gap_count=len(gaps), counts=counts, step_us=step_us)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    )


def _gaps_sql(rows: StreamRows, columns: Sequence[str], windows: WindowRange) -> str:
    """Returns the query for all gaps, the longest gap first, with the number of values created in
    each.
    """
    keys = "".join(f"{quoted(key)}, " for key in rows.keys)
    named = "".join(
        f"{quoted(key)} as {name}, " for key, name in zip(rows.keys, rows.key_names, strict=True)
    )
    values = " + ".join(f"count({quoted(column)})" for column in columns)
    return f"""
    select {named} min({rows.time_sql}) as from_us, max({rows.time_sql}) as last_us,
        sum(_rw_made_rows) as missing,
           {values} as made
    from f where _rw_is_made and {in_windows(windows)} group by {keys} _rw_gap_id
        order by missing desc, from_us"""


def _around(
    rows: StreamRows,
    columns: Sequence[str],
    gap: Mapping[str, Any],
    windows: WindowRange,
    step_us: int,
) -> FilledGap:
    key = rows.key_of(gap)
    of_key = replace(rows, only=dict(zip(key, map(str, key.values()), strict=True)))
    margin_us = AROUND * step_us
    values = ", ".join(
        f"cast({quoted(column)} as double) as v{n}" for n, column in enumerate(columns)
    )
    sql = f"""
    select {rows.time_sql} as at_us, _rw_is_made, _rw_methods, _rw_before_us, _rw_after_us,
        _rw_made_rows, {values}
    from f where {in_windows(windows)} and {rows.time_sql} >= {gap["from_us"] - margin_us}
      and {rows.time_sql} <= {gap["last_us"] + margin_us}{of_key.of_keys} order by at_us"""
    found = []
    for row in query(sql, f=rows.table).to_pylist():
        found.append(
            FilledRow(
                row["at_us"],
                row["_rw_is_made"],
                {column: row[f"v{n}"] for n, column in enumerate(columns)},
                methods=json.loads(row["_rw_methods"] or "{}"),
                before_us=row["_rw_before_us"],
                after_us=row["_rw_after_us"],
                stands_for=row["_rw_made_rows"] or 1,
            )
        )
    return FilledGap(
        key_text(key), gap["from_us"], gap["last_us"], missing=gap["missing"], rows=found
    )


def _counts(
    rows: StreamRows,
    columns: Sequence[str],
    windows: WindowRange,
) -> dict[tuple[str, str], int]:
    """Returns, for each column, the number of values that are recorded, null, or created by each
    method, with or without a value.
    """
    # A created row may represent several, so rows are added up instead of counted. Methods are
    # grouped as text: few combinations of them exist, and each is parsed once.
    one = "coalesce(_rw_made_rows, 1)"
    values = ", ".join(
        f"sum(case when {quoted(column)} is null then 0 else {one} end) as v{n}"
        for n, column in enumerate(columns)
    )
    sql = f"""select _rw_is_made, _rw_methods, sum({one}) as rows, {values}
              from f where {in_windows(windows)} group by _rw_is_made, _rw_methods"""
    found: Counter[tuple[str, str]] = Counter()
    for row in query(sql, f=rows.table).to_pylist():
        methods = json.loads(row["_rw_methods"] or "{}")
        for n, column in enumerate(columns):
            known = row[f"v{n}"]
            unknown = row["rows"] - known
            method = methods.get(column)
            if row["_rw_is_made"]:
                method = method or "null"
                found[column, method] += known
                valueless = method if method in _VALUELESS else f"{method} without a value"
                found[column, valueless] += unknown
            else:
                found[column, RECORDED] += known
                # A recorded null that was filled also has a method; its value is in a separate
                # column (G27).
                found[column, method or NULL] += unknown
    return {place: count for place, count in sorted(found.items()) if count}
