"""`rewindow replay` and its like without a JVM: what is refused, what goes to which stream, how
failures are told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rewindow.launcher import Outcome, Submission, failure, loop
from rewindow.progress.job_lines import ReplayProgress
from rewindow.settings.config import Config
from tests.commands.conftest import Command
from tests.publication.staging import StagedReplay, simple

PROGRESS = ReplayProgress("one", 1, 100, 104, 5, 5, 1.0)
LINES = ("a line of the JVM", PROGRESS.line(), '{"rewindow": "publication"}')
DONE = Outcome(0, "", False, {"exit_code": 0, "message": "", "windows": 5})

Runs = Callable[..., list[tuple[str | None, bool]]]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Replaces jobs by ones that print lines and end, one after the other, with given outcomes.

    Returns the crash point and `again` of each attempt.
    """
    asked: list[tuple[str | None, bool]] = []

    def replaced(*outcomes: Outcome) -> list[tuple[str | None, bool]]:
        left = list(outcomes)

        def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
            for line in LINES:
                on_line(line)
            return left.pop(0)

        def begin(
            config: Config,
            replay_id: str,
            crash: str | None = None,
            *,
            again: bool = False,
        ) -> Submission:
            asked.append((crash, again))
            return Submission(replay_id, 1, [], {}, Path())

        monkeypatch.setattr(loop, "begin_attempt", begin)
        monkeypatch.setattr(loop, "run", run)
        monkeypatch.setattr(
            loop,
            "plain_submission",
            lambda *given: Submission("one", 0, [], {}, Path()),
        )
        return asked

    return replaced


@pytest.fixture
def one(config: Config) -> StagedReplay:
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
def test_resume_rejects_every_option_that_changes_the_plan(
    command: Command,
    one: StagedReplay,
    jobs: Runs,
    given: tuple[object, ...],
    name: str,
) -> None:
    jobs(DONE)
    code, _, errors = command("replay", *given, "--resume", "one")
    assert code == 2 and f"{name} cannot be combined with --resume" in errors, errors


def test_resume_accepts_options_that_concern_only_the_attempt(
    command: Command,
    one: StagedReplay,
    jobs: Runs,
) -> None:
    asked = jobs(Outcome(-9, "killed", True, {}), DONE)
    assert command("replay", "--resume", "one", "--again", "--crash", "x:1", "--json")[0] == 0
    assert asked == [("x:1", True), ("x:1", False)], "only the first attempt goes beyond the limit"


def test_replay_prints_only_json_to_stdout(command: Command, one: StagedReplay, jobs: Runs) -> None:
    killed = Outcome(-9, "killed", True, {})
    jobs(killed, DONE)
    code, text, errors = command("replay", "--resume", "one", "--json")
    assert (code, json.loads(text)["windows"]) == (0, 5)
    assert "attempt 1 ended: killed; resuming" in errors and "a line of the JVM" in errors


@pytest.mark.parametrize("message", ["cannot read [/tmp/x]: [file:/y]", ""])
def test_attempt_result_is_printed_verbatim_even_with_markup_or_no_message(
    command: Command,
    one: StagedReplay,
    jobs: Runs,
    message: str,
) -> None:
    jobs(Outcome(-9, message, True, {"exit_code": -9}), DONE)
    code, _, errors = command("replay", "--resume", "one")
    assert code == 0
    assert f"attempt 1 ended: {message or 'without a message'}; resuming" in errors


def test_failure_without_a_message_keeps_the_exit_code_of_the_job() -> None:
    error = failure(Outcome(65, "", False, {}))
    assert (error.primary, error.exit_code) == (
        "the job ended without a message (exit code 65)",
        65,
    )
