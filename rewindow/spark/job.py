"""The common part of all submitted jobs: outcome file, exit code, and the end together with the
parent process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from rewindow.errors import Interrupted, RewindowError
from rewindow.location import location
from rewindow.processes.parent_death import end_group_with_parent
from rewindow.progress.messages import messages_shown
from rewindow.spark.heap import exhausted_heap
from rewindow.spark.job_log import OUTCOME_VARIABLE, hush_pyspark, keep_traceback, where_all_is
from rewindow.spark.shared_folder import missing_on_executor
from rewindow.spark.transient_errors import (
    describe,
    has_lost_jvm,
    hint_on,
    is_passing,
    spark_text,
)

logger = logging.getLogger(__name__)

RETRY_CODE = 75


def run_job(work: Callable[[], dict[str, Any] | None]) -> int:
    """Runs a job's work and returns its exit code. The outcome file has the result as JSON.

    Exit codes: 0 done, 2 bad input, 65 failed and not retryable, 75 failed and retryable, 130
    interrupted. An error that Rewindow did not raise is retryable if the machine or Spark caused
    it, but not if it is a bug of an operator.
    """
    end_group_with_parent()
    hush_pyspark()
    try:
        with messages_shown(print_line):
            outcome = {"exit_code": 0, "message": "done", **(work() or {})}
    except RewindowError as error:
        if error.__cause__ is not None:
            keep_traceback(error)
        outcome = _outcome(error)
    except KeyboardInterrupt:
        stopped = Interrupted(
            "stopped by the user",
            detail="Committed windows are kept.",
            hint="Run it again to continue.",
        )
        outcome = {
            "exit_code": stopped.exit_code,
            "message": str(stopped),
            "retryable": False,
            "kind": "Interrupted",
            "error": stopped.parts,
        }
    except Exception as error:  # noqa: BLE001  (the outcome file must report any error)
        keep_traceback(error)
        retryable = is_passing(error)
        ours = as_rewindow_error(error)
        outcome = {
            "exit_code": RETRY_CODE if retryable else RewindowError.exit_code,
            "message": str(ours),
            "retryable": retryable,
            "kind": type(error).__name__,
            "error": ours.parts,
        }
    told = _write(outcome)
    if outcome["exit_code"] and not told:
        print(outcome["message"], file=sys.stderr, flush=True)
    return int(outcome["exit_code"])


def as_rewindow_error(error: Exception) -> RewindowError:
    """Returns a `RewindowError` unchanged.

    Any other error becomes a `RewindowError` that describes it and names the log with the full
    traceback.
    """
    if isinstance(error, RewindowError):
        return error
    heap = None
    text = spark_text(error)
    if path := os.environ.get(OUTCOME_VARIABLE):
        heap = exhausted_heap(location(path), text=text, has_died=has_lost_jvm(error))
    other = RewindowError(describe(error), detail=where_all_is(), hint=hint_on(error))
    return heap or missing_on_executor(text) or other


def end_group(error: RewindowError) -> None:
    """Writes the error to the outcome file of a job that cannot end by itself, and ends the job's
    process group.
    """
    _write(_outcome(error))
    sys.stdout.flush()
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _outcome(error: RewindowError) -> dict[str, Any]:
    return {
        "exit_code": error.exit_code,
        "message": str(error),
        "retryable": error.retryable,
        "kind": type(error).__name__,
        "error": error.parts,
    }


def print_line(line: str) -> None:
    """Prints a message, or progress for the process that launched the job."""
    print(line, flush=True)


def leave(code: int) -> None:
    """Ends the process immediately with an exit code. Spark's shutdown has nothing left to save."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class StopRequest:
    """Whether the user has requested a stop.

    SIGINT and SIGTERM set it, and the loop checks it at the end of a group.
    """

    def __init__(self) -> None:
        self.asked = False

    def listen(self) -> None:
        """Installs handlers for SIGINT and SIGTERM.

        A second signal ends the process immediately.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            os._exit(130)
        self.asked = True
        logger.info(
            "stopping at the end of this commit group; press Ctrl-C again to stop immediately"
        )

    def __call__(self) -> bool:
        return self.asked


def _write(outcome: dict[str, Any]) -> bool:
    """Writes the outcome file if a launcher waits for it.

    Returns whether a launcher waits, because it then reports the outcome.
    """
    path = os.environ.get(OUTCOME_VARIABLE)
    if not path:
        return False
    location(path).write(json.dumps(outcome))
    return True
