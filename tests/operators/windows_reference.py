"""Windows over event time, tuple by tuple and tick by tick, written from the rules, to judge ours.

Nothing here is shared with the library; which tuples are on time, and the ticks, come from the
reference of lateness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.operators.lateness_reference import Arrival, Classified

Key = int | str | None


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
    classified: Sequence[Classified],
    ticks: Sequence[tuple[int, int]],
    length_us: int,
    slide_us: int,
    ended_us: int | None,
) -> tuple[list[Fired], list[str]]:
    """Returns the fired windows, and what became of each tuple at last."""
    waiting: dict[tuple[int, Key], list[int]] = {}
    outcomes = [one.outcome for one in classified]
    fired: list[Fired] = []
    for number, one in enumerate(classified):
        if one.outcome != "on_time":
            continue
        ts_us = case[number].ts_us
        assert ts_us is not None
        begins = [
            begin
            for begin in _multiples(slide_us, ts_us - length_us, ts_us)
            if begin <= ts_us < begin + length_us
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
    classified: Sequence[Classified],
    ticks: Sequence[tuple[int, int]],
    gap_us: int,
    inclusive: bool,
    tick_first: bool,
    ended_us: int | None,
) -> tuple[list[Fired], list[str]]:
    """Returns the fired sessions, and what became of each tuple; tuples come one by one, sessions
    grow and merge.
    """
    opened: list[tuple[int, int, Key, list[int]]] = []
    outcomes = ["pending_after" if one.outcome == "on_time" else one.outcome for one in classified]
    fired: list[Fired] = []
    waiting = sorted(range(len(case)), key=lambda number: case[number].at_us)
    for tick_us, watermark_us in [*ticks, *([] if ended_us is None else [(ended_us, 1 << 62)])]:
        while waiting and case[waiting[0]].at_us < tick_us + (not tick_first):
            number = waiting.pop(0)
            ts_us = case[number].ts_us
            if classified[number].outcome != "on_time" or ts_us is None:
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


def fire_counted(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    orders: Sequence[tuple[int, ...]],
    classified: Sequence[Classified],
    ticks: Sequence[tuple[int, int]],
    length: int,
    slide: int,
    ended_us: int | None,
) -> tuple[list[tuple[int, Fired]], list[str]]:
    """Returns the windows of so many tuples with their numbers, and what became of each tuple.

    Args:
        orders: by which tuples of one key, timestamp and arrival are ordered.
    """
    outcomes = ["pending_after" if one.outcome == "on_time" else one.outcome for one in classified]
    waiting = [number for number, one in enumerate(classified) if one.outcome == "on_time"]
    waiting.sort(
        key=lambda number: (
            case[number].ts_us,
            case[number].at_us,
            case[number].stream,
            orders[number],
        )
    )
    queues: dict[Key, list[int]] = {}
    fired: list[tuple[int, Fired]] = []

    def show(queue: list[int], key: Key, tick_us: int, number: int) -> None:
        last = queue[max(0, slide * (number + 1) - length) : slide * (number + 1)]
        times = [ts for one in last if (ts := case[one].ts_us) is not None]
        fired.append((number, Fired(times[0], times[-1] + 1, key, tick_us, tuple(sorted(last)))))
        for one in last:
            outcomes[one] = "on_time"

    for tick_us, watermark_us in ticks:
        while waiting and (case[waiting[0]].ts_us or 0) < watermark_us:
            number = waiting.pop(0)
            queue = queues.setdefault(keys[number], [])
            queue.append(number)
            if len(queue) % slide == 0:
                show(queue, keys[number], tick_us, len(queue) // slide - 1)
    if ended_us is not None:
        for number in waiting:
            queue = queues.setdefault(keys[number], [])
            queue.append(number)
            if len(queue) % slide == 0:
                show(queue, keys[number], ended_us, len(queue) // slide - 1)
        for key, queue in queues.items():
            if len(queue) % slide:
                show(queue, key, ended_us, len(queue) // slide)
    return fired, outcomes


class Shown(NamedTuple):
    """What a window shows: begin, key, number and kind of the firing, when, and the numbers of its
    tuples.
    """

    begin_us: int | None
    key: Key
    pane: int
    kind: str
    at_us: int
    tuples: tuple[int, ...]


@dataclass(frozen=True)
class Again:
    """How windows fire more than once, in microseconds; without a length there is one window, the
    global one.
    """

    length_us: int | None
    slide_us: int
    allowed_us: int
    early_us: int | None
    early_tuples: int | None
    accumulation: str
    interval_us: int
    tick_first: bool
    is_apex: bool = False
    late_us: int | None = None
    late_tuples: int | None = None


@dataclass
class Open:
    """A window: tuples that it has shown and not yet, late ones apart, and whether these make up a
    multiple; how often it has shown, what it showed last.
    """

    shown: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    makes_multiple: bool = False
    panes: int = 0
    has_fired: bool = False
    was_ever_on_time: bool = False
    showing: list[int] = field(default_factory=list)
    kind: str = ""


PaneKey = tuple[int | None, Key]


def fire_again(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    orders: Sequence[tuple[int, ...]],
    classified: Sequence[Classified],
    ticks: Sequence[tuple[int, int]],
    again: Again,
    end_us: int,
    has_ended: bool,
) -> list[Shown]:
    """Returns all that windows show, walking along the arrival clock; a window shows once at an
    instant.

    Args:
        orders: by which tuples of one arrival and stream are ordered.
    """
    opened: dict[PaneKey, Open] = {}
    rows: list[Shown] = []
    raised = dict(ticks)
    early = set() if again.early_us is None else set(range(0, end_us, again.early_us))
    every = set(range(0, end_us, again.interval_us))
    late = set() if again.late_us is None else set(range(0, end_us, again.late_us))
    if again.late_us is None and again.late_tuples is None:
        late = every
    arrivals = {one.at_us for one in case}
    waiting = sorted(
        range(len(case)),
        key=lambda number: (case[number].at_us, case[number].stream, orders[number]),
    )
    watermark: int | None = None
    for at_us in [*sorted(early | every | late | arrivals), *([end_us] if has_ended else [])]:
        if not again.tick_first:
            _arrive(case, keys, classified, waiting, at_us, again, opened)
        ends = at_us == end_us
        watermark = 1 << 62 if ends else raised.get(at_us, watermark)
        for (begin, _), window in opened.items():
            is_over = is_removed = ends
            if watermark is not None and begin is not None and again.length_us is not None:
                over_us = begin + again.length_us + again.is_apex
                is_over, is_removed = over_us <= watermark, over_us + again.allowed_us <= watermark
            if is_over and not window.has_fired and window.was_ever_on_time:
                window.has_fired = True
                is_early = again.early_us is not None or again.early_tuples is not None
                if (
                    window.new
                    or window.showing
                    or (is_early and again.accumulation != "discarding")
                ):
                    _show(window, "on_time")
            elif window.new and at_us in early and not window.has_fired:
                _show(window, "early")
            by_count = window.makes_multiple and at_us in every
            if window.late and (at_us in late or by_count or is_removed):
                window.new, window.late, window.makes_multiple = window.late, [], False
                _show(window, "late")
        if again.tick_first:
            _arrive(case, keys, classified, waiting, at_us, again, opened)
        for place, window in opened.items():
            if window.kind:
                _write(rows, window, place, at_us, again)
    return rows


def _arrive(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    classified: Sequence[Classified],
    waiting: list[int],
    at_us: int,
    again: Again,
    opened: dict[PaneKey, Open],
) -> None:
    while waiting and case[waiting[0]].at_us <= at_us:
        number = waiting.pop(0)
        ts_us, (outcome, watermark) = case[number].ts_us, classified[number]
        if ts_us is None or outcome not in ("on_time", "late"):
            continue
        if outcome == "late" and watermark is not None and ts_us < watermark - again.allowed_us:
            continue
        length_us = again.length_us
        begins: list[int | None] = [None]
        if length_us is not None:
            around = _multiples(again.slide_us, ts_us - length_us, ts_us)
            begins = [begin for begin in around if begin <= ts_us < begin + length_us]
        for begin in begins:
            window = opened.setdefault((begin, keys[number]), Open())
            over = begin is not None and length_us is not None and watermark is not None
            if over and begin + length_us + again.is_apex <= watermark:  # type: ignore[operator]
                window.late.append(number)
                entered = len(window.shown) + len(window.showing) + len(window.late)
                if again.late_tuples is not None and entered % again.late_tuples == 0:
                    window.makes_multiple = True
                continue
            window.was_ever_on_time = True
            window.new.append(number)
            entered = len(window.shown) + len(window.showing) + len(window.new)
            if again.early_tuples is not None and entered % again.early_tuples == 0:
                _show(window, "early")


def _show(window: Open, kind: str) -> None:
    """Lets a window show at this instant; on time stands for early."""
    window.showing, window.new, window.kind = window.showing + window.new, [], kind


def _write(rows: list[Shown], window: Open, place: PaneKey, at_us: int, again: Again) -> None:
    if again.accumulation == "retracting" and window.panes:
        rows.append(
            Shown(*place, window.panes - 1, "retraction", at_us, tuple(sorted(window.shown)))
        )
    every = window.showing if again.accumulation == "discarding" else window.shown + window.showing
    rows.append(Shown(*place, window.panes, window.kind, at_us, tuple(sorted(every))))
    window.shown, window.showing, window.panes = window.shown + window.showing, [], window.panes + 1
    window.kind = ""


def fire_sessions_again(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    classified: Sequence[Classified],
    ticks: Sequence[tuple[int, int]],
    again: Again,
    inclusive: bool,
    end_us: int,
    has_ended: bool,
) -> tuple[list[Shown], list[str]]:
    """Returns all that sessions show, and what became of each tuple; of `again` the length is the
    gap.
    """
    gap_us, raised = again.length_us or 0, dict(ticks)
    rows: list[Shown] = []
    outcomes = ["pending_after" if one.outcome == "on_time" else one.outcome for one in classified]
    panes: dict[tuple[int, Key], int] = {}
    opened: list[tuple[int, int, Key, list[int], bool]] = []
    waiting = sorted(range(len(case)), key=lambda number: case[number].at_us)
    before, watermark = -(1 << 62), -(1 << 62)
    for at_us in [*range(0, end_us, again.interval_us), *([end_us] if has_ended else [])]:
        is_last = at_us == end_us
        before, watermark = watermark, 1 << 62 if is_last else raised.get(at_us, watermark)
        while waiting and (is_last or case[waiting[0]].at_us < at_us + (not again.tick_first)):
            number = waiting.pop(0)
            ts_us, (outcome, seen) = case[number].ts_us, classified[number]
            if ts_us is None or outcome not in ("on_time", "late"):
                continue
            if outcome == "late" and seen is not None and ts_us < seen - again.allowed_us:
                continue
            first_us, last_us, numbers, rest = ts_us, ts_us, [number], []
            for one in opened:
                far = max(one[0] - last_us, first_us - one[1])
                if one[2] != keys[number] or far > gap_us or (far == gap_us and not inclusive):
                    rest.append(one)
                    continue
                first_us, last_us, numbers = (
                    min(first_us, one[0]),
                    max(last_us, one[1]),
                    numbers + one[3],
                )
                if one[4]:
                    pane = panes[one[0], one[2]] - 1
                    rows.append(
                        Shown(one[0], one[2], pane, "retraction", at_us, tuple(sorted(one[3])))
                    )
            opened = [*rest, (first_us, last_us, keys[number], numbers, False)]
        for place, one in enumerate(opened):
            passes_us = one[1] + gap_us + inclusive
            if one[4] or passes_us > watermark:
                continue
            pane = panes.get((one[0], one[2]), 0)
            kind = "late" if passes_us <= before else "on_time"
            rows.append(Shown(one[0], one[2], pane, kind, at_us, tuple(sorted(one[3]))))
            panes[one[0], one[2]], opened[place] = pane + 1, (*one[:4], True)
            for number in one[3]:
                outcomes[number] = "late" if classified[number].outcome == "late" else "on_time"
    return rows, outcomes


def _multiples(slide_us: int, low_us: int, high_us: int) -> list[int]:
    begin, found = -(abs(low_us) // slide_us + 2) * slide_us, []
    if low_us > 0:
        begin = (low_us // slide_us - 1) * slide_us
    while begin <= high_us:
        found.append(begin)
        begin += slide_us
    return found
