"""Runs a Spark job that is no attempt of a replay, in the foreground, and says how it ended."""

from __future__ import annotations

from rewindow.commands.replay import failure
from rewindow.commands.screen import JobScreen
from rewindow.config import Config
from rewindow.launcher import Outcome, plain_submission, run

TRIES = 3


def run_plain(config: Config, job: str, arguments: list[str], subject: str, crash: str | None = None) -> Outcome:
    """Runs a job to its end; a killed one is begun again, since every job is safe to repeat.

    Raises:
        RewindowError: the job failed for good.
    """
    for attempt in range(1, TRIES + 1):
        with JobScreen() as screen:
            outcome = run(plain_submission(config, job, arguments, subject, crash), screen.line)
        if outcome.exit_code == 0:
            return outcome
        if not outcome.retryable or attempt == TRIES:
            break
        crash = None
    raise failure(outcome)
