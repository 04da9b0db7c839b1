"""Attempts: who may begin one, what is ended before, what is entered after. No JVM."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from rewindow.errors import (
    FencedError,
    InputError,
    OverlapError,
    ResourceError,
    RewindowError,
    TableError,
)
from rewindow.launcher import (
    Outcome,
    Submission,
    attempts,
    begin_attempt,
    known_replay,
    note_kill,
    run,
)
from rewindow.launcher.attempts import INTERRUPTS
from rewindow.launcher.processes import end_process_group
from rewindow.ledger import Ledger
from rewindow.ledger.rebuild import rebuild_ledger
from rewindow.location import location
from rewindow.location.local import LocalLocation
from rewindow.planning import create_replay
from rewindow.processes.identity import process_identity
from rewindow.publication.publish import check_publishable
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.storage import fence
from rewindow.storage.layout import CHECKPOINTS, FACTS, app_id
from tests.ledger.life import stop_in_a_write, writer
from tests.planning.options import request
from tests.recovery.project import Project


def test_attempt_that_cannot_start_acquires_no_lease_and_no_epoch(project: Project) -> None:
    create_replay(project.config, request(replay_id="one"))
    config = project.config.model_copy(
        update={"spark": project.config.spark.model_copy(update={"jars": "/nowhere"})}
    )
    with pytest.raises(ResourceError, match="jars"):
        begin_attempt(config, "one")
    ledger = Ledger.open(config.ledger_url)
    assert (ledger.replays.get("one").epoch, ledger.attempts.last("one")) == (0, None)


def test_job_uses_the_spark_master_of_its_launcher(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_replay(project.config, request(replay_id="one"))
    spark = project.config.spark.model_copy(update={"master": "spark://somewhere:7077"})
    config = project.config.model_copy(update={"spark": spark})
    config._root = project.config.root
    config._file = project.config.file
    submission = begin_attempt(config, "one")
    assert submission is not None
    for name, value in submission.environment.items():
        monkeypatch.setenv(name, value)
    assert Config.load().spark.master == "spark://somewhere:7077"
    assert submission.environment["REWINDOW_OUTCOME"] == str(submission.outcome)


@pytest.mark.parametrize(("requested", "second"), [(None, "local[2]"), (1, "local[1]")])
def test_every_attempt_reads_the_limit_of_cores_again_unless_the_request_has_one(
    project: Project, requested: int | None, second: str
) -> None:
    create_replay(project.config, request(replay_id="one", cores_max=requested))
    spark = project.config.spark.model_copy(update={"master": "local[3]"})
    masters = []
    for limit in (None, 2):
        replay = project.config.replay.model_copy(update={"cores_max": limit})
        config = project.config.model_copy(update={"spark": spark, "replay": replay})
        submission = begin_attempt(config, "one")
        assert submission is not None
        masters.append(submission.command[submission.command.index("--master") + 1])
    assert masters == ["local[3]" if requested is None else "local[1]", second]


def test_overlapping_replay_is_rejected_with_the_name_of_the_holder(project: Project) -> None:
    for name in ("one", "two"):
        create_replay(project.config, request(replay_id=name))
    assert begin_attempt(project.config, "one") is not None
    with pytest.raises(OverlapError, match="one"):
        begin_attempt(project.config, "two")


def test_job_suspended_during_a_write_does_not_block_the_next_attempt(project: Project) -> None:
    create_replay(project.config, request(replay_id="one"))
    ledger = Ledger.open(project.config.ledger_url)
    assert begin_attempt(project.config, "one") is not None and ledger.database.place.file
    with writer(ledger.database.place.file) as job:
        ledger.attempts.begin(
            "one",
            1,
            socket.gethostname(),
            job.pid,
            job.pid,
            process_identity(job.pid),
        )
        stop_in_a_write(job)
        assert begin_attempt(project.config, "one") is not None
        assert not psutil.pid_exists(job.pid)
    assert ledger.replays.get("one").epoch == 2


def test_launcher_of_a_superseded_job_starts_no_attempt_and_keeps_the_leases(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_replay(project.config, request(replay_id="one"))
    ledger = Ledger.open(project.config.ledger_url)
    submission = begin_attempt(project.config, "one")
    assert submission is not None
    noticed = []
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as job:
        ledger.attempts.begin(
            "one",
            1,
            socket.gethostname(),
            job.pid,
            job.pid,
            process_identity(job.pid),
        )

        def end_and_notice(*group: float, **replay_options: bool) -> None:
            end_process_group(*group, **replay_options)  # type: ignore[arg-type]
            if not psutil.pid_exists(job.pid):
                with pytest.raises(FencedError):
                    note_kill(project.config, submission, Outcome(-9, "gone", True, {}))
                noticed.append(job.pid)

        monkeypatch.setattr(attempts, "end_process_group", end_and_notice)
        assert begin_attempt(project.config, "one") is not None
    assert noticed and len(ledger.leases.held("one")) == 2
    assert [ledger.replays.get("one").epoch, ledger.replays.get("one").state] == [2, "running"]


def test_replay_stops_after_too_many_failures_without_the_again_option(project: Project) -> None:
    # Rules: R90, R91
    create_replay(project.config, request(replay_id="one"))
    for _ in range(4):
        submission = begin_attempt(project.config, "one")
        Ledger.open(project.config.ledger_url).attempts.end("one", submission.epoch, "failed", "no")  # type: ignore[union-attr]
    with pytest.raises(RewindowError, match="has failed 4 times") as caught:
        begin_attempt(project.config, "one")
    assert not caught.value.retryable
    assert begin_attempt(project.config, "one", again=True) is not None


def test_full_disk_is_rejected_before_anything_runs(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_replay(project.config, request(replay_id="one"))
    monkeypatch.setattr(LocalLocation, "free_bytes", lambda place: 1)
    with pytest.raises(ResourceError, match="no disk space") as caught:
        begin_attempt(project.config, "one")
    assert (
        caught.value.retryable
        and Ledger.open(project.config.ledger_url).replays.get("one").epoch == 0
    )


def _ended(project: Project, epoch: int, exit_code: int, message: str = "gone") -> None:
    submission = Submission("one", epoch, [], {}, project.config.state / "none.json")
    note_kill(project.config, submission, Outcome(exit_code, message, True, {}))


def test_launcher_detects_a_takeover_by_another_launcher(project: Project) -> None:
    # If it restarted its job, the two launchers would end each other forever.
    create_replay(project.config, request(replay_id="one"))
    begin_attempt(project.config, "one")
    begin_attempt(project.config, "one")
    with pytest.raises(FencedError) as caught:
        _ended(project, 1, -9)
    assert not caught.value.retryable
    _ended(project, 2, -9)
    assert Ledger.open(project.config.ledger_url).attempts.last("one").outcome == "killed"  # type: ignore[union-attr]


def test_interrupt_before_the_job_handles_signals_is_not_counted_as_a_failure(
    project: Project,
) -> None:
    # Rules: R90
    create_replay(project.config, request(replay_id="one"))
    for epoch in range(1, 6):
        assert begin_attempt(project.config, "one") is not None
        _ended(project, epoch, attempts.INTERRUPTED, "stopped by the user")


def test_ledger_older_than_the_tables_is_rejected_and_nothing_changes(project: Project) -> None:
    config = project.config
    create_replay(config, request(replay_id="one"))
    Ledger.open(config.ledger_url).attempts.next_epoch("one")
    for name in (FACTS, CHECKPOINTS):
        fence(config.replay_root("one") / name, app_id("one", name), 3)
    with pytest.raises(
        TableError,
        match="its newest attempt is 1, but the tables contain attempt 3",
    ) as error:
        begin_attempt(config, "one")
    assert "rewindow ledger rebuild" in error.value.hint and not error.value.retryable
    assert Ledger.open(config.ledger_url).replays.get("one").epoch == 1


def test_ledger_with_a_plan_that_differs_from_the_tables_is_rejected(project: Project) -> None:
    config = project.config
    create_replay(config, request(replay_id="one", checkpoint_windows=6))
    shutil.rmtree(config.replay_root("one"))
    for file in config.state.glob("ledger.sqlite*"):
        file.rename(file.with_name(f"other-{file.name}"))
    create_replay(config, request(replay_id="one", checkpoint_windows=7))
    for file in config.state.glob("ledger.sqlite*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    for file in config.state.glob("other-*"):
        file.rename(file.with_name(file.name.removeprefix("other-")))
    with pytest.raises(
        TableError,
        match='plan of replay "one" differs between its tables and the ledger',
    ):
        begin_attempt(config, "one")


def test_replay_with_a_lost_ledger_is_reported_and_can_be_rebuilt(project: Project) -> None:
    config = project.config
    create_replay(config, request(replay_id="one"))
    for file in config.state.glob("ledger.sqlite*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    with pytest.raises(
        InputError,
        match='replay "one" is not in the ledger, although its tables exist',
    ) as error:
        begin_attempt(config, "one")
    assert "rewindow ledger rebuild" in error.value.hint
    rebuild_ledger(config)
    assert known_replay(config, Ledger.open(config.ledger_url), "one").state == "planned"


@pytest.mark.parametrize("state", ["ended", "checked"])
def test_finished_replay_is_reopened_after_losing_commits(project: Project, state: str) -> None:
    config = project.config
    ledger = Ledger.open(project.config.ledger_url)
    plan = create_replay(config, request(replay_id="one"))
    _commit_to_its_end(config, plan)
    ledger.take_over("one", ["totals.sums"], plan.first, plan.last)
    ledger.attempts.begin("one", 1, "elsewhere", 1, 1, 0.0)
    ledger.attempts.end("one", 1, "done")
    if state == "checked":
        ledger.checks.record("one", "passed")
    assert begin_attempt(config, "one") is None

    log = config.replay_root("one") / FACTS / "_delta_log"
    max(log.glob("*.json")).unlink()
    lost = 'had ended, but has lost commits since: table "facts" has 0 of 24 windows'
    with pytest.raises(TableError, match=lost) as error:
        check_publishable(config, ledger, ledger.replays.get("one"), plan)
    assert "rewindow replay --resume one" in error.value.hint
    again = begin_attempt(config, "one")
    assert again is not None and again.epoch == 2
    assert 'lost since it had ended: table "facts" has 0 of 24 windows' in again.expected
    assert (
        ledger.replays.get("one").state == "failed"
        and "lost commits" in ledger.replays.get("one").message
    )


def _commit_to_its_end(config: Config, plan: Plan) -> None:
    """Leaves tables whose transaction ids say that all windows are there."""
    for name in [*(output.name for output in plan.outputs), FACTS, CHECKPOINTS]:
        fence(config.replay_root("one") / name, app_id("one", name), 1).commit(len(plan.range), [])


def test_interrupt_reaches_every_job_that_runs_at_the_same_time(tmp_path: Path) -> None:
    program = """
import pathlib, signal, sys

def stop(*_):
    pathlib.Path(sys.argv[1]).touch()
    sys.exit(130)

signal.signal(signal.SIGINT, stop)
print("ready", flush=True)
signal.pause()
"""
    both = threading.Barrier(3, timeout=60)

    def start(stopped: Path) -> Outcome:
        command = [sys.executable, "-c", program, str(stopped)]
        outcome = location(stopped.with_suffix(".json"))
        submission = Submission("r", 0, command, dict(os.environ), outcome)
        return run(submission, lambda line: both.wait() and None)

    before = signal.getsignal(signal.SIGINT)
    files = [tmp_path / "one", tmp_path / "two"]

    with INTERRUPTS.passed_on(), ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(start, file) for file in files]
        both.wait()
        signal.raise_signal(signal.SIGINT)
        found = [job.result().exit_code for job in jobs]
    assert found == [attempts.INTERRUPTED] * 2
    assert all(file.exists() for file in files)
    assert signal.getsignal(signal.SIGINT) is before
