"""Tuples at which an operator fails: quarantined with their commit group, which is computed without
them (R93).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.crash import Step
from rewindow.inspection.error_tuples import list_errors
from rewindow.ledger import Ledger
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from tests.recovery import project as projects
from tests.recovery.here import jobs_here
from tests.recovery.project import Project, make_project
from tests.recovery.promises import last_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTPUTS = ("totals", "sums", "again")
KILLS = (
    Step.MATERIALISED,
    Step.AFTER_FIRST_OUTPUT,
    Step.AFTER_OUTPUTS,
    Step.AFTER_FACTS,
    Step.AFTER_CHECKPOINT,
)


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(projects, "run", jobs_here(spark))
    monkeypatch.setenv("REWINDOW_REPLAY__QUARANTINE_FAILING", "true")
    made = make_project(tmp_path)
    return Project(Config.load(made.config.file))


def replay(project: Project, name: str, kill: str = "", **options: Any) -> Plan:
    mode = options.pop("mode", "exactly_once")
    size = options.pop("group_windows", 8)
    plan = project.plan_of("poison", name, mode, parameters=options, group_windows=size)
    project.attempts(name, [kill] if kill else [])
    return plan


def rows_of(project: Project, plan: Plan, output: str) -> Counter[tuple]:
    found = query(
        "select window_id, key, x from o",
        o=project.config.replay_root(plan.replay_id) / output,
    )
    return Counter(zip(*found.to_pydict().values(), strict=True))


def failed(project: Project, plan: Plan) -> dict[str, list[tuple]]:
    tables = {}
    for port in list_errors(project.config, plan.replay_id):
        names = ["window_id", "key", "x", "_rw_position", "_rw_reason", "_rw_detail"]
        rows = port.rows.select(names).to_pylist()
        tables[port.port] = sorted(tuple(row.values()) for row in rows)
    return tables


def recorded(project: Project, *values: int) -> list[tuple]:
    sql = f'select window_id, key, x, "offset" from e where x in {(*values, values[0])}'
    rows = query(sql, e=Table.open(project.config.stream_table("events"))).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def check_equal(project: Project, plan: Plan, **options: str) -> None:
    """Compares a replay with one whose operators pass over the failing tuples."""
    clean = replay(project, "clean", skips="yes", **options)
    for output in OUTPUTS:
        assert rows_of(project, plan, output) == rows_of(project, clean, output), output
    assert last_state(project.config, plan) == last_state(project.config, clean)


def test_tuple_operator_completes_without_its_failing_tuples(project: Project) -> None:
    # Rules: R93
    plan = replay(project, "one", tuples="7 9")
    wanted = [
        (
            window,
            key,
            x,
            f"events, offset {offset}",
            "operator_raised",
            f"ValueError: cannot take {x}",
        )
        for window, key, x, offset in recorded(project, 7, 9)
    ]
    assert len(wanted) > 4
    assert failed(project, plan)["totals.events.failed"] == wanted
    check_equal(project, plan, tuples="7 9")


def test_frame_operator_completes_without_its_failing_tuples(project: Project) -> None:
    plan = replay(project, "one", frames="9")
    tables = failed(project, plan)
    assert [row[:3] for row in tables["sums.events.failed"]] == [
        row[:3] for row in recorded(project, 9)
    ]
    assert tables["sums.events.failed"] == tables["totals.events.failed"]


def test_tuples_of_another_operator_are_quarantined_by_their_columns(project: Project) -> None:
    plan = replay(project, "clean", skips="yes")
    after = rows_of(project, plan, "totals").most_common(1)[0][0][2]
    plan = replay(project, "one", after=str(after))
    rows = failed(project, plan)["again.totals.failed"]
    assert rows
    assert {row[3].partition(" ")[0] for row in rows} == {"totals.out,"}
