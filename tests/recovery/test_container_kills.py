"""Containers of several modes, killed one by one: each output keeps the promise of its mode, and
containers that had ended are left alone.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rewindow import launcher
from rewindow.application import PortHandle
from rewindow.certificate import certify
from rewindow.crash import Step
from rewindow.engine import assembly
from rewindow.engine.cut_streams import CutStream
from rewindow.errors import InputError, NotDeterministicError, RewindowError
from rewindow.inspection.replay_status import replay_status
from rewindow.launcher import (
    Outcome,
    Submission,
    attempts,
    begin_attempt,
    loop,
    note_kill,
    verbs,
)
from rewindow.ledger import Ledger
from rewindow.ledger.rebuild import rebuild_ledger
from rewindow.ledger.replays import ReplayState
from rewindow.loading.catalog import load_planned
from rewindow.planning.containers import container_to_run
from rewindow.progress.listener import Lines
from rewindow.quality import check
from rewindow.recovery import ContainerPlan, Plan
from rewindow.retention.purge import purge
from rewindow.settings.config import Config
from rewindow.spark.frames import read_windows
from rewindow.storage import FencedTable, Table, query
from rewindow.storage.layout import FACTS
from rewindow.storage.staged_marks import plan_in
from rewindow.windows import WindowRange
from tests.recovery.here import jobs_here
from tests.recovery.project import Project, make_project
from tests.recovery.promises import last_state, lost_windows, raw, seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAIRS = [
    ("exactly_once", "at_least_once"),
    ("at_least_once", "exactly_once"),
    ("exactly_once", "at_most_once"),
    ("at_most_once", "at_most_once"),
]
QUICK = (PAIRS[0],)
"""Those of `make test`, since each takes seconds."""
IN_A_GROUP = [
    Step.MATERIALISED,
    Step.AFTER_FIRST_OUTPUT,
    Step.AFTER_OUTPUTS,
    Step.AFTER_FACTS,
    Step.AFTER_CHECKPOINT,
]
ASSEMBLED = [
    Step.FENCED,
    Step.AFTER_FIRST_OUTPUT,
    Step.AFTER_OUTPUTS,
    Step.AFTER_FACTS,
    Step.AFTER_CHECKPOINT,
]


@pytest.fixture(autouse=True)
def jobs_run_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "run", jobs_here(spark))


def replay(project: Project, replay_id: str, modes: tuple[str, str], crash: str = "") -> Plan:
    """Replays `totals` with its two operators in separate containers."""
    given = {
        "sums.mode": modes[0],
        "totals.mode": modes[1],
        "totals.container": "second",
    }
    plan = project.plan(replay_id, "exactly_once", properties=given)
    loop.run_attempts(project.config, replay_id, crash=crash or None)
    return plan


@pytest.mark.parametrize(
    "modes",
    [pytest.param(modes, marks=() if modes in QUICK else pytest.mark.long) for modes in PAIRS],
    ids="-".join,
)
def test_each_container_keeps_the_guarantee_of_its_mode_when_it_is_killed(
    modes: tuple[str, str],
    project: Project,
    baseline: Plan,
) -> None:
    # Rules: R3, R5, R39, R42, R48 to R50
    first, second = random.sample(IN_A_GROUP, 2)
    first = Step.MATERIALISED if modes[0] == "at_most_once" else first
    crash = f"sums/{first}:2@1,second/{second}:3@1"
    name = "-".join(modes)
    plan = replay(project, name, modes, crash)
    config = project.config
    for output, mode in zip(("sums", "totals"), modes, strict=True):
        if mode == "at_most_once":
            continue
        assert seen(config, plan, output) == seen(config, baseline, output), output
        if mode == "exactly_once":
            assert raw(config, plan, output) == seen(config, baseline, output), output
    if "at_most_once" not in modes:
        assert last_state(config, plan) == last_state(config, baseline)
        assert certify(config, "baseline", name).equal
        return
    lost = {output: lost_windows(config, plan, output) for output in ("sums", "totals")}
    assert len(lost["sums"]) == (3 if modes[0] == "at_most_once" else 0)
    assert lost["sums"] <= lost["totals"]
    assert lost["sums"] <= read_as_lost(project, name)
    for output in ("sums", "totals"):
        there = {row[0] for row in seen(config, plan, output)}
        wanted = {row[0] for row in seen(config, baseline, output)}
        assert wanted - there == lost[output] & wanted, output
        assert set(raw(config, plan, output)) == set(seen(config, plan, output))


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(0, marks=pytest.mark.recovery_matrix),
        *(pytest.param(number, marks=pytest.mark.exhaustive) for number in (1, 2, 3, 4)),
    ],
)
def test_three_modes_keep_their_guarantees_when_real_processes_are_killed(
    number: int,
    project: Project,
    baseline: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: R3, R5, R48 to R50, X53
    monkeypatch.setattr(loop, "run", launcher.run)
    steps = [IN_A_GROUP[(number + place) % len(IN_A_GROUP)] for place in range(3)]
    places = zip(("sums", "totals", "lossy"), steps, strict=True)
    crash = ",".join(f"{name}/{step}:2@1" for name, step in places)
    crash += f",assembly/{ASSEMBLED[number]}@1"
    name = f"real-{number}"
    plan = project.plan_of("three_modes", name, "exactly_once")
    loop.run_attempts(project.config, name, crash=crash)
    ledger = Ledger.open(project.config.ledger_url)
    assert {row.epoch for row in ledger.replays.containers(name)} == {2}
    assert ledger.replays.get(name).epoch == 2
    config = project.config
    assert raw(config, plan, "sums") == seen(config, baseline, "sums")
    assert seen(config, plan, "totals") == seen(config, baseline, "totals")
    rows = raw(config, plan, "lossy")
    assert set(rows.values()) == {1}
    wanted = {row[0] for row in seen(config, baseline, "totals")}
    assert wanted - {row[0] for row in rows} == lost_windows(config, plan, "lossy") & wanted
    assert [output.reason for output in plan.outputs] == [
        "sums is exactly once, by default, and nothing upstream may lose windows",
        "totals is at least once, and nothing upstream may lose windows",
        "lossy is at most once, and nothing upstream may lose windows",
    ]


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param("", marks=pytest.mark.exhaustive),
        pytest.param("lossy/started:2@1", marks=pytest.mark.long),
    ],
    ids=["undisturbed", "killed"],
)
def test_independent_containers_run_in_parallel(
    crash: str,
    project: Project,
    baseline: Plan,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: X53
    # Both readers meet before either of them computes; jobs in this process run one at a time.
    job = jobs_here(spark)
    meeting = threading.Barrier(2, timeout=60)
    turn = threading.Lock()
    ran = []

    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        name = submission.replay_id.partition("@")[2]
        if name in ("totals", "lossy") and submission.epoch == 1:
            meeting.wait()
        with turn:
            ran.append(name)
            return job(submission, on_line)

    monkeypatch.setattr(loop, "run", run)
    replays = project.config.replay.model_copy(update={"containers_at_once": 2})
    config = project.config.model_copy(update={"replay": replays})
    config._root = project.config.root
    plan = project.plan_of("three_modes", f"together{len(crash)}", "exactly_once")
    lines: list[str] = []
    loop.run_attempts(config, plan.replay_id, Lines(lines.append), crash=crash or None)
    assert (ran[0], set(ran[1:-1]), ran[-1]) == ("sums", {"totals", "lossy"}, "")
    assert len(ran) == 4 + bool(crash)
    assert seen(config, plan, "totals") == seen(config, baseline, "totals")
    whole = f"{len(plan.range):,}"
    for name in ("sums", "totals", "lossy"):
        assert f"{name}: {whole} of {whole} windows are committed" in lines


@pytest.mark.long
def test_failing_container_does_not_end_a_container_running_in_parallel(
    project: Project,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: X53
    job = jobs_here(spark)
    has_failed = threading.Event()

    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        if submission.replay_id.endswith("@totals"):
            has_failed.set()
            return Outcome(65, "the disk is full", retryable=False, facts={})
        if submission.replay_id.endswith("@lossy"):
            assert has_failed.wait(60)
        return job(submission, on_line)

    monkeypatch.setattr(loop, "run", run)
    replays = project.config.replay.model_copy(update={"containers_at_once": 2})
    config = project.config.model_copy(update={"replay": replays})
    config._root = project.config.root
    project.plan_of("three_modes", "parallel", "exactly_once")
    with pytest.raises(RewindowError, match="the disk is full"):
        loop.run_attempts(config, "parallel")
    rows = Ledger.open(config.ledger_url).replays.containers("parallel")
    states = {row.replay_id: row.state.value for row in rows}
    assert states == {
        "parallel@sums": "ended",
        "parallel@totals": "failed",
        "parallel@lossy": "ended",
    }


def read_as_lost(project: Project, replay_id: str) -> set[int]:
    """Returns the windows of the stream between the containers that the reader lacks."""
    sql = "select window_id from f where direction = 'in' and port = 'sums.sums' and lost"
    facts = project.config.replay_root(f"{replay_id}@second") / FACTS
    return set(query(sql, f=facts)["window_id"].to_pylist())


@pytest.mark.long
def test_repeated_and_lost_windows_of_containers_are_published_and_undone(
    project: Project,
    baseline: Plan,
) -> None:
    # Rules: R48 to R50, R52, X53
    config = project.config
    crash = "totals/after_facts:3@1,lossy/materialised:2@1"
    plan = project.plan_of("three_modes", "public", "exactly_once")
    loop.run_attempts(config, "public", crash=crash)
    assert sum(raw(config, plan, "totals").values()) > sum(seen(config, plan, "totals").values())
    verbs.publish(config, "public", accept="windows were lost on purpose")
    for output in ("sums", "totals", "lossy"):
        published = Table.open(config.stream_table(f"three_modes.{output}"))
        rows = Counter(
            tuple(row.values())
            for row in query("select window_id, key, total from p", p=published).to_pylist()
        )
        assert rows == seen(config, plan, output), output
    found = certify(config, "public", "published", full=True, outputs=["sums", "totals"])
    assert found.equal, found.first_difference
    lost = lost_windows(config, plan, "lossy")
    assert len(lost) == 3 and lost_windows(config, plan, "sums") == set()
    assert replay_status(config, "public").lost == 3
    verbs.undo(config, "public")
    assert not query("select window_id from p", p=config.stream_table("three_modes.sums")).num_rows


@pytest.mark.long
def test_replay_of_containers_is_resumed_with_a_rebuilt_ledger_abandoned_and_purged(
    tmp_path: Path,
    baseline: Plan,
    project: Project,
    spark: SparkSession,
) -> None:
    # Rules: X53
    own = make_project(tmp_path)
    config = own.config
    plan = own.plan_of("three_modes", "one", "exactly_once")
    run = jobs_here(spark)

    def step(replay_id: str, crash: str = "") -> None:
        submission = begin_attempt(config, replay_id, crash or None)
        assert submission is not None
        note_kill(config, submission, run(submission, lambda line: None))

    step("one")
    step("one", "totals/after_facts:2@1")
    (tmp_path / "state" / "ledger.sqlite").rename(tmp_path / "state" / "old.sqlite")
    assert rebuild_ledger(config).replays == 3
    assert Ledger.open(config.ledger_url).replays.get("one").mode == "mixed"
    verbs.resume(config, "one")
    assert seen(config, plan, "totals") == seen(project.config, baseline, "totals")
    own.plan_of("three_modes", "two", "exactly_once")
    step("two")
    verbs.abandon(config, "two")
    states = {row.state for row in Ledger.open(config.ledger_url).replays.containers("two")}
    assert states == {ReplayState.ABANDONED}
    purge(config, timedelta(0), delete=True)
    for folder in ("two", "two@sums"):
        assert [part.name for part in config.replay_root(folder).folders()] == [FACTS]


@pytest.mark.long
def test_kill_of_a_later_container_does_not_change_finished_containers(
    project: Project,
) -> None:
    # Rules: R5, R6, O107, X53
    replay(project, "alone", PAIRS[0], "second/after_facts:2@1,second/started:3@2")
    rows = {
        row.replay_id: row
        for row in Ledger.open(project.config.ledger_url).replays.containers("alone")
    }
    assert {name: row.epoch for name, row in rows.items()} == {"alone@sums": 1, "alone@second": 3}


@pytest.mark.long
def test_status_shows_the_window_that_every_container_has_committed(
    project: Project,
    spark: SparkSession,
) -> None:
    # Rules: W74
    given = {"totals.mode": "at_least_once"}
    plan = project.plan("two", "exactly_once", properties=given)
    run = jobs_here(spark)

    def step(crash: str = "") -> tuple[int, dict[str, tuple[str, int]], str]:
        submission = begin_attempt(project.config, "two", crash or None)
        assert submission is not None
        outcome = run(submission, lambda line: None)
        note_kill(project.config, submission, outcome)
        found = replay_status(project.config, "two")
        containers = {one.replay_id: (one.state.value, one.mark) for one in found.containers}
        return found.mark, containers, found.row.state.value

    whole = len(plan.range)
    assert step() == (0, {"two@sums": ("ended", whole)}, "running")
    killed = {"two@sums": ("ended", whole), "two@totals": ("failed", 5)}
    assert step("totals/started:3") == (5, killed, "failed")
    done = {"two@sums": ("ended", whole), "two@totals": ("ended", whole)}
    assert step()[:2] == (whole, done)
    assert step() == (whole, done, "ended")
    assert begin_attempt(project.config, "two") is None
    for refused in (check, verbs.abandon):
        with pytest.raises(InputError, match='"two@sums" is a container of replay "two"'):
            refused(project.config, "two@sums")
    of_container = replay_status(project.config, "two@sums")
    assert of_container.next_steps == "It is a container of replay two: rewindow status two"
    listed = [row.replay_id for row in Ledger.open(project.config.ledger_url).replays.newest()]
    assert listed[0] == "two" and not any("@" in name for name in listed)


@pytest.mark.long
def test_reader_receives_the_same_tuples_after_its_writer_lost_commits(
    project: Project,
    baseline: Plan,
    spark: SparkSession,
) -> None:
    # Rules: R58, R70, X53
    config = project.config
    plan = project.plan("lost", "exactly_once", properties={"totals.container": "second"})
    run = jobs_here(spark)

    def step(crash: str = "") -> str:
        submission = begin_attempt(config, "lost", crash or None)
        assert submission is not None
        note_kill(config, submission, run(submission, lambda line: None))
        return submission.replay_id

    assert [step(), step("second/started:3@1")] == ["lost@sums", "lost@second"]
    log = config.replay_root("lost@sums") / "sums" / "_delta_log"
    while (newest := max(log.glob("*.json"))).stem != "00000000000000000005":
        newest.unlink()
    assert [step(), step(), step()] == ["lost@sums", "lost@second", "lost"]
    certificate = certify(config, "baseline", "lost", full=True)
    assert certificate.equal, certificate.first_difference
    reader = plan_in(config.replay_root("lost@second"))
    [entry] = reader.inputs
    other = entry.model_copy(update={"seals_digest": "0"})
    changed = reader.model_copy(update={"inputs": [other]})
    part = load_planned(config, reader).app
    with pytest.raises(NotDeterministicError, match='"sums" .* "second"'):
        CutStream(spark, PortHandle("sums", "sums"), part, changed, config.state)
    assert last_state(config, plan) == last_state(config, baseline)


@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=pytest.mark.long) for step in ASSEMBLED],
)
def test_replay_is_assembled_from_its_containers_after_a_kill_at_any_step(
    step: Step,
    project: Project,
    baseline: Plan,
) -> None:
    # Rules: X53
    name = f"made-{step}"
    plan = project.plan(name, "exactly_once", properties={"totals.container": "second"})
    loop.run_attempts(project.config, name, crash=f"assembly/{step}@1")
    assert Ledger.open(project.config.ledger_url).replays.get(name).epoch == 2
    certificate = certify(project.config, "baseline", name, full=True)
    assert certificate.equal, certificate.to_dict()
    assert last_state(project.config, plan) == last_state(project.config, baseline)


def without_the_newest_attempt(patch: pytest.MonkeyPatch) -> None:
    """A reader takes the rows of every attempt of its writer."""

    def read(cut: CutStream, windows: WindowRange) -> DataFrame:
        rows = read_windows(cut._spark, cut._table, windows)
        return rows.select("window_id", *cut._schema.names)

    patch.setattr(CutStream, "read", read)


def without_the_end_of_writers(patch: pytest.MonkeyPatch) -> None:
    """A container begins before those that it reads have ended."""

    def last(config: Config, plan: Plan, name: str = "") -> ContainerPlan | None:
        reversed_plan = plan.model_copy(update={"containers": plan.containers[::-1]})
        return container_to_run(config, reversed_plan, name)

    patch.setattr(attempts, "container_to_run", last)


def without_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    """The replay is made of its containers again, whatever its tables have already."""
    fence = assembly.fence

    def fenced(*given: Any, **named: Any) -> FencedTable:
        return replace(fence(*given, **named), done=0)

    patch.setattr(assembly, "fence", fenced)


@pytest.mark.long
@pytest.mark.parametrize(
    "leave_out",
    [without_the_newest_attempt, without_the_end_of_writers, without_what_is_committed],
)
def test_container_guarantees_are_violated_if_any_rule_is_removed(
    leave_out: Callable[[pytest.MonkeyPatch], None],
    project: Project,
    baseline: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: X53, R42
    config = project.config
    leave_out(monkeypatch)
    given = {"sums.mode": "at_least_once", "totals.mode": "exactly_once"}
    name = leave_out.__name__
    plan = project.plan(name, "exactly_once", properties=given)
    crash = "sums/after_facts:3@1,assembly/after_outputs@1"
    try:
        loop.run_attempts(config, name, crash=crash)
    except RewindowError:
        return
    assert raw(config, plan, "totals") != raw(config, baseline, "totals")
