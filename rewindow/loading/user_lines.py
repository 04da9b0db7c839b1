"""The line of a user's code where an error was raised, found in a traceback or in what Spark says
of a worker's.
"""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Collection
from dataclasses import dataclass

from rewindow.application import FrameOperator

_IN_WORKER = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
_IN_SQL = re.compile(r"^== SQL .*==\n(.+)$", re.MULTILINE)
_CALLED_FROM = re.compile(r"was called from\s+(\S+):(\d+)")


@dataclass(frozen=True)
class UserLine:
    """A line of a file, the function that it is in (empty when unknown), and its text."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """The line itself, empty when the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        where = f'"{self.file}", line {self.line}' + (
            f", in {self.function}" if self.function else ""
        )
        return f"{where}: {self.text}" if self.text else where


def raised_at(error: BaseException, files: Collection[str]) -> UserLine | None:
    """Returns the innermost line in some files that an error came from; None when it names none.

    Args:
        error: of Python, of a worker's Python or of Spark, which names the line that made a column.
        files: the files to look for.
    """
    if isinstance(error, SyntaxError) and error.filename in files:
        return UserLine(str(error.filename), error.lineno or 1)
    text = _text(error)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files
    ]
    in_worker = [UserLine(found[0], int(found[1]), found[2]) for found in _IN_WORKER.findall(text)]
    called_from = [UserLine(found[0], int(found[1])) for found in _CALLED_FROM.findall(text)]
    lines = [line for line in reversed(in_worker) if line.file in files]
    lines += [UserLine(frame.filename, frame.lineno or 1, frame.name) for frame in reversed(frames)]
    lines += [line for line in called_from if line.file in files]
    lines += [line for sql in _IN_SQL.findall(text) if (line := _line_with(sql.strip(), files))]
    return next(iter(lines), None)


def _line_with(sql: str, files: Collection[str]) -> UserLine | None:
    """Returns the one line of some files that has a piece of SQL in it; None when there are none or
    several.
    """
    found = [
        UserLine(file, number)
        for file in files
        for number, line in enumerate(linecache.getlines(file), 1)
        if sql in line
    ]
    return found[0] if len(found) == 1 else None


def class_lines(operator: FrameOperator) -> list[tuple[str, range]]:
    """Returns file and lines of an operator's class and its bases; none where there is no file."""
    found = []
    for kind in _classes(operator):
        try:
            lines, first = inspect.getsourcelines(kind)
            found.append((inspect.getsourcefile(kind) or "", range(first, first + len(lines))))
        except (OSError, TypeError):
            continue
    return found


def _classes(operator: FrameOperator) -> list[type]:
    return [
        kind
        for kind in type(operator).__mro__
        if issubclass(kind, FrameOperator) and kind is not FrameOperator
    ]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (py4j asks the JVM for the text, which may be gone)
        return ""
