"""The Spark side of a publication: what readers see of a staged output, checked against its seals, then shaped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.config import Config
from rewindow.errors import TableError
from rewindow.ledger.publication_details import PutBack
from rewindow.names import quoted_column
from rewindow.recovery import OutputPlan, Plan
from rewindow.spark.digests import empty_digests, window_digests

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TUPLES_PER_FILE = 1_000_000
_FILES_MAX = 200


def check_seals(frame: DataFrame, seals: pa.Table, output: str) -> None:
    """Compares what is about to be published with the seals that were certified and checked, in one pass.

    Raises:
        TableError: a window holds something else; nothing has been published.
    """
    found = {row["window_id"]: row for row in window_digests(frame).toArrow().to_pylist()}
    empty, empty_float = empty_digests(frame.schema)
    nothing = {"tuples": 0, "digest": empty, "float_digest": empty_float}
    for seal in seals.to_pylist():
        here = found.pop(seal["window_id"], nothing)
        if any(here[name] != seal[name] for name in nothing):
            raise TableError(
                f'window {seal["window_id"]} of staged output "{output}" is not what was sealed: it holds '
                f"{here['tuples']} tuples, sealed were {seal['tuples']}",
                detail="Its files were altered or damaged after the replay. Nothing was published.",
                hint="Plan the range again.",
            )
    assert not found, f"unsealed windows in the readers' view of {output}: {sorted(found)[:3]}"


def as_stream_tuples(frame: DataFrame, plan: Plan, output: OutputPlan, tuples: int) -> DataFrame:
    """Returns tuples in the shape of a recorded stream, ordered by window and offset.

    `offset` counts from 0 in each window in the order of the declared key, ties by all other columns; `arrived_at` is
    the output's own, else the start of the window.
    """
    if "arrived_at" not in frame.columns:
        start_us = F.lit(plan.grid.origin_us) + F.col("window_id") * F.lit(plan.grid.width_us)
        frame = frame.withColumn("arrived_at", F.timestamp_micros(start_us))
    order = Window.partitionBy("window_id").orderBy(*_order(frame.schema, output.key))
    parts = min(_FILES_MAX, 1 + tuples // TUPLES_PER_FILE)
    ranged = frame.repartitionByRange(parts, "window_id") if parts > 1 else frame.coalesce(1)
    numbered = ranged.withColumn("offset", (F.row_number().over(order) - 1).cast("bigint"))
    rest = [name for name in frame.columns if name not in ("window_id", "arrived_at")]
    return numbered.select("window_id", "offset", "arrived_at", *map(quoted_column, rest))


def frame_before(spark: SparkSession, config: Config, name: str, pieces: Sequence[PutBack]) -> DataFrame:
    """Returns the tuples of a published stream in disjoint ranges, each as it was at a version."""
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
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames).orderBy(
        "window_id", "offset"
    )


def _order(schema: T.StructType, key: list[str]) -> list[Column]:
    """Returns the sort order within a window: the declared key, then whatever else can be ordered."""
    orderable = [field.name for field in schema.fields if not isinstance(field.dataType, T.MapType)]
    rest = [name for name in orderable if name not in key and name != "window_id"]
    return [F.col(quoted_column(name)).asc_nulls_first() for name in [*key, *rest]]
