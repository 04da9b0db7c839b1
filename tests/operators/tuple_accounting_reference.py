"""What became of tuples in each streaming window, counted one by one from the rules E40 and X37, to
judge ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.operators.lateness_reference import Arrival, Classified

Key = int | str | None
AccountKey = tuple[int, str, Key, str]
"""Streaming window, stream, key, outcome."""
WAITS = ("on_time", "pending_after")


def first_fired(firings: Iterable[tuple[int, Iterable[int]]]) -> dict[int, int]:
    """Returns of each tuple in a firing the instant of the first, from instants and the tuples that
    they show.
    """
    first: dict[int, int] = {}
    for at_us, numbers in firings:
        for number in numbers:
            first[number] = min(at_us, first.get(number, at_us))
    return first


def tuple_accounting(
    case: Sequence[Arrival],
    keys: Sequence[Key],
    classified: Sequence[Classified],
    last: Sequence[str],
    first: Mapping[int, int],
    width_us: int,
) -> dict[AccountKey, tuple[int, int | None]]:
    """Returns tuples and the largest delay by place.

    Args:
        last: what became of each tuple at last.
        first: when the first window of a tuple on time fired, where one did.
    """
    found: dict[AccountKey, tuple[int, int | None]] = {}
    for of_key in {(one.stream, key) for one, key in zip(case, keys, strict=True)}:
        own = [number for number, one in enumerate(case) if (one.stream, keys[number]) == of_key]
        came = {number: case[number].at_us // width_us for number in own}
        fired = {
            number: first[number] // width_us
            for number in own
            if number in first and last[number] in WAITS
        }
        for window in {*came.values(), *fired.values()}:
            outcomes: dict[str, list[int]] = {}
            for number in own:
                is_here = came[number] == window
                waits = last[number] in WAITS
                fires_at = fired.get(number, window + 1)
                outcomes.setdefault("input", []).extend([number] * is_here)
                outcomes.setdefault(last[number] if not waits else "on_time", []).extend(
                    [number] * (fires_at == window if waits else is_here)
                )
                waited = waits and came[number] < window <= fires_at
                still = waits and came[number] <= window < fires_at
                outcomes.setdefault("pending_before", []).extend([number] * waited)
                outcomes.setdefault("pending_after", []).extend([number] * still)
            for outcome, numbers in outcomes.items():
                delays = [
                    _delay(case[number], classified[number])
                    for number in numbers
                    if outcome == "late"
                ]
                if numbers:
                    place = (window, f"s{of_key[0]}", of_key[1], outcome)
                    found[place] = (len(numbers), max(delays) if delays else None)
    return found


def _delay(one: Arrival, classified: Classified) -> int:
    assert one.ts_us is not None and classified.watermark_us is not None
    return classified.watermark_us - one.ts_us
