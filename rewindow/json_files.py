"""JSON files of ours that a crash, a full disk or a hand may have damaged: the error names the file
and the way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rewindow.errors import RewindowError


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
