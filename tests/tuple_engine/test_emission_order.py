"""Where a tuple operator follows the order in which another one emits."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import Application, FrameOperator, InputPort, OutputPort, PortHandle
from rewindow.operators import DelayOperator, TupleOperator
from rewindow.tuple_engine.emission_order import EmissionOrder

ROWS = pa.schema([("user", pa.string()), ("page", pa.string())])


def operator(*key: str) -> TupleOperator:
    class Passes(TupleOperator):
        inputs: ClassVar = {"rows": InputPort(ROWS, key=key)}
        outputs: ClassVar = {"out": OutputPort(ROWS)}

        def process(self, row: Any) -> None:
            self.emit("out", *row)

    return Passes()


class Frames(FrameOperator):
    inputs: ClassVar = {"rows": InputPort(ROWS)}
    outputs: ClassVar = {"out": OutputPort(ROWS)}


@pytest.mark.parametrize(
    ("writer", "reader", "follows"),
    [
        ([], [], True),
        ([], ["user"], True),
        (["user"], ["user"], True),
        (["user"], ["page", "user"], True),
        (["user"], ["page"], False),
        (["user"], [], False),
        (["user", "page"], ["user"], False),
    ],
)
def test_reader_keeps_emission_order_if_its_key_contains_the_key_of_the_writer(
    writer: list[str],
    reader: list[str],
    follows: bool,
) -> None:
    # Rules: O39
    app = Application("one", window="1 s")
    first = app.add("first", operator(*writer), rows=app.input("rows"))
    second = app.add("second", operator(*reader), rows=first)
    order = EmissionOrder(app)
    assert order.follows(second, "rows") == follows
    assert not order.follows(first, "rows"), "a recorded stream has offsets"
    assert order.followed("first") == ({"out"} if follows and writer else set())


def test_emission_order_is_not_preserved_through_a_frame_operator() -> None:
    # Rules: X43
    app = Application("one", window="1 s")
    first = app.add("first", operator(), rows=app.input("rows"))
    frames = app.add("frames", Frames(), rows=first)
    second = app.add("second", operator(), rows=frames)
    order = EmissionOrder(app)
    assert not order.follows(frames, "rows") and not order.follows(second, "rows")
    assert order.has_order("first") and not order.has_order("frames")


def test_cycle_in_one_key_range_keeps_emission_order_for_any_keys() -> None:
    # Rules: X40
    class Around(DelayOperator):
        columns: ClassVar = ROWS

    class Joins(TupleOperator):
        inputs: ClassVar = {
            "rows": InputPort(ROWS, key=("user",)),
            "back": InputPort(ROWS, key=("user",)),
        }
        outputs: ClassVar = {"out": OutputPort(ROWS)}

        def process_rows(self, row: Any) -> None:
            self.emit("out", *row)

        process_back = process_rows  # type: ignore[pydantic-field]

    for key, follows in (((), True), (("user",), False)):
        kind = type("Keyed", (Around,), {"key": key, "__annotations__": {"key": ClassVar}})
        app = Application("one", window="1 s")
        joins = app.add("joins", Joins(), rows=app.input("r"), back=PortHandle("around", "out"))
        app.add("around", kind(), tuples=joins["out"])
        reader = app.add("reader", operator("page"), rows=joins)
        assert EmissionOrder(app).follows(reader, "rows") == follows
