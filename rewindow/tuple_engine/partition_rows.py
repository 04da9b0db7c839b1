"""The number of tuples and the duration of each partition, as the tasks of a pass report them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rewindow.application import WRITTEN
from rewindow.tuple_engine.tagged_rows import SORT_KEY, WINDOW_BITS

_PART = "+partition"
"""Value of `part` in rows of `WRITTEN` that report a partition; no port can have this name."""


class PartitionRows(NamedTuple):
    """A partition in one pass: its number, its number of tuples, and the duration of its task in
    seconds.
    """

    number: int
    rows: int
    seconds: float


class PartitionMeter:
    """Counts the tuples of the current task and measures its duration."""

    def __init__(self) -> None:
        self._rows = 0
        self._began = time.monotonic()

    def count(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches unchanged and counts their tuples."""
        for batch in batches:
            # Rows are sorted: rows of state and placeholders come before the tuples.
            before = np.searchsorted(batch[SORT_KEY].to_numpy(), 1 << WINDOW_BITS)
            self._rows += batch.num_rows - int(before)
            yield batch

    def report(self) -> pa.RecordBatch:
        """Returns the row of `WRITTEN` that reports the partition."""
        from pyspark import TaskContext

        # Outside of Spark, as in tests, there is one task.
        task = TaskContext.get()
        seconds = round(time.monotonic() - self._began, 3)
        partition = PartitionRows(task.partitionId() if task else 0, self._rows, seconds)
        row = {"part": _PART, "file": json.dumps(partition)}
        return pa.RecordBatch.from_pylist([row], schema=WRITTEN)


def partitions_reported(rows: Iterable[Mapping[str, Any]]) -> list[PartitionRows]:
    """Returns the partitions that tasks have reported in rows of `WRITTEN`."""
    partitions = []
    for row in rows:
        if row["part"] == _PART:
            partitions.append(PartitionRows(*json.loads(row["file"])))
    return partitions
