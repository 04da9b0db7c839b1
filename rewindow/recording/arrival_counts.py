"""Counts a source's tuples per window in one pass over the source."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewindow.names import quoted_column
from rewindow.recording.sources.arrow_types import NOTES
from rewindow.windows import WindowRange


@dataclass(frozen=True)
class ArrivalCounts:
    """The number of tuples in each window that has any, in the order of the windows.

    It has one row per window, not per tuple.

    Attributes:
        windows: window ids.
        tuples: number of tuples in each.
        present: number of these tuples whose arrival is not in the future.
        newest_us: per window, the newest arrival that is not in the future, in microseconds; the
            smallest int64 if the window has none.
        malformed: rows from which no tuple could be made.
        without_event_time: tuples whose event time is null.
        notes: by name in `NOTES`, the number of values that were changed or chosen.
    """

    windows: np.ndarray
    tuples: np.ndarray
    present: np.ndarray
    newest_us: np.ndarray
    malformed: int
    without_event_time: int = 0
    notes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def count(cls, tuples: DataFrame, event_at: str | None = None) -> ArrivalCounts:
        """Returns the counts of a frame of tuples, including malformed ones.

        Args:
            tuples: good and malformed tuples.
            event_at: the column with their event time; None if the stream does not name one.
        """
        # The newest arrival decides which windows are sealed. A tuple of the future, which often
        # has a wrong timestamp, must not move that limit, so these tuples are counted separately.
        arrived_us = F.unix_micros("arrived_at")
        now_us = time.time_ns() // 1000
        found = tuples.groupBy("window_id").agg(
            F.count(F.lit(1)).alias("tuples"),
            F.count_if(arrived_us <= now_us).alias("present"),
            F.coalesce(
                F.max(F.when(arrived_us <= now_us, arrived_us)),
                F.lit(np.iinfo(np.int64).min),
            ).alias("newest"),
            (F.count_if(F.col(quoted_column(event_at)).isNull()) if event_at else F.lit(0)).alias(
                "timeless"
            ),
            *(F.sum(name).alias(name) for name in tuples.columns if name in NOTES),
        )
        return cls.of(found.toArrow())

    @classmethod
    def of(cls, found: pa.Table) -> ArrivalCounts:
        """Returns the counts in a table with the columns `window_id, tuples, present, newest`.

        Rows without a window are malformed tuples.
        """
        whole = found.filter(found["window_id"].is_valid()).sort_by("window_id")
        malformed = found.filter(found["window_id"].is_null())["tuples"].to_numpy().sum()
        counted = whole.select(["window_id", "tuples", "present", "newest"]).columns
        windows, tuples, present, newest_us = map(pa.ChunkedArray.to_numpy, counted)
        timeless = (
            int(whole["timeless"].to_numpy().sum()) if "timeless" in found.column_names else 0
        )
        notes = {}
        for name in NOTES:
            if name in found.column_names:
                notes[name] = sum(whole[name].to_pylist())
        return cls(
            windows,
            tuples,
            present,
            newest_us,
            int(malformed),
            timeless,
            notes,
        )

    @property
    def rows(self) -> int:
        """The number of all rows, including malformed ones."""
        return int(self.tuples.sum()) + self.malformed

    def lack_of_event_time(self, stream: str, event_at: str) -> str:
        """Returns a warning about tuples whose event time is null, with the command that corrects
        them.
        """
        return (
            f"{self.without_event_time:,} of {self.rows - self.malformed:,} tuples have no event "
            f'timestamp: column "{event_at}" is null. If its expression or format is wrong, '
            f"correct it in rewindow.toml, then record the stream again: rewindow record {stream} "
            "--start-over"
        )

    @property
    def future(self) -> int:
        """The number of tuples whose arrival is in the future."""
        return int(self.tuples.sum() - self.present.sum())

    @property
    def newest_arrival_us(self) -> int | None:
        """The arrival, in microseconds, of the newest tuple that is not in the future; None if
        there is no such tuple.
        """
        there = self.newest_us[self.present > 0]
        return int(there.max()) if len(there) else None

    def as_malformed(self, apart: Sequence[WindowRange]) -> ArrivalCounts:
        """Returns the counts with the tuples of the given ranges counted as malformed."""
        kept = np.ones(len(self.windows), bool)
        for part in apart:
            kept &= ~self.inside(part)
        return replace(
            self,
            windows=self.windows[kept],
            tuples=self.tuples[kept],
            present=self.present[kept],
            newest_us=self.newest_us[kept],
            malformed=self.malformed + int(self.tuples[~kept].sum()),
        )

    def inside(self, windows: WindowRange) -> np.ndarray:
        """Returns a mask of the windows that are in a range."""
        return np.asarray((self.windows >= windows.first) & (self.windows <= windows.last))
