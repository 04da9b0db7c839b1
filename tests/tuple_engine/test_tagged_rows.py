"""Columns of tagged rows: all tags share them, the key lies in the same ones (decision 0027)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rewindow.application import InputPort, OutputPort
from rewindow.operators import StateField, TupleOperator
from rewindow.tuple_engine.tagged_rows import (
    PLACEHOLDER,
    Columns,
    TagShape,
    loaded_tag,
    sort_key,
    tag_of,
    tagged_schema,
    window_of,
)

LEFT = pa.schema(
    [
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("item", pa.int64()),
        ("user", pa.string()),
    ]
)
RIGHT = pa.schema(
    [("name", pa.string()), ("user", pa.string()), ("count", pa.int64()), ("item", pa.int64())]
)


class Joined(TupleOperator):
    """Two ports with the same key in other places, and state."""

    inputs: ClassVar = {
        "left": InputPort(LEFT, key=("user", "item")),
        "right": InputPort(RIGHT, key=("user", "item")),
    }
    outputs: ClassVar = {
        "out": OutputPort(pa.schema([("item", pa.int64()), ("price", pa.float64())]))
    }
    price = StateField(pa.float64(), 0.0)  # type: ignore[pydantic-field]

    def process_left(self, row: Any) -> None:
        pass

    def process_right(self, row: Any) -> None:
        pass


def test_tagged_rows_of_every_tag_have_the_key_in_the_same_columns() -> None:
    shape = TagShape(Joined())
    assert shape.loaded.names == ["_string_0", "_int64_0", "_double_0"]
    assert shape.inputs["left"].names == ["_double_0", "_int64_1", "_int64_0", "_string_0"]
    assert shape.inputs["right"].names == ["_string_1", "_string_0", "_int64_1", "_int64_0"]


def test_tagged_rows_are_only_as_wide_as_their_types_need() -> None:
    # Every column costs each row its way to Python and back.
    shape = TagShape(Joined())
    wide = ["_string_0", "_int64_0", "_double_0", "_int64_1", "_string_1"]
    assert shape.sent.names[1:] == wide
    assert shape.made.names[1:] == ["_string_0", "_int64_0", "_double_0", "_bool_0"]


def test_deleted_keys_are_marked_only_for_state_with_keys() -> None:
    class Total(TupleOperator):
        inputs: ClassVar = {"left": InputPort(LEFT)}
        total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    assert TagShape(Joined()).state.schema.names == ["user", "item", "price", "_rw_gone"]
    assert TagShape(Total()).state == loaded_tag(Total())


def test_columns_with_complex_types_share_a_name_only_with_equal_types() -> None:
    kinds = [
        pa.decimal128(10, 2),
        pa.decimal128(12, 2),
        pa.list_(pa.int64()),
        pa.struct([("a: int64, b", pa.int64())]),
        pa.struct([("a", pa.int64()), ("b", pa.int64())]),
    ]
    first, second = (
        Columns(tag, pa.schema([(str(place), kind) for place, kind in enumerate(order)]))
        for tag, order in ((1, kinds), (2, kinds[::-1]))
    )
    assert str(kinds[3]) == str(kinds[4])
    assert len(set(first.names)) == len(kinds) and first.names == second.names[::-1]
    assert all(name.isidentifier() for name in first.names)
    assert tagged_schema([first, second]).types[1:] == kinds


@given(
    before=st.integers(-(2**52), 2**52),
    rows=st.lists(
        st.tuples(st.integers(0, 2**41), st.integers(0, 2**20 - 2)),
        min_size=1,
        max_size=20,
    ),
)
def test_tagged_rows_are_sorted_by_window_and_tag(before: int, rows: list[tuple[int, int]]) -> None:
    # A placeholder row sorts first, and state before all tuples.
    places = [sort_key(before + window, tag, before) for window, tag in rows]
    array = np.array(places, np.int64)
    assert (
        list(zip((window_of(array, before) - before).tolist(), tag_of(array).tolist(), strict=True))
        == rows
    )
    assert sorted(places) == [
        sort_key(before + window, tag, before) for window, tag in sorted(rows)
    ]
    assert all(place > PLACEHOLDER for place in places)
