"""The Heartbeat event by event, written from its rules (docs/rules/heartbeat.md section 1), to
judge our form.

It walks through arrivals as a machine would: before each one, the timers that are due; then what
the tuple brings. Nothing here is shared with the library.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple


class Arrival(NamedTuple):
    """A data tuple: arrival, timestamp or None, position in the recording; microseconds."""

    at_us: int
    ts_us: int | None
    offset: int


class Emitted(NamedTuple):
    """An emitted tuple: "data", "crossing", "timeout" or, for a quarantined one, "refused"."""

    kind: str
    at_us: int
    ts_us: int | None
    offset: int | None
    count: int | None  # type: ignore[assignment]  # a field of that name, not the tuple's method


@dataclass(frozen=True)
class Rules:
    """Settings of one Heartbeat, in microseconds, with the readings of section 3."""

    interval_us: int
    slack_us: int = 0
    crossing: str = "all"
    first_on_multiple: str = "none"
    early_crossing: str = "timer_first"
    slack_restart: str = "scheduled"
    slack_after_timeout: str = "again"
    answered: str = "emit"
    tie: str = "timer_first"
    max_jump_us: int | None = None
    max_timers: int = 1_000_000
    on_too_many: str = "stop"
    speed: Fraction = Fraction(1)


class TooManyTimers(Exception):
    pass


@dataclass
class Clock:
    rules: Rules
    arrived_us: int | None = None
    ts_us: int | None = None
    index: int | None = None
    """Index of the last timer; every multiple up to it is done with."""
    wait_us: int = 0
    """Slack that applies to the silence that goes on now."""
    in_silence: int = 0
    """Timers emitted since the last clock tuple."""

    def due_us(self) -> int | None:
        """Returns the instant at which the next timer times out, None without a clock."""
        if self.arrived_us is None or self.ts_us is None or self.index is None:
            return None
        wait = (
            Fraction((self.index + 1) * self.rules.interval_us - self.ts_us + self.wait_us)
            / self.rules.speed
        )
        return self.arrived_us - ((-wait.numerator) // wait.denominator)

    def scheduled_us(self, index: int) -> Fraction:
        # Rules: H6
        assert self.arrived_us is not None and self.ts_us is not None
        return (
            self.arrived_us
            + Fraction(index * self.rules.interval_us - self.ts_us) / self.rules.speed
        )

    def run_to(self, end_us: int, included: bool) -> list[Emitted]:
        """Returns the timeout timers due up to an instant (H7)."""
        emitted = []
        while (due := self.due_us()) is not None and (due < end_us or (included and due == end_us)):
            assert self.index is not None
            self.index += 1
            self.in_silence += 1
            if self.in_silence > self.rules.max_timers and self.rules.on_too_many == "stop":
                raise TooManyTimers
            if self.in_silence <= self.rules.max_timers + 1:
                count = 1 if self.in_silence <= self.rules.max_timers else None
                emitted.append(
                    Emitted("timeout", due, self.index * self.rules.interval_us, None, count)
                )
        return emitted

    def take(self, tuple_: Arrival) -> list[Emitted]:
        """Returns what one data tuple brings, itself included, and moves the clock (H3 to H9)."""
        data = Emitted("data", tuple_.at_us, tuple_.ts_us, tuple_.offset, None)
        ts_us = tuple_.ts_us
        rules = self.rules
        if ts_us is None or (self.ts_us is not None and ts_us < self.ts_us):
            return [data]
        if (
            self.ts_us is not None
            and rules.max_jump_us is not None
            and ts_us > self.ts_us + rules.max_jump_us
        ):
            return [data._replace(kind="refused")]
        before, after = self._cross(tuple_, ts_us)
        self._resynchronise(tuple_.at_us, ts_us)
        return [*before, data, *after]

    def _cross(self, tuple_: Arrival, ts_us: int) -> tuple[list[Emitted], list[Emitted]]:
        """Returns the crossing timers before and after a clock tuple (H5)."""
        rules = self.rules
        own = ts_us // self.rules.interval_us
        interval_us = self.rules.interval_us
        if self.arrived_us is None:
            brings_own = self.rules.first_on_multiple == "timer" and ts_us % interval_us == 0
            first = own - 1 if brings_own else own
            self.index = first if self.index is None else max(self.index, first)
        assert self.index is not None
        crossed = list(range(self.index + 1, own + 1))
        count = 1
        if self.rules.crossing == "last":
            crossed = crossed[-1:]
        elif len(crossed) > self.rules.max_timers:
            if self.rules.on_too_many == "stop":
                raise TooManyTimers
            count = len(crossed)
            crossed = crossed[-1:]
        if rules.answered == "drop" and count == 1:
            crossed = [index for index in crossed if index * interval_us != ts_us]
        before: list[Emitted] = []
        after: list[Emitted] = []
        for index in crossed:
            is_early = self.arrived_us is not None and tuple_.at_us < self.scheduled_us(index)
            place = after if is_early and self.rules.early_crossing == "data_first" else before
            place.append(Emitted("crossing", tuple_.at_us, index * interval_us, None, count))
        return before, after

    def _resynchronise(self, at_us: int, ts_us: int) -> None:
        """Moves the clock to a tuple; the slack of the silence that begins now is chosen here (H8,
        H31, H37).
        """
        assert self.index is not None
        rules = self.rules
        own = ts_us // self.rules.interval_us
        timed_out = self.in_silence > 0
        in_slack = self.arrived_us is not None and self.scheduled_us(self.index + 1) <= at_us
        next_us = (max(self.index, own) + 1) * rules.interval_us
        self.wait_us = rules.slack_us
        if rules.slack_after_timeout == "none" and timed_out:
            self.wait_us = 0
        elif rules.slack_restart == "arrival" and in_slack and own <= self.index:
            self.wait_us = max(0, rules.slack_us - (next_us - ts_us))
        self.arrived_us, self.ts_us, self.index, self.in_silence = (
            at_us,
            ts_us,
            max(self.index, own),
            0,
        )


def emit(
    arrivals: list[Arrival],
    rules: Rules,
    end_us: int,
    *,
    included: bool = True,
) -> list[Emitted]:
    """Returns the whole output of a Heartbeat, in emission order."""
    clock = Clock(replace(rules))
    emitted = []
    for tuple_ in sorted(arrivals, key=lambda one: one.offset):
        emitted += clock.run_to(tuple_.at_us, included=rules.tie == "timer_first")
        emitted += clock.take(tuple_)
    return emitted + clock.run_to(end_us, included)
