"""Tuple operators on Spark: what their one pass gives, and in which order it calls."""

from __future__ import annotations

from random import Random
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import InputPort, OperatorContext, OutputPort
from rewindow.application.windowing import Windowing
from rewindow.operators import SlidingField, StateField, TupleOperator
from rewindow.state.row_hash import row_hashes
from rewindow.tuple_engine.frames import emitted_frames, states_after
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
NUMBERED = pa.schema([("key", pa.string()), ("x", pa.int64()), ("number", pa.int64())])


class Numbers(TupleOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(NUMBERED)}
    seen = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.seen += 1
        self.emit("out", row.key, row.x, self.seen)


class Beats(TupleOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("count", pa.int64())]))}
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        pass

    def end_window(self) -> None:
        self.count += 1
        self.emit("out", self.count)


class Watched(TupleOperator):
    """Emits how many threads have called each of its copies, and fails while a call is running."""

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("threads", pa.int64())]))}
    transient: ClassVar = ("threads", "is_inside")

    def setup(self) -> None:
        self.threads: set[int] = set()
        self.is_inside = False
        self.note()

    def note(self) -> None:
        assert not self.is_inside, "two calls of a copy at once"
        self.is_inside = True
        self.threads.add(get_ident())
        self.is_inside = False

    def begin_window(self, window_id: int) -> None:
        self.note()

    def process(self, row: Any) -> None:
        self.note()

    def end_window(self) -> None:
        self.note()
        self.emit("out", len(self.threads))


class Moving(TupleOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {
        "out": OutputPort(pa.schema([("key", pa.string()), ("count", pa.int64())]))
    }
    count = SlidingField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        self.count += 1

    def slide(self) -> None:
        for key in self.keys():
            self.emit("out", key, sum(self.partials("count")))


def test_frame_window_slides_across_the_end_of_a_group(spark: SparkSession) -> None:
    # Rules: W28, W31, W32
    operator = Moving()
    windowing = Windowing(6, 4)
    rows = [(window, "ann", 0, 0) for window in range(14)] + [(6, "bob", 0, 1)]
    frame = spark.createDataFrame(rows, "window_id bigint, key string, x bigint, offset bigint")
    state = None
    found = []
    for first, last in ((0, 6), (7, 13)):
        context = OperatorContext(Grid(1000), WindowRange(first, last), windowing=windowing)
        group = frame.where(f"window_id between {first} and {last}")
        given = operator, {"events": group}, state, context
        found += [tuple(row) for row in emitted_frames(*given)["out"].collect()]
        state = states_after(*given).drop("_rw_gone").localCheckpoint()
    assert sorted(found) == [
        (5, "ann", 6),
        (9, "ann", 6),
        (9, "bob", 1),
        (13, "ann", 6),
        (13, "bob", 0),
    ]


def test_operator_copy_is_called_by_a_single_thread_of_its_task(spark: SparkSession) -> None:
    # Rules: O34
    frame = spark.range(4000).selectExpr(
        "id div 100 AS window_id",
        "string(id % 50) AS key",
        "id AS x",
        "id AS offset",
    )
    context = OperatorContext(Grid(1000), WindowRange(0, 39))
    found = emitted_frames(Watched(), {"events": frame.repartition(4)}, None, context)["out"]
    assert {row["threads"] for row in found.collect()} == {1}


def test_windows_are_processed_even_if_spark_knows_that_a_frame_is_empty(
    spark: SparkSession,
) -> None:
    # Rules: O33
    operator = Beats()
    context = OperatorContext(Grid(1000), WindowRange(4, 6))
    columns = "0L as window_id", "'a' as key", "0L as x", "0L as offset"
    nothing = spark.range(1).selectExpr(*columns).where("false")
    state = spark.createDataFrame([(0,)], "count bigint").where("false")
    found = emitted_frames(operator, {"events": nothing}, state, context)["out"].collect()
    assert sorted(map(tuple, found)) == [(4, 1), (5, 2), (6, 3)]
    before = spark.createDataFrame([(7,)], "count bigint")
    found = emitted_frames(operator, {"events": nothing}, before, context)["out"].collect()
    assert sorted(map(tuple, found)) == [(4, 8), (5, 9), (6, 10)]


def test_tuples_of_a_window_are_ordered_by_their_offset(spark: SparkSession) -> None:
    # Rules: X43
    rows = [
        (window, key, -offset, offset)
        for window in range(3)
        for key in "abc"
        for offset in range(40)
    ]
    Random(3).shuffle(rows)
    frame = spark.createDataFrame(rows, "window_id bigint, key string, x bigint, offset bigint")
    operator = Numbers()
    context = OperatorContext(Grid(1000), WindowRange(0, 2))
    found = emitted_frames(operator, {"events": frame}, None, context)["out"].collect()
    for key in "abc":
        called = sorted(
            (row["number"], row["window_id"], -row["x"]) for row in found if row["key"] == key
        )
        assert [place for _, *place in called] == [
            [window, offset] for window in range(3) for offset in range(40)
        ]


@pytest.mark.parametrize("has_offset", [True, False])
def test_tuples_without_an_order_are_sorted_by_row_hash(
    spark: SparkSession,
    has_offset: bool,
) -> None:
    # Rules: X43, X51
    # Offsets of a published stream name tuples within a publication, and no order.
    rows = [(window, key, x, 7 * x % 40) for window in range(2) for key in "abc" for x in range(40)]
    Random(3).shuffle(rows)
    frame = spark.createDataFrame(rows, "window_id bigint, key string, x bigint, offset bigint")
    context = OperatorContext(
        Grid(1000),
        WindowRange(0, 1),
        unordered=frozenset({"events"} if has_offset else ()),
    )
    frame = frame if has_offset else frame.drop("offset")
    found = emitted_frames(Numbers(), {"events": frame}, None, context)["out"].collect()
    for key in "abc":
        called = sorted(
            (row["number"], row["window_id"], row["x"]) for row in found if row["key"] == key
        )
        for window in range(2):
            values = [x for _, of, x in called if of == window]
            table = pa.table({"key": [key] * len(values), "x": pa.array(values, pa.int64())})
            hashes = row_hashes(table).view("int64").tolist()
            assert len(values) == 40 and hashes == sorted(hashes)
