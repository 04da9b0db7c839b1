"""Detects an attempt that is stuck: it has made no progress for much longer than a commit group
takes. Progress is a committed group or a line that the attempt prints.

The watchdog runs in the process of the job, because the running Spark stages are known there.

Rules: R92, X18
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from rewindow.errors import RewindowError
from rewindow.windows import describe_seconds

_CHECKS = 50
"""Number of checks within the limit."""
_ANSWER_SECONDS_MAX = 10.0


class Watchdog:
    """Calls a function if an attempt makes no progress for too long, and again after each further
    period of that length.

    The limit is `seconds` or `factor` times the duration of a group, whichever is longer.

    Args:
        seconds: shortest limit.
        factor: multiple of the time of a group.
        group_seconds: expected time of a group; the longest group so far replaces it.
        on_stuck: receives a description of what the attempt was doing.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        seconds: float,
        factor: float,
        group_seconds: float,
        on_stuck: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._factor = factor
        self._group_seconds = group_seconds
        self._on_stuck = on_stuck
        self._clock = clock
        self._since = clock()
        self._line = ""
        self._ended = threading.Event()

    @property
    def limit(self) -> float:
        """The time in seconds without progress after which the attempt counts as stuck."""
        return max(self._seconds, self._factor * self._group_seconds)

    def start(self) -> None:
        """Starts the thread that checks the attempt. The thread does not keep the process alive."""
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Stops the checks, because everything is committed."""
        self._ended.set()

    def printed(self, line: str) -> None:
        """Stores the last line that the attempt has printed. Printing a line counts as progress."""
        self._line = line
        self._since = self._clock()

    def committed(self, seconds: float) -> None:
        """Records the commit of a group and the seconds that the group took."""
        self._group_seconds = max(self._group_seconds, seconds)
        self._since = self._clock()

    def check(self) -> None:
        """Calls `on_stuck` if the limit is exceeded."""
        waited = self._clock() - self._since
        if waited <= self.limit:
            return
        last = f"last line: {self._line}" if self._line else "it has printed nothing"
        self._since = since = self._clock()
        doing = _doing()
        if self._since != since:
            return  # The attempt made progress while Spark answered.
        time_waited = describe_seconds(round(waited))
        self._on_stuck(f"nothing was committed or printed for {time_waited}; {doing}; {last}")

    def _watch(self) -> None:
        while not self._ended.wait(self.limit / _CHECKS):
            # If the ledger cannot record the end of the attempt now, the next check tries again.
            with contextlib.suppress(RewindowError):
                self.check()


def _doing() -> str:
    """Describes what Spark is doing.

    It waits only a limited time, because the JVM may be stuck too.
    """
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(_stages()), daemon=True)
    asking.start()
    asking.join(_ANSWER_SECONDS_MAX)
    return answers[0] if answers else "Spark does not answer"


def _stages() -> str:
    """Returns the running Spark stages as text."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return "Spark has not started"
    tracker = context.statusTracker()
    stages = []
    for number in tracker.getActiveStageIds():
        stage = tracker.getStageInfo(number)
        if stage is not None:
            done = f"{stage.numCompletedTasks} of {stage.numTasks} tasks done"
            stages.append(f"stage {number}, {stage.name}, {done}")
    return f"Spark runs {', '.join(stages)}" if stages else "Spark runs no stage"
