"""Classifies tuples of sealed windows: already recorded, late, or in a window that has changed in
the source.

Windows are compared as a whole, by digest. Only if the digests differ are the tuples compared one
by one, as multisets: of n equal tuples in the source and m in the recording, the n - m with the
last positions are new. New tuples are late if the window still has all recorded ones. If recorded
tuples are missing in the source, the window was changed. Adding the new tuples would keep both
versions of a row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

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
from rewindow.windows import WindowRange

_SHOWN = 5


class Differences(NamedTuple):
    """Sealed windows in which a source and the recording differ, in ascending order.

    Attributes:
        windows: their ids.
        gone: per window, number of recorded tuples that are missing from the source.
        new: per window, number of source tuples that are missing from the recording.
    """

    windows: npt.NDArray[np.int64]
    gone: npt.NDArray[np.int64]
    new: npt.NDArray[np.int64]

    @property
    def late(self) -> Differences:
        """Windows that only gained tuples."""
        return self.where(self.gone == 0)

    @property
    def short(self) -> Differences:
        """Windows that only lost tuples."""
        return self.where(self.new == 0)

    @property
    def changed(self) -> Differences:
        """Windows that lost tuples and gained others."""
        return self.where((self.gone > 0) & (self.new > 0))

    def where(self, chosen: npt.NDArray[np.bool_]) -> Differences:
        """Returns the windows that a mask selects."""
        return Differences(self.windows[chosen], self.gone[chosen], self.new[chosen])

    def counts(self, limit: int) -> list[dict[str, int]]:
        """Returns the columns window, gone and new for the first `limit` windows."""
        columns = {"window": self.windows, "gone": self.gone, "new": self.new}
        return list(pa.table(columns).slice(0, limit).to_pylist())


def compare(
    spark: SparkSession,
    sealed: DataFrame,
    tables: StreamTables,
    windows: WindowRange,
) -> Differences:
    """Returns the windows in which a source differs from the recording, in ascending order.

    Args:
        spark: the session.
        sealed: all tuples of the source in `windows` and before them, with the recorded stream's
            event columns.
        tables: the stream.
        windows: sealed windows.
    """
    stored = read_seals(tables.windows, windows)
    found = _digests(sealed, stored, tables.columns)
    # A stream without float columns has no float digest, so null equals null there. The exact
    # digest is null only for a window that must not match its seal.
    place = pc.index_in(found["window_id"].combine_chunks(), stored["window_id"].combine_chunks())
    same = pc.and_(
        pc.equal(found["digest"], stored["digest"].take(place)),
        pc.equal(
            pc.fill_null(found["float_digest"], ""),
            pc.fill_null(stored["float_digest"].take(place), ""),
        ),
    )
    equal = found["window_id"].filter(pc.fill_null(same, False))
    held = stored["window_id"].filter(pc.greater(stored["tuples"], 0))
    differing = np.setdiff1d(np.union1d(found["window_id"], held), equal)
    if not len(differing):
        return Differences(differing, differing, differing)
    return _count_tuples(spark, sealed, tables, differing)


def warnings(stream: str, found: Differences) -> list[str]:
    """Returns warnings about windows that lost tuples and about changed windows."""
    command = f"rewindow record {stream} --reopen --replace"
    warned = []
    short = found.short
    if len(short.windows):
        warned.append(
            f"the source no longer has {short.gone.sum():,} recorded tuples of "
            f"{len(short.windows):,} windows. They stay in the stream; to remove them: {command}"
        )
    changed = found.changed
    if len(changed.windows):
        listed = map("{window} ({gone} removed, {new} added)".format_map, changed.counts(_SHOWN))
        warned.append(
            f"{len(changed.windows):,} windows were changed in the source, such as "
            f"{', '.join(listed)}. To replace them with the current contents: {command}"
        )
    return warned


def check_whole(stream: str, found: Differences, gone: Sequence[str]) -> None:
    """Checks that no tuples of the windows to replace can be in files that the source no longer
    has.

    Raises:
        InputError: names the missing files.
    """
    # The recording does not note the file of each tuple, so any of the missing files may have
    # contained it.
    windows = found.windows[found.gone > 0].tolist()
    if windows and gone:
        raise InputError(
            f'windows {WindowRange(windows[0], windows[-1])} of stream "{stream}" cannot be '
            f"replaced: recorded files are missing from its source: {', '.join(gone[:_SHOWN])}",
            detail=f"{len(gone):,} files are missing. They may contain the tuples that these "
            "windows would lose. Nothing was changed.",
            hint="Restore these files, and run the command again.",
        )


def _digests(sealed: DataFrame, stored: pa.Table, now: str) -> pa.Table:
    """Returns digests of the source's windows, each computed over the columns that its seal names.

    If a window has a value in a column that was added later, it gets no digest, so it differs from
    the recorded window.
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
    """Returns the digests of the windows whose seals name the given columns."""
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


def _count_tuples(
    spark: SparkSession,
    sealed: DataFrame,
    tables: StreamTables,
    windows: npt.NDArray[np.int64],
) -> Differences:
    """Returns, for each window, the number of tuples that are only in the source and the number
    that are only in the recording.
    """
    inside = F.broadcast(spark.createDataFrame(pa.table({"window_id": windows})))
    recorded = _recorded(spark, tables, WindowRange(int(windows[0]), int(windows[-1])))
    first, second = row_hashes(recorded.schema)
    keys = ["window_id", first.alias("__first"), second.alias("__second")]
    both = sealed.select(*keys, F.lit(1).alias("__n")).unionByName(
        recorded.select(*keys, F.lit(-1).alias("__n"))
    )
    by_content = both.join(inside, "window_id", "left_semi").groupBy(
        "window_id", "__first", "__second"
    )
    surplus_of = by_content.agg(F.sum("__n").alias("__n"))
    counts = surplus_of.groupBy("window_id").agg(
        F.sum(F.expr("greatest(-__n, 0)")).alias("gone"),
        F.sum(F.expr("greatest(__n, 0)")).alias("new"),
    )
    # A window may differ only by its digest, for example after a column was added that is null in
    # all its rows.
    columns = counts.where("gone + new > 0").sort("window_id").toArrow().columns
    return Differences(*map(np.asarray, columns))


def surplus(
    spark: SparkSession,
    sealed: DataFrame,
    tables: StreamTables,
    differing: Sequence[int],
) -> DataFrame:
    """Returns the tuples in differing windows that the recording lacks, with all their columns."""
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
