"""`rewindow replay` and its like without a JVM: what is refused, what goes to which stream, how failures are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rewindow.config import Config
from rewindow.job_lines import ReplayProgress
from rewindow.launcher import Outcome, Submission, failure, loop
from tests.commands.conftest import Command
from tests.publication.staging import StagedReplay, simple

PROGRESS = ReplayProgress("one", 1, 100, 104, 5, 5, 1.0)
LINES = ("a line of the JVM", PROGRESS.line(), '{"rewindow": "publication"}')
DONE = Outcome(0, "", False, {"exit_code": 0, "message": "", "windows": 5})

Runs = Callable[..., None]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Replaces jobs by ones that print lines and end, one after the other, with given outcomes."""

    def replaced(*outcomes: Outcome) -> None:
        left = list(outcomes)

        def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
            for line in LINES:
                on_line(line)
            return left.pop(0)

        def begin(config: Config, replay_id: str, *rest: Any, **options: Any) -> Submission:
            return Submission(replay_id, 1, [], {}, Path())

        monkeypatch.setattr(loop, "begin_attempt", begin)
        monkeypatch.setattr(loop, "run", run)
        monkeypatch.setattr(loop, "plain_submission", lambda *given: Submission("one", 0, [], {}, Path()))

    return replaced


@pytest.fixture
def one(config: Config) -> StagedReplay:
    """A replay to go on with."""
    return simple(config, "one", 100, 104)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (("app",), "APPLICATION"),
        (("--first", 1), "--first"),
        (("--from", "2013-01-01"), "--from"),
        (("--mode", "exactly_once"), "--mode"),
        (("--id", "two"), "--id"),
        (("--reason", "because"), "--reason"),
        (("-p", "x=1"), "--parameter"),
        (("--allow-missing",), "--allow-missing"),
    ],
)
def test_resume_takes_no_other_wish(
    command: Command, one: StagedReplay, jobs: Runs, given: tuple[object, ...], name: str
) -> None:
    """A replay goes on as it was planned; a wish that would be ignored is refused, also one that equals a default."""
    jobs(DONE)
    code, _, errors = command("replay", *given, "--resume", "one")
    assert code == 2 and f"{name} cannot be given" in errors, errors


def test_resume_takes_what_is_about_the_attempt(command: Command, one: StagedReplay, jobs: Runs) -> None:
    """--again, --crash and --json do not change the plan."""
    jobs(DONE)
    assert command("replay", "--resume", "one", "--again", "--crash", "x:1", "--json")[0] == 0


def test_json_is_all_that_stands_on_the_output(command: Command, one: StagedReplay, jobs: Runs) -> None:
    """Progress, warnings and ends of attempts go to the errors."""
    killed = Outcome(-9, "killed", True, {})
    jobs(killed, DONE)
    code, text, errors = command("replay", "--resume", "one", "--json")
    assert (code, json.loads(text)["windows"]) == (0, 5)
    assert "attempt 1 ended: killed; resuming" in errors and "a line of the JVM" in errors


@pytest.mark.parametrize("message", ["cannot read [/tmp/x]: [file:/y]", ""])
def test_the_end_of_an_attempt_is_told_as_it_is(command: Command, one: StagedReplay, jobs: Runs, message: str) -> None:
    """A message that looks like markup is no error and loses nothing; a missing one neither."""
    jobs(Outcome(-9, message, True, {"exit_code": -9}), DONE)
    code, _, errors = command("replay", "--resume", "one")
    assert code == 0
    assert f"attempt 1 ended: {message or 'without a message'}; resuming" in errors


def test_a_failure_without_a_message_is_an_error_all_the_same() -> None:
    """The exit code is the job's."""
    error = failure(Outcome(65, "", False, {}))
    assert (error.primary, error.exit_code) == ("the job ended without a message (exit code 65)", 65)
