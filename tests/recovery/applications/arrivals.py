"""An application with an output that has an arrival time of its own, and one whose tuples say what
was seen of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])
STAMPED = pa.schema([*EVENTS, ("arrived_at", pa.timestamp("us", tz="UTC"))])
SEEN = pa.schema([("key", pa.string()), ("seen", pa.string())])


class Stamp(FrameOperator):
    """Passes tuples on with a time of their own, those of key "a" without one."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(STAMPED)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        later = F.timestamp_seconds(F.col("x") + F.lit(1_000_000_000))
        stamp = F.when(F.col("key") != "a", later).alias("arrived_at")
        return inputs["events"].select("window_id", "key", "x", stamp)


class Witness(FrameOperator):
    """Says which columns it is given, of its input in its output, of its output in its state."""

    inputs: ClassVar = {"rows": InputPort(STAMPED)}
    outputs: ClassVar = {"out": OutputPort(SEEN)}
    state_schema: ClassVar = pa.schema([("seen", pa.string())])

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        return inputs["rows"].select(
            "window_id",
            "key",
            F.lit(",".join(inputs["rows"].columns)).alias("seen"),
        )

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        seen = F.lit(",".join(outputs["out"].columns)).alias("seen")
        return outputs["out"].select(seen).union(state).distinct()


app = Application("arrivals", window="1 hour", checkpoint_windows=3)
stamped = app.add("stamp", Stamp(), events=app.input("events"))
app.output("stamped", stamped, key=["key", "x"])
app.output("seen", app.add("witness", Witness(), rows=stamped["out"]), key=["key"])
