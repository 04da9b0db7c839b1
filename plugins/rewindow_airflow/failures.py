"""Turns the ways in which a job or a library call ends into Airflow's two: fail for good, or fail
and try again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
)

from rewindow.errors import RewindowError

DONE = 0
BAD_INPUT = 2
FINAL = 65
TRANSIENT = 75
INTERRUPTED = 130
_NOT_RETRYABLE = {BAD_INPUT, FINAL, INTERRUPTED}
WAIT = timedelta(minutes=5)
WAITS_MAX = 288
"""A day of waits."""
GO_ON_WAIT = timedelta(seconds=15)
"""How long a task that was told to end stays away at least. Queued again before the executor has
reported its end, it would be taken for lost, which costs a try."""
HELD_WAIT = timedelta(minutes=1)
"""How long a task waits for the range that another replay holds."""


class Nothing(Exception):
    """There is nothing to do, for the reason that it says: the task is skipped, and all after
    it.
    """


class NotYet(Exception):
    """Something that a task needs is not recorded yet; waiting for it is no failure and uses up no
    try.
    """


def waiting(lack: NotYet, waits: int, wait: timedelta | None = None) -> AirflowException:
    """Returns the exception that makes Airflow run the task again after a while, or fail it when it
    waited for a day.

    Args:
        lack: what is not there yet.
        waits: how often this try has waited before.
        wait: for how long; five minutes unless given.
    """
    if waits >= WAITS_MAX * (WAIT // wait if wait else 1):
        return AirflowFailException(
            f"{lack}\nThis task has waited {waits} times, {wait or WAIT} each; clear it to wait on."
        )
    return AirflowRescheduleException(datetime.now(UTC) + (wait or WAIT))


def is_retryable(exit_code: int, outcome_says: bool) -> bool:
    """Returns whether another attempt may help.

    Args:
        exit_code: of the job; negative or above 128 when a signal ended it.
        outcome_says: what the attempt's outcome file says; a killed job writes none, and another
            attempt helps.
    """
    return exit_code not in _NOT_RETRYABLE and (exit_code == TRANSIENT or outcome_says)


def failure(message: str, retryable: bool) -> AirflowException:
    """Returns the exception that makes Airflow try again, or the one that does not."""
    return AirflowException(message) if retryable else AirflowFailException(message)


@contextmanager
def mapped_errors(ending: str = "") -> Iterator[None]:
    """Lets the library's errors leave as Airflow's: `retryable` decides. Anything else is a bug and
    leaves as it is.

    Args:
        ending: a last line of the message.
    """
    try:
        yield
    except RewindowError as error:
        message = "\n".join(filter(None, (str(error), ending)))
        raise failure(message, error.retryable) from error


def cause(exit_code: int) -> str:
    """Returns how a job ended, in words."""
    words = {
        BAD_INPUT: "bad input",
        FINAL: "failed, not to be tried again",
        TRANSIENT: "failed, may be tried again",
        INTERRUPTED: "interrupted",
    }
    if exit_code < 0 or (exit_code > 128 and exit_code != INTERRUPTED):
        return f"killed by signal {-exit_code if exit_code < 0 else exit_code - 128}"
    return f"exit code {exit_code}, {words.get(exit_code, 'failed')}"
