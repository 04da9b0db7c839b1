"""The first cause of a failure among the attempts of a replay."""

from __future__ import annotations

from datetime import UTC, datetime

from rewindow.inspection.failures import first_cause
from rewindow.ledger import AttemptEnd, AttemptRecord

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def attempt(
    epoch: int,
    outcome: str,
    message: str = "",
    mark: int | None = None,
    name: str = "r-1",
) -> AttemptRecord:
    end = AttemptEnd(outcome) if outcome else None
    return AttemptRecord(name, epoch, None, None, None, None, mark, end, message, NOW, NOW, NOW)


def found(*attempts: AttemptRecord) -> tuple[int, str] | None:
    first = first_cause(attempts)
    return first and (first[0].epoch, first[1])


def test_first_cause_is_the_message_with_which_the_failures_started() -> None:
    division = attempt(1, "failed", "division by zero\n  Hint: Correct the operator.")
    assert found(division, attempt(2, "failed", "the job was given up")) == (1, "division by zero")
    assert found(division) == (1, "division by zero")


def test_failure_before_an_attempt_that_committed_windows_is_not_the_cause() -> None:
    attempts = (
        attempt(1, "killed", "killed by signal 9"),
        attempt(2, "failed", "disk full", mark=40),
        attempt(3, "failed", "disk full again"),
    )
    assert found(*attempts) == (2, "disk full")


def test_attempt_that_a_user_interrupted_is_not_the_cause() -> None:
    attempts = (
        attempt(1, "failed", "disk full"),
        attempt(2, "interrupted", "stopped by a user", mark=40),
        attempt(3, "failed", "division by zero"),
    )
    assert found(*attempts) == (3, "division by zero")


def test_attempt_without_a_message_is_not_the_cause() -> None:
    attempts = (attempt(1, "lost"), attempt(2, "failed", "disk full"))
    assert found(*attempts) == (2, "disk full")


def test_replay_that_runs_again_has_no_cause() -> None:
    assert found(attempt(1, "failed", "disk full"), attempt(2, "")) is None
    assert found() is None


def test_attempts_of_other_containers_do_not_hide_the_cause() -> None:
    attempts = (
        attempt(1, "failed", "disk full", name="r-1@a"),
        attempt(1, "done", name="r-1@b"),
        attempt(2, "failed", "fenced", name="r-1@a"),
    )
    assert found(*attempts) == (1, "disk full")
