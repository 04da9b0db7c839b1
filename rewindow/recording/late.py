"""Tuples of sealed windows: already recorded, late, or no longer in the source.

A window is compared as a whole, by digest. Only where that differs are its tuples compared one by one, as multisets:
of n equal tuples in the source and m in the recording, the n - m with the last positions are late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rewindow.engine.digests import row_hashes, window_digests
from rewindow.engine.frames import empty_frame, spark_schema
from rewindow.recording.stream import StreamTables
from rewindow.recording.tuples import POSITION
from rewindow.tables.seals import read_seals
from rewindow.windows import WindowRange


@dataclass(frozen=True)
class Comparison:
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


def compare(sealed: DataFrame, tables: StreamTables, windows: WindowRange, *, whole: bool) -> Comparison:
    """Returns how the source's tuples of sealed windows differ from the recording, by digest.

    Args:
        sealed: the source's tuples that lie in `windows`, with the recorded stream's event columns.
        tables: the stream.
        windows: sealed windows.
        whole: whether the source holds all tuples of these windows, so that what it lacks is missing from it.
    """
    found = window_digests(sealed, exclude=("window_id", *POSITION)).toArrow()
    stored = read_seals(tables.windows, windows)
    place = pc.index_in(found["window_id"].combine_chunks(), stored["window_id"].combine_chunks())
    same = pc.and_(
        pc.equal(found["digest"], stored["digest"].take(place)),
        pc.equal(pc.fill_null(found["float_digest"], ""), pc.fill_null(stored["float_digest"].take(place), "")),
    )
    differing = found["window_id"].filter(pc.invert(pc.fill_null(same, False)))
    short, short_tuples = _short(found, stored) if whole else (0, 0)
    return Comparison(pc.sum(found["tuples"]).as_py() or 0, tuple(differing.to_pylist()), short, short_tuples)


def _short(found: pa.Table, stored: pa.Table) -> tuple[int, int]:
    place = pc.index_in(stored["window_id"].combine_chunks(), found["window_id"].combine_chunks())
    there = pc.fill_null(found["tuples"].take(place), 0)
    lacking = np.asarray(pc.subtract(stored["tuples"], there))
    lacking = lacking[lacking > 0]
    return len(lacking), int(lacking.sum())


def surplus(spark: SparkSession, sealed: DataFrame, tables: StreamTables, differing: tuple[int, ...]) -> DataFrame:
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
    late = numbered.join(there, keys, "left").where(F.col("__copy") > F.coalesce("__there", F.lit(0)))
    return late.drop("__first", "__second", "__copy", "__there")


def _recorded(spark: SparkSession, tables: StreamTables, windows: WindowRange) -> DataFrame:
    schema = spark_schema(tables.data.schema)
    paths = [file.path for file in tables.data.files(windows.first, windows.last)]
    return spark.read.schema(schema).parquet(*paths) if paths else empty_frame(spark, schema)
