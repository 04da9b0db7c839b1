"""Windows of Apache Storm, tuple by tuple and tick by tick, its surprises included
(docs/rules/event_time.md 1).

Nothing here knows Spark. Times are whole milliseconds (E17, X26).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

NEW = "new"
AGAIN = "again"
EXPIRED = "expired"
"""What a tuple is in a window that fires: not in the one evaluated before, in both, or removed
since that evaluation (E12)."""
HIDDEN = "hidden_by_scan"
LOST_TIE = "lost_tie"
BETWEEN = "between_windows"
"""What becomes of a tuple that expires before any window has shown it."""


@dataclass(frozen=True)
class StormRules:
    """How Storm makes windows; of lengths and slides one is set, the other is 0; no streams: by
    arrival.
    """

    streams: int
    lag_ms: int
    length_ms: int = 0
    length_tuples: int = 0
    slide_ms: int = 0
    slide_tuples: int = 0


class Membership(NamedTuple):
    """A tuple in a window that fired: the window's number and end (inclusive), the tuple, and its
    role.
    """

    window: int
    end_ms: int
    tuple: int
    role: str


@dataclass(slots=True)
class Queued:
    """A tuple that waits."""

    number: int
    ts_ms: int
    was_shown: bool = False
    is_tie: bool = False


@dataclass
class StormBolt:
    """The tuples that wait in a bolt with windows, and what becomes of them (E12).

    Attributes:
        queue: the tuples that wait, in the order of arrival.
        outcomes: of tuples that no longer wait, their numbers and what has become of them.
    """

    rules: StormRules
    queue: list[Queued] = field(default_factory=list)
    outcomes: list[tuple[int, str]] = field(default_factory=list)
    _before: set[int] = field(default_factory=set)
    _expired: list[int] = field(default_factory=list)
    _fired: int = 0

    def finish(self) -> Iterator[tuple[int, str]]:
        """Yields the outcome of every tuple; what is still in the queue and was never shown is
        pending (E11, E30).
        """
        yield from self.outcomes
        for one in self.queue:
            yield one.number, "on_time" if one.was_shown else "pending"

    def _count(self, until_ms: int) -> int:
        """Returns how many waiting tuples have a timestamp up to an instant (inclusive)."""
        return sum(one.ts_ms <= until_ms for one in self.queue)

    def _expire(self, one: Queued, unseen: str) -> None:
        self._expired.append(one.number)
        self.outcomes.append((one.number, "on_time" if one.was_shown else unseen))

    def _forget(self) -> None:
        """Ends an evaluation without a tuple: as in Storm, no window lists what it removed."""
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
    """One bolt with windows over timestamps (E1 to E14).

    Attributes:
        largest: by stream, its largest timestamp (E1).
        watermark_ms: the last one; it begins at 0 (E3).
        next_end_ms: where the next window ends (E7); with a slide of tuples the last timestamp that
            was counted (E13).
    """

    largest: dict[int, int] = field(default_factory=dict)
    watermark_ms: int = 0
    next_end_ms: int = 0
    _fired_end_ms: int | None = None
    _quota: int = 0

    def take(self, number: int, stream: int, ts_ms: int) -> list[Membership]:
        """Takes a tuple, and fires nothing; a late one moves its stream's clock, and is in no
        window (E1, E4, E5).
        """
        self.largest[stream] = max(self.largest.get(stream, ts_ms), ts_ms)
        if ts_ms < self.watermark_ms:
            self.outcomes.append((number, "late"))
        else:
            is_tie = ts_ms == self.watermark_ms == self._fired_end_ms
            self.queue.append(Queued(number, ts_ms, is_tie=is_tie))
        return []

    def may_fire(self) -> bool:
        """Returns whether a tick can fire anything that sees no other tuples than the last one."""
        return False

    def tick(self, at_ms: int) -> Iterator[Membership]:
        """Yields what fires at a tick, whenever it is: nothing unless it raises the watermark (E2,
        E3).
        """
        smallest = min(self.largest.values()) if len(self.largest) == self.rules.streams else 0
        if smallest - self.rules.lag_ms <= self.watermark_ms:
            return
        self.watermark_ms = smallest - self.rules.lag_ms
        yield from self._by_count() if self.rules.slide_tuples else self._by_time()

    def _by_time(self) -> Iterator[Membership]:
        """Yields the windows that end at multiples of the slide (E7, E8); an empty one waits where
        it is (E29).
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
        """Yields a window for every so many tuples that the watermark has passed, in the order of
        arrival (E13).
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
        """Returns the tuples of a window in the order of arrival, and drops those that are too old
        (E9, E14).
        """
        # As in Storm, the scan follows the order of arrival, and a tuple that is too far in the
        # future ends it. Tuples after that one are hidden from the window (E9).
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
