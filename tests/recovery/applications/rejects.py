"""An application with an error port that nothing reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, GroupWindows, InputPort, OutputPort

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Split(FrameOperator):
    """Even tuples leave by `even`, odd ones by the error port."""

    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"even": OutputPort(EVENTS), "odd": OutputPort(EVENTS, error=True)}

    def transform(
        self, inputs: Mapping[str, DataFrame], state: DataFrame | None, windows: GroupWindows
    ) -> Mapping[str, DataFrame]:
        """Returns each tuple on one of the ports."""
        rows, is_even = inputs["events"], F.col("x") % 2 == 0
        return {"even": rows.where(is_even), "odd": rows.where(~is_even)}


app = Application("rejects", window="1 hour")
split = app.add("split", Split(), events=app.input("events"))
app.output("even", split["even"], key=["key", "x"])
