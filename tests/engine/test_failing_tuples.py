"""Tuples at which an operator fails: quarantined with their commit group, which is computed without
them (R93).
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.certificate import certify
from rewindow.crash import Step
from rewindow.facts.readers import read_output
from rewindow.inspection.error_tuples import list_errors
from rewindow.inspection.verified_checkpoints import verify_checkpoints
from rewindow.inspection.window_life import window_life
from rewindow.launcher import Outcome, loop
from rewindow.loading.suites import suite_for
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.quality.window_table import Sources, build_report
from rewindow.recording.sources.source import SourcePosition, open_source
from rewindow.recovery import Plan
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage import Table, query
from tests.recovery import project as projects
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, WINDOWS, Project, make_project
from tests.recovery.promises import last_state, lost_windows
from tests.recovery.test_kills import group_of_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = ("b7", "a7", "c7")
KILLS = (
    Step.MATERIALISED,
    Step.AFTER_FIRST_OUTPUT,
    Step.AFTER_OUTPUTS,
    Step.AFTER_FACTS,
    Step.AFTER_CHECKPOINT,
)


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Project:
    for module in (projects, loop):
        monkeypatch.setattr(module, "run", jobs_here(spark))
    monkeypatch.setenv("REWINDOW_REPLAY__QUARANTINE_FAILING", "true")
    return Project(Config.load(make_project(tmp_path).config.file))


def planned(project: Project, name: str, **options: Any) -> Plan:
    mode = options.pop("mode", "exactly_once")
    given = {"group_windows": options.pop("group_windows", WINDOWS)}
    for option in ("properties", "first"):
        if option in options:
            given[option] = options.pop(option)
    return project.plan_of("poison", name, mode, parameters=options, **given)


def replay(project: Project, name: str, kills: tuple[str, ...] = (), **options: Any) -> Plan:
    plan = planned(project, name, **options)
    project.attempts(name, list(kills))
    return plan


def failure(project: Project, name: str, **options: Any) -> Outcome:
    planned(project, name, **options)
    return project.attempt(name)


def rows_of(project: Project, plan: Plan, output: str) -> Counter[tuple]:
    found = read_output(project.config.replay_root(plan.replay_id), output, plan.range)
    found = found.select(["window_id", "key", "x"])
    return Counter(zip(*found.to_pydict().values(), strict=True))


def failed(project: Project, plan: Plan) -> dict[str, list[tuple]]:
    tables = {}
    for port in list_errors(project.config, plan.replay_id):
        names = ["window_id", "key", "x", "_rw_position", "_rw_reason", "_rw_detail"]
        rows = port.rows.select(names).to_pylist()
        tables[port.port] = sorted(tuple(row.values()) for row in rows)
    return tables


def recorded(project: Project, *poison: str) -> list[tuple]:
    sql = 'select window_id, key, x, "offset" from e'
    wanted = []
    for row in query(sql, e=Table.open(project.config.stream_table("events"))).to_pylist():
        name = f"{row['key']}{row['x']}"
        if name in poison:
            position = f"events, offset {row['offset']}"
            detail = f"ValueError: cannot take {name}"
            tuple_ = (row["window_id"], row["key"], row["x"])
            wanted.append((*tuple_, position, "operator_raised", detail))
    return sorted(wanted)


def check_equal(project: Project, plan: Plan, **options: str) -> None:
    """Compares a replay with one whose operators pass over the failing tuples."""
    clean = replay(project, "clean", skips="yes", **options)
    for output in plan.outputs:
        name = output.name
        assert rows_of(project, plan, name) == rows_of(project, clean, name), name
    assert last_state(project.config, plan) == last_state(project.config, clean)


def test_tuple_operator_completes_after_quarantining_its_failing_tuples(project: Project) -> None:
    # Rules: R93
    poison = " ".join(ALL)
    plan = replay(project, "one", poison=poison)
    tables = failed(project, plan)
    assert tables["totals.events.failed"] == recorded(project, *ALL)
    assert len(tables["totals.events.failed"]) == 5
    assert not tables["again.events.failed"]
    check_equal(project, plan, poison=poison)


def test_frame_operator_completes_after_quarantining_its_failing_tuple(project: Project) -> None:
    plan = replay(project, "one", kind="frames", poison="c9")
    assert failed(project, plan) == {"sums.events.failed": recorded(project, "c9")}
    # Each line shows the watchdog that the attempt is not stuck.
    searching = [line for line in project.lines if "for failing tuples: its commit group" in line]
    assert len(searching) > 3 and "computed again, 2 of at most 40 times" in searching[1]
    check_equal(project, plan, kind="frames", poison="c9")


@pytest.mark.long
def test_failing_tuple_from_another_operator_is_identified_by_its_columns(
    project: Project,
) -> None:
    totals = rows_of(project, replay(project, "first"), "totals")
    window, key, x = next(row for row in sorted(totals, reverse=True))
    plan = replay(project, "one", kind="second", poison=f"{key}{x}")
    rows = failed(project, plan)["again.events.failed"]
    assert (window, key, x) in [row[:3] for row in rows]
    assert all(row[3].startswith("totals.out, hash ") for row in rows)
    check_equal(project, plan, kind="second", poison=f"{key}{x}")


@pytest.mark.long
def test_failing_tuple_of_a_crashed_worker_is_searched_for(project: Project) -> None:
    plan = replay(project, "one", kind="frames", poison="c9", crashes="yes")
    [row] = failed(project, plan)["sums.events.failed"]
    assert row[:4] == recorded(project, "c9")[0][:4]
    assert row[5] == "the Python worker crashed"


def test_replay_ends_in_a_window_with_too_many_failing_tuples(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWINDOW_REPLAY__ERRORS_MAX", "1")
    config = Config.load(project.config.file)
    outcome = failure(Project(config), "one", poison="a7")
    assert outcome.exit_code == 2
    assert "window 1012 has 2 error tuples on port" in str(outcome.error)
    assert not (config.replay_root("one") / "totals").entries("*.parquet")


def test_replay_ends_at_a_failing_tuple_unless_quarantine_is_allowed(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REWINDOW_REPLAY__QUARANTINE_FAILING", "false")
    project = Project(Config.load(project.config.file))
    outcome = failure(project, "one", poison="a7")
    assert 'operator "totals" failed: ValueError: cannot take a7' in str(outcome.error)
    assert not failed(project, planned(project, "one", poison="a7"))


@pytest.mark.long
def test_at_most_once_loses_the_group_of_a_failing_tuple(project: Project) -> None:
    options = {"mode": "at_most_once", "poison": "a7", "group_windows": 8}
    outcome = failure(project, "one", **options)
    assert "cannot take a7" in str(outcome.error)
    plan = planned(project, "one", **options)
    assert not plan.quarantining
    project.attempt("one")
    assert {1012, 1013} <= set(lost_windows(project.config, plan, "totals"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("exactly_once", "frames"),
        ("at_least_once", "tuples"),
        pytest.param("exactly_once", "tuples", marks=pytest.mark.exhaustive),
        pytest.param("at_least_once", "frames", marks=pytest.mark.exhaustive),
    ],
)
def test_killed_attempts_find_the_same_failing_tuples(
    mode: str,
    kind: str,
    project: Project,
) -> None:
    options = {"mode": mode, "kind": kind, "poison": "a7 c9", "group_windows": 8}
    one = replay(project, "one", **options)
    kills = (f"{KILLS[0]}:2", *(f"{kill}:1" for kill in KILLS[1:]))
    two = replay(project, "two", kills, **options)
    assert failed(project, one) == failed(project, two)
    assert certify(project.config, "one", "two").equal
    check_equal(project, two, **options)


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "kill", "attempts"),
    [
        ("exactly_once", f"{Step.AFTER_FIRST_OUTPUT}:2", [1]),
        ("at_least_once", f"{Step.AFTER_FACTS}:3", [1, 2]),
    ],
)
def test_quarantined_tuple_is_excluded_from_recomputed_windows(
    mode: str,
    kill: str,
    attempts: list[int],
    project: Project,
    tmp_path: Path,
) -> None:
    # The tuple is in window 1009, and its group is killed.
    cured = tmp_path / "cured"
    options = {"mode": mode, "poison": "b7", "cured_by": str(cured)}
    plan = planned(project, "one", group_windows=6, **options)
    assert project.attempt("one", f"{kill}@1").exit_code != 0
    cured.touch()
    assert project.attempt("one").exit_code == 0
    assert failed(project, plan)["totals.events.failed"] == recorded(project, "b7")
    table = project.config.replay_root("one") / "totals.events.failed"
    wrote = query("select attempt from t where window_id = 1009", t=table)["attempt"]
    assert sorted(wrote.to_pylist()) == attempts


@pytest.mark.long
def test_warm_up_excludes_failing_tuples(project: Project) -> None:
    # The tuple is in window 1009, and a group of the warm-up follows its own.
    first = FIRST + 15
    plan = planned(project, "one", poison="b7", group_windows=6, first=first)
    assert project.attempt("one").exit_code == 0, project.lines[-5:]
    assert not failed(project, plan)["totals.events.failed"]
    assert any("fails for 1 tuple, " in line and "warm-up" in line for line in project.lines)
    clean = replay(project, "clean", poison="b7", skips="yes", first=first)
    assert last_state(project.config, plan) == last_state(project.config, clean)


@pytest.mark.long
def test_failing_tuples_are_published_explained_and_fed_back(project: Project) -> None:
    # Rules: R94
    config = project.config
    plan = replay(project, "one", poison="b7")
    sources = Sources.open(config.replay_root("one"), "out", config.quarantine_table)
    measures = suite_for(config.expectations, None).measures
    [output] = [one for one in plan.outputs if one.name == "out"]
    report = build_report(plan, output, sources, measures)
    assert sum(report["error_tuples"].to_pylist()) == 1
    life = window_life(config, "one", "1009")
    assert ("error", "totals.events.failed", 1) in [
        (fact.direction, fact.port, fact.tuples) for fact in life.facts
    ]
    publish(config, "one", accept="a test")
    place = config.stream_table("poison.totals.events.failed")
    settings = {"source": f"errors:{place.name}", "arrived_at": "arrived_at", "width": "1 hour"}
    source = open_source("again", StreamConfig(**settings), place.parent.local(), place.parent)
    contents = source.scan(SourcePosition(), None, None)
    rows = [
        row
        for part in contents.files
        for one in source.rows(contents, part)
        for row in one.to_pylist()
    ]
    assert [(row["key"], row["x"], row["_rw_from_window"]) for row in rows] == [("b", 7, 1009)]
    undo(config, "one")
    assert not query("select * from t", t=place).num_rows


@pytest.mark.long
def test_killed_search_for_failing_tuples_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWINDOW_REPLAY__QUARANTINE_FAILING", "true")
    project = Project(Config.load(make_project(tmp_path).config.file))
    plan = planned(project, "one", kind="frames", poison="c9 b9")
    killed = threading.Event()

    def kill(line: str) -> None:
        if "stored in sums.events.failed" in line and not killed.is_set():
            killed.set()
            os.killpg(group_of_job(), signal.SIGKILL)

    assert project.attempt("one", on_line=kill).exit_code == -9
    assert killed.is_set()
    assert not failed(project, plan)["sums.events.failed"]
    assert project.attempt("one").exit_code == 0
    assert failed(project, plan)["sums.events.failed"] == recorded(project, "c9", "b9")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["exactly_once", "at_most_once"])
def test_each_container_quarantines_failing_tuples_if_its_mode_allows_it(
    mode: str, project: Project
) -> None:
    properties = {"again.container": "second", "again.mode": mode}
    totals = rows_of(project, replay(project, "first"), "totals")
    [(_, key, x), *_] = sorted(totals, reverse=True)
    options = {"kind": "second", "poison": f"{key}{x}", "properties": properties}
    plan = planned(project, "one", **options)
    if mode == "at_most_once":
        assert plan.quarantining == {"totals"}
        return
    loop.run_attempts(project.config, "one")
    checkpoints = verify_checkpoints(project.config, "one")
    assert [(one.replay, one.restored) for one in checkpoints] == [
        ("one@totals", plan.last),
        ("one@second", plan.last),
    ]
    assert failed(project, plan)["again.events.failed"]
    check_equal(project, plan, kind="second", poison=f"{key}{x}")
