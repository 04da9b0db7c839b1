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
