"""An application whose columns have a full stop and a backtick in their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort

ODD = pa.schema([("a.`key`", pa.string()), ("x`", pa.int64())])


class Rename(FrameOperator):
    """Even tuples leave by `even`, odd ones by the error port, both with odd names."""

    inputs: ClassVar = {"events": InputPort(pa.schema([("key", pa.string()), ("x", pa.int64())]))}
    outputs: ClassVar = {"even": OutputPort(ODD), "odd": OutputPort(ODD, error=True)}

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        columns = [F.col("key").alias("a.`key`"), F.col("x").alias("x`")]
        rows = inputs["events"]
        is_even = F.col("x") % 2 == 0
        return {
            "even": rows.where(is_even).select("window_id", *columns),
            "odd": rows.where(~is_even).select("window_id", *columns),
        }


app = Application("odd_names", window="1 hour")
rename = app.add("rename", Rename(), events=app.input("events"))
app.output("even", rename["even"], key=["a.`key`", "x`"])
