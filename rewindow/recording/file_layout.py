"""Computes the file and the offset of each recorded tuple from counts, before any row is moved.

An offset counts from 0 in its window, in order of arrival and position in the source, or of arrival
and content if a position in the source can change. A file
contains whole windows in order. So a tuple's offset is its row number in the file minus the row
number of its window's first tuple. It can be assigned while the sorted rows are written. A window
function would need another pass over the rows. The counts also determine how windows are divided
into files of equal size. Range partitioning would read the source an additional time to sample it.

Rules: X51, X56
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rewindow.errors import ResourceError
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.tuples import POSITION
from rewindow.spark.digests import digest_columns
from rewindow.windows import WindowRange

_TUPLES_PER_FILE = 250_000
_FILES_MAX = 4_000
_SENT_MAX = 2_000_000
"""Largest number of windows with tuples for which their positions are sent to every executor, 40
bytes each. With more windows, a window function numbers the rows.
"""
_IN_PARTITION = (1 << 33) - 1
"""Bits of `monotonically_increasing_id` that count the rows of a Spark partition."""


@dataclass(frozen=True)
class FileLayout:
    """The windows of a recording that have tuples, in order.

    Attributes:
        windows: window ids.
        counts: number of tuples in each.
        files: number of files to write.
    """

    windows: np.ndarray
    counts: np.ndarray
    files: int

    @classmethod
    def of(cls, arrivals: ArrivalCounts, windows: WindowRange) -> FileLayout:
        """Returns the layout for the windows of a range."""
        inside = arrivals.inside(windows)
        counts = arrivals.tuples[inside]
        files = min(max(2, -(-int(counts.sum()) // _TUPLES_PER_FILE)), _FILES_MAX)
        return cls(arrivals.windows[inside], counts, files)

    @property
    def tuples(self) -> int:
        """The number of all tuples."""
        return int(self.counts.sum())

    def put(
        self, spark: SparkSession, good: DataFrame, order: Sequence[Column] | None = None
    ) -> DataFrame:
        """Adds the offsets to the tuples of these windows, and returns them ordered, with one Spark
        partition per file.

        Args:
            spark: the session.
            good: the tuples, with their positions in the source.
            order: the order in a window; by default by arrival and position.
        """
        order = order or list(map(F.col, ("arrived_at", *POSITION)))
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
        # rows of a partition for free. The offset is that number minus the row where the window
        # starts in its file, so no window function has to sort the tuples again.
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
        """Checks that the offsets of the written tuples are 0 to n - 1, and returns the digests of
        the tuples.

        Both are computed in one pass.

        Raises:
            ResourceError: the windows do not contain the counted number of tuples, so the source
                has changed between two reads.
        """
        # The sum also detects an offset that occurs twice between a correct first and a correct
        # last one. Counting distinct offsets would shuffle all tuples.
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
                f'source of stream "{stream}" changed while it was being recorded',
                detail="No window was sealed.",
                hint="Run the command again when the source is complete.",
            )
        return found.drop_columns(["first", "last", "sum"])
