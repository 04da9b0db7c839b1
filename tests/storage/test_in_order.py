"""Rows in the order of columns: those of a sorted list, and untouched where they are in order
already.
"""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rewindow.location import Location
from rewindow.storage import create_table, query
from rewindow.storage.queries import in_order

ROWS = st.lists(st.tuples(st.integers(-2, 5), st.integers(0, 2)), max_size=6)


@given(ROWS, st.integers(1, 3))
def test_ordered_rows_equal_a_sorted_list_for_any_chunks(
    rows: list[tuple[int, int]],
    chunk: int,
) -> None:
    columns = {"window_id": [row[0] for row in rows], "attempt": [row[1] for row in rows]}
    whole = pa.table(
        columns,
        schema=pa.schema([("window_id", pa.int64()), ("attempt", pa.int64())]),
    )
    table = pa.Table.from_batches(whole.to_batches(max_chunksize=chunk), whole.schema)
    ordered = in_order(table, "window_id", "attempt")
    assert [tuple(row.values()) for row in ordered.to_pylist()] == sorted(rows)
    assert (ordered is table) == (rows == sorted(rows))


def test_batches_out_of_order_are_reordered_without_copying() -> None:
    schema = pa.schema([("window_id", pa.int64())])
    batches = [
        pa.record_batch({"window_id": list(range(first, first + 3))}, schema) for first in (6, 0, 3)
    ]
    ordered = in_order(pa.Table.from_batches(batches, schema), "window_id")
    assert ordered["window_id"].to_pylist() == list(range(9))
    places = {batch["window_id"].buffers()[1].address for batch in batches}
    assert {chunk.buffers()[1].address for chunk in ordered["window_id"].chunks} == places


def test_interleaved_ascending_batches_are_not_sorted_row_by_row() -> None:
    schema = pa.schema([("window_id", pa.int64()), ("attempt", pa.int64())])
    pieces = [
        pa.record_batch({"window_id": list(range(first, first + 3)), "attempt": [1] * 3}, schema)
        for first in (0, 6, 12, 3, 9, 15)
    ]
    ordered = in_order(pa.Table.from_batches(pieces, schema), "window_id", "attempt")
    assert ordered["window_id"].to_pylist() == list(range(18))
    places = {piece["window_id"].buffers()[1].address for piece in pieces}
    assert {chunk.buffers()[1].address for chunk in ordered["window_id"].chunks} == places


def test_query_result_does_not_keep_engine_memory_alive(tmp_path: Location) -> None:
    table = create_table(
        tmp_path / "t",
        pa.schema([("window_id", pa.int64()), ("text", pa.string())]),
    )
    rows = pa.table({"window_id": list(range(20_000)), "text": ["a" * 100] * 20_000})
    table.commit_arrow(rows, app_id="test", version=1)
    before = pa.total_allocated_bytes()
    found = query("select window_id from t", t=table)
    assert found.num_rows == 20_000
    assert pa.total_allocated_bytes() - before >= found.nbytes
