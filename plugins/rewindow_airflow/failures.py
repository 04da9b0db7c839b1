"""Maps the outcomes of a job or a library call to the two outcomes of Airflow: fail permanently, or
fail and retry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)

from rewindow.errors import CodeChangedError, RewindowError
from rewindow_airflow.hints import PLAN_AGAIN, in_airflow

DONE = 0
BAD_INPUT = 2
FINAL = 65
TRANSIENT = 75
INTERRUPTED = 130
_NOT_RETRYABLE = {BAD_INPUT, FINAL, INTERRUPTED}
WAIT = timedelta(minutes=5)
WAITS_MAX = 288
"""Number of waits in a day."""
GO_ON_WAIT = timedelta(seconds=15)
"""Shortest time before a task that had to end is queued again. If it were queued before the
executor has reported its end, Airflow would treat it as lost, which costs a try.
"""
HELD_WAIT = timedelta(minutes=1)
"""How long a task waits for a range that another replay has leased."""


class Nothing(Exception):
    """Raised if there is nothing to do, with the reason in the message.

    The task and all tasks after it are skipped.
    """


class NotYet(Exception):
    """Raised if a task needs windows that are not recorded yet.

    Waiting for them is not a failure and uses no try.
    """


def waiting(lack: NotYet, waits: int, wait: timedelta | None = None) -> AirflowException:
    """Returns the exception that makes Airflow run the task again later, or fail it after it has
    waited for a day.

    Args:
        lack: what is missing.
        waits: number of earlier waits in this try.
        wait: time until the next run; five minutes by default.
    """
    if waits >= WAITS_MAX * (WAIT // wait if wait else 1):
        return AirflowFailException(
            f"{lack}\nThis task has waited {waits} times, {wait or WAIT} each; "
            "clear it to wait again."
        )
    return AirflowRescheduleException(datetime.now(UTC) + (wait or WAIT))


def is_retryable(exit_code: int, outcome_says: bool) -> bool:
    """Returns whether another attempt can succeed.

    Args:
        exit_code: exit code of the job; negative or above 128 if a signal ended it.
        outcome_says: whether the attempt's outcome file marks it as retryable; a killed job writes
            no file, and another attempt helps.
    """
    return exit_code not in _NOT_RETRYABLE and (exit_code == TRANSIENT or outcome_says)


def failure(message: str, retryable: bool) -> AirflowException:
    """Returns the exception that makes Airflow retry a task, or the exception that prevents a
    retry.

    Before a hint with a command, the message names the action in Airflow.
    """
    text = in_airflow(message)
    return AirflowException(text) if retryable else AirflowFailException(text)


@contextmanager
def mapped_errors(ending: str = "") -> Iterator[None]:
    """Turns errors of the library into errors of Airflow, according to `retryable`. If there is
    nothing to do, the task is skipped.

    Any other error is a bug and is not changed.

    Args:
        ending: last line of the message.
    """
    try:
        yield
    except CodeChangedError as error:
        message = "\n".join(filter(None, (in_airflow(str(error), PLAN_AGAIN), ending)))
        raise AirflowFailException(message) from error
    except RewindowError as error:
        message = "\n".join(filter(None, (str(error), ending)))
        raise failure(message, error.retryable) from error
    except Nothing as reason:
        raise AirflowSkipException(f"Nothing to replay: {reason}") from reason


def cause(exit_code: int) -> str:
    """Returns a description of how a job ended."""
    words = {
        BAD_INPUT: "bad input",
        FINAL: "failed, no retry",
        TRANSIENT: "failed, can be retried",
        INTERRUPTED: "interrupted",
    }
    if exit_code < 0 or (exit_code > 128 and exit_code != INTERRUPTED):
        return f"killed by signal {-exit_code if exit_code < 0 else exit_code - 128}"
    return f"exit code {exit_code}, {words.get(exit_code, 'failed')}"
