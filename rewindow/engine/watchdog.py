"""Notices that an attempt is stuck: no group was committed for much longer than a group takes
(R92, X18).

The watchdog runs in the job itself, where the stages of Spark are known.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from rewindow.errors import RewindowError
from rewindow.windows import describe_seconds

_LOOKS = 50
"""Looks within the allowed time."""
_ANSWER_SECONDS_MAX = 10.0


class Watchdog:
    """Calls a function when nothing was committed for too long, and then waits as long again.

    Args:
        seconds: least time without a commit.
        factor: a multiple of the time of a group is the other bound; the longer one counts.
        group_seconds: time that a group should take.
        bark: is called with the words that describe what the attempt was doing.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        seconds: float,
        factor: float,
        group_seconds: float,
        bark: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._factor = factor
        self._group_seconds = group_seconds
        self._bark = bark
        self._clock = clock
        self._since = clock()
        self._line = ""
        self._ended = threading.Event()

    @property
    def limit(self) -> float:
        """Seconds without a commit after which the attempt counts as stuck."""
        return max(self._seconds, self._factor * self._group_seconds)

    def start(self) -> None:
        """Starts the thread that looks; it does not keep the process alive."""
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Ends it: nothing is left to commit."""
        self._ended.set()

    def heard(self, line: str) -> None:
        """Keeps the last line of the attempt: it has reached another stage."""
        self._line = line
        self._since = self._clock()

    def committed(self, seconds: float) -> None:
        """Notes a committed group, which took some seconds."""
        self._group_seconds = max(self._group_seconds, seconds)
        self._since = self._clock()

    def look(self) -> None:
        """Barks if the time is over."""
        waited = self._clock() - self._since
        if waited <= self.limit:
            return
        last = f"last line: {self._line}" if self._line else "it has printed nothing"
        self._since = since = self._clock()
        doing = _doing()
        if self._since != since:
            return  # A group was committed while Spark answered.
        self._bark(f"no group was committed for {describe_seconds(round(waited))}; {doing}; {last}")

    def _watch(self) -> None:
        while not self._ended.wait(self.limit / _LOOKS):
            # If the ledger does not take the end of the attempt now, the next look tries again.
            with contextlib.suppress(RewindowError):
                self.look()


def _doing() -> str:
    """Describes the work of Spark; its JVM may have stopped too."""
    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(_stages()), daemon=True)
    asking.start()
    asking.join(_ANSWER_SECONDS_MAX)
    return found[0] if found else "Spark does not answer"


def _stages() -> str:
    """Returns the stages that Spark runs, in words."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return "Spark has not started"
    tracker = context.statusTracker()
    found = []
    for number in tracker.getActiveStageIds():
        stage = tracker.getStageInfo(number)
        if stage is not None:
            done = f"{stage.numCompletedTasks} of {stage.numTasks} tasks done"
            found.append(f"stage {number}, {stage.name}, {done}")
    return f"Spark runs {', '.join(found)}" if found else "Spark runs no stage"
