"""Which windows all inputs of an application have ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rewindow.errors import RangeError
from rewindow.planning.inputs import common_range
from rewindow.windows import WindowRange


def stream(first: int, last: int, end: int | None = None) -> Any:
    """Returns what is asked of a recorded stream here."""
    return SimpleNamespace(sealed=WindowRange(first, last), end=end)


def test_a_window_is_computed_once_every_input_has_ended_it() -> None:
    """W34, W39: the slower input is waited for, at both ends; one that has ended is waited for no more (W36)."""
    assert common_range({"a": stream(3, 9), "b": stream(1, 12)}) == WindowRange(3, 9)
    assert common_range({"a": stream(3, 9, end=9), "b": stream(1, 12)}) == WindowRange(3, 12)
    assert common_range({"a": stream(3, 9, end=9), "b": stream(1, 12, end=12)}) == WindowRange(3, 12)
    with pytest.raises(RangeError, match="no sealed window in common"):
        common_range({"a": stream(3, 9), "b": stream(10, 12)})
