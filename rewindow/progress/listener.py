"""Whoever watches a verb: a terminal, a task's log, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rewindow.progress.job_lines import is_for_machines, parse_progress, parse_step


class Listener(Protocol):
    """Told of everything that a person may want to see while a verb runs."""

    def job(self) -> AbstractContextManager[object]:
        """Returns what is entered while one job runs."""

    def line(self, text: str) -> None:
        """A line that the job printed: words, or its progress as JSON."""

    def note(self, text: str) -> None:
        """A line about the job, such as what is done next."""

    def warn(self, text: str) -> None:
        """A line about something that went wrong and is gone on from."""


class Lines:
    """The listener who hands every line to one function, such as `print` or a log's `info`;
    progress in words.
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
    """The listener of one of several jobs that run at the same time: labels every line with the
    name of the job, and puts progress into words.
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
    """The listener who says nothing."""

    def job(self) -> AbstractContextManager[object]:
        """See Listener."""
        return nullcontext()

    def line(self, text: str) -> None:
        """See Listener."""

    note = warn = line
