"""The Merge event by event, written from its rule (docs/rules/heartbeat.md H59), to judge the
set-based form.

It walks through the instants of the recording: what arrives at one is taken in, then all that is
covered goes out. Nothing here is shared with the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import NamedTuple

WINDOW_US = 1_000


class Tuple(NamedTuple):
    """A tuple of an input: number of the port, arrival, place in its window, event time or None;
    microseconds.
    """

    port: int
    at_us: int
    offset: int
    ts_us: int | None

    @property
    def window(self) -> int:
        return self.at_us // WINDOW_US


class Released(NamedTuple):
    """A tuple that is passed on: window, place in it, instant."""

    window: int
    emission: int
    at_us: int
    tuple: Tuple


class Merged(NamedTuple):
    """All that is passed on, the latest event time of each port, and what still waits."""

    released: list[Released]
    shown: list[int | None]
    waiting: list[Tuple]


def merge_tuples(tuples: Sequence[Tuple], ports: int) -> Merged:
    merged = Merged([], [None] * ports, [])
    emission: dict[int, int] = {}
    for at_us, arrivals in groupby(
        sorted(tuples, key=lambda one: one.at_us),
        key=lambda one: one.at_us,
    ):
        for one in arrivals:
            merged.waiting.append(one)
            known = merged.shown[one.port]
            if one.ts_us is not None:
                merged.shown[one.port] = one.ts_us if known is None else max(known, one.ts_us)
        ready = [one for one in merged.waiting if _is_ready(one, merged.shown)]
        for one in sorted(ready, key=_place):
            merged.waiting.remove(one)
            window = at_us // WINDOW_US
            emission[window] = emission.get(window, -1) + 1
            merged.released.append(Released(window, emission[window], at_us, one))
    return merged


def make_tuples(random: Random, ports: int, count: int, windows: int) -> list[Tuple]:
    """Returns a recording with late, null and equal event times, ties of arrivals, silent inputs,
    and empty windows.
    """
    tuples: list[Tuple] = []
    speed = [random.choice([0, 1, 1, 4, 9]) for _ in range(ports)]
    first_us = [random.choice([0, 0, windows // 3]) * WINDOW_US for _ in range(ports)]
    lag_us = random.choice([0, 50, WINDOW_US, 4 * WINDOW_US])
    at_us = 0
    offsets: dict[tuple[int, int], int] = {}
    while len(tuples) < count:
        at_us += (
            random.choice([0, 0, 1, 50, 50, 250, 250]) if random.random() < 0.96 else 4 * WINDOW_US
        )
        at_us = at_us - at_us % 50 if random.random() < 0.5 else at_us
        at_us = max(at_us, tuples[-1].at_us if tuples else 0)
        if at_us >= windows * WINDOW_US:
            break
        port = random.choices(range(ports), [one + 0.05 for one in speed])[0]
        if at_us < first_us[port]:
            continue
        ts_us = at_us - random.choice(
            [0, 0, 50, 100, lag_us, lag_us, random.randint(-2, 3) * WINDOW_US]
        )
        place = (port, at_us // WINDOW_US)
        offsets[place] = offsets.get(place, -1) + 1
        null = random.random() < 0.05
        tuples.append(
            Tuple(
                port,
                at_us,
                offsets[place],
                None if null else ts_us - ts_us % random.choice([1, 50, 250]),
            )
        )
    return tuples


def _is_ready(one: Tuple, shown: Sequence[int | None]) -> bool:
    ts_us = one.ts_us
    return ts_us is None or all(time is not None and time >= ts_us for time in shown)


def _place(one: Tuple) -> tuple[object, ...]:
    return (one.ts_us is not None, one.ts_us or 0, one.port, one.at_us, one.offset)
