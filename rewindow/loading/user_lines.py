"""Finds the line of a user's code that raised an error, in a traceback or in Spark's message about
a worker.
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
    """A line of a file, with its text and the name of its function, which is empty if unknown."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """The text of the line; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        where = f'"{self.file}", line {self.line}' + (
            f", in {self.function}" if self.function else ""
        )
        return f"{where}: {self.text}" if self.text else where


def raised_at(error: BaseException, files: Collection[str]) -> UserLine | None:
    """Returns the innermost line in the given files that raised an error; None if the error names
    none.

    Args:
        error: an error of Python, of a Python worker, or of Spark, which names the line that
            created a column.
        files: the files to search for.
    """
    if isinstance(error, SyntaxError) and error.filename in files:
        return UserLine(str(error.filename), error.lineno or 1)
    text = _text(error)
    # From the most exact source to the least: a worker's traceback, the traceback of this process,
    # the call that created a column, and finally a piece of SQL that occurs in a single line.
    lines = []
    for file, number, name in reversed(_IN_WORKER.findall(text)):
        lines.append(UserLine(file, int(number), name))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        lines.append(UserLine(frame.filename, frame.lineno or 1, frame.name))
    for file, number in _CALLED_FROM.findall(text):
        lines.append(UserLine(file, int(number)))
    for line in lines:
        if line.file in files:
            return line
    in_sql = (_line_with(sql.strip(), files) for sql in _IN_SQL.findall(text))
    return next(filter(None, in_sql), None)


def _line_with(sql: str, files: Collection[str]) -> UserLine | None:
    """Returns the only line in the given files that contains a piece of SQL; None if there is no
    line or more than one.
    """
    lines: list[UserLine] = []
    for file in files:
        for number, line in enumerate(linecache.getlines(file), 1):
            if sql in line:
                lines.append(UserLine(file, number))
    return lines[0] if len(lines) == 1 else None


def class_lines(operator: FrameOperator) -> list[tuple[str, range]]:
    """Returns the file and the lines of an operator's class and its base classes; empty if they
    have no file.
    """
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
    except Exception:  # noqa: BLE001  (py4j asks the JVM, which may have ended)
        return ""
