"""Writes the events of a job to the task's log, and the job's progress to the task state store."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError

from rewindow.progress.job_lines import ReplayProgress, parse_progress, parse_step

_STORE_SECONDS_MIN = 1.0


class TaskLog:
    """A listener that writes to a task's log.

    It writes progress to the task state store (tab Storage).

    Args:
        log: logger of the task.
        store: state store of the task.

    Attributes:
        last: the newest progress; None before the first event.
    """

    def __init__(self, log: Any, store: Any) -> None:
        self._log = log
        self._store = store
        self._stored_at = 0.0
        self.last: ReplayProgress | None = None

    def job(self) -> AbstractContextManager[object]:
        """See Listener."""
        return nullcontext()

    def line(self, text: str) -> None:
        """See Listener."""
        progress = parse_progress(text)
        if progress is not None:
            self._keep(progress)
        elif (step := parse_step(text)) is not None:
            self._log.info("%s", step.words)

    def _keep(self, progress: ReplayProgress) -> None:
        """Logs progress. Stores it at most once a second, and at the end."""
        self.last = progress
        self._log.info("%s", progress_words(progress))
        now = time.monotonic()
        if now - self._stored_at >= _STORE_SECONDS_MIN or progress.mark == progress.of:
            self._stored_at = now
            try:
                self._store.set("progress", progress_facts(progress))
            except (
                AirflowRuntimeError
            ) as error:  # The job must not end because its progress cannot be stored.
                self._log.warning("Progress was not kept: %s", error)


def progress_words(progress: ReplayProgress) -> str:
    """Returns the progress as a line for the log."""
    return (
        f"Window {progress.last} is committed: {progress.mark:,} of {progress.of:,} windows "
        f"({_percent(progress)} %), "
        f"{progress.seconds:.1f} s, attempt {progress.epoch}"
    )


def progress_facts(progress: ReplayProgress) -> dict[str, Any]:
    """Returns the progress as values for the task state store."""
    return {
        "replay": progress.replay,
        "epoch": progress.epoch,
        "window": progress.last,
        "mark": progress.mark,
        "of": progress.of,
        "seconds": progress.seconds,
        "percent": _percent(progress),
    }


def _percent(progress: ReplayProgress) -> int:
    return 100 * progress.mark // max(progress.of, 1)
