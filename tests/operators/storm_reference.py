"""Storm's windows, written from the rules of docs/rules/event_time.md section 1, to judge ours;
milliseconds.

It walks through every tick, and looks at the whole list of tuples each time. Nothing here is shared
with the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Tuple(NamedTuple):
    stream: int
    at: int
    ts: int | None


class Storm(NamedTuple):
    """Settings; 0 for what is not set."""

    streams: int
    interval: int
    lag: int
    length: int
    length_tuples: int
    slide: int
    slide_tuples: int
    tick_first: bool


Member = tuple[int, int, int, int, str]


class _Walk:
    """What the bolt knows: status of each tuple, clocks, the last windows."""

    def __init__(self, case: Sequence[Tuple], storm: Storm) -> None:
        self.case = case
        self.storm = storm
        self.status = ["unseen"] * len(case)
        self.order: list[int] = []
        self.shown: set[int] = set()
        self.ties: set[int] = set()
        self.watermark = self.next_end = self.size = self.number = 0
        self.fired_end: int | None = None
        self.evaluated_before: list[int] = []
        self.expired: list[int] = []
        self.members: list[Member] = []

    def ts(self, number: int) -> int:
        found = self.case[number].ts
        assert found is not None
        return found

    def queued(self) -> list[int]:
        return [number for number in self.order if self.status[number] == "queued"]

    def candidate(self) -> int:
        largest = []
        for stream in range(self.storm.streams):
            sent = [
                self.ts(n)
                for n in self.order
                if self.case[n].stream == stream and self.case[n].ts is not None
            ]
            if not sent:
                return -self.storm.lag
            largest.append(max(sent))
        return min(largest) - self.storm.lag

    def window(self, end: int, quota: int) -> list[int]:
        """Returns the tuples of a window, and lets the old ones expire."""
        belongs: list[int] = []
        for number in self.queued():
            age = end - self.ts(number)
            if self.storm.length_tuples:
                if age < 0 or len(belongs) >= quota:
                    continue
                if quota > self.storm.length_tuples:
                    quota -= 1
                    self.expire(number)
                else:
                    belongs.append(number)
            elif age < -self.storm.lag:
                break
            elif age >= self.storm.length:
                self.expire(number)
            elif age >= 0:
                belongs.append(number)
        return belongs

    def expire(self, number: int) -> None:
        self.status[number] = "gone"
        self.expired.append(number)

    def show(self, tick: int, end: int, belongs: list[int]) -> None:
        if belongs:
            for number in belongs:
                role = "again" if number in self.evaluated_before else "new"
                self.members.append((self.number, end, tick, number, role))
            self.members += [(self.number, end, tick, number, "expired") for number in self.expired]
            self.fired_end = end
            self.shown |= set(belongs)
            self.number += 1
        self.expired = []
        self.evaluated_before = belongs

    def raise_to(self, watermark: int, tick: int) -> None:
        self.watermark = watermark
        storm = self.storm
        if storm.slide_tuples:
            passed = [n for n in self.queued() if self.next_end < self.ts(n) <= watermark]
            for last in range(storm.slide_tuples, len(passed) + 1, storm.slide_tuples):
                end = max(self.ts(n) for n in passed[:last])
                belongs = self.window(end, self.size + storm.slide_tuples)
                self.size = len(belongs)
                self.next_end = end
                self.show(tick, end, belongs)
            return
        while self.next_end <= watermark:
            quota = len([n for n in self.queued() if self.ts(n) <= self.next_end])
            belongs = self.window(self.next_end, quota)
            self.show(tick, self.next_end, belongs)
            if belongs:
                self.next_end += storm.slide
                continue
            ahead = [self.ts(n) for n in self.queued() if self.next_end < self.ts(n) <= watermark]
            if not ahead:
                break
            while self.next_end < min(ahead) or self.next_end % storm.slide:
                self.next_end += 1

    def accept(self, number: int) -> None:
        self.order.append(number)
        ts = self.case[number].ts
        if ts is None:
            self.status[number] = "null_ts"
        elif ts < self.watermark:
            self.status[number] = "late"
        else:
            self.status[number] = "queued"
            if ts == self.watermark == self.fired_end:
                self.ties.add(number)


def storm_machine(case: Sequence[Tuple], storm: Storm, end: int) -> tuple[list[Member], list[str]]:
    """Returns the members of windows (window, end, tick, tuple, role), and the outcome of each
    tuple.
    """
    walk = _Walk(case, storm)
    waiting = sorted(
        range(len(case)),
        key=lambda number: (case[number].at, case[number].stream, number),
    )
    for tick in range(storm.interval, end, storm.interval):
        while waiting and case[waiting[0]].at < tick + (not storm.tick_first):
            walk.accept(waiting.pop(0))
        candidate = walk.candidate()
        if candidate > walk.watermark:
            walk.raise_to(candidate, tick)
    for number in waiting:
        walk.accept(number)
    outcomes = []
    for number, status in enumerate(walk.status):
        if status in ("queued", "gone"):
            unseen = "lost_tie" if number in walk.ties else "hidden_by_scan"
            status = (
                "on_time" if number in walk.shown else "pending" if status == "queued" else unseen
            )
        outcomes.append(status)
    return walk.members, outcomes


def storm_by_arrival(
    case: Sequence[Tuple],
    storm: Storm,
    end: int,
) -> tuple[list[Member], list[str]]:
    """Returns the same without timestamps (E16), from a look at every millisecond, and at all
    tuples in each.
    """
    order = sorted(
        range(len(case)),
        key=lambda number: (case[number].at, case[number].stream, number),
    )
    windows: list[tuple[int, int, list[int], list[int]]] = []
    for now in range(end):
        if storm.slide_tuples:
            for place, number in enumerate(order, 1):
                if case[number].at == now and place % storm.slide_tuples == 0:
                    windows.append((now, now, *_parted(case, order[:place], storm, now)))
        elif now and now % storm.slide == 0:
            seen = [number for number in order if case[number].at < now + (storm.length_tuples > 0)]
            is_first = now == storm.slide and not storm.length_tuples
            old, shown = ([], seen) if is_first else _parted(case, seen, storm, now - 1)
            windows.append((now, now - 1, old, shown))
    members: list[Member] = []
    expired_before: set[int] = set()
    for place, (fired_at, until, old, shown) in enumerate(windows):
        removed = set(old) - expired_before
        expired_before |= removed
        if not shown:
            continue
        before = windows[place - 1][3] if place else []
        number = len({member[0] for member in members})
        members += [
            (number, until, fired_at, one, "again" if one in before else "new") for one in shown
        ]
        members += [(number, until, fired_at, one, "expired") for one in removed]
    in_one = {one for *_, shown in windows for one in shown}
    gone = {one for _, _, old, _ in windows for one in old}
    return members, [
        "on_time" if one in in_one else "between_windows" if one in gone else "pending"
        for one in range(len(case))
    ]


def _parted(
    case: Sequence[Tuple],
    seen: list[int],
    storm: Storm,
    until: int,
) -> tuple[list[int], list[int]]:
    """Returns which of the tuples that a bolt has seen are too old at an instant, and which are in
    the window.
    """
    if storm.length_tuples:
        return seen[: -storm.length_tuples], seen[-storm.length_tuples :]
    return (
        [one for one in seen if case[one].at <= until - storm.length],
        [one for one in seen if until - storm.length < case[one].at <= until],
    )
