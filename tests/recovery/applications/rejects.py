"""An application with an error port and another port that nothing reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.application.error_tuples import DETAIL, POSITION, REASON

EVENTS = pa.schema([("key", pa.string()), ("x", pa.int64())])


class Split(FrameOperator):
    """Even tuples leave by `even`, odd ones by the error port, negative ones are counted aside."""

    inputs: ClassVar = {"events": InputPort(pa.schema([("offset", pa.int64()), *EVENTS]))}
    outputs: ClassVar = {
        "even": OutputPort(EVENTS),
        "odd": OutputPort(EVENTS, error=True),
        "negative": OutputPort(EVENTS),
    }

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> Mapping[str, DataFrame]:
        """Returns the tuples by port; error tuples of `key` a have no reason of their own."""
        rows = inputs["events"]
        is_even = F.col("x") % 2 == 0
        said = {
            REASON: F.when(F.col("key") != "a", os.environ.get("SPLIT_REASON", "bad_type")),
            DETAIL: F.format_string("%d is odd", "x"),
            POSITION: F.col("offset").cast("string"),
        }
        return {
            "even": rows.where(is_even),
            "odd": rows.where(~is_even).withColumns(said),
            "negative": rows.where("x < 0"),
        }


app = Application("rejects", window="1 hour")
split = app.add("split", Split(), events=app.input("events"))
app.output("even", split["even"], key=["key", "x"])
