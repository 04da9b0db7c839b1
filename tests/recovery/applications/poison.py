"""Operators that fail at some tuples, or pass over them: a tuple operator, a second one that reads
it, and a frame operator.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators import StateField, TupleOperator

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Totals(TupleOperator):
    """Adds up each key; fails at the tuples in `poison` after it has changed its state, as long as
    a file does not exist.
    """

    inputs: ClassVar = {"events": InputPort(EVENTS, key=("key",))}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}
    total = StateField(pa.int64(), 0)  # type: ignore[pydantic-field]
    poison: tuple[str, ...] = ()
    skips: bool = False
    cured_by: str = ""

    def process(self, row: Any) -> None:
        is_poison = f"{row.key}{row.x}" in self.poison and not Path(self.cured_by).is_file()
        if self.skips and is_poison:
            return
        self.total += row.x
        if is_poison:
            raise ValueError(f"cannot take {row.key}{row.x}")
        self.emit("out", row.key, self.total)


class Sums(FrameOperator):
    """Adds up each key in a window, and all tuples in its state; fails in a Python function."""

    inputs: ClassVar = {"events": InputPort()}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}
    state_schema: ClassVar = pa.schema([("x", pa.int64())])
    poison: tuple[str, ...] = ()
    skips: bool = False
    crashes: bool = False

    def _events(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        rows = inputs["events"].select("window_id", "key", "x")
        name = F.concat("key", "x")
        return rows.where(~name.isin(*self.poison)) if self.skips else rows

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        poison = self.poison
        crashes = self.crashes

        def take(key: str, x: int) -> int:
            if f"{key}{x}" in poison:
                if crashes:
                    os._exit(1)
                raise ValueError(f"cannot take {key}{x}")
            return x

        rows = self._events(inputs).withColumn("x", F.udf(take, "bigint")("key", "x"))
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
    kind: str = "tuples",
    poison: str = "",
    skips: str = "",
    crashes: str = "",
    cured_by: str = "",
) -> Application:
    given: dict[str, Any] = {"poison": tuple(poison.split()), "skips": bool(skips)}
    app = Application("poison", window="1 hour", checkpoint_windows=6)
    events = app.input("events")
    if kind == "frames":
        out = app.add("sums", Sums(**given, crashes=bool(crashes)), events=events)
    else:
        first = {**given, "cured_by": cured_by} if kind == "tuples" else {}
        second = given if kind == "second" else {}
        totals = app.add("totals", Totals(**first), events=events)
        app.output("totals", totals, key=["key"])
        out = app.add("again", Totals(**second), events=totals)
    app.output("out", out, key=["key"])
    return app
