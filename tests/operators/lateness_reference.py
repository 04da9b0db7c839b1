"""Lateness tuple by tuple and tick by tick, written from the rules (docs/rules/event_time.md
section 1), to judge ours.

It walks along the arrival clock as a machine would, through every tick. Nothing here is shared with
the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Arrival(NamedTuple):
    """A tuple: number of its stream, arrival, timestamp or None; microseconds."""

    stream: int
    at_us: int
    ts_us: int | None


class Classified(NamedTuple):
    outcome: str
    watermark_us: int | None


@dataclass(frozen=True)
class Rules:
    """Settings in microseconds; a timeout and a limit for each stream."""

    streams: int
    interval_us: int
    lag_us: int
    timeouts_us: tuple[int | None, ...]
    aheads_us: tuple[int | None, ...]
    tick_first: bool = False
    jumps_us: tuple[int | None, ...] = ()


def classify(
    case: Sequence[Arrival],
    rules: Rules,
    start_us: int,
    end_us: int,
) -> tuple[list[Classified], list[tuple[int, int]]]:
    """Returns the outcome of each tuple, in the order given, and the ticks that raise the watermark
    with its value.
    """
    outcomes: dict[int, Classified] = {}
    raised: list[tuple[int, int]] = []
    largest: list[int | None] = [None] * rules.streams
    first_tick = -(-start_us // rules.interval_us) * rules.interval_us
    last_sent: list[int | None] = [None] * rules.streams
    watermark: int | None = None
    waiting = sorted(
        range(len(case)),
        key=lambda number: (case[number].at_us, case[number].ts_us or 0),
    )
    for tick_us in range(first_tick, end_us + rules.interval_us, rules.interval_us):
        while waiting and (
            case[waiting[0]].at_us < tick_us
            or (case[waiting[0]].at_us == tick_us and not rules.tick_first)
        ):
            number = waiting.pop(0)
            stream, at_us, ts_us = case[number]
            limit = rules.aheads_us[stream]
            if ts_us is None:
                outcomes[number] = Classified("null_ts", None)
                continue
            if limit is not None and ts_us > at_us + limit:
                outcomes[number] = Classified("far_future", None)
                continue
            jump = (rules.jumps_us or (None,) * rules.streams)[stream]
            highest = largest[stream]
            if jump is not None and highest is not None and ts_us > highest + jump:
                outcomes[number] = Classified("jump", None)
                continue
            is_late = watermark is not None and ts_us < watermark
            outcomes[number] = Classified("late" if is_late else "on_time", watermark)
            known = largest[stream]
            largest[stream] = ts_us if known is None else max(known, ts_us)
            last_sent[stream] = at_us
        proposal = _proposal(rules, tick_us, first_tick, largest, last_sent)
        if (
            tick_us < end_us
            and proposal is not None
            and (watermark is None or proposal > watermark)
        ):
            watermark = proposal
            raised.append((tick_us, watermark))
    return [outcomes[number] for number in range(len(case))], raised


def _proposal(
    rules: Rules,
    tick_us: int,
    first_tick: int,
    largest: list[int | None],
    last_sent: list[int | None],
) -> int | None:
    """Returns the smallest of what the streams that are not idle have shown, less the lag; None
    while one waits.
    """
    shown = []
    for stream in range(rules.streams):
        timeout = rules.timeouts_us[stream]
        since = last_sent[stream]
        if timeout is not None and tick_us - (first_tick if since is None else since) > timeout:
            continue
        value = largest[stream]
        if value is None:
            return None
        shown.append(value)
    return min(shown) - rules.lag_us if shown else None
