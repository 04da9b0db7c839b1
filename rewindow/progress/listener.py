"""Listeners receive the progress and results of a command: for a terminal, for a task's log, or
without output. Messages are logged instead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rewindow.progress.job_lines import parse_progress, parse_step


class Listener(Protocol):
    """Receives the progress and the results of a running command."""

    def job(self) -> AbstractContextManager[object]:
        """Returns a context manager that is entered while one job runs."""

    def line(self, text: str) -> None:
        """Receives progress as JSON, or a line of the result."""


class Lines:
    """Passes every line to one function, such as `print` or the `info` method of a log.

    Progress is formatted as text.
    """

    def __init__(self, take: Callable[[str], object]) -> None:
        self._take = take

    def job(self) -> AbstractContextManager[object]:
        """See Listener."""
        return nullcontext()

    def line(self, text: str) -> None:
        """See Listener."""
        progress = parse_step(text)
        self._take(text if progress is None else progress.words)


class Labelled:
    """A listener for one of several jobs that run at the same time.

    It formats progress as text and adds the name of the job.
    """

    def __init__(self, name: str, listener: Listener) -> None:
        self._name = name
        self._listener = listener

    def job(self) -> AbstractContextManager[object]:
        """See Listener."""
        return nullcontext()

    def line(self, text: str) -> None:
        """See Listener."""
        if (progress := parse_progress(text)) is not None:
            self._listener.line(
                f"{self._name}: {progress.mark:,} of {progress.of:,} windows are committed"
            )


class Silent:
    """A listener that discards all events."""

    def job(self) -> AbstractContextManager[object]:
        """See Listener."""
        return nullcontext()

    def line(self, text: str) -> None:
        """See Listener."""
