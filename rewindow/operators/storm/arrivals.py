"""Windows of Apache Storm over tuples without a timestamp. Their arrival is used as the time.

There are no watermarks and no late tuples: windows fire at the ticks of a timer, or after a number
of tuples. Drift of the timer, which Storm compensates, does not exist here.

Rules: E16
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
    """A Storm bolt with windows over arrivals.

    It processes tuples in the order of arrival.

    Rules: E16
    """

    _since_fired: int = 0
    _is_first: bool = True

    def take(self, number: int, stream: int, ts_ms: int) -> list[Membership]:
        """Processes a tuple.

        If the tuple completes a slide of `slide_tuples`, returns the window that it fires.
        """
        self.queue.append(Queued(number, ts_ms))
        self._since_fired += 1
        if self._since_fired != self.rules.slide_tuples:
            return []
        self._since_fired = 0
        return list(self._evaluate(ts_ms))

    def may_fire(self) -> bool:
        """Returns whether a tick can fire a window even if no tuple has arrived since the last
        tick.
        """
        return bool(self.queue) and not self.rules.slide_tuples

    def tick(self, at_ms: int) -> Iterator[Membership]:
        """Yields the windows that the timer fires.

        If the length of windows is a duration, they do not contain tuples that arrived in the same
        millisecond as the tick.
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
        """Yields the window that ends at an instant, unless it is empty.

        With `is_whole` the window contains all waiting tuples up to that instant.
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
    """Returns the bolt for the given rules."""
    return StormMachine(rules) if rules.streams else ArrivalMachine(rules)
