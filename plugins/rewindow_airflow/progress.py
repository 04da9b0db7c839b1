"""Reads the progress lines that a job writes to its standard output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_OPENING = '{"rewindow":'


@dataclass(frozen=True)
class Progress:
    """How far an attempt has come; `mark` windows of `of` are committed, `window` is the last of them."""

    replay: str
    epoch: int
    window: int
    mark: int
    of: int
    seconds: float

    @property
    def percent(self) -> int:
        """Committed windows in percent."""
        return 100 * self.mark // max(self.of, 1)

    def __str__(self) -> str:
        return (
            f"Window {self.window} is committed: {self.mark:,} of {self.of:,} windows ({self.percent} %), "
            f"{self.seconds:.1f} s, attempt {self.epoch}"
        )

    def to_json(self) -> dict[str, Any]:
        """Returns what is kept in the task state store."""
        return {**self.__dict__, "percent": self.percent}


def is_for_machines(line: str) -> bool:
    """Returns whether a line is meant for whoever launched the job: what it says is also said in words."""
    return line.lstrip().startswith(_OPENING)


def parse_progress(line: str) -> Progress | None:
    """Returns what a progress line says, or None for any other line; a damaged one is another line."""
    if not is_for_machines(line):
        return None
    try:
        values = json.loads(line)
        if values.pop("rewindow") != "progress":
            return None
        return Progress(
            replay=str(values["replay"]),
            epoch=int(values["epoch"]),
            window=int(values.get("window", values.get("last"))),
            mark=int(values["mark"]),
            of=int(values["of"]),
            seconds=float(values["seconds"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
