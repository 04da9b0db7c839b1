"""Shows the log messages of the library in processes of Rewindow: the command line, jobs, and the
supervisor of Airflow set up the one handler here.

Programs that use the library, and tasks of Airflow, set up their own logging instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rewindow.progress.job_lines import is_for_machines
from rewindow.progress.listener import Listener

logger = logging.getLogger(__name__)
WARNING_MARK = "warning: "
_NOISE = "WARNING: Using incubator modules"
"""A line of the JVM without useful information."""


class MessageHandler(logging.Handler):
    """Passes every message to a function, as text."""

    def __init__(self, show: Callable[[str], object]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self._show(self.format(record))


class _Text(logging.Formatter):
    """Formats messages and marks warnings. Times are in UTC."""

    converter = time.gmtime  # type: ignore[assignment]

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        if record.levelno >= logging.WARNING:
            record.message = f"{WARNING_MARK}{record.message}"
        return super().formatMessage(record)


@contextmanager
def messages_shown(show: Callable[[str], object], text: str = "%(message)s") -> Iterator[None]:
    """Shows each message of Rewindow from level INFO on once within the context, whatever handlers
    other code sets up.

    Warnings start with "warning: ". At the end, the previous logging setup is restored.

    Args:
        show: receives the text of a message.
        text: format of the text, see logging.Formatter.
    """
    handler = MessageHandler(show)
    handler.setFormatter(_Text(text, "%Y-%m-%dT%H:%M:%S+00:00"))
    library = logging.getLogger("rewindow")
    before = library.handlers, library.level, library.propagate
    library.handlers, library.propagate = [handler], False
    library.setLevel(logging.INFO)
    try:
        yield
    finally:
        library.handlers, level, library.propagate = before
        library.setLevel(level)


def pass_on(line: str, listener: Listener, label: str = "") -> None:
    """Passes on a line that a job has printed.

    Progress is passed to the listener, and all other lines are passed on as messages.

    Args:
        line: the line.
        listener: receives the progress.
        label: text before each message.
    """
    if is_for_machines(line):
        listener.line(line)
    elif line.strip() and not line.startswith(_NOISE):
        level = logging.WARNING if line.startswith(WARNING_MARK) else logging.INFO
        logger.log(level, "%s%s", label, line.removeprefix(WARNING_MARK))
