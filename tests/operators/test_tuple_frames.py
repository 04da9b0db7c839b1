"""Tuple operators on Spark: what their one pass gives, and in which order it calls."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from rewindow.application import InputPort, OperatorContext, OutputPort
from rewindow.operators import StateField, TupleOperator
from rewindow.operators.tuples.frames import emitted, one_pass
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
NUMBERED = pa.schema([("key", pa.string()), ("x", pa.int64()), ("number", pa.int64())])


class Numbers(TupleOperator):
    """Numbers the tuples of a key as they come."""

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(NUMBERED)}
    seen = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        """Emits it with its number."""
        self.seen += 1
        self.emit("out", row.key, row.x, self.seen)


class Beats(TupleOperator):
    """Counts windows, whatever comes in them."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("count", pa.int64())]))}
    count = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]

    def process(self, row: Any) -> None:
        """Nothing of a tuple counts."""

    def end_window(self) -> None:
        """Emits how many windows there were."""
        self.count += 1
        self.emit("out", self.count)


def test_windows_are_called_also_where_spark_knows_beforehand_that_nothing_comes(spark: SparkSession) -> None:
    """O33: of frames that are empty in the plan Spark computes nothing, so a row that is none goes along."""
    operator, context = Beats(), OperatorContext(Grid(1000), WindowRange(4, 6))
    columns = "0L as window_id", "'a' as key", "0L as x", "0L as offset"
    nothing = spark.range(1).selectExpr(*columns).where("false")
    state = spark.createDataFrame([(0,)], "count bigint").where("false")
    made = one_pass(operator, {"events": nothing}, state, context)
    assert sorted(map(tuple, emitted(operator, made, "out").collect())) == [(4, 1), (5, 2), (6, 3)]
    before = spark.createDataFrame([(7,)], "count bigint")
    made = one_pass(operator, {"events": nothing}, before, context)
    assert sorted(map(tuple, emitted(operator, made, "out").collect())) == [(4, 8), (5, 9), (6, 10)]


def test_tuples_of_a_window_come_by_their_offset(spark: SparkSession) -> None:
    """However the rows lie in files, and whatever their values (X43)."""
    rows = [(window, key, -offset, offset) for window in range(3) for key in "abc" for offset in range(40)]
    Random(3).shuffle(rows)
    frame = spark.createDataFrame(rows, "window_id bigint, key string, x bigint, offset bigint")
    operator, context = Numbers(), OperatorContext(Grid(1000), WindowRange(0, 2))
    found = emitted(operator, one_pass(operator, {"events": frame}, None, context), "out").collect()
    for key in "abc":
        called = sorted((row["number"], row["window_id"], -row["x"]) for row in found if row["key"] == key)
        assert [place for _, *place in called] == [[window, offset] for window in range(3) for offset in range(40)]
