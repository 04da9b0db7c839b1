"""Follows a replay that Airflow runs: prints events, detects the end of its process, and waits for
its tasks.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psutil

from rewindow.demo.airflow import ENDED, Airflow, Task
from rewindow.demo.console import DemoConsole
from rewindow.demo.drill import GROUPS, Drill
from rewindow.errors import ResourceError, RewindowError
from rewindow.ledger import AttemptRecord, GroupTiming, Ledger
from rewindow.pages.replay_report import KillEvent

LOOK_SECONDS = 0.1
READ_SECONDS = 0.4
ASK_SECONDS = 1.0
STILL_SECONDS_MAX = 420.0
"""Time without events after which the demo gives up."""
_REPLAY = "replay_windows"


@dataclass
class DemoRun:
    """A DAG run and its replay.

    Attributes:
        kills: the observed kills.
    """

    drill: Drill
    run_id: str
    replay_id: str = ""
    kills: list[KillEvent] = field(default_factory=list)


def wait_for_plan(airflow: Airflow, run: DemoRun, demo_console: DemoConsole) -> str:
    """Waits until the run has planned its replay, and returns the id of the replay."""
    _until(
        airflow,
        run,
        lambda tasks: tasks.get("plan_replay", Task("", 0)).state == "success",
        demo_console=demo_console,
        task="plan_replay",
    )
    run.replay_id = airflow.replay_id(run.run_id)
    return run.replay_id


def follow(ledger: Ledger, airflow: Airflow, run: DemoRun, demo_console: DemoConsole) -> None:
    """Waits until the replay's last window is committed.

    Raises:
        RewindowError: the replay failed, was not killed at its crash point, or makes no progress.
    """
    watch = _Watch(ledger, run, demo_console)
    asked = 0.0
    tries = 1
    changed = time.monotonic()
    while True:
        if watch.poll():
            changed = time.monotonic()
        now = time.monotonic()
        if now - asked >= ASK_SECONDS:
            asked = now
            task = _tasks(airflow, run).get(_REPLAY, Task("", 0))
            if task.tries > tries and task.state == "running":
                demo_console.say(f"Airflow has started try {task.tries} of task {_REPLAY}")
                tries = task.tries
                changed = now
            if task.state == "success":
                watch.read_ledger()
                break
            _check_alive(airflow, run, _REPLAY, now=task)
        if now - changed > STILL_SECONDS_MAX:
            raise _stuck(airflow, run, _REPLAY)
        time.sleep(LOOK_SECONDS)
    if run.drill.step and not run.kills:
        raise RewindowError(
            f'replay "{run.replay_id}" ended without having been killed at {run.drill.crash}'
        )


def wait_for_task(
    airflow: Airflow,
    run: DemoRun,
    task: str,
    states: tuple[str, ...],
    demo_console: DemoConsole,
) -> str:
    """Waits until a task has one of the given states, and returns the state."""
    seen: list[str] = []

    def there(tasks: dict[str, Task]) -> bool:
        state = tasks.get(task, Task("", 0)).state
        seen.append(state)
        return state in states

    _until(airflow, run, there, demo_console=demo_console, task=task)
    return seen[-1]


def wait_for_end(airflow: Airflow, run: DemoRun, demo_console: DemoConsole) -> str:
    """Waits until a run has ended, and returns its state."""
    demo_console.doing(f"waiting until {run.run_id} ends")
    began = time.monotonic()
    while (state := airflow.state(run.run_id)) not in ENDED:
        if time.monotonic() - began > STILL_SECONDS_MAX:
            raise _stuck(airflow, run, "check_windows")
        time.sleep(ASK_SECONDS / 2)
    return state


class _Watch:
    """Polls the ledger and the process of one replay."""

    def __init__(self, ledger: Ledger, run: DemoRun, demo_console: DemoConsole) -> None:
        self._ledger = ledger
        self._run = run
        self._telling = demo_console
        self._plan = ledger.replays.get(run.replay_id).read_plan()
        self._told: set[tuple[int, int]] = set()
        self._begun: set[int] = set()
        self._sentry: _Sentry | None = None
        self._recovered = False
        self._read_at = 0.0

    def poll(self) -> bool:
        """Prints new events. Returns whether there were any.

        The process is checked in each call, the ledger less often.
        """
        news = self._see_kill()
        now = time.monotonic()
        return (self.read_ledger() or news) if now - self._read_at >= READ_SECONDS else news

    def read_ledger(self) -> bool:
        """Prints new events of the ledger. Returns whether there were any."""
        self._read_at = time.monotonic()
        news = self._say_groups()
        attempt = self._ledger.attempts.last(self._run.replay_id)
        if attempt is None or attempt.pid is None or attempt.epoch in self._begun:
            return news
        self._begun.add(attempt.epoch)
        process = _process_of(attempt)
        if attempt.epoch == 1 and process is not None:
            self._sentry = _Sentry(process)
        self._telling.say(f"attempt {attempt.epoch} runs as process {attempt.pid}")
        self._telling.doing(f"{self._run.drill.title}: attempt {attempt.epoch}")
        return True

    def _see_kill(self) -> bool:
        drill = self._run.drill
        sentry = self._sentry
        if drill.step is None or self._run.kills or sentry is None or sentry.gone_at is None:
            return False
        self._run.kills.append(KillEvent(1, sentry.gone_at, drill.step.value, group=drill.group))
        self._telling.say(
            f"SIGKILL: process {sentry.pid} and its JVM have ended, in group {drill.group} at "
            f"step {drill.step.value}",
            style="bold red",
        )
        return True

    def _say_groups(self) -> bool:
        news = False
        for timing in sorted(
            self._ledger.attempts.timings(self._run.replay_id),
            key=lambda timing: timing.mark,
        ):
            if (timing.epoch, timing.mark) not in self._told:
                self._told.add((timing.epoch, timing.mark))
                self._say_group(timing)
                news = True
        return news

    def _say_group(self, timing: GroupTiming) -> None:
        done = f"{timing.mark:,} of {len(self._plan.range):,} windows"
        words = (
            f"attempt {timing.epoch} has committed up to window "
            f"{self._plan.window_of(timing.mark)}: {done}"
        )
        if self._run.kills and timing.epoch > 1 and not self._recovered:
            self._recovered = True
            seconds = (timing.reported_at - self._run.kills[0].at).total_seconds()
            self._telling.say(f"{words}; recovered {seconds:.1f} s after the kill", style="green")
        else:
            self._telling.say(f"{words}; {sum(timing.timings.values()):.1f} s for its group")


class _Sentry(threading.Thread):
    """Watches one process and records when it ends, even while Airflow is slow to respond."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.pid = process.pid
        self.gone_at: datetime | None = None
        self._process = process
        self.start()

    def run(self) -> None:
        """Polls until the process has ended."""
        while _lives(self._process):
            time.sleep(LOOK_SECONDS / 2)
        self.gone_at = datetime.now(UTC)


def _process_of(attempt: AttemptRecord) -> psutil.Process | None:
    """Returns an attempt's process if it is on this host."""
    if attempt.host != socket.gethostname() or attempt.pid is None:
        return None
    try:
        return psutil.Process(attempt.pid)
    except psutil.Error:
        return None


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _until(
    airflow: Airflow,
    run: DemoRun,
    reached: Callable[[dict[str, Task]], bool],
    demo_console: DemoConsole,
    task: str,
) -> None:
    demo_console.doing(f"{run.drill.title}: waiting for task {task}")
    began = time.monotonic()
    while True:
        tasks = _tasks(airflow, run)
        if reached(tasks):
            return
        _check_alive(airflow, run, task, now=tasks.get(task, Task("", 0)))
        if time.monotonic() - began > STILL_SECONDS_MAX:
            raise _stuck(airflow, run, task)
        time.sleep(ASK_SECONDS / 4)


def _tasks(airflow: Airflow, run: DemoRun) -> dict[str, Task]:
    """Returns the run's tasks; none while Airflow's API is restarting."""
    try:
        return airflow.tasks(run.run_id)
    except ResourceError:
        time.sleep(ASK_SECONDS)
        return {}


def _check_alive(airflow: Airflow, run: DemoRun, task: str, now: Task) -> None:
    if now.state in ("failed", "upstream_failed", "removed"):
        raise RewindowError(
            f'task "{task}" of DAG run "{run.run_id}" is {now.state}',
            detail=airflow.last_words(run.run_id, task, now) or "Its log is empty.",
            hint=f"Open the run in Airflow: {airflow.page(run.run_id)}",
        )


def _stuck(airflow: Airflow, run: DemoRun, task: str) -> RewindowError:
    return RewindowError(
        f'task "{task}" of DAG run "{run.run_id}" has made no progress for '
        f"{STILL_SECONDS_MAX:.0f} s",
        hint=f"Open the run in Airflow: {airflow.page(run.run_id)}",
    )


def groups_word(drill: Drill) -> str:
    """Returns a text about the kill of a drill and the group."""
    return (
        f"SIGKILL at {drill.step.value} of group {drill.group} of {GROUPS}: {drill.stake}"
        if drill.step
        else "no job is killed"
    )
