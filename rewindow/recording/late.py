"""Tuples of sealed windows: already recorded, late, or no longer in the source.

A window is compared as a whole, by digest. Only where that differs are its tuples compared one by
one, as multisets: of n equal tuples in the source and m in the recording, the n - m with the last
positions are late.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.facts.seals import read_seals
from rewindow.names import quoted_column
from rewindow.recording.stream import StreamTables
from rewindow.recording.tuples import POSITION, frame_of
from rewindow.sequences import excluding
from rewindow.spark.digests import digest_columns, row_hashes, window_digests
from rewindow.spark.frames import spark_schema
from rewindow.storage.delta import paths_of
from rewindow.windows import WindowRange


@dataclass(frozen=True)
class SourceComparison:
    """What a source has of sealed windows, against what is recorded.

    Attributes:
        tuples: tuples of sealed windows in the source.
        differing: windows with another multiset.
        short: windows that hold more tuples than the source now has of them.
        short_tuples: by how many.
    """

    tuples: int = 0
    differing: tuple[int, ...] = ()
    short: int = 0
    short_tuples: int = 0


def compare(
    sealed: DataFrame,
    tables: StreamTables,
    windows: WindowRange,
    *,
    whole: bool,
) -> SourceComparison:
    """Returns how the source's tuples of sealed windows differ from the recording, by digest.

    Args:
        sealed: the source's tuples that lie in `windows`, with the recorded stream's event columns.
        tables: the stream.
        windows: sealed windows.
        whole: whether the source holds all tuples of these windows, so that what it lacks is
            missing from it.
    """
    stored = read_seals(tables.windows, windows)
    found = _digests(sealed, stored, tables.columns)
    # A stream without float columns has no float digest, so null equals null there. The exact
    # digest is null only for a window that must not equal its seal.
    place = pc.index_in(found["window_id"].combine_chunks(), stored["window_id"].combine_chunks())
    same = pc.and_(
        pc.equal(found["digest"], stored["digest"].take(place)),
        pc.equal(
            pc.fill_null(found["float_digest"], ""),
            pc.fill_null(stored["float_digest"].take(place), ""),
        ),
    )
    differing = found["window_id"].filter(pc.invert(pc.fill_null(same, False)))
    short, short_tuples = _short(found, stored) if whole else (0, 0)
    return SourceComparison(
        pc.sum(found["tuples"]).as_py() or 0,
        tuple(differing.to_pylist()),
        short,
        short_tuples=short_tuples,
    )


def _digests(sealed: DataFrame, stored: pa.Table, now: str) -> pa.Table:
    """Returns digests of the source's windows, each over the columns that its seal names.

    A window that has a value in a column which came later has no digest, so that it equals no
    recorded one.
    """
    exclude = ("window_id", *POSITION)
    older = excluding(pc.unique(stored["columns"]).to_pylist(), {now})
    if not older:
        return window_digests(sealed, exclude).toArrow()
    return pa.concat_tables(
        _digests_over(sealed, stored, text, exclude=exclude) for text in [now, *older]
    )


def _digests_over(
    sealed: DataFrame,
    stored: pa.Table,
    columns: str,
    exclude: Sequence[str],
) -> pa.Table:
    """Returns the digests of the windows whose seals name these columns."""
    known = {*json.loads(columns), *exclude}
    windows = stored.filter(pc.equal(stored["columns"], columns))["window_id"]
    bounds = pc.min_max(windows)
    inside = sealed.where(F.col("window_id").between(bounds["min"].as_py(), bounds["max"].as_py()))
    schema = T.StructType([field for field in sealed.schema.fields if field.name in known])
    newer = [F.col(quoted_column(name)).isNotNull() for name in sealed.columns if name not in known]
    has_newer = reduce(lambda a, b: a | b, newer, F.lit(False))
    digests = digest_columns(schema, exclude)
    found = (
        inside.groupBy("window_id").agg(*digests, F.count_if(has_newer).alias("newer")).toArrow()
    )
    found = found.filter(pc.is_in(found["window_id"], windows.combine_chunks()))
    digest = pc.if_else(pc.equal(found["newer"], 0), found["digest"], pa.scalar(None, pa.string()))
    return found.set_column(found.column_names.index("digest"), "digest", digest).drop_columns(
        "newer"
    )


def _short(found: pa.Table, stored: pa.Table) -> tuple[int, int]:
    place = pc.index_in(stored["window_id"].combine_chunks(), found["window_id"].combine_chunks())
    there = pc.fill_null(found["tuples"].take(place), 0)
    lacking = np.asarray(pc.subtract(stored["tuples"], there))
    lacking = lacking[lacking > 0]
    return len(lacking), int(lacking.sum())


def surplus(
    spark: SparkSession,
    sealed: DataFrame,
    tables: StreamTables,
    differing: tuple[int, ...],
) -> DataFrame:
    """Returns the tuples of differing windows that the recording lacks, with all their columns."""
    windows = spark.createDataFrame(pa.table({"window_id": pa.array(differing, pa.int64())}))
    recorded = _recorded(spark, tables, WindowRange(min(differing), max(differing)))
    keys = ["window_id", "__first", "__second"]
    first, second = row_hashes(recorded.schema)
    there = (
        recorded.join(F.broadcast(windows), "window_id", "left_semi")
        .select("window_id", first.alias("__first"), second.alias("__second"))
        .groupBy(keys)
        .agg(F.count(F.lit(1)).alias("__there"))
    )
    first, second = row_hashes(recorded.schema)
    copy = F.row_number().over(Window.partitionBy(keys).orderBy(*POSITION))
    numbered = (
        sealed.join(F.broadcast(windows), "window_id", "left_semi")
        .withColumns({"__first": first, "__second": second})
        .withColumn("__copy", copy)
    )
    late = numbered.join(there, keys, "left").where(
        F.col("__copy") > F.coalesce("__there", F.lit(0))
    )
    return late.drop("__first", "__second", "__copy", "__there")


def _recorded(spark: SparkSession, tables: StreamTables, windows: WindowRange) -> DataFrame:
    schema = spark_schema(tables.data.schema)
    return frame_of(spark, schema, paths_of(tables.data.files(windows.first, windows.last)))
