"""Checksums of all lines at once are those that zlib takes of one line after the other."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.facts import checksums
from rewindow.facts.checksums import line_checksums

LINE = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("end", pa.string()),
    ]
)
TEXTS = st.none() | st.text(max_size=9)
ROWS = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        TEXTS,
        st.integers(0, 3),
        st.sampled_from([None, "", "a", "bc"]),
    )
)


def zlib_checksums(rows: list[tuple[Any, ...]]) -> list[int]:
    texts = [[b"\x00" if value is None else str(value).encode() for value in row] for row in rows]
    return [zlib.crc32(b"\x1f".join(line)) for line in texts]


@given(ROWS, st.integers(1, 5))
def test_line_checksums_equal_zlib_checksums_for_any_batch_size(
    rows: list[tuple[Any, ...]],
    batch: int,
) -> None:
    columns = [
        pa.array(column, pa.int64())
        for column in ([row[0] for row in rows], [row[2] for row in rows])
    ]
    texts = [pa.array([row[place] for row in rows], pa.string()) for place in (1, 3)]
    table = pa.table(
        [columns[0], texts[0], columns[1].cast(LINE.field("at").type), texts[1]],
        schema=LINE,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "_BATCH", batch)
        assert line_checksums(table, ["at", "end"]).to_pylist() == zlib_checksums(rows)
        assert line_checksums(table.slice(1), ["at", "end"]).to_pylist() == zlib_checksums(rows)[1:]
