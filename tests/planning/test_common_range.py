"""Which windows all inputs of an application have ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rewindow.errors import RangeError
from rewindow.planning.inputs import common_range
from rewindow.windows import WindowRange


def stream(first: int, last: int, end: int | None = None) -> Any:
    return SimpleNamespace(sealed=WindowRange(first, last), end=end)


def test_common_range_contains_only_windows_completed_in_every_input() -> None:
    # Rules: W34, W39, W36
    # An ended input does not delay the others.
    assert common_range({"a": stream(3, 9), "b": stream(1, 12)}) == WindowRange(3, 9)
    assert common_range({"a": stream(3, 9, end=9), "b": stream(1, 12)}) == WindowRange(3, 12)
    assert common_range({"a": stream(3, 9, end=9), "b": stream(1, 12, end=12)}) == WindowRange(
        3,
        12,
    )
    with pytest.raises(RangeError, match="no sealed window in common"):
        common_range({"a": stream(3, 9), "b": stream(10, 12)})
