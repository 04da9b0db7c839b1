"""An application in whose state tuples wait: two halves of a stream, merged in the order of event
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators.merge.operator import Merge

EVENTS = pa.schema(
    [
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", tz="UTC")),
        ("key", pa.string()),
        ("x", pa.int64()),
    ]
)


class Halve(FrameOperator):
    """Tuples of key a leave by `left`, all others by `right`, with their place in the stream."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {side: OutputPort(EVENTS) for side in ("left", "right")}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        rows = inputs["events"]
        return {"left": rows.where("key = 'a'"), "right": rows.where("key <> 'a'")}


app = Application("waiting", window="1 hour", checkpoint_windows=3)
halves = app.add("halves", Halve(), events=app.input("events"))
both = app.add(
    "both",
    Merge(columns=EVENTS, event_at="arrived_at"),
    left=halves["left"],
    right=halves["right"],
)
app.output("both", both, key=[])
