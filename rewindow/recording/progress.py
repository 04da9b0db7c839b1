"""What a recording tells whoever watches it: each step when it begins, and how far it is, once a second at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from rewindow.job_lines import RecordProgress
from rewindow.listener import Listener

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
    def during(self, spark: SparkSession, step: str, tuples: int = 0) -> Iterator[None]:
        """Tells a step that Spark does, with its tasks that are done, until it has ended."""
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(spark, step, tuples, ended), daemon=True)
        self.step(step, tuples)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _follow(self, spark: SparkSession, step: str, tuples: int, ended: threading.Event) -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(_PAUSE_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            tasks = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
            if tasks:
                self.step(step, tuples, *map(sum, zip(*tasks, strict=True)))

    def step(self, step: str, tuples: int = 0, done: int = 0, of: int = 0) -> None:
        """Tells a step, when it is new or was told a second ago."""
        now = time.monotonic()
        if now - self._told.get(step, -_PAUSE_S) >= _PAUSE_S:
            self._told[step] = now
            self.listener.line(RecordProgress(self.stream, step, tuples, self.seconds, done, of).line())
