"""Helpers for JSON: floats that JSON cannot represent, and clear errors for damaged JSON files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rewindow.errors import RewindowError


def finite(value: Any) -> Any:
    """Replaces NaN and infinite floats in a value by text, because JSON cannot represent them.

    >>> finite({"delays": [1.5, float("nan"), float("-inf")]})
    {'delays': [1.5, 'NaN', '-Infinity']}
    """
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: finite(inside) for name, inside in value.items()}
    return list(map(finite, value)) if isinstance(value, list | tuple) else value


@contextmanager
def reading_json(path: object, what: str, hint: str) -> Iterator[None]:
    """Turns exceptions during the reading of a JSON file into one error that names the file.

    Args:
        path: the file.
        what: the kind of file, such as "certificate".
        hint: hint of the error.

    Raises:
        RewindowError: the file is empty, cut short, or has other content.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        words = f"has no {error}" if isinstance(error, KeyError) else str(error)
        raise RewindowError(
            f'{what} "{path}" is damaged',
            detail=f"It was cut short or changed: {words}.",
            hint=hint,
        ) from error
