"""Lines that a job prints for whoever launched it, between those for people: made here, and read here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_OPENING = '{"rewindow":'
_PROGRESS = "progress"


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


def machine_line(kind: str, /, **facts: Any) -> str:
    """Returns a line of a kind."""
    return json.dumps({"rewindow": kind, **facts})


def is_for_machines(line: str) -> bool:
    """Returns whether a line is meant for whoever launched the job: what it says is also said in words."""
    return line.lstrip().startswith(_OPENING)


def parse_progress(line: str) -> ReplayProgress | None:
    """Returns what a progress line says, or None for any other line; a damaged one is another line.

    >>> parse_progress(ReplayProgress("one", 2, 100, 104, 5, 10, 0.5).line()).mark
    5
    >>> parse_progress("a line for people"), parse_progress('{"rewindow": "progress", "mark":')
    (None, None)
    """
    if not is_for_machines(line):
        return None
    try:
        facts = json.loads(line)
        return ReplayProgress(**facts) if facts.pop("rewindow") == _PROGRESS else None
    except (ValueError, KeyError, TypeError):
        return None
