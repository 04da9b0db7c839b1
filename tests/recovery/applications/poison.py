"""Operators that fail at some values, or pass over them: a tuple operator, a frame operator, and a
tuple operator that reads the first one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators import StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Totals(TupleOperator):
    """Adds up each key; fails at the values in `poison` after it has changed its state."""

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}
    total = StateField(pa.int64(), 0)
    poison: tuple[int, ...] = ()
    skips: bool = False

    def process(self, row: Any) -> None:
        if self.skips and row.x in self.poison:
            return
        self.total += row.x
        if row.x in self.poison:
            raise ValueError(f"cannot take {row.x}")
        self.emit("out", row.key, self.total)


def checked(poison: tuple[int, ...], *, crash: bool) -> Any:
    """Returns a function for tuples that fails at some values."""

    def take(x: int) -> int:
        if x in poison:
            if crash:
                os._exit(1)
            raise ValueError(f"cannot take {x}")
        return x

    return F.udf(take, "bigint")


class Sums(FrameOperator):
    """Adds up each key in a window, and all tuples in its state."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}
    state_schema: ClassVar = pa.schema([("x", pa.int64())])
    poison: tuple[int, ...] = ()
    crash: bool = False
    skips: bool = False

    def _events(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        rows = inputs["events"].select("window_id", "key", "x")
        return rows.where(~F.col("x").isin(*self.poison)) if self.skips else rows

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        take = checked(self.poison, crash=self.crash)
        rows = self._events(inputs).withColumn("x", take("x"))
        return rows.groupBy("window_id", "key").agg(F.sum("x").alias("x"))

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        every = state.select("x").unionByName(self._events(inputs).select("x"))
        return every.agg(F.sum("x").alias("x"))


def build(
    tuples: str = "",
    frames: str = "",
    after: str = "",
    crash: str = "",
    skips: str = "",
) -> Application:
    def poison(text: str) -> dict[str, Any]:
        return {"poison": tuple(map(int, text.split())), "skips": bool(skips)}

    app = Application("poison", window="1 hour", checkpoint_windows=6)
    events = app.input("events")
    totals = app.add("totals", Totals(**poison(tuples)), events=events)
    sums = app.add("sums", Sums(**poison(frames), crash=bool(crash)), events=events)
    again = app.add("again", Totals(**poison(after)), events=totals)
    app.output("totals", totals, key=["key"])
    app.output("sums", sums, key=["key"])
    app.output("again", again, key=["key"])
    return app
