"""Windows of Apache Storm over tuples without a timestamp: their arrival is the time
(docs/rules/event_time.md E16).

There is no watermark and no late tuple: a timer ticks, or tuples are counted as they come. Drift of
the timer, which Storm makes up for, does not exist here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rewindow.operators.storm.machine import (
    BETWEEN,
    Membership,
    Queued,
    StormBolt,
    StormMachine,
    StormRules,
)


@dataclass
class ArrivalMachine(StormBolt):
    """One bolt with windows over arrivals, which it takes in their order (E16)."""

    _since_fired: int = 0
    _is_first: bool = True

    def take(self, number: int, stream: int, ts_ms: int) -> list[Membership]:
        """Takes a tuple; returns the window that it fires, being one of every so many."""
        self.queue.append(Queued(number, ts_ms))
        self._since_fired += 1
        if self._since_fired != self.rules.slide_tuples:
            return []
        self._since_fired = 0
        return list(self._evaluate(ts_ms))

    def may_fire(self) -> bool:
        """Returns whether a tick can fire anything that sees no other tuples than the last one."""
        return bool(self.queue) and not self.rules.slide_tuples

    def tick(self, at_ms: int) -> Iterator[Membership]:
        """Yields what the timer fires; a window of a length in time holds nothing of the tick's own
        millisecond.
        """
        if not self.rules.slide_tuples:
            yield from self._evaluate(at_ms - 1, is_whole=self._is_first)
            self._is_first = False

    def _evaluate(
        self,
        end_ms: int,
        *,
        is_whole: bool = False,
    ) -> Iterator[Membership]:
        """Yields the window that ends there, unless it is empty; with `is_whole` it is as long as
        need be.
        """
        rules = self.rules
        if rules.length_tuples:
            begin = max(0, len(self.queue) - rules.length_tuples)
            end = len(self.queue)
        else:
            begin = 0 if is_whole else self._count(end_ms - rules.length_ms)
            end = self._count(end_ms)
        for one in self.queue[:begin]:
            self._expire(one, BETWEEN)
        shown = self.queue[begin:end]
        self.queue = self.queue[begin:]
        if shown:
            yield from self._fire(end_ms, shown)
        else:
            self._forget()


def machine_of(rules: StormRules) -> StormMachine | ArrivalMachine:
    """Returns the bolt that goes by these rules."""
    return StormMachine(rules) if rules.streams else ArrivalMachine(rules)
