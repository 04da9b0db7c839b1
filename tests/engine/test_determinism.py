"""Windows computed again: which one is named, and how many rows are compared at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rewindow.engine import determinism
from rewindow.engine.determinism import RecomputedOutput, check_recomputed
from rewindow.errors import NotDeterministicError
from rewindow.facts.window_facts import DIGESTS_SCHEMA, Ids, WindowFacts

Digest = tuple[int, str, str]
FIRST = 3
"""Windows that are compared begin here."""


class Rows:
    def __init__(self, windows: Ids, values: dict[int, float]) -> None:
        self._rows = pa.table(
            {"window_id": windows, "share": [values[window] for window in windows.tolist()]}
        )

    def toArrow(self) -> pa.Table:  # noqa: N802  (pyspark's name)
        return self._rows


def facts(*digests: Digest) -> WindowFacts:
    columns = [list(range(FIRST, FIRST + len(digests))), *map(list, zip(*digests, strict=True))]
    return WindowFacts.of(pa.table(columns, schema=DIGESTS_SCHEMA), DIGESTS_SCHEMA)


def compare(
    before: list[Digest],
    now: list[Digest],
    off: dict[int, float],
    tolerance: float = 0.1,
) -> list[list[int]]:
    """Compares windows whose floats are off by so much; returns which windows' rows were read, one
    list a time.
    """
    read: list[list[int]] = []

    def rows(windows: Ids) -> Any:
        read.append(windows.tolist())
        zeros = dict.fromkeys(windows.tolist(), 0.0)
        return Rows(windows, zeros), Rows(windows, zeros | off)

    check_recomputed("one", [RecomputedOutput("out", facts(*before), facts(*now), rows, tolerance)])
    return read


def test_only_windows_that_differ_just_in_floats_are_read_in_small_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The memory used does not grow with the windows of a group.
    monkeypatch.setattr(determinism, "ROWS_AT_ONCE", 10)
    before = [(4, "d", "x")] * 8
    now = [(4, "d", "x"), *[(4, "d", "y")] * 7]
    read = compare(before, now, dict.fromkeys(range(20), 0.01))
    assert [window for part in read for window in part] == list(range(FIRST + 1, FIRST + 8))
    assert len(read) > 2 and max(map(len, read)) <= 3


@pytest.mark.parametrize(
    ("now", "off", "named", "reads"),
    [
        ([(1, "d", "x"), (1, "e", "y"), (1, "d", "y")], {}, 4, [[4]]),
        ([(1, "d", "y"), (1, "d", "y"), (1, "e", "y")], {4: 0.5}, 4, [[3, 4], [4]]),
        ([(1, "d", "y"), (2, "d", "y"), (1, "d", "y")], {5: 0.5}, 4, [[3], [4]]),
    ],
)
def test_first_different_window_is_reported_and_later_windows_are_not_read(
    now: list[Digest],
    off: dict[int, float],
    named: int,
    reads: list[list[int]],
) -> None:
    # Rules: R70, R85
    read: list[list[int]] = []

    def rows(windows: Ids) -> Any:
        read.append(windows.tolist())
        zeros = dict.fromkeys(windows.tolist(), 0.0)
        return Rows(windows, zeros), Rows(
            windows,
            zeros | {w: v for w, v in off.items() if w in zeros},
        )

    output = RecomputedOutput("out", facts(*[(1, "d", "x")] * 3), facts(*now), rows, 0.1)
    with pytest.raises(NotDeterministicError, match=f'output "out" of window {named} differs'):
        check_recomputed("one", [output])
    assert read == reads
