"""What a recording tells whoever watches it: each step when it begins, and that it goes on, once a
second at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rewindow.progress.job_lines import RecordProgress
from rewindow.progress.listener import Listener

_PAUSE_S = 1.0


@dataclass
class RecordingProgress:
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

    @contextmanager
    def during(self, step: str, tuples: int = 0) -> Iterator[None]:
        """Tells a step that Spark does, until it has ended.

        No share of it: Spark counts the tasks of a stage, and nobody knows how many stages a step
        will have.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(step, tuples, ended), daemon=True)
        self.step(step, tuples)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _follow(self, step: str, tuples: int, ended: threading.Event) -> None:
        while not ended.wait(_PAUSE_S):
            self.step(step, tuples)

    def step(self, step: str, tuples: int = 0) -> None:
        """Tells a step, when it is new or was told a second ago."""
        now = time.monotonic()
        if now - self._told.get(step, -_PAUSE_S) >= _PAUSE_S:
            self._told[step] = now
            self.listener.line(
                RecordProgress(self.stream, step, tuples, seconds=self.seconds).line()
            )
