"""Rows in the order of columns: those of a sorted list, and untouched where they are in order already."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rewindow.storage.delta import in_order

ROWS = st.lists(st.tuples(st.integers(-2, 5), st.integers(0, 2)), max_size=6)


@given(ROWS, st.integers(1, 3))
def test_rows_in_order_are_those_of_a_sorted_list(rows: list[tuple[int, int]], chunk: int) -> None:
    """Whatever chunks they come in."""
    columns = {"window_id": [row[0] for row in rows], "attempt": [row[1] for row in rows]}
    whole = pa.table(columns, schema=pa.schema([("window_id", pa.int64()), ("attempt", pa.int64())]))
    table = pa.Table.from_batches(whole.to_batches(max_chunksize=chunk), whole.schema)
    ordered = in_order(table, "window_id", "attempt")
    assert [tuple(row.values()) for row in ordered.to_pylist()] == sorted(rows)
    assert (ordered is table) == (rows == sorted(rows))
