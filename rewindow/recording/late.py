"""Tuples of sealed windows: already recorded, late, or of a window that was changed in the source.

A window is compared as a whole, by digest. Only where that differs are its tuples compared one by
one, as multisets: of n equal tuples in the source and m in the recording, the n - m with the last
positions are new. A window that only has new tuples has late ones. One that also lacks recorded
tuples was changed: to add the new ones would leave both versions of a row in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.errors import InputError
from rewindow.facts.seals import read_seals
from rewindow.names import quoted_column
from rewindow.recording.stream import StreamTables
from rewindow.recording.tuples import POSITION, frame_of
from rewindow.sequences import excluding
from rewindow.spark.digests import digest_columns, row_hashes, window_digests
from rewindow.spark.frames import spark_schema
from rewindow.storage.delta import paths_of
from rewindow.windows import WindowRange, to_ranges

_SHOWN = 5
_COUNTED_MAX = 1_000


@dataclass(frozen=True)
class SourceComparison:
    """The sealed windows in which a source and the recording differ, ascending.

    Attributes:
        windows: their ids.
        new: how many tuples of each are in the source and not in the recording.
        gone: how many are in the recording and no more in the source.
    """

    windows: npt.NDArray[np.int64]
    new: npt.NDArray[np.int64]
    gone: npt.NDArray[np.int64]

    @property
    def late(self) -> list[int]:
        """Windows to which tuples were only added."""
        return self._where((self.new > 0) & (self.gone == 0))

    @property
    def changed(self) -> list[int]:
        """Windows with tuples that are gone and others that are new."""
        return self._where((self.new > 0) & (self.gone > 0))

    @property
    def short(self) -> npt.NDArray[np.bool_]:
        """Which windows only lack tuples."""
        return np.asarray((self.new == 0) & (self.gone > 0))

    def changed_counts(self) -> list[dict[str, int]]:
        """Returns window, gone and new of the changed windows, the first thousand of them."""
        return [
            {"window": int(window), "gone": int(gone), "new": int(new)}
            for window, gone, new in zip(self.windows, self.gone, self.new, strict=True)
            if gone and new
        ][:_COUNTED_MAX]

    def warnings(self, stream: str) -> list[str]:
        """Returns what is to be said of changed and short windows."""
        replace = f"rewindow record {stream} --reopen --replace"
        found = []
        if self.short.any():
            found.append(
                f"the source has {self.gone[self.short].sum():,} tuples fewer than recorded, in "
                f"{self.short.sum():,} windows; what is recorded stays; it would be taken out by: "
                f"{replace}"
            )
        if self.changed:
            counts = self.changed_counts()
            listed = [f"{one['window']} ({one['gone']} gone, {one['new']} new)" for one in counts]
            found.append(
                f"{len(self.changed):,} windows were changed in the source: "
                f"{', '.join(listed[:_SHOWN])}{', ...' if len(listed) > _SHOWN else ''}; what is "
                f"recorded stays; take them as the source has them now: {replace}"
            )
        return found

    def not_whole(self, stream: str, files: Sequence[str]) -> InputError:
        """Returns the error for windows that cannot be replaced: files that were taken are gone."""
        windows = to_ranges(self.windows[self.gone > 0])
        more = f" and {len(windows) - 1:,} more ranges" if len(windows) > 1 else ""
        shown = ", ".join(f'"{file}"' for file in files[:_SHOWN])
        others = f" and {len(files) - _SHOWN:,} others" if len(files) > _SHOWN else ""
        return InputError(
            f'windows {windows[0]}{more} of stream "{stream}" cannot be replaced: files that were '
            "taken are gone from the source",
            detail=f"Gone: {shown}{others}. The source lacks {self.gone.sum():,} tuples of these "
            "windows; nobody knows whether they were removed or lie in these files. Nothing was "
            "changed.",
            hint="Put these files back, and run it again.",
        )

    def inside(self, windows: WindowRange) -> SourceComparison:
        """Returns what it says of the windows of a range."""
        kept = (self.windows >= windows.first) & (self.windows <= windows.last)
        return SourceComparison(self.windows[kept], self.new[kept], self.gone[kept])

    def _where(self, chosen: npt.NDArray[np.bool_]) -> list[int]:
        return list(map(int, self.windows[chosen]))


def compare(
    spark: SparkSession,
    sealed: DataFrame,
    tables: StreamTables,
    windows: WindowRange,
) -> SourceComparison:
    """Returns how a source's tuples of sealed windows differ from the recording.

    Args:
        spark: the session.
        sealed: the source's tuples that lie in `windows` or before them, all that it has, with the
            recorded stream's event columns.
        tables: the stream.
        windows: sealed windows.
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
    is_absent = pc.invert(pc.is_in(stored["window_id"], found["window_id"].combine_chunks()))
    absent = stored.filter(pc.and_(is_absent, pc.greater(stored["tuples"], 0)))
    gone = pa.table(
        {
            "window_id": absent["window_id"],
            "new": pa.repeat(0, absent.num_rows),
            "gone": absent["tuples"],
        }
    )
    counts = [gone]
    if len(differing):
        counts.append(_counts(spark, sealed, tables, differing).cast(gone.schema))
    columns = pa.concat_tables(counts).sort_by("window_id").columns
    return SourceComparison(*(np.asarray(column, np.int64) for column in columns))


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


def _counts(
    spark: SparkSession,
    sealed: DataFrame,
    tables: StreamTables,
    differing: pa.ChunkedArray,
) -> pa.Table:
    """Returns how many tuples of each window only the source has (new), and only the recording
    (gone).
    """
    windows = spark.createDataFrame(pa.table({"window_id": differing}))
    bounds = pc.min_max(differing)
    recorded = _recorded(spark, tables, WindowRange(bounds["min"].as_py(), bounds["max"].as_py()))
    first, second = row_hashes(recorded.schema)
    row = ["window_id", "__first", "__second"]
    sides = [
        frame.select("window_id", first.alias(row[1]), second.alias(row[2]), sign.alias("__n"))
        for frame, sign in ((sealed, F.lit(1)), (recorded, F.lit(-1)))
    ]
    surpluses = (
        sides[0]
        .unionByName(sides[1])
        .join(F.broadcast(windows), "window_id", "left_semi")
        .groupBy(row)
        .agg(F.sum("__n").alias("__n"))
    )
    zero = F.lit(0).cast("bigint")
    counts = surpluses.groupBy("window_id").agg(
        F.sum(F.greatest(F.col("__n"), zero)).alias("new"),
        F.sum(F.greatest(-F.col("__n"), zero)).alias("gone"),
    )
    return counts.where("new > 0 or gone > 0").toArrow()


def surplus(
    spark: SparkSession,
    sealed: DataFrame,
    tables: StreamTables,
    differing: Sequence[int],
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
