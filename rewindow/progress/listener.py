"""Listeners that receive the events of a verb: for a terminal, for a task's log, or without
output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rewindow.progress.job_lines import is_for_machines, parse_progress, parse_step


class Listener(Protocol):
    """Receives all events of a running verb that a user may want to see."""

    def job(self) -> AbstractContextManager[object]:
        """Returns a context manager that is entered while one job runs."""

    def line(self, text: str) -> None:
        """Receives a line that the job printed: text, or its progress as JSON."""

    def note(self, text: str) -> None:
        """Receives a message about the job, such as its next step."""

    def warn(self, text: str) -> None:
        """Receives a message about a problem that does not stop the verb."""


class Lines:
    """Passes every line to one function, such as `print` or a log's `info`, with progress as
    text.
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

    note = warn = line


class Labelled:
    """Listener for one of several jobs that run at the same time: labels every line with the name
    of the job, and formats progress as text.
    """

    def __init__(self, name: str, told: Listener) -> None:
        self._name = name
        self._told = told

    def job(self) -> AbstractContextManager[object]:
        """See Listener."""
        return nullcontext()

    def line(self, text: str) -> None:
        """See Listener."""
        if (progress := parse_progress(text)) is not None:
            self.note(f"{progress.mark:,} of {progress.of:,} windows are committed")
        elif text.strip() and not is_for_machines(text):
            self.note(text)

    def note(self, text: str) -> None:
        """See Listener."""
        self._told.note(f"{self._name}: {text}")

    def warn(self, text: str) -> None:
        """See Listener."""
        self._told.warn(f"{self._name}: {text}")


class Silent:
    """Discards all events."""

    def job(self) -> AbstractContextManager[object]:
        """See Listener."""
        return nullcontext()

    def line(self, text: str) -> None:
        """See Listener."""

    note = warn = line
