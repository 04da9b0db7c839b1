"""A stable part of the keys of the inputs, on which a candidate is computed (bucket testing, O142,
O143).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from rewindow.recovery import Candidate
from rewindow.spark.columns import in_sample


def sampled(frame: DataFrame, stream: str, candidate: Candidate | None) -> DataFrame:
    """Returns the tuples of an input that a candidate is computed on; all where its stream is not
    sampled.
    """
    columns = candidate.keys.get(stream) if candidate is not None else None
    return (
        of_sample(frame, columns, candidate.fraction)
        if columns and candidate is not None
        else frame
    )


def of_sample(frame: DataFrame, columns: Sequence[str], fraction: float) -> DataFrame:
    """Returns the rows whose key lies in a sample: the same in every run, and within every larger
    sample (O143).
    """
    return frame.where(in_sample(columns, fraction))
