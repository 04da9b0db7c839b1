"""Watching a replay: the kill is seen when the process is gone, and a replay that was not killed is
no drill.
"""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rewindow.application import Mode
from rewindow.crash import Step
from rewindow.demo import watch
from rewindow.demo.airflow import Airflow, Task
from rewindow.demo.console import DemoConsole
from rewindow.demo.drill import Drill
from rewindow.demo.watch import DemoRun, follow, wait_for_task
from rewindow.errors import RewindowError
from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from tests.publication.staging import StagedReplay


class Script(Airflow):
    """An Airflow whose answers are a list; the last one stays. Between answers something may
    happen.
    """

    def __init__(self, *answers: object) -> None:
        self.address = "http://127.0.0.1:1"
        self._answers = list(answers)

    def tasks(self, run_id: str) -> dict[str, Task]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if callable(answer):
            answer()
            return self.tasks(run_id)
        return {"replay_windows": answer, "check_windows": answer}  # type: ignore[dict-item]

    def last_words(self, run_id: str, task: str, now: Task) -> str:
        return "its last words"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_SECONDS", "READ_SECONDS", "ASK_SECONDS"):
        monkeypatch.setattr(watch, name, 0.01)


@pytest.fixture
def demo_console() -> DemoConsole:
    return DemoConsole(Console(file=io.StringIO()))


def planned(config: Config) -> Ledger:
    replay = StagedReplay(config, "r", 100, 119)
    ledger = Ledger.open(config.ledger_url)
    plan = replay.plan
    ledger.replays.create(
        "r",
        plan.application,
        100,
        119,
        plan.mode.name,
        plan.model_dump(mode="json"),
        plan.code_version,
    )
    return ledger


def begin(ledger: Ledger, pid: int) -> None:
    epoch = ledger.attempts.next_epoch("r")
    ledger.attempts.begin("r", epoch, socket.gethostname(), pid, pid, 0.0)


def test_kill_is_recorded_with_step_group_and_time_once_the_process_has_ended(
    config: Config,
    demo_console: DemoConsole,
) -> None:
    ledger = planned(config)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        begin(ledger, process.pid)
        began = ledger.attempts.of("r")[0].began_at
        run = DemoRun(Drill(Mode.EXACTLY_ONCE, Step.AFTER_OUTPUTS, 3), "run", "r")
        running = Task("running", 1)
        done = Task("success", 2)
        airflow = Script(
            running,
            running,
            running,
            process.kill,
            process.wait,
            running,
            running,
            done,
        )
        follow(ledger, airflow, run, demo_console)
    (kill,) = run.kills
    assert (kill.epoch, kill.step, kill.group) == (1, "after_outputs", 3) and kill.at >= began


def test_drill_without_a_kill_raises_an_error(config: Config, demo_console: DemoConsole) -> None:
    run = DemoRun(Drill(Mode.EXACTLY_ONCE, Step.AFTER_OUTPUTS, 3), "run", "r")
    with pytest.raises(RewindowError, match="without having been killed at after_outputs:3@1"):
        follow(planned(config), Script(Task("success", 1)), run, demo_console)


def test_demo_accepts_a_replay_without_a_kill(config: Config, demo_console: DemoConsole) -> None:
    run = DemoRun(Drill(Mode.EXACTLY_ONCE), "run", "r")
    follow(planned(config), Script(Task("running", 1), Task("success", 1)), run, demo_console)
    assert run.kills == []


def test_failed_task_ends_the_demo_with_its_last_lines_and_run_url(
    config: Config,
    demo_console: DemoConsole,
) -> None:
    run = DemoRun(Drill(Mode.EXACTLY_ONCE), "run", "r")
    with pytest.raises(
        RewindowError,
        match='task "replay_windows" of DAG run "run" is failed',
    ) as caught:
        follow(planned(config), Script(Task("failed", 3)), run, demo_console)
    assert "its last words" in str(caught.value) and "http://127.0.0.1:1/dags" in str(caught.value)


def test_expected_task_failure_is_returned(demo_console: DemoConsole) -> None:
    run = DemoRun(Drill(Mode.AT_MOST_ONCE), "run", "r")
    airflow = Script(Task("running", 1), Task("failed", 1))
    assert (
        wait_for_task(airflow, run, "check_windows", ("success", "failed"), demo_console)
        == "failed"
    )


def test_replay_without_progress_raises_an_error_after_a_timeout(
    config: Config,
    demo_console: DemoConsole,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "STILL_SECONDS_MAX", 0.05)
    run = DemoRun(Drill(Mode.EXACTLY_ONCE), "run", "r")
    with pytest.raises(RewindowError, match="has made no progress"):
        follow(planned(config), Script(Task("running", 1)), run, demo_console)


def test_password_file_is_read_only_at_login(tmp_path: Path) -> None:
    from rewindow.embedded import Running

    Airflow(Running("http://127.0.0.1:1", tmp_path / "none.json"))
