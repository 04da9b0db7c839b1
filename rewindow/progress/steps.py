"""Progress of long steps of a verb: counted where the work is done, and reported to a listener
every few seconds.

    with watched(listener.line):  # the verb
        for file in counted("linking files", files, len(files), "files"):  # the work
            link(file)

Work of less than two seconds reports nothing, and without a listener nothing is counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from rewindow.progress.job_lines import StepProgress

_Item = TypeVar("_Item")
_QUIET_S = 2.0
_LOOK_S = 0.5
_PAUSE_S = 5.0


@dataclass
class _Step:
    """A running step with the completed and the total amount. The total is 0 if it is unknown."""

    what: str
    of: int
    unit: str
    began: float
    done: int = 0


class Watch:
    """The running steps of a command.

    Inner steps are last.

    Args:
        tell: receives the progress lines.
        clock: returns seconds.
    """

    def __init__(
        self,
        tell: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._began = clock()
        self._steps: list[_Step] = []
        self._told: tuple[str, float] = ("", self._began)

    @contextmanager
    def during(self, what: str, of: int, unit: str) -> Iterator[_Step]:
        """Yields a step. It ends with the context."""
        step = _Step(what, of, unit, began=self._clock())
        self._steps.append(step)
        try:
            yield step
        finally:
            self._steps.remove(step)

    def poll(self) -> None:
        """Reports the innermost step, with the counts of the innermost one that has any, if the
        next report is due.
        """
        steps = tuple(self._steps)
        now = self._clock()
        what, at = self._told
        if (
            not steps
            or now - self._began < _QUIET_S
            or (steps[-1].what == what and now - at < _PAUSE_S)
        ):
            return
        self._told = steps[-1].what, now
        counts = next((step for step in reversed(steps) if step.of), None)
        done, of, unit = (counts.done, counts.of, counts.unit) if counts else (0, 0, "")
        left = (now - counts.began) * (of - done) / done if counts and done else None
        self._tell(
            StepProgress(
                steps[-1].what, done, of, unit=unit, seconds=round(now - self._began, 1), left=left
            ).line()
        )


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(tell: Callable[[str], object]) -> Iterator[None]:
    """Reports the progress of the steps inside the context, from a separate thread."""
    watch = Watch(tell)
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_LOOK_S):
            watch.poll()

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    token = _watch.set(watch)
    thread.start()
    try:
        yield
    finally:
        _watch.reset(token)
        ended.set()
        thread.join()


def counted(
    what: str,
    items: Iterable[_Item],
    of: int,
    unit: str,
    size: Callable[[_Item], int] = lambda item: 1,
) -> Iterator[_Item]:
    """Yields items and counts the items that are done.

    Args:
        what: name of the step.
        items: the items.
        of: total size of all items.
        unit: unit of sizes, such as "files".
        size: returns the size of an item.
    """
    watch = _watch.get()
    if watch is None:
        yield from items
        return
    with watch.during(what, of, unit) as step:
        for item in items:
            yield item
            step.done += size(item)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Reports a step without a known progress."""
    watch = _watch.get()
    if watch is None:
        yield
        return
    with watch.during(what, 0, ""):
        yield
