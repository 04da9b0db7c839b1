"""Measures: SQL that adds a column to the window report, with the same text for DataFusion and
Spark.

A measure has two extensions of SQL. `{name}` is replaced by a value of the plan or of the output
(see `values_of`). `epoch_us(column)` is the time of a timestamp column in microseconds since 1970,
at most `FARTHEST_US`, so that a difference of two fits into a BIGINT.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from rewindow.errors import GateError
from rewindow.facts.readers import seen_rows
from rewindow.operators.columns import within_reach
from rewindow.recovery import OutputPlan, Plan
from rewindow.sequences import present
from rewindow.storage import quoted
from rewindow.windows import WindowRange

TIMER_COLUMNS = ("_rw_is_timer", "is_timer", "from_timer")
"""Names of a boolean column that distinguishes timer tuples from data.

Rules: H19 (docs/rules/heartbeat.md)
"""
NOT_ENDED = "cast(null as bigint)"
"""The value `ended_us` if the recording has not ended in the range."""
_MEANING = 2
"""Incremented whenever the meaning of the same SQL changes, so that older stored values are not
used.
"""
_VALUE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_EPOCH_US = re.compile(r'\bepoch_us\(\s*((?:\w+\.)?(?:\w+|"[^"]+"))\s*\)')


@dataclass(frozen=True)
class Measure:
    """A column that a suite adds to the window report.

    Attributes:
        sql: an aggregate over the rows of a window, or a query that returns (window_id, value) from
            `output` and `inputs`.
        empty: its value in a window without rows.
        over_rows: whether `sql` is such a query.
        inputs: streams whose tuples in the range the query can use in addition to `output`; dots in
            their names are written as underscores.
        across: whether its value for a window depends on other windows, as with lag and lead.
    """

    name: str
    sql: str
    empty: float | None = None
    over_rows: bool = False
    inputs: tuple[str, ...] = ()
    across: bool = False

    def bound(self, known: Mapping[str, Any]) -> Measure:
        """Returns the measure with its values filled in.

        Raises:
            GateError: it names a value that is not defined.
        """
        inputs = tuple(self._filled(name, known).strip('"') for name in self.inputs)
        return replace(self, sql=self._filled(self.sql, known), inputs=inputs)

    def digest(self, columns: Sequence[tuple[str, str]]) -> int:
        """Returns the key of the measure's stored values: a 64-bit digest of the measure and of the
        output's columns.

        Args:
            columns: names and types of the output's columns, as in the plan.
        """
        asked = [
            _MEANING,
            self.sql,
            self.over_rows,
            self.inputs,
            self.across,
            list(map(list, columns)),
        ]
        return int.from_bytes(
            hashlib.sha256(json.dumps(asked).encode()).digest()[:8],
            "big",
            signed=True,
        )

    def _filled(self, text: str, known: Mapping[str, Any]) -> str:
        unknown = sorted(set(_VALUE.findall(text)).difference(known))
        if unknown:
            raise GateError(
                f'measure "{self.name}" uses the value "{unknown[0]}", which is not set',
                detail=f"Available values: {', '.join(sorted(known))}.",
                hint="Correct it, or give it at the application's output: suite_parameters={...}.",
            )
        return _VALUE.sub(lambda found: str(known[found[1]]), text)


def values_of(plan: Plan, output: OutputPlan) -> dict[str, Any]:
    """Returns the values that a suite can use as {"$PARAMETER": NAME}, and its measures can use as
    {NAME}.
    """
    grid = plan.grid
    ends = present(plan.ends.values())
    ended_us = grid.end_us(max(ends)) if len(ends) == len(plan.inputs) > 0 else NOT_ENDED
    own = {
        "windows": len(plan.range),
        "first_window": plan.first,
        "last_window": plan.last,
        "width_us": grid.width_us,
        "origin_us": grid.origin_us,
        "begins_empty": str(plan.start.source == "initial").lower(),
        "ended_us": ended_us,
    }
    return {**output.suite_parameters, **own}


def every_output_has(key: Sequence[str], columns: pa.Schema) -> tuple[Measure, Measure]:
    """Returns the measures in the window report of every output: rows without a key, and timers."""
    nulls = " or ".join(f"{quoted(column)} is null" for column in key)
    timers = "count(*) filter (where false)"
    for name in TIMER_COLUMNS:
        if name in columns.names and pa.types.is_boolean(columns.field(name).type):
            timers = f"count(*) filter (where {quoted(name)})"
            break
    without_key = f"count(*) filter (where {nulls})" if nulls else "count(*) filter (where false)"
    return Measure("null_keys", without_key, 0), Measure("heartbeats", timers, 0)


def for_datafusion(sql: str) -> str:
    """Returns a measure's SQL for DataFusion, with `epoch_us` expanded."""

    def micros(call: re.Match[str]) -> str:
        time = f"arrow_cast({call[1]}, 'Timestamp(Microsecond, None)')"
        return f"({within_reach(f'cast({time} as bigint)')})"

    return _EPOCH_US.sub(micros, sql)


def refusal(error: Exception) -> str:
    """Returns the reason why DataFusion rejects a SQL text, in one line."""
    return " ".join(str(error).replace("caused by", " ").split())[:300]


def query_of(
    measure: Measure,
    output: str,
    windows: WindowRange,
    inputs: Mapping[str, Sequence[tuple[int, int]]],
    *,
    several: bool,
) -> str:
    """Returns the SQL query of a measure over rows, for tables `staged`, `facts` and the
    `recorded_name` of each input.

    Args:
        measure: a measure with its values filled in.
        output: name of the output.
        windows: range of the inputs' tuples that the query can use.
        inputs: names of the inputs in the measure, each with its windows that were never sealed, as
            pairs.
        several: whether `staged` has rows that readers do not see.
    """
    parts = {"output": seen_rows("staged", output) if several else "select * from staged"}
    for name, missing in inputs.items():
        inside = f"window_id between {windows.first} and {windows.last}"
        for first, last in missing:
            inside += f" and window_id not between {first} and {last}"
        parts[quoted(name)] = f"select * from {recorded_name(name)} where {inside}"
    tables = ", ".join(f"{name} as ({rows})" for name, rows in parts.items())
    return f"with {tables} select window_id, value from ({measure.sql})"


def recorded_name(name: str) -> str:
    """Returns the name of an input's whole table in a query.

    The measure sees its part of the table with the stream's name.
    """
    return "_rw_recorded_" + re.sub(r"\W", "_", name).lower()


def table_name(stream: str) -> str:
    """Returns a stream's name for SQL and for columns of the report.

    >>> table_name("flight_delays.delays")
    'flight_delays_delays'
    """
    return stream.replace(".", "_")
