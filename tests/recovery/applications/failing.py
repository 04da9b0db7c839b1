"""An application whose operator `sums` fails in the way that a parameter names, and two before
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

TOTALS = pa.schema([("key", pa.string()), ("x", pa.int64())])
STATE = pa.schema([("key", pa.string()), ("total", pa.int64())])


def inverse(x: int) -> int:
    """Fails where x is 0, in a worker of Spark."""
    return 10 // x


class Early(FrameOperator):
    """Its tuples are computed only when the operator after it is, with `method_udf` by a method of
    its own.
    """

    inputs: ClassVar = {"events": InputPort(TOTALS)}
    outputs: ClassVar = {"out": OutputPort(TOTALS)}
    fails: str

    @staticmethod
    def inverse(x: int) -> int:
        """Fails where x is 0, inside of the class."""
        return 20 // x

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        udf = {"method_udf": self.inverse, "early_udf": inverse}.get(self.fails)
        x = F.udf(udf, "bigint")(F.col("x") * 0) if udf else F.col("x")
        return inputs["events"].select("window_id", "key", x.alias("x"))


class Doubled(FrameOperator):
    inputs: ClassVar = {"early": InputPort(TOTALS)}
    outputs: ClassVar = {"out": OutputPort(TOTALS)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        return inputs["early"].withColumn("x", F.col("x") * 2)


class Sums(FrameOperator):
    inputs: ClassVar = {"doubled": InputPort(TOTALS)}
    outputs: ClassVar = {"out": OutputPort(TOTALS)}
    state_schema: ClassVar = STATE
    fails: str

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame | Mapping[str, DataFrame]:
        found = inputs["doubled"].select("window_id", "key", "x")
        if self.fails == "transform":
            raise ValueError("no rates for June")
        if self.fails == "column":
            return found.withColumn("x", F.col("amount"))
        if self.fails == "udf":
            return found.withColumn("x", F.udf(inverse, "bigint")(F.col("x") * 0))
        if self.fails == "spark":
            return found.withColumn("x", F.expr("cast(concat('n', x) as bigint)"))
        if self.fails == "call":
            return found.withColumn("x", (F.col("x") / F.lit(0)).cast("bigint"))
        if self.fails == "columns":
            return found.drop("key")
        if self.fails == "outside":
            return found.withColumn("window_id", F.col("window_id") + 1)
        if self.fails == "port":
            return {"sums": found}
        if self.fails == "nothing":
            return None
        return found

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        if self.fails == "next_state":
            return state.select("no_such_column")
        if self.fails == "state_udf":
            return inputs["doubled"].select(
                "key",
                F.udf(inverse, "bigint")(F.col("x") * 0).alias("total"),
            )
        return state


def build(fails: str = "transform") -> Application:
    if fails == "definition":
        raise KeyError("RATES")
    app = Application("failing", window="1 hour", checkpoint_windows=6)
    early = app.add("early", Early(fails=fails), events=app.input("events"))
    doubled = app.add("doubled", Doubled(), early=early)
    app.output("sums", app.add("sums", Sums(fails=fails), doubled=doubled), key=["key"])
    return app
