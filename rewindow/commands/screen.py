"""Output of the commands: tables and JSON, progress of a job, formatted errors; and options for
ranges.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from rewindow.commands.completion import replays
from rewindow.json_files import finite
from rewindow.progress.job_lines import (
    RecordProgress,
    ReplayProgress,
    StepProgress,
    is_for_machines,
    parse_progress,
    parse_recording,
    parse_step,
)
from rewindow.progress.messages import WARNING_MARK
from rewindow.sequences import quantity
from rewindow.windows import describe_seconds

PIPE_WIDTH = 240
out = Console(
    highlight=False,
    soft_wrap=True,
    emoji=False,
    width=None if sys.stdout.isatty() else PIPE_WIDTH,
)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]
First = Annotated[int | None, typer.Option(help="First window id (closed range).")]
Last = Annotated[int | None, typer.Option(help="Last window id (closed range).")]
From = Annotated[
    str | None,
    typer.Option("--from", help="Start time of the range, ISO 8601 (inclusive)."),
]
To = Annotated[
    str | None, typer.Option("--to", help="End time of the range, ISO 8601 (exclusive).")
]
ReplayId = Annotated[
    str,
    typer.Argument(help="Id of a replay, as listed by `rewindow list`.", autocompletion=replays),
]


def print_json(value: Any) -> None:
    """Prints a value as JSON: numbers as numbers, times in ISO 8601. Window ids that are keys
    become text, and so do NaN and infinite numbers.
    """
    sys.stdout.write(json.dumps(finite(value), indent=2, default=_plain) + "\n")


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def show_message(text: str) -> None:
    """Prints a message to standard error, because the output may be JSON."""
    style = "yellow" if text.startswith(WARNING_MARK) else "dim"
    err.print(text, style=style, markup=False)


def print_rows(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    whole: int = 0,
) -> None:
    """Prints rows as a table, with numbers aligned to the right.

    Args:
        title: title above the table.
        columns: names of the columns.
        rows: a value for each column.
        whole: number of columns at the left that are never wrapped, because users copy them into
            the next command.
    """
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
    )
    body = list(map(list, rows))
    for index, column in enumerate(columns):
        numbers = bool(body) and all(isinstance(row[index], int | float) for row in body)
        is_whole = index < whole
        table.add_column(
            column,
            justify="right" if numbers else "left",
            overflow="fold",
            no_wrap=is_whole,
        )
    for row in body:
        table.add_row(*map(format_value, row))
    out.print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Prints names and values, one pair per line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        out.print(f"  [dim]{name:<{width}}[/dim]  {format_value(value)}")


def format_value(value: object) -> str:
    """Returns a value formatted for readers, as markup. Markup tags in the value are shown as text.

    A whole number is formatted as a count. Pass window ids, and values from a table, as text,
    because they are not counts.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return "" if value is None else escape(str(value))


_QUIET_S = 2.0
"""Recordings shorter than this show no steps."""
_PAUSE_S = 30.0
"""Shortest time between two lines of progress without a terminal."""


class _TimeLeft(TimeRemainingColumn):
    """Shows the time until a task is due if that is known; otherwise an estimate from its speed so
    far.
    """

    def render(self, task: Task) -> Text:
        due = task.fields.get("due")
        if due is None or task.total is None:
            return super().render(task)
        left = timedelta(seconds=max(0, math.ceil(due - task.get_time())))
        return Text(f"{left} left", style="progress.remaining")


class JobScreen:
    """Shows the lines of a verb: its progress as a bar on a terminal, as plain lines elsewhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
        )
        self._bar = Progress(
            *columns,
            TimeElapsedColumn(),
            _TimeLeft(),
            console=err,
            get_time=clock,
        )
        self._task: Any = None
        self._clock = clock
        self._windows = 0
        self._seconds = 0.0
        self._passing = True
        self._told_at = -math.inf

    @contextmanager
    def job(self) -> Iterator[None]:
        """Shows the bar while a job runs."""
        if not err.is_terminal:
            yield
            return
        with self._bar:
            self._show("starting", "", 0, 0)
            try:
                yield
            finally:
                self._bar.update(
                    self._task,
                    visible=not self._passing,
                )  # A finished step is not shown any more.

    def line(self, text: str) -> None:
        """Shows progress, or a line of the result."""
        progress = parse_progress(text)
        if (recording := parse_recording(text)) is not None:
            self._show_recording(recording)
        elif (step := parse_step(text)) is not None:
            self._show_step(step)
        elif progress is None:
            if not is_for_machines(text):
                show_message(text)
        elif err.is_terminal:
            self._show_group(progress)
        elif self._is_due() or progress.mark == progress.of:
            err.print(_words(progress), markup=False)

    def _is_due(self) -> bool:
        """Returns whether the next line of progress is due without a terminal."""
        now = self._clock()
        is_due = now - self._told_at >= _PAUSE_S
        if is_due:
            self._told_at = now
        return is_due

    def _show_group(self, progress: ReplayProgress) -> None:
        """Shows a committed group. The remaining time is estimated from the time per window of the
        groups so far.
        """
        self._passing = False
        self._windows += progress.last - progress.first + 1
        self._seconds += progress.seconds
        left = (progress.of - progress.mark) * self._seconds / self._windows
        count = f"{progress.mark:,}/{progress.of:,} windows"
        self._show(progress.replay, count, progress.mark, progress.of, due=self._clock() + left)

    def _show(self, what: str, count: str, done: int, of: int, due: float | None = None) -> None:
        self._task = (
            self._task
            if self._task is not None
            else self._bar.add_task("", total=None, count="", due=None)
        )
        self._bar.update(
            self._task,
            description=escape(what),
            count=count,
            completed=done,
            total=of or None,
            due=due,
        )

    def _show_step(self, step: StepProgress) -> None:
        """Shows the progress of a step; if it is unknown, a bar without an end."""
        self._passing = True
        if err.is_terminal:
            due = None if step.left is None else self._clock() + step.left
            self._show(step.step, step.count, step.done, step.of, due=due)
        elif self._is_due():
            err.print(step.words, style="dim", markup=False)

    def _show_recording(self, recording: RecordProgress) -> None:
        """Shows the progress of a recording after it has taken some time."""
        if recording.seconds < _QUIET_S:
            return
        self._passing = False
        what = f"{recording.stream}: {recording.step}"
        count = quantity(recording.tuples, "tuple") if recording.tuples else ""
        if err.is_terminal:
            self._show(what, count, 0, 0)
        elif self._is_due():
            err.print(
                f"{what}{', ' * bool(count)}{count}, {describe_seconds(round(recording.seconds))}",
                style="dim",
                markup=False,
            )


def _words(progress: ReplayProgress) -> str:
    saved = ", checkpoint" if progress.checkpoint else ""
    done = f"{progress.mark}/{progress.of} in {describe_seconds(progress.seconds)}"
    return f"windows {progress.first} to {progress.last}: {done}{saved}"
