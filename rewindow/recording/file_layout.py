"""Where each tuple of a recording goes: its file and its offset, known from numbers before a row is
moved.

An offset counts from 0 in its window, by arrival and position in the source (X51). Since files hold
whole windows in order, a tuple's offset is its row number in its file less that of its window's
first tuple: it is given while the sorted rows are written, where a window function would go over
them once more. The numbers of tuples also say how the windows are cut into files of equal size,
which range partitioning would learn from a sample, by reading the source.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rewindow.errors import ResourceError
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.tuples import POSITION
from rewindow.spark.digests import digest_columns
from rewindow.windows import WindowRange

_TUPLES_PER_FILE = 250_000
_FILES_MAX = 4_000
_SENT_MAX = 2_000_000
"""Windows with tuples whose places are sent to every executor, 40 bytes each; where there are more,
rows are numbered by a window function."""
_IN_PARTITION = (1 << 33) - 1
"""The bits of `monotonically_increasing_id` that count the rows of a Spark partition."""


@dataclass(frozen=True)
class FileLayout:
    """The windows of a recording that have tuples, in order.

    Attributes:
        windows: ids.
        counts: tuples of each.
        files: how many files they are written to.
    """

    windows: np.ndarray
    counts: np.ndarray
    files: int

    @classmethod
    def of(cls, arrivals: ArrivalCounts, windows: WindowRange) -> FileLayout:
        """Returns the places of the windows of a range."""
        inside = arrivals.inside(windows)
        counts = arrivals.tuples[inside]
        files = min(max(2, -(-int(counts.sum()) // _TUPLES_PER_FILE)), _FILES_MAX)
        return cls(arrivals.windows[inside], counts, files)

    @property
    def tuples(self) -> int:
        """All tuples."""
        return int(self.counts.sum())

    def put(self, spark: SparkSession, good: DataFrame) -> DataFrame:
        """Returns the tuples of these windows with their offsets, a Spark partition a file, each in
        order.
        """
        order = ["arrived_at", *POSITION]
        if len(self.windows) > _SENT_MAX:
            inside = good.where(
                F.col("window_id").between(int(self.windows[0]), int(self.windows[-1]))
            )
            placed = inside.repartitionByRange(self.files, "window_id").sortWithinPartitions(
                "window_id",
                *order,
            )
            number = F.row_number().over(Window.partitionBy("window_id").orderBy(*order)) - 1
            return placed.withColumn("offset", number.cast("bigint"))
        # Each file gets consecutive windows with about the same number of tuples. Spark numbers the
        # rows of a partition for free. That number minus the row where the window starts in its
        # file is the offset, so no window function has to sort the tuples once more.
        begins = np.cumsum(self.counts) - self.counts
        file = begins * self.files // self.tuples
        first_of_file = begins[np.searchsorted(file, file)]
        table = pa.table(
            {
                "window_id": pa.array(self.windows, pa.int64()),
                "__place": pa.array(file, pa.int32()),
                "__begin": pa.array(begins - first_of_file, pa.int64()),
            }
        )
        placed = good.join(F.broadcast(spark.createDataFrame(table)), "window_id")
        placed = placed.repartitionById(self.files, F.col("__place")).sortWithinPartitions(
            "window_id",
            *order,
        )
        number = F.monotonically_increasing_id().bitwiseAND(F.lit(_IN_PARTITION))
        return placed.withColumn("offset", number - F.col("__begin"))

    def check(self, stream: str, written: DataFrame) -> pa.Table:
        """Returns the digests of what was written, from one pass, once its offsets are seen to be 0
        to n - 1.

        Raises:
            ResourceError: the windows do not hold what was counted, so the source has changed
                between two readings.
        """
        # The sum also finds an offset that occurs twice between a right first and a right last one.
        # To count distinct offsets would take a shuffle of all tuples.
        offsets = [
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.sum("offset").alias("sum"),
        ]
        found = (
            written.groupBy("window_id").agg(*digest_columns(written.schema), *offsets).toArrow()
        )
        place = pc.index_in(pa.array(self.windows, pa.int64()), found["window_id"].combine_chunks())
        tuples, first, last, total = (
            np.asarray(pc.fill_null(found[name].take(place), -1))
            for name in ("tuples", "first", "last", "sum")
        )
        counts = self.counts
        right = (
            (tuples == counts)
            & (first == 0)
            & (last == counts - 1)
            & (total == counts * (counts - 1) // 2)
        )
        if found.num_rows != len(counts) or not right.all():
            raise ResourceError(
                f'source of stream "{stream}" changed while it was recorded',
                detail="Nothing was sealed.",
                hint="Run it again when whoever writes the source is done.",
            )
        return found.drop_columns(["first", "last", "sum"])
