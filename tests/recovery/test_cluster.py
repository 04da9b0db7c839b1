"""Replays on a standalone cluster of two workers: executors that see another state folder, and
executors that are killed.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewindow.launcher import Outcome
from rewindow.recovery import Plan
from tests.recovery import project as projects
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, GROUP, Project
from tests.recovery.promises import check_promise, lost_windows, raw
from tests.recovery.standalone import (
    HOSTS,
    OWN_MOUNTS,
    Cluster,
    Worker,
    cluster,
    java_options,
    may_mount,
    mount_for,
    until,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = FIRST + 2
"""First window of the second group, in which executors are killed; the first ends at a checkpoint.
"""
SECOND_GROUP = set(range(SECOND, SECOND + GROUP))
LAST = FIRST + 4 * GROUP - 1
"""Groups follow the ones in which executors are killed."""
pytestmark = [pytest.mark.recovery_matrix, pytest.mark.jvm]


@pytest.fixture(scope="module")
def baseline(project: Project, spark: SparkSession) -> Plan:
    """An undisturbed replay of the windows that are replayed on the cluster."""
    plan = project.plan("on_cluster", "exactly_once", group_windows=100, last=LAST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects, "run", jobs_here(spark))
        project.attempts("on_cluster", [])
    return plan


def plan_noted(project: Project, name: str, mode: str) -> Plan:
    return project.plan_of("noted", name, mode, last=LAST)


@pytest.fixture
def started(project: Project, tmp_path: Path) -> Iterator[Cluster]:
    with cluster(Path(tmp_path), java_options(project.config)) as made:
        yield made


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = Path(tmp_path) / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def on_cluster(project: Project, started: Cluster, notes: Path) -> Project:
    """The project of all recovery tests, whose replays run on the cluster."""
    conf = {
        **project.config.spark.conf,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": f"-Duser.timezone=UTC {started.java_options}",
        "spark.executorEnv.NOTES": str(notes),
        "spark.sql.unionOutputPartitioning": "false",  # each part of a union is a task
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": notes.parent.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    spark = project.config.spark.model_copy(update={"master": started.url, "conf": conf})
    return Project(project.config.model_copy(update={"spark": spark}))


@pytest.fixture
def workers(started: Cluster) -> dict[str, Worker]:
    return {host: started.start_worker(host, []) for host in HOSTS}


def in_background(work: Callable[[], Outcome]) -> Future[Outcome]:
    ended: Future[Outcome] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except BaseException as error:  # noqa: BLE001  (the test raises it)
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


def started_on(notes: Path, name: str, workers: dict[str, Worker]) -> Worker:
    """Returns the worker on which some noted work was started first."""
    note = notes / f"{name}.1"
    until(lambda: note.exists() and note.read_text() != "", f"the start of {name}")
    pid = int(note.read_text())
    [found] = [worker for worker in workers.values() if worker.runs(pid)]
    return found


def stage_has_ended(note: Path) -> bool:
    """Returns whether the driver knows of a stage that ended after the start that a note records.

    An executor that is killed between the end of a task and the driver's notice of it fails the
    task, which ends the job.
    """
    if not note.exists():
        return False
    for log in note.parent.parent.glob("app-*"):
        for line in log.read_text().splitlines():
            if line.startswith('{"Event":"SparkListenerStageCompleted"') and line.endswith("}"):
                ended_ms = json.loads(line)["Stage Info"]["Completion Time"]
                if ended_ms * 1_000_000 > note.stat().st_mtime_ns:
                    return True
    return False


def task_has_ended(worker: Worker, note: Path) -> bool:
    """Returns whether an executor has written a shuffle file since a task noted its start."""
    if not note.exists():
        return False
    files = worker.local.rglob("shuffle_*.index")
    return any(file.stat().st_mtime_ns > note.stat().st_mtime_ns for file in files)


def starts(notes: Path) -> dict[str, int]:
    """Returns how often each noted work was started."""
    names = [path.name for path in notes.iterdir() if not path.name.startswith(("hold-", "go-"))]
    return Counter(name.rpartition(".")[0] for name in names)


def repeated(notes: Path) -> set[str]:
    return {name for name, count in starts(notes).items() if count > 1}


Check = Callable[[Outcome, Plan], None]


@pytest.fixture
def check_lost(
    project: Project,
    notes: Path,
    spark: SparkSession,
    baseline: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> Check:
    """Returns what asserts that an attempt ended without a commit of the second group, and that the
    next one, in this process, lists it as lost.
    """

    def check(outcome: Outcome, plan: Plan) -> None:
        assert outcome.exit_code == 75 and outcome.retryable, outcome.message
        monkeypatch.setitem(spark.sparkContext.environment, "NOTES", str(notes))
        monkeypatch.setattr(projects, "run", jobs_here(spark))
        project.attempts(plan.replay_id, [])
        assert lost_windows(project.config, plan, "sums") == SECOND_GROUP
        check_promise(project.config, plan, baseline)
        assert f"{plan.last}-pass" in starts(notes), "the last windows were noted too"

    return check


@pytest.mark.exhaustive
def test_group_with_a_rerun_finished_task_is_lost_in_at_most_once(
    on_cluster: Project,
    workers: dict[str, Worker],
    notes: Path,
    check_lost: Check,
) -> None:
    name = "executor_killed"
    plan = plan_noted(on_cluster, name, "at_most_once")
    (notes / f"hold-{SECOND}-1").touch()
    ended = in_background(lambda: on_cluster.attempt(name))
    until((notes / f"{SECOND}-1.1").exists, "the task that waits", ended)
    until(lambda: stage_has_ended(notes / f"{SECOND}-late.1"), "the end of the other stage", ended)
    # The waiting task has one of the two cores, and Spark may start the two stages in any order.
    busy = started_on(notes, f"{SECOND}-1", workers)
    [worker] = [worker for worker in workers.values() if worker is not busy]
    until(lambda: task_has_ended(worker, notes / f"{SECOND}-0.1"), "the end of a task", ended)
    lost = {f"{SECOND}-0"}
    if started_on(notes, f"{SECOND}-late", workers) is worker:
        lost.add(f"{SECOND}-late")
    worker.kill_executor()
    until((notes / f"{SECOND}-0.2").exists, "the second start of the finished task", ended)
    (notes / f"go-{SECOND}-1").touch()
    outcome = ended.result(180)
    assert "Spark may have run tasks" in outcome.message
    check_lost(outcome, plan)
    assert f"{SECOND}-0" in repeated(notes) <= lost


def test_group_with_a_rerun_finished_stage_is_lost_in_at_most_once(
    on_cluster: Project,
    workers: dict[str, Worker],
    notes: Path,
    check_lost: Check,
) -> None:
    # With adaptive execution the tasks of a lost map output run as another stage, with fewer tasks
    # and without a failed one.
    name = "finished_stage"
    on_cluster.config.spark.conf["spark.sql.adaptive.enabled"] = "true"
    plan = plan_noted(on_cluster, name, "at_most_once")
    (notes / f"hold-{SECOND}-late").touch()
    ended = in_background(lambda: on_cluster.attempt(name))
    until((notes / f"{SECOND}-late.1").exists, "the task that waits", ended)
    busy = started_on(notes, f"{SECOND}-late", workers)
    [idle] = [worker for worker in workers.values() if worker is not busy]
    done = []
    for part in (f"{SECOND}-0", f"{SECOND}-1"):
        if started_on(notes, part, workers) is idle:
            done.append(part)
            until(partial(stage_has_ended, notes / f"{part}.1"), f"the end of {part}", ended)
    [executor] = idle.executors()
    idle.kill_executor()
    until(
        lambda: any(one.pid != executor.pid for one in idle.executors()), "another executor", ended
    )
    (notes / f"go-{SECOND}-late").touch()
    outcome = ended.result(180)
    assert "Spark may have run tasks" in outcome.message and "was lost" in outcome.message
    check_lost(outcome, plan)
    assert done and repeated(notes) == set(done)


def test_group_with_a_rerun_running_task_is_lost_in_at_most_once(
    on_cluster: Project,
    workers: dict[str, Worker],
    notes: Path,
    check_lost: Check,
) -> None:
    name = "worker_killed"
    plan = plan_noted(on_cluster, name, "at_most_once")
    for part in (0, 1):
        (notes / f"hold-{SECOND}-{part}").touch()
    ended = in_background(lambda: on_cluster.attempt(name))
    for part in (0, 1):
        until((notes / f"{SECOND}-{part}.1").exists, f"task {part}", ended)
    started_on(notes, f"{SECOND}-0", workers).kill()
    (notes / f"go-{SECOND}-1").touch()
    until((notes / f"{SECOND}-0.2").exists, "the second start of the lost task", ended)
    (notes / f"go-{SECOND}-0").touch()
    outcome = ended.result(180)
    assert "Spark may have run tasks" in outcome.message
    check_lost(outcome, plan)
    assert repeated(notes) == {f"{SECOND}-0"}


def test_tuple_operator_is_not_restarted_in_at_most_once(
    on_cluster: Project,
    workers: dict[str, Worker],
    notes: Path,
    check_lost: Check,
) -> None:
    name = "tuple_worker_killed"
    plan = plan_noted(on_cluster, name, "at_most_once")
    (notes / f"hold-{SECOND}-pass").touch()
    ended = in_background(lambda: on_cluster.attempt(name))
    until((notes / f"{SECOND}-pass.1").exists, "the task of the tuple operator", ended)
    started_on(notes, f"{SECOND}-pass", workers).kill()
    outcome = ended.result(180)
    assert 'Spark started a task of operator "noted.pass" again' in outcome.message
    check_lost(outcome, plan)
    assert not repeated(notes)


def test_exactly_once_repeats_the_task_of_a_killed_worker(
    on_cluster: Project,
    workers: dict[str, Worker],
    notes: Path,
    baseline: Plan,
) -> None:
    name = "worker_killed_exactly_once"
    plan = plan_noted(on_cluster, name, "exactly_once")
    (notes / f"hold-{SECOND}-pass").touch()
    ended = in_background(lambda: on_cluster.attempt(name))
    until((notes / f"{SECOND}-pass.1").exists, "the task of the tuple operator", ended)
    started_on(notes, f"{SECOND}-pass", workers).kill()
    (notes / f"go-{SECOND}-pass").touch()
    assert ended.result(180).exit_code == 0
    assert f"{SECOND}-pass" in repeated(notes)
    check_promise(on_cluster.config, plan, baseline)


@pytest.mark.parametrize(
    "when",
    [pytest.param("before the replay", marks=pytest.mark.exhaustive), "during the replay"],
)
def test_replay_rejects_a_worker_with_a_separate_state_folder_and_can_resume(
    when: str,
    on_cluster: Project,
    started: Cluster,
    notes: Path,
    baseline: Plan,
    tmp_path: Path,
) -> None:
    if not may_mount(Path(tmp_path)):
        pytest.skip("this user may not have mounts of its own (unshare --mount)")
    name = f"own_folder_{when.partition(' ')[0]}"
    plan = plan_noted(on_cluster, name, "exactly_once")
    shared = on_cluster.config.replay_root(name).parent
    own = Path(tmp_path) / "replays"
    started.start_worker(HOSTS[0], [])
    apart = started.start_worker(HOSTS[1], OWN_MOUNTS)
    first = when.startswith("before")
    held = FIRST + GROUP  # exactly once has no group that ends at a checkpoint
    if first:
        shutil.copytree(shared, own)
        mount_for(apart.process, own, shared)
    for part in (0, 1):
        (notes / f"hold-{held}-{part}").touch()
    ended = in_background(lambda: on_cluster.attempt(name))
    if not first:
        for part in (0, 1):
            until((notes / f"{held}-{part}.1").exists, f"task {part}", ended)
        shutil.copytree(shared, own)
        mount_for(apart.process, own, shared)
        for part in (0, 1):
            (notes / f"go-{held}-{part}").touch()
    outcome = ended.result(180)
    assert outcome.exit_code == 65 and not outcome.retryable, outcome.message
    assert str(shared) in outcome.message and "operator" not in outcome.message
    assert "same shared file system" in outcome.message
    assert HOSTS[1] in outcome.message or "own copy" in outcome.message
    if first:
        assert not raw(on_cluster.config, plan, "sums")
    apart.kill()
    for part in (0, 1):
        (notes / f"go-{held}-{part}").touch()
    on_cluster.attempts(name, [])
    check_promise(on_cluster.config, plan, baseline)
