"""What tuple operators emit stays what it was when they emitted it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from rewindow.application import InputPort, Mode, OperatorContext, OutputPort
from rewindow.errors import InputError
from rewindow.operators import StateField, TupleOperator
from rewindow.testing import run_operator
from rewindow.tuple_engine.key_range import KeyRange
from rewindow.tuple_engine.tagged_rows import (
    SORT_KEY,
    input_tags,
    output_tags,
    sort_key,
    tag_of,
    tagged_schema,
)
from rewindow.windows import Grid, WindowRange

CLICKS = pa.schema([("user", pa.string()), ("count", pa.int64())])
LISTS = pa.schema(
    [
        ("user", pa.string()),
        ("seen", pa.list_(pa.int64())),
        ("last", pa.struct([("counts", pa.list_(pa.int64()))])),
    ]
)


class Seen(TupleOperator):
    """Emits the same list with each tuple, and adds to it afterwards."""

    inputs: ClassVar = {"clicks": InputPort(CLICKS, key=("user",))}
    outputs: ClassVar = {"out": OutputPort(LISTS)}
    when: str = "at once"
    seen = StateField(pa.list_(pa.int64()), [])  # type: ignore[pydantic-field]

    def process(self, click: Any) -> None:
        """Adds to what was emitted, the list itself or one inside of a struct."""
        if self.when == "before":
            self.seen.append(click.count)
        last = {"counts": self.seen} if self.when != "inside" else {"counts": [click.count]}
        self.emit("out", click.user, list(self.seen) if self.when == "inside" else self.seen, last)
        (last["counts"] if self.when == "inside" else self.seen).append(click.count)


@pytest.mark.parametrize(("when", "column"), [("at once", "seen"), ("inside", "last")])
def test_tuple_changed_after_emission_is_reported_with_both_values(when: str, column: str) -> None:
    # Rules: O43
    with pytest.raises(
        InputError,
        match='a tuple of port "out" of Seen, window 7, was changed after it was emitted',
    ) as caught:
        run_operator(Seen(when=when), {"clicks": {7: [("ann", 1), ("ann", 2)]}})
    assert f'Column "{column}" was' in caught.value.detail and "Emit a copy" in caught.value.hint


def test_emitted_tuples_are_isolated_from_later_changes() -> None:
    # Rules: O43
    operator = Seen()
    schema = tagged_schema([input_tags(operator)["clicks"]])
    batch = pa.RecordBatch.from_pylist(
        [
            dict(zip(schema.names, (sort_key(7, 1, before=6), "ann", count), strict=True))
            for count in (1, 2)
        ],
        schema=schema,
    )
    context = OperatorContext(Grid(1000), WindowRange(7, 7), Mode.EXACTLY_ONCE, "seen")
    made = [
        row
        for part in KeyRange(operator, context).run([batch])
        for row in part.to_pylist()
        if tag_of(row[SORT_KEY]) == 1
    ]
    seen, last = output_tags(operator)["out"].names[1:]
    assert [(row[seen], row[last]) for row in made] == [
        ([], {"counts": []}),
        ([1], {"counts": [1]}),
    ]


def test_batch_with_an_array_modified_after_emission_is_reported() -> None:
    # Rules: O43
    # Arrow shares the memory of numpy, so the tuples would change with it.
    class Reusing(TupleOperator):
        inputs: ClassVar = {"clicks": InputPort(CLICKS)}
        outputs: ClassVar = {"out": OutputPort(pa.schema([("count", pa.int64())]))}

        def process_batch(self, port: str, rows: pa.RecordBatch) -> None:
            buffer = np.array(rows["count"].to_numpy())
            self.emit_batch("out", pa.record_batch({"count": pa.array(buffer)}))
            buffer[0] = -1

    with pytest.raises(
        InputError,
        match='port "out" of Reusing, window 7, was changed after it was emitted',
    ):
        run_operator(Reusing(), {"clicks": {7: [("ann", 1), ("ann", 2)]}})
