"""Staged tables: what can be told from the facts alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.facts.readers import read_output, sealed_to
from rewindow.planning.creation import create_staging
from rewindow.storage import Table, create_table
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.windows import WindowRange

FACTS = pa.schema([("window_id", pa.int64()), ("direction", pa.string())])


@pytest.mark.parametrize(("sealed", "last"), [([], -4), ([-3], -3), ([-3, 0], 0), ([-3, 0, 2], 2)])
def test_last_sealed_window_can_be_zero_or_negative_and_ignores_inputs(
    sealed: list[int],
    last: int,
    tmp_path: Path,
) -> None:
    facts = create_table(tmp_path / "facts", FACTS)
    rows = [{"window_id": window, "direction": "out"} for window in sealed] + [
        {"window_id": 9, "direction": "in"}
    ]
    facts.commit_arrow(pa.Table.from_pylist(rows, FACTS), app_id="test", version=1)
    assert sealed_to(facts, -4) == last


def test_readers_see_only_rows_of_the_newest_sealed_attempt_of_each_window(
    tmp_path: Path,
) -> None:
    # Rules: R52
    create_staging(tmp_path, {"out": pa.schema([("x", pa.string())])}, "{}")
    rows = [
        (1, 1, "old"),
        (1, 2, "new"),
        (2, 1, "sealed"),
        (2, 2, "never sealed"),
        (3, 2, "kept"),
        (4, 1, "only"),
    ]
    seals = [
        (1, 1, False),
        (1, 2, False),
        (2, 1, False),
        (3, 2, False),
        (3, 3, True),
        (4, 1, False),
    ]
    out = [{"window_id": window, "attempt": attempt, "x": x} for window, attempt, x in rows]
    facts = [
        {"window_id": window, "attempt": attempt, "lost": lost, "direction": "out", "port": "out"}
        for window, attempt, lost in seals
    ]
    table = Table.open(tmp_path / "out")
    table.commit_arrow(pa.Table.from_pylist(out, table.schema), app_id="test", version=1)
    Table.open(tmp_path / "facts").commit_arrow(
        pa.Table.from_pylist(facts, FACTS_SCHEMA),
        app_id="test",
        version=1,
    )
    found = read_output(tmp_path, "out", WindowRange(1, 4)).sort_by("window_id")
    assert found["x"].to_pylist() == ["new", "sealed", "kept", "only"]
