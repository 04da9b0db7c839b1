"""A faulty application: what it emits changes from run to run, as the environment says by how much.

TOLERANCE is what its output declares.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import (
    TOLERANCE,
    Application,
    FrameOperator,
    InputPort,
    OperatorContext,
    OutputPort,
)

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
SCORES = pa.schema(
    [
        ("key", pa.string()),
        ("x", pa.int64()),
        ("score", pa.float64()),
        ("amounts", pa.list_(pa.float64())),
    ]
)


class Score(FrameOperator):
    """x, and x as a floating-point number; with as much noise as NOISE_EXACT and NOISE_FLOAT
    say.
    """

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(SCORES)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        exact = int(os.environ.get("NOISE_EXACT", "0"))
        noise = float(os.environ.get("NOISE_FLOAT", "0"))
        x = F.col("x") + F.lit(exact).cast("bigint")
        amounts = F.array(F.when(F.col("key") == "a", F.lit(noise)).otherwise(F.lit(0.0)))
        score = (F.col("x") + F.lit(noise)).alias("score")
        return inputs["events"].select(
            "window_id",
            "key",
            x.alias("x"),
            score,
            amounts.alias("amounts"),
        )


app = Application("noisy", window="1 hour", checkpoint_windows=6)
events = app.input("events")
tolerance = float(os.environ.get("TOLERANCE", TOLERANCE))
app.output(
    "scores",
    app.add("score", Score(), events=events),
    key=["key", "x"],
    tolerance=tolerance,
)
app.output(
    "again",
    app.add("score_again", Score(), events=events),
    key=["key", "x"],
    tolerance=tolerance,
)
