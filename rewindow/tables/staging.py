"""The tables of a replay: staged outputs, facts, checkpoints; created empty by the planner, with the plan in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from rewindow.tables import checkpoints
from rewindow.tables.delta import Table, create_table, query

FACTS = "facts"
CHECKPOINTS = "checkpoints"
_TIME = pa.timestamp("us", tz="UTC")
FACTS_SCHEMA = pa.schema(
    [
        ("window_id", pa.int64()),
        ("direction", pa.string()),
        ("port", pa.string()),
        ("tuples", pa.int64()),
        ("digest", pa.string()),
        ("float_digest", pa.string()),
        ("attempt", pa.int64()),
        ("lost", pa.bool_()),
        ("group_first", pa.int64()),
        ("group_last", pa.int64()),
        ("began_at", _TIME),
        ("ended_at", _TIME),
    ]
)


def app_id(replay_id: str, table: str) -> str:
    """Returns the transaction id under which a replay commits to one of its tables."""
    return f"{replay_id}/{table}"


def staged_schema(event_columns: pa.Schema) -> pa.Schema:
    """Returns the schema of a staged output: window, the attempt that wrote the row, event columns."""
    return pa.schema([("window_id", pa.int64()), ("attempt", pa.int64()), *event_columns])


def create_staging(root: Path, outputs: Mapping[str, pa.Schema], plan_json: str) -> None:
    """Creates every table of a replay; those that are there already stay as they are."""
    properties = {"rewindow.plan": plan_json}
    for name, schema in outputs.items():
        create_table(root / name, staged_schema(schema))
    create_table(root / FACTS, FACTS_SCHEMA)
    create_table(root / CHECKPOINTS, checkpoints.SCHEMA, properties)


SEALS = """
select window_id, port, max(attempt) as attempt from facts
where direction = 'out' and not lost group by window_id, port
"""
"""SQL over `facts`: for each window and output, the attempt whose rows readers take: the newest sealed one (R52)."""


def sealed_to(facts: Table, before: int) -> int:
    """Returns the last window that any attempt has sealed, whatever marks a later one has set; `before` without any."""
    found = query("select max(window_id) as w from f where direction = 'out'", f=facts)["w"][0].as_py()
    return before if found is None else int(found)


def read_output(root: Path, output: str, first: int, last: int, columns: str = "*") -> pa.Table:
    """Returns the rows that readers see of a staged output in a closed window range."""
    sql = f"""
    with seals as ({SEALS})
    select {columns} from (
        select o.* from output o join seals s on o.window_id = s.window_id and o.attempt = s.attempt
        where s.port = '{output}' and o.window_id between {first} and {last}
    )"""
    return query(sql, output=Table.open(root / output), facts=Table.open(root / FACTS))
