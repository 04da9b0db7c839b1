"""The measures of an output that a replay takes in the pass of its digests, and stores with its
facts.

They are aggregates over the rows of a window, so the one read-back of the rows just written gives
them too. What Spark may understand otherwise than the gate is left to the gate
(`loading.measure_sql`). So is what would cost a pass of its own: queries over rows, and counts of
distinct values (docs/decisions/0011-measures-in-the-replay.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.loading.measure_sql import counts_distinct, for_spark
from rewindow.loading.measures import Measure
from rewindow.recovery import OutputPlan

CELL = "array<struct<measure: bigint, whole: bigint, real: double>>"
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_REAL = (T.FloatType, T.DoubleType)


@dataclass(frozen=True)
class AskedMeasure:
    """A measure as Spark is asked for it."""

    digest: int
    sql: str


NO_MEASURES: Mapping[str, Sequence[AskedMeasure]] = MappingProxyType({})


def asked_of(
    measures: Iterable[Measure],
    output: OutputPlan,
    rows: pa.Schema,
) -> list[AskedMeasure]:
    """Returns which measures of an output are taken in the pass of its digests.

    Args:
        measures: with their values filled in.
        rows: what the read-back has: the window and the event columns.
    """
    found = []
    for measure in measures:
        sql = (
            None
            if measure.over_rows or counts_distinct(measure.sql)
            else for_spark(measure.sql, rows)
        )
        if sql is not None:
            found.append(AskedMeasure(measure.digest(output.columns), sql))
    return found


class MeasuredRows:
    """The aggregates of one output, built once, since building them takes longer than to use them.

    Args:
        empty: a frame with the output's columns; nothing of it is computed.
    """

    def __init__(self, asked: Sequence[AskedMeasure], empty: DataFrame) -> None:
        self.columns: list[Column] = []
        cells = []
        for place, (one, kind) in enumerate(_typed(asked, empty)):
            self.columns.append(F.expr(one.sql).alias(f"_rw_measure_{place}"))
            cells.append(_cell(one, F.col(f"_rw_measure_{place}"), kind))
        self.cell = (F.array(*cells) if cells else F.lit(None)).cast(CELL).alias("measures")


def _typed(
    asked: Sequence[AskedMeasure],
    empty: DataFrame,
) -> list[tuple[AskedMeasure, T.DataType]]:
    """Returns the measures that Spark takes and that are numbers, with their types."""
    if not asked:
        return []
    try:
        fields = empty.agg(*(F.expr(one.sql) for one in asked)).schema.fields
    except PySparkException:
        # One of them is wrong. Spark does not name it, so each is tried alone.
        if len(asked) == 1:
            return []
        alone = (_typed([one], empty) for one in asked)
        return list(chain.from_iterable(alone))
    typed = []
    for one, field in zip(asked, fields, strict=True):
        if _is_number(field.dataType):
            typed.append((one, field.dataType))
    return typed


def _is_number(kind: T.DataType) -> bool:
    return isinstance(kind, (*_WHOLE, *_REAL, T.DecimalType))


def _cell(one: AskedMeasure, value: Column, kind: T.DataType) -> Column:
    whole = isinstance(kind, _WHOLE) or (isinstance(kind, T.DecimalType) and kind.scale == 0)
    nothing = F.lit(None)
    return F.struct(
        F.lit(one.digest).cast("bigint").alias("measure"),
        (value if whole else nothing).cast("bigint").alias("whole"),
        (nothing if whole else value).cast("double").alias("real"),
    )
