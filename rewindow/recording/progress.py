"""What a recording tells whoever watches it: each step when it begins, and how far it is, once a second at most."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rewindow.job_lines import RecordProgress
from rewindow.listener import Listener

_PAUSE_S = 1.0


@dataclass
class Progress:
    """Tells a listener where the recording of a stream is."""

    stream: str
    listener: Listener
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._told: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the recording began."""
        return round(time.monotonic() - self.began, 3)

    def step(self, step: str, tuples: int = 0, done: int = 0, of: int = 0) -> None:
        """Tells a step, when it is new or was told a second ago."""
        now = time.monotonic()
        if now - self._told.get(step, -_PAUSE_S) >= _PAUSE_S:
            self._told[step] = now
            self.listener.line(RecordProgress(self.stream, step, tuples, self.seconds, done, of).line())
