"""Lines that a job prints for whoever launched it, between those for people: made here, and read
here.
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
    """A group that an attempt has committed, and how far the replay has come with it.

    Attributes:
        first, last: the group's windows.
        mark, of: windows of the replay that are committed, and all of them.
        seconds: what the group took.
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
        """Returns the line that says so."""
        return machine_line(_PROGRESS, **asdict(self))


@dataclass(frozen=True)
class RecordProgress:
    """Where a recording is.

    Attributes:
        step: what it does.
        tuples: tuples so far in this step, or that it is about; 0 where nobody knows yet.
        seconds: since its start.
    """

    stream: str
    step: str
    tuples: int
    seconds: float

    def line(self) -> str:
        """Returns the line that says so."""
        return machine_line(_RECORDING, **asdict(self))


@dataclass(frozen=True)
class StepProgress:
    """How far a publication, an undo or a gate is.

    Attributes:
        step: what it does.
        done, of: how much of that is done, of how much; `of` is 0 where nobody can say.
        unit: what they count, such as "files" or "bytes".
        seconds: since the verb began.
        left: seconds that the rest will take at the pace so far; None where nobody can say.
    """

    step: str
    done: int
    of: int
    unit: str
    seconds: float
    left: float | None

    def line(self) -> str:
        """Returns the line that says so."""
        return machine_line(_STEP, **asdict(self))

    @property
    def count(self) -> str:
        """How much is done, in words; empty where nobody can say."""
        if not self.of:
            return ""
        if self.unit == "bytes":
            return f"{self.done / 1e6:,.0f}/{self.of / 1e6:,.0f} MB"
        return f"{self.done:,}/{self.of:,} {self.unit}"

    @property
    def words(self) -> str:
        """All of it, in words."""
        left = "" if self.left is None else f"about {describe_seconds(round(self.left))} left"
        return ", ".join(
            part
            for part in (f"{self.step}", self.count, describe_seconds(round(self.seconds)), left)
            if part
        )


def machine_line(kind: str, /, **facts: Any) -> str:
    """Returns a line of a kind."""
    return json.dumps({"rewindow": kind, **facts})


def is_for_machines(line: str) -> bool:
    """Returns whether a line is meant for whoever launched the job: what it says is also said in
    words.
    """
    return line.lstrip().startswith(_OPENING)


def parse_progress(line: str) -> ReplayProgress | None:
    """Returns what a progress line says, or None for any other line; a damaged one is another line.

    >>> parse_progress(ReplayProgress("one", 2, 100, 104, 5, 10, 0.5).line()).mark
    5
    >>> parse_progress("a line for people"), parse_progress('{"rewindow": "progress", "mark":')
    (None, None)
    """
    return _parse(line, _PROGRESS, ReplayProgress)


def parse_recording(line: str) -> RecordProgress | None:
    """Returns what a line of a recording's progress says, or None for any other line.

    >>> parse_recording(RecordProgress("clicks", "reading", 7, 0.5).line()).step
    'reading'
    """
    return _parse(line, _RECORDING, RecordProgress)


def parse_step(line: str) -> StepProgress | None:
    """Returns what a line of a step's progress says, or None for any other line.

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
