"""Prepares and runs attempts: ends the previous attempt, takes the next epoch, and starts the job
in a separate session.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewindow.crash import ASSEMBLY, check_crash, crashes_in
from rewindow.crash import VARIABLE as CRASH_VARIABLE
from rewindow.errors import FencedError, InputError, Interrupted, ResourceError, RewindowError
from rewindow.json_files import reading_json
from rewindow.launcher.processes import end_process_group
from rewindow.launcher.readiness import check_attempts, check_inputs, check_tables
from rewindow.ledger import AttemptEnd, AttemptRecord, Ledger, Replay
from rewindow.ledger.replays import next_steps
from rewindow.loading.catalog import check_code, load_planned
from rewindow.location import Location
from rewindow.names import check_replay_id, check_stream
from rewindow.planning.containers import container_to_run, plan_container
from rewindow.planning.forecast import expect_recovery
from rewindow.processes.parent_death import dies_with_parent
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.spark.heap import MEMORY_VARIABLE, exhausted_heap
from rewindow.spark.java import check_limits
from rewindow.spark.job_log import LOG_VARIABLE, OUTCOME_VARIABLE
from rewindow.spark.settings import (
    make_scratch,
    properties_arguments,
    scratch_folder,
    spark_environment,
    spark_settings,
    spark_submit,
    write_properties,
)
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS
from rewindow.storage.staged_marks import lost_commits
from rewindow.version import PACKAGE

CLOSED_STATES = ("published", "undone", "abandoned")
QUICK_TUPLES = 2_000_000
"""Replays with fewer tuples are short jobs. They use only the JVM's first compiler, which starts
faster and loses little peak performance."""
DISK_SPARE_BYTES = 256 * 10**6
INTERRUPTED = 130
SIGNALLED = 128
"""Exit codes from this one on mean that a signal ended the process."""
ENDED_STATES = ("ended", "checked", *CLOSED_STATES)


@dataclass(frozen=True)
class Submission:
    """A job to start.

    Attributes:
        epoch: fencing number of the attempt; 0 for jobs that are not attempts of a replay.
        command: argument list, no shell.
        environment: the whole environment of the process.
        outcome: path of the file that the job writes when it ends normally.
        expected: how the attempt will resume, in words; empty if nothing is recovered.

    Rules: R8
    """

    replay_id: str
    epoch: int
    command: list[str]
    environment: dict[str, str]
    outcome: Location
    expected: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    If it has exit code -9 and no message, it was killed.

    Attributes:
        facts: content of its outcome file; empty if it left none.
        error: the parts of its error, see RewindowError.parts; empty if it was another exception.
    """

    exit_code: int
    message: str
    retryable: bool
    facts: Mapping[str, Any]
    error: Mapping[str, str] = field(default_factory=dict)

    @property
    def result(self) -> dict[str, Any]:
        """The results of the job from its outcome file."""
        return {
            name: value
            for name, value in self.facts.items()
            if name not in ("exit_code", "message")
        }


def begin_attempt(
    config: Config,
    replay_id: str,
    crash: str | None = None,
    *,
    again: bool = False,
) -> Submission | None:
    """Takes the next epoch of a replay and returns the job to start; None if all its windows are
    committed.

    For a replay of several containers it is the next job of the first container that has not ended.
    After all containers have ended, it is the job that assembles the replay. With the id of a
    container it is the next job of that container.

    Remaining processes of the last attempt on this host are ended, because its JVM may outlive its
    Python process. This happens after the new epoch is recorded, so that the launcher of that
    attempt sees that it was superseded. Only a stopped job (SIGSTOP) is ended before, because one
    that was stopped during a write would keep the ledger's lock forever.

    If an ended replay has lost commits from its tables since, it is reopened, and the missing
    windows are computed again.

    Args:
        config: current settings.
        replay_id: a replay, or a container.
        crash: crash points, for a drill.
        again: whether to start an attempt even if all allowed ones have failed.

    Raises:
        InputError: the replay or container does not exist, is closed, a container that it reads has
            not ended, or the crash point is invalid.
        OverlapError: another replay has locked the range.
        CodeChangedError: the code or the configuration has changed since the replay was planned.
        TableError: the ledger is older than the replay's tables, or does not belong to them; a
            table has lost commits that cannot be computed again.
        RewindowError: too many attempts without a new checkpoint.

    Rules: R90, R91, W65
    """
    ledger = Ledger.open(config.ledger_url)
    whole, _, name = replay_id.partition("@")
    row = known_replay(config, ledger, whole)
    if row.state == "abandoned":
        raise InputError(f'replay "{whole}" is abandoned', hint=next_steps(row))
    if row.state in CLOSED_STATES:
        return None
    plan = row.read_plan()
    lost = _reopened(config, ledger, row, plan)
    if row.state in ENDED_STATES and not lost:
        return None
    if name or plan.is_divided:
        container = container_to_run(config, plan, name)
        if container is not None:
            row = ledger.replays.get(plan_container(config, plan, container))
            # The lease on the range belongs to the replay itself while its containers run.
            leased = [] if plan.candidate else plan.tables
            ledger.run_container(whole, leased, plan.first, plan.last)
            plan = row.read_plan()
            lost = _reopened(config, ledger, row, plan)
        elif name:
            return None
        if crash:
            crash = crashes_in(crash, container.name if container else ASSEMBLY)
    check_inputs(config, plan)
    check_code(plan, load_planned(config, plan))
    if not again:
        check_attempts(config, ledger, plan)
    check_disk(config, sum(entry.bytes for entry in plan.inputs))
    command = [sys.executable, str(job_file("replay.py")), "--replay", plan.replay_id]
    if not plan.is_linked:
        command = submit_command(
            config,
            "replay.py",
            ["--replay", plan.replay_id],
            name=f"rewindow {plan.replay_id}",
            needed=plan.mode.spark_settings,
            quick=plan.input_tuples < QUICK_TUPLES,
            cores_max=plan.cores_max or config.replay.cores_max,
        )
    environment = job_environment(config, check_crash(crash) if crash else None)
    last = ledger.attempts.last(plan.replay_id)
    _end(last, only_stopped=True)
    tables = [] if plan.candidate or plan.container else plan.tables
    epoch = ledger.take_over(plan.replay_id, tables, plan.first, plan.last)
    _end(last)
    expected = _expected(config, plan) if last is not None else ""
    if lost:
        expected = (
            f"lost since it had ended: {lost}; missing windows are computed again; {expected}"
        )
    outcome = config.replay_root(plan.replay_id) / f"outcome-{epoch}.json"
    command += ["--epoch", str(epoch)]
    return Submission(
        plan.replay_id,
        epoch,
        command,
        environment=environment | _outcome_variable(outcome),
        outcome=outcome,
        expected=expected,
    )


def _reopened(config: Config, ledger: Ledger, row: Replay, plan: Plan) -> str:
    """Reopens an ended replay if its tables have lost commits since.

    Returns a text about these commits; empty if there are none.
    """
    positions = check_tables(config, ledger, plan)
    lost = lost_commits(plan, positions) if row.state in ENDED_STATES else ""
    if lost:
        message = f"it had ended, but has lost commits since: {lost}"
        ledger.replays.reopen(plan.replay_id, message)
    return lost


def known_replay(config: Config, ledger: Ledger, replay_id: str) -> Replay:
    """Returns a replay from the ledger.

    Raises:
        InputError: the ledger does not list it; the message includes whether its tables exist.
    """
    replay = ledger.replays.find(replay_id)
    if replay is None and Table.exists(config.replay_root(replay_id) / CHECKPOINTS):
        raise InputError(
            f'replay "{replay_id}" is not in the ledger, although its tables exist',
            detail="The ledger is new, or an older copy.",
            hint="Restore the newest ledger; or move this one away and rebuild it from the "
            "tables: rewindow ledger rebuild",
        )
    return replay or ledger.replays.get(replay_id)


def _end(last: AttemptRecord | None, *, only_stopped: bool = False) -> None:
    """Ends the remaining processes of an attempt on this host."""
    if (
        last is None
        or last.host != socket.gethostname()
        or not last.process_group
        or not last.process_identity
    ):
        return
    end_process_group(last.process_group, last.process_identity, only_stopped=only_stopped)


def _expected(config: Config, plan: Plan) -> str:
    """Returns how the next attempt will resume, as text.

    Errors are ignored, because the attempt itself will report them.
    """
    with contextlib.suppress(RewindowError):
        return str(expect_recovery(config, plan))
    return ""


def plain_submission(
    config: Config,
    job: str,
    arguments: list[str],
    subject: str,
    crash: str | None = None,
    *,
    quick: bool = True,
) -> Submission:
    """Returns a job that is not an attempt of a replay, such as recording or publishing.

    It has no epoch.

    Args:
        config: current settings.
        job: file name of the entry point.
        arguments: arguments of the job.
        subject: the stream or replay that it processes; part of the outcome file's name.
        crash: crash points, for a drill.
        quick: whether it is a short job, see `spark_settings`.

    Raises:
        InputError: the subject cannot be part of a file's name.
    """
    stem = Path(job).stem
    subject = check_replay_id(subject) if stem == "publish" else check_stream(subject)
    outcome = config.state / "outcomes" / f"{stem}-{subject}-{scratch_folder(config).name}.json"
    environment = job_environment(config, crash) | _outcome_variable(outcome)
    if stem == "publish":  # The job starts Spark itself, if a table needs it.
        command = [sys.executable, str(job_file(job)), *arguments]
        environment |= {
            f"REWINDOW_SPARK__CONF__{name}": value for name, value in config.spark.conf.items()
        }
    else:
        command = submit_command(
            config,
            job,
            arguments,
            name=f"rewindow {stem} {subject}",
            quick=quick,
        )
    return Submission(subject, 0, command, environment=environment, outcome=outcome)


def submit_command(
    config: Config,
    job: str,
    arguments: list[str],
    *,
    name: str,
    needed: Mapping[str, str] = {},
    quick: bool = False,
    cores_max: int | None = None,
) -> list[str]:
    """Returns the spark-submit command line of a job."""
    check_limits(config.spark.driver_memory)
    make_scratch(config)
    settings = spark_settings(config, needed=needed, quick=quick, cores_max=cores_max)
    master = settings.pop("spark.master")
    command = [str(spark_submit()), "--master", master, "--name", name]
    command += properties_arguments(write_properties(config, settings))
    return [*command, str(job_file(job)), *arguments]


def job_file(name: str) -> Path:
    """Returns the path of an entry point, in the checkout or in the installed package."""
    for folder in (PACKAGE.parent / "jobs", PACKAGE / "jobs"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f'job "{name}" is not installed')


def _outcome_variable(outcome: Location) -> dict[str, str]:
    log = outcome.with_name(f"{outcome.stem}.log")
    return {OUTCOME_VARIABLE: str(outcome), LOG_VARIABLE: str(log)}


def job_environment(config: Config, crash: str | None = None) -> dict[str, str]:
    """Returns the environment of a job: the current environment, variables that Spark needs, and
    the location of the settings.
    """
    environment = spark_environment()
    environment.pop(CRASH_VARIABLE, None)
    environment |= {
        "REWINDOW_STATE": str(config.state),
        "REWINDOW_SPARK__MASTER": config.spark.master,
        MEMORY_VARIABLE: config.spark.driver_memory,
        "PYTHONPATH": str(PACKAGE.parent),
        "PYTHONUNBUFFERED": "1",
    }
    if config.file:
        environment["REWINDOW_CONFIG"] = str(config.file)
    if crash:
        environment[CRASH_VARIABLE] = crash
    return environment


def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
    """Starts a job, passes its lines on, and returns how it ended.

    Ctrl-C is passed on to the driver, which stops at the end of its commit group.
    """
    submission.outcome.delete()
    if submission.expected:
        on_line(submission.expected)
    with INTERRUPTS.passed_on():
        process = subprocess.Popen(
            submission.command,
            env=submission.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=dies_with_parent(),
            errors="replace",
        )
        with INTERRUPTS.reaching(process.pid):
            code = _watch(process, on_line)
        asked = INTERRUPTS.asked
    outcome = read_outcome(submission.outcome, code)
    if not asked or outcome.exit_code == 0 or (outcome.facts and outcome.exit_code == INTERRUPTED):
        return outcome
    again = (
        f"rewindow replay --resume {submission.replay_id}"
        if submission.epoch
        else "the same command"
    )
    stopped = Interrupted(
        "stopped by the user",
        detail="Committed windows are kept.",
        hint=f"Continue with: {again}",
    )
    return Outcome(
        INTERRUPTED,
        str(stopped),
        retryable=False,
        facts=outcome.facts,
        error=stopped.parts,
    )


def _watch(process: subprocess.Popen[str], on_line: Callable[[str], None]) -> int:
    """Passes on a process's lines and returns its exit code. Kills the process group if the
    launcher itself fails.
    """
    assert process.stdout is not None, "stdout is a pipe"
    try:
        for line in process.stdout:
            on_line(line.rstrip("\n"))
        return process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


class Interrupts:
    """Handles Ctrl-C and passes it on to all running jobs.

    Attributes:
        asked: whether it was pressed since the outermost `passed_on` was entered.
    """

    def __init__(self) -> None:
        self.asked = False
        self._groups: set[int] = set()
        self._is_listening = False

    @contextlib.contextmanager
    def passed_on(self) -> Iterator[None]:
        """Handles SIGINT within the context; has no effect outside of the main thread."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._is_listening or not is_main:
            yield
            return
        self.asked = False
        self._is_listening = True
        previous = signal.signal(signal.SIGINT, self._stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)
            self._is_listening = False

    @contextlib.contextmanager
    def reaching(self, group: int) -> Iterator[None]:
        """Passes SIGINT on to a job's process group within the context."""
        self._groups.add(group)
        try:
            if self.asked:
                os.killpg(group, signal.SIGKILL)
            yield
        finally:
            self._groups.discard(group)

    def _stop(self, number: int, frame: object) -> None:
        self.asked = True
        for group in tuple(self._groups):
            if not _pass_on(group):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)


INTERRUPTS = Interrupts()


def note_kill(config: Config, submission: Submission, outcome: Outcome) -> None:
    """Records in the ledger that an attempt has ended without an outcome.

    If the ledger cannot be written, no error is raised, because the next attempt records the end of
    the previous one.

    Raises:
        FencedError: a newer attempt has taken over and ended this one; its launcher must not start
            another.
    """
    if outcome.facts or not submission.epoch:
        return
    end = AttemptEnd.INTERRUPTED if outcome.exit_code == INTERRUPTED else AttemptEnd.KILLED
    try:
        ledger = Ledger.open(config.ledger_url)
        ledger.attempts.end(submission.replay_id, submission.epoch, end, outcome.message)
    except FencedError:
        raise
    except RewindowError:
        return


def read_outcome(path: Location, exit_code: int = 0) -> Outcome:
    """Returns a job's outcome from its file.

    A job without a file was killed, so it can be retried. The same applies to a damaged file,
    because the tables contain the job's commits.
    """
    try:
        with reading_json(
            path,
            "outcome file",
            "Run the same command again: windows that the job had committed are kept.",
        ):
            facts = json.loads(path.read_text())
            error = facts.pop("error", {})
            if not facts["exit_code"] and (error or 0 < exit_code < SIGNALLED):
                raise ValueError("the exit code is 0, although the job failed")
            return Outcome(
                facts["exit_code"],
                facts["message"],
                bool(facts.get("retryable")),
                facts=facts,
                error=error,
            )
    except OSError:
        heap = exhausted_heap(path, exit_code, has_died=True)
        return Outcome(
            exit_code or -9,
            str(heap or f"the job ended without an outcome (exit code {exit_code})"),
            True,
            facts={},
            error=heap.parts if heap else {},
        )
    except RewindowError as damage:
        return Outcome(
            exit_code or -9,
            str(damage),
            retryable=True,
            facts={},
            error=damage.parts,
        )


def check_disk(config: Config, input_bytes: int) -> None:
    """Checks that there is enough free disk space: the size of the inputs, and a reserve.

    Raises:
        ResourceError: names the folder, the free and the needed space.
    """
    config.state.make_folder()
    free = config.state.free_bytes()
    needed = input_bytes + DISK_SPARE_BYTES
    if free is not None and free < needed:
        raise ResourceError(
            f'no disk space in "{config.state}": {free / 1e6:.0f} MB are free, {needed / 1e6:.0f} '
            "MB are needed",
            detail="Nothing was started.",
            hint="Free disk space (rewindow purge lists what can be deleted) and run the same "
            "command again.",
        )


def _pass_on(group: int) -> bool:
    """Sends SIGINT to the Python driver of a process group, but not to its JVM.

    Returns whether the driver already exists.
    """
    import psutil

    sent = False
    for process in psutil.process_iter(["pid", "name"]):
        try:
            if os.getpgid(process.pid) == group and "python" in (process.info["name"] or ""):
                process.send_signal(signal.SIGINT)
                sent = True
        except (psutil.Error, ProcessLookupError):
            continue
    return sent
