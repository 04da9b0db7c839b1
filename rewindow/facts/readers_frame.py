"""The visible rows of a staged output, as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from rewindow.names import quoted_column
from rewindow.spark.frames import read_windows, to_frame
from rewindow.storage import Table
from rewindow.storage.layout import event_columns
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def readers_frame(
    spark: SparkSession,
    staged: Table,
    seals: pa.Table,
    windows: WindowRange,
) -> DataFrame:
    """Returns window_id and the event columns of the newest sealed attempt of every window.

    Args:
        staged: the output's staged table, at the version to read.
        seals: from `staged_seals`.
        windows: the range.

    Rules: R52
    """
    newest = to_frame(spark, seals.select(["window_id", "attempt"]))
    kept = read_windows(spark, staged, windows).join(
        F.broadcast(newest),
        ["window_id", "attempt"],
        "left_semi",
    )
    return kept.select("window_id", *map(quoted_column, event_columns(staged).names))
