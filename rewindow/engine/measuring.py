"""Measures that a replay computes together with the digests of an output, and stores with its
facts.

They are aggregates over the rows of a window, so they can be computed when the written rows are
read back for the digests. SQL that Spark may interpret differently from the gate is left to the
gate (`loading.measure_sql`), and so are measures that would need a separate pass: queries over
rows, and counts of distinct values (docs/decisions/0011-measures-in-the-replay.md).
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
    """A measure with its SQL for Spark."""

    digest: int
    sql: str


NO_MEASURES: Mapping[str, Sequence[AskedMeasure]] = MappingProxyType({})


def asked_of(
    measures: Iterable[Measure],
    output: OutputPlan,
    rows: pa.Schema,
) -> list[AskedMeasure]:
    """Returns the measures of an output that are computed together with its digests.

    Args:
        measures: the measures, with parameters filled in.
        output: the output.
        rows: columns of the rows that are read back: the window and the event columns.
    """
    asked = []
    for measure in measures:
        sql = (
            None
            if measure.over_rows or counts_distinct(measure.sql)
            else for_spark(measure.sql, rows)
        )
        if sql is not None:
            asked.append(AskedMeasure(measure.digest(output.columns), sql))
    return asked


class MeasuredRows:
    """The aggregates for the measures of one output.

    They are built once, because building them takes longer than evaluating them.

    Args:
        asked: the measures.
        empty: a frame with the output's columns, used only to derive types.
    """

    def __init__(self, asked: Sequence[AskedMeasure], empty: DataFrame) -> None:
        self.columns: list[Column] = []
        cells = []
        for number, (measure, kind) in enumerate(_typed(asked, empty)):
            self.columns.append(F.expr(measure.sql).alias(f"_rw_measure_{number}"))
            cells.append(_cell(measure, F.col(f"_rw_measure_{number}"), kind))
        self.cell = (F.array(*cells) if cells else F.lit(None)).cast(CELL).alias("measures")


def _typed(
    asked: Sequence[AskedMeasure],
    empty: DataFrame,
) -> list[tuple[AskedMeasure, T.DataType]]:
    """Adds the types to measures.

    Measures that Spark rejects or that are not numbers are left out.
    """
    if not asked:
        return []
    try:
        fields = empty.agg(*(F.expr(measure.sql) for measure in asked)).schema.fields
    except PySparkException:
        # One of them is wrong. Spark does not name it, so each is tried alone.
        if len(asked) == 1:
            return []
        alone = (_typed([measure], empty) for measure in asked)
        return list(chain.from_iterable(alone))
    typed = []
    for measure, field in zip(asked, fields, strict=True):
        if _is_number(field.dataType):
            typed.append((measure, field.dataType))
    return typed


def _is_number(kind: T.DataType) -> bool:
    return isinstance(kind, (*_WHOLE, *_REAL, T.DecimalType))


def _cell(measure: AskedMeasure, value: Column, kind: T.DataType) -> Column:
    whole = isinstance(kind, _WHOLE) or (isinstance(kind, T.DecimalType) and kind.scale == 0)
    null = F.lit(None)
    return F.struct(
        F.lit(measure.digest).cast("bigint").alias("measure"),
        (value if whole else null).cast("bigint").alias("whole"),
        (null if whole else value).cast("double").alias("real"),
    )
