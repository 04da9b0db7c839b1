"""Random numbers that are the same in every replay.

Rules: R82
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from rewindow.application import OperatorContext


def random_number(context: OperatorContext, *columns: str) -> Column:
    """Returns a DOUBLE from 0 (included) to 1 (excluded), computed from the operator, the window
    and the columns that identify a tuple.

    `F.rand` depends on partitions and on the borders of commit groups. This number does not. Two
    tuples of a window with equal columns get equal numbers.

    Example:
        sample = frame.where(random_number(context, "offset") < 0.01)
    """
    drawn = F.xxhash64(
        F.lit(context.operator),
        F.col("window_id"),
        *map(F.col, columns),
    )
    return F.shiftrightunsigned(drawn, 11) / F.lit(float(1 << 53))
