"""Windows over event time, tuple by tuple and tick by tick, written from the rules, to judge ours.

Nothing here is shared with the library; which tuples are on time, and the ticks, come from the reference of lateness.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.operators.lateness_reference import Arrival, Judged

Key = int | None


class Fired(NamedTuple):
    """A fired window: begin and end, key, the tick, and the numbers of its tuples."""

    begin_us: int
    end_us: int
    key: Key
    tick_us: int
    tuples: tuple[int, ...]


def fire(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    judged: Sequence[Judged],
    ticks: Sequence[tuple[int, int]],
    length_us: int,
    slide_us: int,
    ended_us: int | None,
) -> tuple[list[Fired], list[str]]:
    """Returns the fired windows, and what became of each tuple at last."""
    waiting: dict[tuple[int, Key], list[int]] = {}
    outcomes = [one.outcome for one in judged]
    fired: list[Fired] = []
    for number, one in enumerate(judged):
        if one.outcome != "on_time":
            continue
        ts_us = case[number].ts_us
        assert ts_us is not None
        begins = [
            begin for begin in _multiples(slide_us, ts_us - length_us, ts_us) if begin <= ts_us < begin + length_us
        ]
        outcomes[number] = "pending_after" if begins else "between_windows"
        for begin in begins:
            waiting.setdefault((begin, keys[number]), []).append(number)
    finals = [*ticks, *([] if ended_us is None else [(ended_us, 1 << 62)])]
    for tick_us, watermark_us in finals:
        for begin, key in sorted(waiting, key=str):
            if begin + length_us <= watermark_us:
                numbers = waiting.pop((begin, key))
                fired.append(Fired(begin, begin + length_us, key, tick_us, tuple(sorted(numbers))))
                for number in numbers:
                    outcomes[number] = "on_time"
    return sorted(fired, key=str), outcomes


def _multiples(slide_us: int, low_us: int, high_us: int) -> list[int]:
    """Returns the multiples of a slide around a stretch."""
    begin, found = -(abs(low_us) // slide_us + 2) * slide_us, []
    if low_us > 0:
        begin = (low_us // slide_us - 1) * slide_us
    while begin <= high_us:
        found.append(begin)
        begin += slide_us
    return found
