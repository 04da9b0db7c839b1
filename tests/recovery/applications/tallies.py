"""As totals, with a state that says only what changed; a key whose total is zero is no longer in
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from totals import RunningTotal, SumPerKey

from rewindow.application import Application, OperatorContext


class Tally(RunningTotal):
    """Total of all sums so far, of which the state holds those that are not zero."""

    state_increments: ClassVar = True

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        newest = outputs["totals"].groupBy("key").agg(F.max_by("total", "window_id").alias("total"))
        return newest.withColumn("_rw_gone", F.col("total") == 0)


app = Application("tallies", window="1 hour", checkpoint_windows=6)
sums = app.add("sums", SumPerKey(), events=app.input("events"))
app.output("sums", sums, key=["key"])
app.output("totals", app.add("totals", Tally(), sums=sums), key=["key"])
