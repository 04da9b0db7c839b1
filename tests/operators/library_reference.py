"""The library's operators over rows of Python, written for reading: windows one by one, tuples one
by one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

Row = dict[str, Any]
"""A tuple by column; `window_id` is its window and `offset` its place in it."""


def results_of(rows: Iterable[Row], windows: range, length: int, slide: int | None) -> dict:
    """Returns the tuples of each result, by the window that it belongs to."""
    found: dict[int, list[Row]] = {}
    for window in windows:
        is_due = (window + 1) % length == 0
        if slide is not None:
            done = window + 1 - length
            is_due = done >= 0 and done % slide == 0
        if is_due:
            found[window] = [row for row in rows if window - length < row["window_id"] <= window]
    return found


def by_values(rows: Iterable[Row], names: Iterable[str]) -> Mapping[tuple, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def top(rows: Iterable[Row], count: int, by: str, per: Iterable[str]) -> list[Row]:
    """Returns the largest tuples, null last; on a tie the smallest by all columns."""
    found = []
    for group in by_values(rows, per).values():
        ordered = sorted(group, key=lambda row: [nulls_last(row[name]) for name in ROW_COLUMNS])
        ordered.sort(key=lambda row: (row[by] is None, -(row[by] or 0)))
        found += ordered[:count]
    return found


ROW_COLUMNS = ("key", "number", "price")


def nulls_last(value: Any) -> tuple[bool, Any]:
    return (value is None, "" if value is None else value)


def quantile(values: list[float], share: float) -> float | None:
    """Returns the quantile between the two values around its place."""
    if not values:
        return None
    values = sorted(values)
    place = (len(values) - 1) * share
    low, high = math.floor(place), math.ceil(place)
    if low == high:
        return values[low]
    return (high - place) * values[low] + (place - low) * values[high]


def frequent(values: list[Any], sign: int) -> Any:
    counts = Counter(values)
    return min(counts, key=lambda value: (sign * counts[value], value)) if counts else None


def added(values: list[float]) -> float | None:
    """Returns the exact sum, rounded once."""
    return math.fsum(values) if values else None


def mean(values: list[float]) -> float | None:
    total = added(values)
    return None if total is None else total / len(values)


def whole_mean(values: list[int]) -> float | None:
    return float(Fraction(sum(values), len(values))) if values else None


FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "sum(price)": added,
    "avg(price)": mean,
    "sum(number)": lambda values: sum(values) if values else None,
    "avg(number)": whole_mean,
    "count(number)": len,
    "unique(number)": lambda values: len(set(values)),
    "min(number)": lambda values: min(values, default=None),
    "max(number)": lambda values: max(values, default=None),
    "median(price)": lambda values: quantile(values, 0.5),
    "quantile(price, 0.9)": lambda values: quantile(values, 0.9),
    "most_frequent(number)": lambda values: frequent(values, -1),
    "least_frequent(number)": lambda values: frequent(values, 1),
}


def aggregate(rows: list[Row], text: str) -> Any:
    """Returns one aggregate of the tuples of a group."""
    column = text.partition("(")[2].rstrip(")").partition(",")[0]
    ordered = sorted(rows, key=lambda row: (row["window_id"], row["offset"]))
    if text.startswith("first"):
        return ordered[0][column]
    if text.startswith("last"):
        return ordered[-1][column]
    if column == "*":
        return len(rows)
    return FUNCTIONS[text]([row[column] for row in ordered if row[column] is not None])


def outcomes(rows: Iterable[Row], operator: Any, start: int, span: int, buckets: int) -> Mapping:
    """Returns the tuples of each port of a Deduplicate, whose range starts at an instant."""
    found = defaultdict(list)
    origin, end = start, start + buckets * span
    seen: dict[tuple, int] = {}
    for row in in_order(rows):
        at = row["at"]
        key = tuple(row[name] for name in operator.key)
        if at is None:
            found["errors"].append(row)
            continue
        while at >= end:
            start, end = start + span, end + span
        if at < start:
            found["expired"].append(row)
            continue
        if operator.null_keys == "apart" and None in key:
            found["unique"].append(row)
            continue
        place = (*key, None if operator.whole_range else (at - origin) // span)
        is_known = place in seen and seen[place] >= start
        found["duplicate" if is_known else "unique"].append(row)
        if not is_known:
            seen[place] = at
    return found


def pairs_of_windows(left: Iterable[Row], right: Iterable[Row], equal_nulls: bool) -> list[tuple]:
    """Returns the pairs of some windows with equal keys."""
    found = []
    for one in left:
        for other in right:
            if one["key"] == other["key"] and (equal_nulls or one["key"] is not None):
                found.append((one, other))
    return found


def pairs_with_expiry(
    left: Iterable[Row],
    right: Iterable[Row],
    expire: int,
    primary: Iterable[str],
    equal_nulls: bool,
) -> list[tuple[int, Row, Row]]:
    """Returns pairs as tuples come one by one, with the window of the later tuple."""
    tagged = [(row, "left") for row in left] + [(row, "right") for row in right]
    tagged.sort(key=lambda one: (one[0]["window_id"], one[1], one[0]["offset"]))
    stores: dict[str, dict[Any, list[Row]]] = {"left": {}, "right": {}}
    clock = -math.inf
    found = []
    for row, side in tagged:
        if row["at"] is None:
            continue
        clock = max(clock, row["at"])
        if row["at"] < clock - expire or (row["key"] is None and not equal_nulls):
            continue
        stored = stores[side].setdefault(row["key"], [])
        if side in primary:
            stored.clear()
        stored.append(row)
        for other in stores["right" if side == "left" else "left"].get(row["key"], []):
            if other["at"] >= clock - expire:
                pair = (row, other) if side == "left" else (other, row)
                found.append((row["window_id"], *pair))
    return found


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["window_id"], row["offset"]))


def enriched(rows: Iterable[Row], table: Iterable[Row], equal_nulls: bool) -> list[tuple]:
    """Returns each tuple with the newest row of its key up to its window."""
    found = []
    for row in rows:
        newest = None
        for one in in_order(table):
            is_equal = one["key"] == row["key"] and (equal_nulls or row["key"] is not None)
            if is_equal and one["window_id"] <= row["window_id"]:
                newest = one
        found.append((row, newest))
    return found
