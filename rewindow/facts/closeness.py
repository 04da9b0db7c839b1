"""Compares rows.

Exact values must be equal, and floating-point values at any depth must be within a tolerance.

Rules: R85
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

SortKey = tuple[list[str], list[tuple[bool, float]]]
"""The exact values of a row as text, and its floats, each after a flag that is true for NaN."""


def in_one_order(value: Any) -> Any:
    """Sorts the entries of a value's maps, which are pairs, in a canonical order."""
    if isinstance(value, dict):
        return {name: in_one_order(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = list(map(in_one_order, value))
        return (
            sorted(items, key=lambda entry: repr(entry[0]))
            if value and isinstance(value[0], tuple)
            else items
        )
    return value


def sort_key(row: Iterable[Any]) -> SortKey:
    """Returns a sort key that puts exact values first, so that slightly different floats do not
    separate matching rows.
    """
    floats: list[tuple[bool, float]] = []
    exact = [repr(_without_floats(value, floats)) for value in row]
    return (exact, floats)


def are_close(left: Any, right: Any, tolerance: float) -> bool:
    """Returns whether two values are equal. Floats are equal if

    left - right

    <= tolerance * max(1,

    left

    ,

    right

    ).
    """
    if isinstance(left, float) and isinstance(right, float):
        if not (math.isfinite(left) and math.isfinite(right)):
            return left == right or (math.isnan(left) and math.isnan(right))
        return abs(left - right) <= tolerance * max(1.0, abs(left), abs(right))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(
            are_close(*pair, tolerance) for pair in zip(left, right, strict=True)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            are_close(left[key], right[key], tolerance) for key in left
        )
    return bool(left == right)


def _without_floats(value: Any, floats: list[tuple[bool, float]]) -> Any:
    """Replaces all floats in a value, at any depth, by None, and appends them to a list."""
    if isinstance(value, float):
        floats.append((math.isnan(value), 0.0 if math.isnan(value) else value))
        return None
    if isinstance(value, list | tuple):
        return [_without_floats(item, floats) for item in value]
    if isinstance(value, dict):
        return {name: _without_floats(item, floats) for name, item in value.items()}
    return value
