"""The Spark part of a publication: frames for tables that cannot be written without Spark (see
`spark_needed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.facts.readers_frame import readers_frame
from rewindow.ledger.publication_details import PutBack
from rewindow.names import quoted_column
from rewindow.publication.staged_output import TUPLES_PER_FILE, StagedOutput
from rewindow.sequences import excluding
from rewindow.settings.config import Config
from rewindow.spark.columns import named_columns
from rewindow.spark.frames import window_start

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILES_MAX = 200


def as_stream_tuples(spark: SparkSession, staged: StagedOutput) -> DataFrame:
    """Returns the visible rows of a staged output with the columns of a recorded stream, ordered by
    window and offset.

    `offset` counts from 0 in each window in the order of the declared key, then of all other
    columns. If the output has a column `arrived_at`, it is kept; otherwise `arrived_at` is the
    start of the window.
    """
    plan = staged.plan
    tuples = pc.sum(staged.seals["tuples"]).as_py() or 0
    frame = readers_frame(spark, staged.table, staged.seals, windows=plan.range)
    if "arrived_at" not in frame.columns:
        frame = frame.withColumn("arrived_at", window_start(plan.grid))
    order = Window.partitionBy("window_id").orderBy(*_order(frame.schema, staged.output.key))
    parts = min(_FILES_MAX, 1 + tuples // TUPLES_PER_FILE)
    ranged = frame.repartitionByRange(parts, "window_id") if parts > 1 else frame.coalesce(1)
    numbered = ranged.withColumn("offset", (F.row_number().over(order) - 1).cast("bigint"))
    rest = excluding(frame.columns, ("window_id", "arrived_at"))
    return numbered.select("window_id", "offset", "arrived_at", *map(quoted_column, rest))


def frame_before(
    spark: SparkSession,
    config: Config,
    name: str,
    pieces: Sequence[PutBack],
) -> DataFrame:
    """Returns the tuples of a published stream in disjoint ranges, each from an earlier version of
    the table.
    """
    path = str(config.stream_table(name))
    if not pieces:
        return spark.read.format("delta").load(path).limit(0)
    frames = [
        spark.read.format("delta")
        .option("versionAsOf", piece.version)
        .load(path)
        .where(F.col("window_id").between(piece.windows.first, piece.windows.last))
        for piece in pieces
    ]
    return reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        frames,
    ).orderBy("window_id", "offset")


def _order(schema: T.StructType, key: list[str]) -> list[Column]:
    """Returns the sort order within a window: the declared key, then all other columns that can be
    ordered.
    """
    orderable = [field.name for field in schema.fields if not isinstance(field.dataType, T.MapType)]
    rest = excluding(orderable, {*key, "window_id"})
    return [column.asc_nulls_first() for column in named_columns([*key, *rest])]
