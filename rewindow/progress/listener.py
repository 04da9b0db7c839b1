"""Whoever watches a verb: a terminal, a task's log, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rewindow.progress.job_lines import parse_step


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


class Silent:
    """The listener who says nothing."""

    def job(self) -> AbstractContextManager[object]:
        """See Listener."""
        return nullcontext()

    def line(self, text: str) -> None:
        """See Listener."""

    note = warn = line
