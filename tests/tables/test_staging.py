"""Staged tables: what can be told from the facts alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.tables import create_table
from rewindow.tables.staging import sealed_to

FACTS = pa.schema([("window_id", pa.int64()), ("direction", pa.string())])


@pytest.mark.parametrize(("sealed", "last"), [([], -4), ([-3], -3), ([-3, 0], 0), ([-3, 0, 2], 2)])
def test_last_sealed_window_may_be_any_number(sealed: list[int], last: int, tmp_path: Path) -> None:
    """Zero is a window like any other, and windows before 1970 are below it; inputs are not what is sealed."""
    facts = create_table(tmp_path / "facts", FACTS)
    rows = [{"window_id": window, "direction": "out"} for window in sealed] + [{"window_id": 9, "direction": "in"}]
    facts.commit_arrow(pa.Table.from_pylist(rows, FACTS), app_id="test", version=1)
    assert sealed_to(facts, -4) == last
