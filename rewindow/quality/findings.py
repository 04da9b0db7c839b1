"""Findings: a Delta table with one row per check and run.

It is kept longer than pages and results.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, starmap
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from rewindow.location import location
from rewindow.quality.outcome import CheckOutcome, GateResult, OutputVerdict
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.storage import Table, create_table, query
from rewindow.storage.results import findings_table, replay_folder
from rewindow.windows import WindowRange

SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("checked_at", pa.timestamp("us", tz="UTC")),
        ("replay_id", pa.string()),
        ("application", pa.string()),
        ("mode", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("output", pa.string()),
        ("suite", pa.string()),
        ("check", pa.string()),
        ("type", pa.string()),
        ("column", pa.string()),
        ("severity", pa.string()),
        ("status", pa.string()),
        ("blocks", pa.bool_()),
        ("description", pa.string()),
        ("observed", pa.string()),
        ("note", pa.string()),
        ("failing_windows", pa.int64()),
        ("failing", pa.string()),
        ("docs", pa.string()),
    ]
)


@dataclass(frozen=True)
class Finding:
    """A check that did not pass in a replay's newest run.

    Attributes:
        windows: failing windows as ranges; empty for a check of the whole range.
        blocks: whether it prevents the publication.
    """

    output: str
    check: str
    severity: str
    status: str
    blocks: bool
    description: str
    observed: str
    note: str
    windows: tuple[WindowRange, ...]


@dataclass(frozen=True)
class GateRun:
    """The result of one gate run for one output, for the page with results over time.

    Attributes:
        failed, warned, noted: names of the checks that blocked, that warned, and that only inform.
        failing: windows in which a blocking check fails, or if none did, a warning one.
        docs: path of the page, which may have been deleted because of its age.
    """

    run_id: str
    checked_at: datetime
    replay_id: str
    application: str
    mode: str
    first: int
    last: int
    output: str
    suite: str
    checks: int
    failed: tuple[str, ...]
    warned: tuple[str, ...]
    noted: tuple[str, ...]
    failing: tuple[WindowRange, ...]
    docs: str

    @property
    def verdict(self) -> str:
        """Returns "failed" if a check blocked the publication, otherwise "passed"."""
        return "failed" if self.failed else "passed"


def record_findings(config: Config, plan: Plan, result: GateResult) -> None:
    """Appends a run to the findings table."""
    run_id = uuid.uuid4().hex
    rows = []
    for output in result.outputs:
        for check in output.checks:
            rows.append(_row(run_id, plan, result.checked_at, output, check))
    table = create_table(findings_table(config), SCHEMA)
    write_deltalake(table.delta, pa.Table.from_pylist(rows, schema=SCHEMA), mode="append")


def failures(config: Config, replay_id: str, window: int | None = None) -> list[Finding]:
    """Returns the checks that did not pass in the newest run of a replay, the most severe first.

    Checks of the whole range count for every window. If a replay was never checked, there are none.

    Args:
        config: current settings.
        replay_id: the replay.
        window: return only checks that fail in this window; None: all.
    """
    path = findings_table(config)
    if not Table.exists(path):
        return []
    name = replay_id.replace("'", "''")
    sql = f"""select * from f where replay_id = '{name}' and status in ('failed', 'not_run')
        and run_id =
              (select run_id from f where replay_id = '{name}' order by checked_at desc limit 1)"""
    wanted = []
    for row in query(sql, f=path).to_pylist():
        finding = _finding(row)
        is_inside = not finding.windows or any(window in part for part in finding.windows)
        if window is None or is_inside:
            wanted.append(finding)
    order = {"critical": 0, "warning": 1, "info": 2}
    return sorted(
        wanted,
        key=lambda entry: (
            not entry.blocks,
            order.get(entry.severity, 3),
            entry.output,
            entry.check,
        ),
    )


def runs(config: Config, limit: int = 500) -> list[GateRun]:
    """Returns the newest runs, with one entry per output, newest first."""
    path = findings_table(config)
    if not Table.exists(path):
        return []
    newest = (
        "select run_id from (select run_id, max(checked_at) as t from f group by run_id "
        f"order by t desc limit {limit})"
    )
    sql = (
        f"select * from f where run_id in ({newest}) order by checked_at desc, run_id, "
        'application, output, "check"'
    )
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in query(sql, f=path).to_pylist():
        grouped.setdefault((row["run_id"], row["output"]), []).append(row)
    return [_run(config, rows) for rows in grouped.values()]


def _row(
    run_id: str,
    plan: Plan,
    checked_at: datetime,
    output: OutputVerdict,
    check: CheckOutcome,
) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "checked_at": checked_at,
        "replay_id": plan.replay_id,
        "application": plan.application,
        "mode": plan.mode.name,
        "first": plan.first,
        "last": plan.last,
        "output": output.output,
        "suite": output.suite,
        "check": check.check,
        "type": check.type,
        "column": check.column,
        "severity": check.severity,
        "status": check.status,
        "blocks": check.blocks,
        "description": check.description,
        "observed": check.observed,
        "note": check.note,
        "failing_windows": check.failing_windows,
        "failing": json.dumps([[part.first, part.last] for part in check.failing]),
        "docs": output.docs.name,
    }


def _finding(row: dict[str, Any]) -> Finding:
    plain = {
        key: row[key]
        for key in (
            "output",
            "check",
            "severity",
            "status",
            "blocks",
            "description",
            "observed",
            "note",
        )
    }
    return Finding(**plain, windows=_ranges(row["failing"]))


def _run(config: Config, rows: list[dict[str, Any]]) -> GateRun:
    head = rows[0]
    blocking = []
    warning = []
    noted = []
    for row in rows:
        if row["status"] not in ("failed", "not_run"):
            continue
        if row["blocks"]:
            blocking.append(row)
        elif row["severity"] == "warning":
            warning.append(row)
        else:
            noted.append(row)
    same = (
        "run_id",
        "checked_at",
        "replay_id",
        "application",
        "mode",
        "first",
        "last",
        "output",
        "suite",
    )
    return GateRun(
        **{key: head[key] for key in same},
        docs=str(replay_folder(config, head["replay_id"]) / location(head["docs"]).name),
        checks=len(rows),
        failed=tuple(row["check"] for row in blocking),
        warned=tuple(row["check"] for row in warning),
        noted=tuple(row["check"] for row in noted),
        failing=_merged(map(_ranges, (row["failing"] for row in blocking or warning))),
    )


def _ranges(text: str) -> tuple[WindowRange, ...]:
    return tuple(starmap(WindowRange, json.loads(text)))


def _merged(of_checks: Iterable[tuple[WindowRange, ...]]) -> tuple[WindowRange, ...]:
    merged: list[WindowRange] = []
    # The failing windows of different checks overlap; ranges that touch become one.
    for part in sorted(chain.from_iterable(of_checks)):
        if merged and part.first <= merged[-1].last + 1:
            part = WindowRange(merged[-1].first, max(merged.pop().last, part.last))
        merged.append(part)
    return tuple(merged)
