"""JSON: floats that it lacks, and files that a crash, a full disk or an edit may have damaged: the
error names the file and the next step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rewindow.errors import RewindowError


def finite(value: Any) -> Any:
    """Returns a value with text in place of the floats that JSON lacks.

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
    """Turns what goes wrong while a JSON file is read and taken apart into an error that names it.

    Args:
        path: the file.
        what: what it is, such as "certificate".
        hint: what to do about it.

    Raises:
        RewindowError: it is empty, cut short, or holds something else.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        words = f"misses {error}" if isinstance(error, KeyError) else str(error)
        raise RewindowError(
            f'{what} "{path}" is damaged',
            detail=f"It was cut short or changed: {words}.",
            hint=hint,
        ) from error
