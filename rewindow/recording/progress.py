"""Reports the progress of a recording: each step when it starts, then at most once a second."""

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
    """Sends progress events of a stream's recording to a listener."""

    stream: str
    listener: Listener
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._told: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the recording started."""
        return round(time.monotonic() - self.began, 3)

    @contextmanager
    def during(self, step: str, tuples: int = 0) -> Iterator[None]:
        """Reports a step that Spark runs, repeatedly until the step has ended.

        The events have no percentage, because Spark counts the tasks of a stage but the number of
        stages is unknown.
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
        """Reports a step if it is new or was last reported at least a second ago."""
        now = time.monotonic()
        if now - self._told.get(step, -_PAUSE_S) >= _PAUSE_S:
            self._told[step] = now
            self.listener.line(
                RecordProgress(self.stream, step, tuples, seconds=self.seconds).line()
            )
