"""Windows of Apache Storm, computed tuple by tuple and tick by tick, including its special cases.

This module does not use Spark. Times are whole milliseconds.

Rules: E17, X26
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

NEW = "new"
AGAIN = "again"
EXPIRED = "expired"
"""Role of a tuple in a window that fires: not in the window evaluated before, in both, or removed
since that evaluation.

Rules: E12
"""
HIDDEN = "hidden_by_scan"
LOST_TIE = "lost_tie"
BETWEEN = "between_windows"
"""Outcome of a tuple that expires before a window has contained it."""


@dataclass(frozen=True)
class StormRules:
    """Lengths and slides of Storm's windows.

    One length and one slide are set, and the others are 0. With 0 streams, windows are over
    arrivals.
    """

    streams: int
    lag_ms: int
    length_ms: int = 0
    length_tuples: int = 0
    slide_ms: int = 0
    slide_tuples: int = 0


class Membership(NamedTuple):
    """A tuple in a window that fired, with the number and the end (inclusive) of the window and the
    role of the tuple.
    """

    window: int
    end_ms: int
    tuple: int
    role: str


@dataclass(slots=True)
class Queued:
    """A waiting tuple."""

    number: int
    ts_ms: int
    was_shown: bool = False
    is_tie: bool = False


@dataclass
class StormBolt:
    """The waiting tuples of a bolt with windows, and the outcomes of all other tuples.

    Attributes:
        queue: the waiting tuples, in the order of arrival.
        outcomes: numbers and outcomes of tuples that no longer wait.

    Rules: E12
    """

    rules: StormRules
    queue: list[Queued] = field(default_factory=list)
    outcomes: list[tuple[int, str]] = field(default_factory=list)
    _before: set[int] = field(default_factory=set)
    _expired: list[int] = field(default_factory=list)
    _fired: int = 0

    def finish(self) -> Iterator[tuple[int, str]]:
        """Yields the outcome of every tuple.

        A tuple is pending if it is in the queue and was not in a window.

        Rules: E11, E30
        """
        yield from self.outcomes
        for one in self.queue:
            yield one.number, "on_time" if one.was_shown else "pending"

    def _count(self, until_ms: int) -> int:
        """Returns the number of waiting tuples with a timestamp up to an instant (inclusive)."""
        return sum(one.ts_ms <= until_ms for one in self.queue)

    def _expire(self, one: Queued, unseen: str) -> None:
        self._expired.append(one.number)
        self.outcomes.append((one.number, "on_time" if one.was_shown else unseen))

    def _forget(self) -> None:
        """Ends an evaluation that found no tuple.

        As in Storm, removed tuples are not listed in any window.
        """
        self._before = set()
        self._expired = []

    def _fire(self, end_ms: int, shown: list[Queued]) -> Iterator[Membership]:
        numbers = set()
        for one in shown:
            one.was_shown = True
            numbers.add(one.number)
            role = AGAIN if one.number in self._before else NEW
            yield Membership(self._fired, end_ms, one.number, role=role)
        for number in self._expired:
            yield Membership(self._fired, end_ms, number, role=EXPIRED)
        self._before = numbers
        self._expired = []
        self._fired += 1


@dataclass
class StormMachine(StormBolt):
    """A bolt with windows over timestamps.

    Attributes:
        largest: by stream, its largest timestamp.
        watermark_ms: the last watermark; initially 0.
        next_end_ms: end of the next window; with a slide of tuples, the last timestamp that was
            counted.

    Rules: E1 to E14
    """

    largest: dict[int, int] = field(default_factory=dict)
    watermark_ms: int = 0
    next_end_ms: int = 0
    _fired_end_ms: int | None = None
    _quota: int = 0

    def take(self, number: int, stream: int, ts_ms: int) -> list[Membership]:
        """Processes a tuple. It never fires a window.

        A late tuple moves its stream's clock, and is in no window.

        Rules: E1, E4, E5
        """
        self.largest[stream] = max(self.largest.get(stream, ts_ms), ts_ms)
        if ts_ms < self.watermark_ms:
            self.outcomes.append((number, "late"))
        else:
            is_tie = ts_ms == self.watermark_ms == self._fired_end_ms
            self.queue.append(Queued(number, ts_ms, is_tie=is_tie))
        return []

    def may_fire(self) -> bool:
        """Returns whether a tick can fire a window even if no tuple has arrived since the last
        tick.
        """
        return False

    def tick(self, at_ms: int) -> Iterator[Membership]:
        """Yields the windows that fire at a tick.

        Windows fire only if the tick raises the watermark.

        Rules: E2, E3
        """
        smallest = min(self.largest.values()) if len(self.largest) == self.rules.streams else 0
        if smallest - self.rules.lag_ms <= self.watermark_ms:
            return
        self.watermark_ms = smallest - self.rules.lag_ms
        yield from self._by_count() if self.rules.slide_tuples else self._by_time()

    def _by_time(self) -> Iterator[Membership]:
        """Yields the windows that end at multiples of the slide. If a window is empty and no later
        tuple is within the watermark, the next window keeps its end.

        Rules: E7, E8, E29
        """
        slide = self.rules.slide_ms
        while self.next_end_ms <= self.watermark_ms:
            until = self._count(self.next_end_ms) if self.rules.length_tuples else 0
            shown = self._evaluate(self.next_end_ms, until)
            if shown:
                yield from self._fire(self.next_end_ms, shown)
                self._fired_end_ms = self.next_end_ms
                self.next_end_ms += slide
                continue
            ahead = [
                one.ts_ms for one in self.queue if self.next_end_ms < one.ts_ms <= self.watermark_ms
            ]
            if not ahead:
                return
            self.next_end_ms = -(-min(ahead) // slide) * slide

    def _by_count(self) -> Iterator[Membership]:
        """Yields a window for every `slide_tuples` tuples that the watermark has passed, in the
        order of arrival.

        Rules: E13
        """
        ends = []
        count = 0
        largest = None
        for one in self.queue:
            if self.next_end_ms < one.ts_ms <= self.watermark_ms:
                largest = one.ts_ms if largest is None else max(largest, one.ts_ms)
                count += 1
                if count % self.rules.slide_tuples == 0:
                    ends.append(largest)
        for end_ms in ends:
            shown = self._evaluate(end_ms, self._quota + self.rules.slide_tuples)
            self._quota = len(shown)
            if shown:
                yield from self._fire(end_ms, shown)
                self._fired_end_ms = end_ms
            self.next_end_ms = end_ms

    def _evaluate(self, end_ms: int, quota: int) -> list[Queued]:
        """Returns the tuples of a window in the order of arrival, and drops those that are too old.

        Rules: E9, E14
        """
        # As in Storm, the scan follows the order of arrival, and a tuple that is too far in the
        # future ends it. Later arrivals are then not in the window.
        shown: list[Queued] = []
        left: list[Queued] = []
        for place, one in enumerate(self.queue):
            age = end_ms - one.ts_ms
            if self.rules.length_tuples:
                belongs = age >= 0 and len(shown) < quota
                is_old = belongs and quota > self.rules.length_tuples
                quota -= is_old
            else:
                if age < -self.rules.lag_ms:
                    left += self.queue[place:]
                    break
                belongs = age >= 0
                is_old = age >= self.rules.length_ms
            if is_old:
                self._expire(one, LOST_TIE if one.is_tie else HIDDEN)
                continue
            if belongs:
                shown.append(one)
            left.append(one)
        self.queue = left
        if not shown:
            self._forget()
        return shown
