"""Reads the rows of an input in another order and partitioning, to check that results do not depend
on either.

Rules: R86
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewindow.application import Application
from rewindow.engine.group import SMALL_TUPLES
from rewindow.spark.frames import read_windows
from rewindow.storage import Table
from rewindow.windows import WindowRange

_PARTS = "spark.sql.shuffle.partitions"
_JOINED = "spark.sql.adaptive.coalescePartitions.enabled"


@dataclass(frozen=True)
class Shuffle:
    """An order of rows and a number of partitions.

    A seed selects both; seed 0 changes nothing.
    """

    seed: int = 0

    @property
    def number(self) -> int:
        """The number of partitions, from 2 to 6."""
        return 2 + self.seed % 5

    def spread(self, tuples: int) -> int:
        """Returns the number of tuples to assume for a group.

        It is so large that the group is not computed in one task.
        """
        return max(tuples, SMALL_TUPLES + 1) if self.seed else tuples

    def read(self, spark: SparkSession, table: Table, windows: WindowRange) -> DataFrame:
        """Returns the tuples of a recorded stream in the order that the seed selects."""
        frame = read_windows(spark, table, windows)
        if not self.seed:
            return frame
        place = F.xxhash64("window_id", "offset", F.lit(self.seed))
        return frame.repartition(self.number, place).sortWithinPartitions(place)

    def repartition(self, app: Application) -> None:
        """Changes the number of partitions or instances of operators that declare one.

        Rules: O101, R98
        """
        for name, node in app.nodes.items():
            if not self.seed:
                return
            if node.spread:
                app.nodes[name] = replace(node, spread=self.number)
            elif node.partitions and node.partitioner in (None, "apex"):
                app.nodes[name] = replace(node, partitions=self.number)

    @contextmanager
    def parts(self, spark: SparkSession) -> Iterator[None]:
        """Sets the number of partitions of every exchange to the selected number, within the
        context.
        """
        if not self.seed:
            yield
            return
        before = {name: spark.conf.get(name, None) for name in (_PARTS, _JOINED)}
        spark.conf.set(_PARTS, str(self.number))
        spark.conf.set(_JOINED, "false")
        try:
            yield
        finally:
            for name, value in before.items():
                spark.conf.unset(name) if value is None else spark.conf.set(name, value)
