"""Jobs run to their end: an attempt that dies is followed by the next one, any other job is begun
again.
"""

from __future__ import annotations

from rewindow.errors import RewindowError
from rewindow.launcher.attempts import Outcome, begin_attempt, note_kill, plain_submission, run
from rewindow.progress.listener import Listener, Silent
from rewindow.settings.config import Config

TRIES = 3


def run_attempts(
    config: Config,
    replay_id: str,
    listener: Listener | None = None,
    *,
    again: bool = False,
    crash: str | None = None,
) -> Outcome | None:
    """Runs attempts until the replay has ended; None when it had ended before.

    Args:
        config: settings.
        replay_id: a planned replay.
        listener: is told what happens.
        again: try although the replay has used up its attempts.
        crash: drill: kill the job at STEP:GROUP@ATTEMPT.

    Raises:
        RewindowError: an attempt failed for good, or all allowed ones were used up.
    """
    told = listener or Silent()
    while True:
        submission = begin_attempt(config, replay_id, crash, again=again)
        if submission is None:
            return None
        if submission.replay_id != replay_id:
            told.note(f"container {submission.replay_id.partition('@')[2]}")
        with told.job():
            outcome = run(submission, told.line)
        note_kill(config, submission, outcome)
        if outcome.exit_code == 0 and submission.replay_id == replay_id:
            return outcome
        if outcome.exit_code == 0:
            continue
        if not outcome.retryable:
            raise failure(outcome)
        again = False
        first_line = (outcome.message.splitlines() or ["without a message"])[0]
        told.warn(f"attempt {submission.epoch} ended: {first_line}; resuming")


def run_plain(
    config: Config,
    job: str,
    arguments: list[str],
    subject: str,
    listener: Listener | None = None,
    *,
    crash: str | None = None,
    quick: bool = True,
) -> Outcome:
    """Runs a job that is no attempt of a replay to its end; a killed one is begun again, as it is
    safe to repeat.

    Args:
        quick: it is a short job, see `spark_settings`.

    Raises:
        RewindowError: the job failed for good.
    """
    told = listener or Silent()
    for attempt in range(1, TRIES + 1):
        with told.job():
            outcome = run(
                plain_submission(
                    config,
                    job,
                    arguments,
                    subject=subject,
                    crash=crash,
                    quick=quick,
                ),
                told.line,
            )
        if outcome.exit_code == 0:
            return outcome
        if not outcome.retryable or attempt == TRIES:
            break
        crash = None
    raise failure(outcome)


def failure(outcome: Outcome) -> RewindowError:
    """Returns a job's failure as an error with the job's own exit code."""
    text = (
        outcome.message.strip()
        or f"the job ended without a message (exit code {outcome.exit_code})"
    )
    error = RewindowError(**outcome.error) if outcome.error else RewindowError(text)
    error.exit_code = outcome.exit_code  # type: ignore[misc]
    return error
