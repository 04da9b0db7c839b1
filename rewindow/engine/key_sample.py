"""A stable sample of the input keys, for computing a candidate on a part of the keys.

Rules: O142, O143
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from rewindow.recovery import Candidate
from rewindow.spark.columns import in_sample


def sampled(frame: DataFrame, stream: str, candidate: Candidate | None) -> DataFrame:
    """Returns the tuples of an input on which a candidate is computed.

    If the stream is not sampled, these are all its tuples.
    """
    columns = candidate.keys.get(stream) if candidate is not None else None
    return (
        of_sample(frame, columns, candidate.fraction)
        if columns and candidate is not None
        else frame
    )


def of_sample(frame: DataFrame, columns: Sequence[str], fraction: float) -> DataFrame:
    """Returns the rows whose key is in a sample.

    The sample is the same in every run, and every larger sample contains it.

    Rules: O143
    """
    return frame.where(in_sample(columns, fraction))
