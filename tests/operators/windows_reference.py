"""Windows over event time, tuple by tuple and tick by tick, written from the rules, to judge ours.

Nothing here is shared with the library; which tuples are on time, and the ticks, come from the reference of lateness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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


def fire_sessions(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    judged: Sequence[Judged],
    ticks: Sequence[tuple[int, int]],
    gap_us: int,
    inclusive: bool,
    tick_first: bool,
    ended_us: int | None,
) -> tuple[list[Fired], list[str]]:
    """Returns the fired sessions, and what became of each tuple; tuples come one by one, sessions grow and merge."""
    opened: list[tuple[int, int, Key, list[int]]] = []
    outcomes = ["pending_after" if one.outcome == "on_time" else one.outcome for one in judged]
    fired: list[Fired] = []
    waiting = sorted(range(len(case)), key=lambda number: case[number].at_us)
    for tick_us, watermark_us in [*ticks, *([] if ended_us is None else [(ended_us, 1 << 62)])]:
        while waiting and case[waiting[0]].at_us < tick_us + (not tick_first):
            number = waiting.pop(0)
            ts_us = case[number].ts_us
            if judged[number].outcome != "on_time" or ts_us is None:
                continue
            first_us, last_us, numbers = ts_us, ts_us, [number]
            rest = []
            for one in opened:
                far = max(one[0] - last_us, first_us - one[1])
                if one[2] == keys[number] and (far < gap_us or (inclusive and far == gap_us)):
                    first_us, last_us = min(first_us, one[0]), max(last_us, one[1])
                    numbers += one[3]
                else:
                    rest.append(one)
            opened = [*rest, (first_us, last_us, keys[number], numbers)]
        for one in list(opened):
            end_us = one[1] + gap_us
            if end_us < watermark_us or (end_us == watermark_us and not inclusive):
                opened.remove(one)
                fired.append(Fired(one[0], end_us, one[2], tick_us, tuple(sorted(one[3]))))
                for number in one[3]:
                    outcomes[number] = "on_time"
    return fired, outcomes


class Shown(NamedTuple):
    """What a window shows: begin, key, number and kind of the firing, when, and the numbers of its tuples."""

    begin_us: int
    key: Key
    pane: int
    kind: str
    at_us: int
    tuples: tuple[int, ...]


@dataclass(frozen=True)
class Again:
    """How windows fire more than once, in microseconds."""

    length_us: int
    slide_us: int
    allowed_us: int
    early_us: int | None
    accumulation: str
    interval_us: int
    tick_first: bool


@dataclass
class Open:
    """A window: tuples that it has shown and not yet, late ones apart, how often it has shown, what it showed last."""

    shown: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    panes: int = 0
    has_fired: bool = False
    was_ever_on_time: bool = False


def fire_again(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    judged: Sequence[Judged],
    ticks: Sequence[tuple[int, int]],
    again: Again,
    end_us: int,
    has_ended: bool,
) -> list[Shown]:
    """Returns all that windows show, walking along the arrival clock through every tick and early instant."""
    opened: dict[tuple[int, Key], Open] = {}
    rows: list[Shown] = []
    raised = dict(ticks)
    early = set() if again.early_us is None else set(range(0, end_us, again.early_us))
    every = set(range(0, end_us, again.interval_us))
    waiting = sorted(range(len(case)), key=lambda number: case[number].at_us)
    watermark: int | None = None
    for at_us in [*sorted(early | every), *([end_us] if has_ended else [])]:
        while waiting and case[waiting[0]].at_us < at_us + (not again.tick_first):
            _enter(case, keys, judged, waiting.pop(0), again, opened)
        ends = at_us == end_us
        watermark = 1 << 62 if ends else raised.get(at_us, watermark)
        for (begin, key), window in opened.items():
            place = (begin, key)
            closes = watermark is not None and begin + again.length_us <= watermark and not window.has_fired
            if closes and window.was_ever_on_time:
                window.has_fired = True
                if window.new or (again.early_us is not None and again.accumulation != "discarding"):
                    _show(rows, window, place, "on_time", at_us, again)
            elif window.new and at_us in early and not window.has_fired:
                _show(rows, window, place, "early", at_us, again)
            if window.late and (at_us in every or ends):
                window.new, window.late = window.late, []
                _show(rows, window, place, "late", at_us, again)
    return rows


def _enter(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    judged: Sequence[Judged],
    number: int,
    again: Again,
    opened: dict[tuple[int, Key], Open],
) -> None:
    ts_us, (outcome, watermark) = case[number].ts_us, judged[number]
    if ts_us is None or outcome not in ("on_time", "late"):
        return
    if outcome == "late" and watermark is not None and ts_us < watermark - again.allowed_us:
        return
    for begin in _multiples(again.slide_us, ts_us - again.length_us, ts_us):
        if begin <= ts_us < begin + again.length_us:
            window = opened.setdefault((begin, keys[number]), Open())
            if watermark is not None and begin + again.length_us <= watermark:
                window.late.append(number)
            else:
                window.was_ever_on_time = True
                window.new.append(number)


def _show(rows: list[Shown], window: Open, place: tuple[int, Key], kind: str, at_us: int, again: Again) -> None:
    if again.accumulation == "retracting" and window.panes:
        rows.append(Shown(*place, window.panes - 1, "retraction", at_us, tuple(sorted(window.shown))))
    every = window.new if again.accumulation == "discarding" else window.shown + window.new
    rows.append(Shown(*place, window.panes, kind, at_us, tuple(sorted(every))))
    window.shown, window.new, window.panes = window.shown + window.new, [], window.panes + 1


def _multiples(slide_us: int, low_us: int, high_us: int) -> list[int]:
    """Returns the multiples of a slide around a stretch."""
    begin, found = -(abs(low_us) // slide_us + 2) * slide_us, []
    if low_us > 0:
        begin = (low_us // slide_us - 1) * slide_us
    while begin <= high_us:
        found.append(begin)
        begin += slide_us
    return found
