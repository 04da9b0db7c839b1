"""Formats and parses the machine-readable lines that a job prints for its launcher, in addition to
lines for the user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from rewindow.windows import describe_seconds

_Form = TypeVar("_Form")
_OPENING = '{"rewindow":'
_PROGRESS = "progress"
_RECORDING = "recording"
_STEP = "step"


@dataclass(frozen=True)
class ReplayProgress:
    """A group that an attempt has committed, and the progress of the replay.

    Attributes:
        first, last: the group's windows.
        mark, of: number of committed windows of the replay, and number of all windows.
        seconds: duration of the group.
        checkpoint: whether it was committed with a checkpoint.
        tuples: tuples of the group by output.
    """

    replay: str
    epoch: int
    first: int
    last: int
    mark: int
    of: int
    seconds: float
    checkpoint: bool = False
    tuples: Mapping[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """Returns the event as a line."""
        return machine_line(_PROGRESS, **asdict(self))


@dataclass(frozen=True)
class RecordProgress:
    """Progress of a recording.

    Attributes:
        step: the current step.
        tuples: number of tuples so far in this step, or to process in it; 0 if unknown.
        seconds: time since the start.
    """

    stream: str
    step: str
    tuples: int
    seconds: float

    def line(self) -> str:
        """Returns the event as a line."""
        return machine_line(_RECORDING, **asdict(self))


@dataclass(frozen=True)
class StepProgress:
    """Progress of a publication, an undo or a gate.

    Attributes:
        step: the current step.
        done, of: completed amount and total amount of the step; `of` is 0 if unknown.
        unit: unit of these amounts, such as "files" or "bytes".
        seconds: time since the verb started.
        left: estimated remaining seconds; None if unknown.
    """

    step: str
    done: int
    of: int
    unit: str
    seconds: float
    left: float | None

    def line(self) -> str:
        """Returns the event as a line."""
        return machine_line(_STEP, **asdict(self))

    @property
    def count(self) -> str:
        """The completed amount as text; empty if it is unknown."""
        if not self.of:
            return ""
        if self.unit == "bytes":
            return f"{self.done / 1e6:,.0f}/{self.of / 1e6:,.0f} MB"
        return f"{self.done:,}/{self.of:,} {self.unit}"

    @property
    def words(self) -> str:
        """The whole event as text."""
        left = "" if self.left is None else f"about {describe_seconds(round(self.left))} left"
        return ", ".join(
            part
            for part in (f"{self.step}", self.count, describe_seconds(round(self.seconds)), left)
            if part
        )


def machine_line(kind: str, /, **facts: Any) -> str:
    """Returns a machine-readable line of the given kind."""
    return json.dumps({"rewindow": kind, **facts})


def is_for_machines(line: str) -> bool:
    """Returns whether a line is for the launcher of the job.

    The content of such a line is also printed as text.
    """
    return line.lstrip().startswith(_OPENING)


def parse_progress(line: str) -> ReplayProgress | None:
    """Returns the event in a progress line; None for any other line, including a damaged one.

    >>> parse_progress(ReplayProgress("one", 2, 100, 104, 5, 10, 0.5).line()).mark
    5
    >>> parse_progress("a line for people"), parse_progress('{"rewindow": "progress", "mark":')
    (None, None)
    """
    return _parse(line, _PROGRESS, ReplayProgress)


def parse_recording(line: str) -> RecordProgress | None:
    """Returns the event in a line about a recording's progress; None for any other line.

    >>> parse_recording(RecordProgress("clicks", "reading", 7, 0.5).line()).step
    'reading'
    """
    return _parse(line, _RECORDING, RecordProgress)


def parse_step(line: str) -> StepProgress | None:
    """Returns the event in a line about a step's progress; None for any other line.

    >>> parse_step(StepProgress("linking files", 400, 1_000, "files", 4.0, 6.0).line()).words
    'linking files, 400/1,000 files, 4 s, about 6 s left'
    """
    return _parse(line, _STEP, StepProgress)


def _parse(line: str, kind: str, form: type[_Form]) -> _Form | None:
    if not is_for_machines(line):
        return None
    try:
        facts = json.loads(line)
        return form(**facts) if facts.pop("rewindow") == kind else None
    except (ValueError, KeyError, TypeError):
        return None
