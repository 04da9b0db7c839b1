"""Tuple operators on Spark: one pass of Arrow batches over the tagged rows of state and of all input ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rewindow.application import OperatorContext
from rewindow.names import quoted_column
from rewindow.operators.tuples.key_range import KeyRange
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.operators.tuples.tagged_rows import (
    GONE,
    NO_TAG,
    TAG,
    WINDOW,
    Columns,
    input_tags,
    output_tags,
    state_tag,
    tagged_schema,
)
from rewindow.spark.frames import spark_schema

_ORDER = "_rw_order"
_OFFSET = "offset"


def one_pass(
    operator: TupleOperator, inputs: Mapping[str, DataFrame], state: DataFrame | None, context: OperatorContext
) -> DataFrame:
    """Returns the tagged rows of what a group emits on all ports, and of the state after it; nothing is computed twice.

    Tuples of a window come by port, then by recorded offset; those of a published stream, and those behind a frame
    operator, by a hash of their columns (X43, X51).
    """
    keys = operator.key_schema()
    parts = [
        _tagged(inputs[port], columns, operator, port, has_order=port not in context.published)
        for port, columns in input_tags(operator).items()
        if port in inputs
    ]
    if state is not None:
        parts.append(_tagged_state(state, operator, context))
    if not keys.names:  # Without a row Spark would call nothing, and no window would be begun.
        parts.append(_mark(parts[0].sparkSession, context))
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    placed = rows.repartition(*(f"_key_{place}" for place in range(len(keys)))) if keys.names else rows.coalesce(1)
    wanted = tagged_schema([state_tag(operator), *input_tags(operator).values()]).names
    by_port = [TAG] if len(operator.input_ports()) > 1 else []  # State and mark come first by their window and order.
    ordered = placed.sortWithinPartitions(WINDOW, *by_port, _ORDER)
    sent = ordered.select(*(name if name in ordered.columns else F.lit(None).alias(name) for name in wanted))
    made = tagged_schema([state_tag(operator), *output_tags(operator).values()])
    alone = context.alone()

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return KeyRange(operator, alone).run(batches)

    return sent.mapInArrow(run, spark_schema(made))


def emitted(operator: TupleOperator, rows: DataFrame, port: str) -> DataFrame:
    """Returns what was emitted on a port: `window_id` and its columns."""
    return _untagged(rows, output_tags(operator)[port], WINDOW)


def states(operator: TupleOperator, rows: DataFrame) -> DataFrame:
    """Returns the state rows of a pass; a key that is gone is marked where the operator has keys."""
    found = _untagged(rows, state_tag(operator))
    return found if operator.state_increments else found.drop(GONE)


def _tagged(frame: DataFrame, columns: Columns, operator: TupleOperator, port: str, *, has_order: bool) -> DataFrame:
    names = [quoted_column(name) for name in columns.schema.names]
    has_order = has_order and _OFFSET in frame.columns
    placed = F.col(_OFFSET).cast("bigint") if has_order else F.xxhash64(*names)
    values = _values(columns)
    key = [values[columns.schema.get_field_index(name)] for name in operator.input_ports()[port].key]
    return frame.select(
        F.lit(columns.tag).alias(TAG), WINDOW, placed.alias(_ORDER), *_keys(key), *_named(values, columns)
    )


def _tagged_state(state: DataFrame, operator: TupleOperator, context: OperatorContext) -> DataFrame:
    columns = state_tag(operator)
    values = _values(columns._replace(schema=columns.schema.remove(len(columns.schema) - 1)))
    key = values[: len(operator.key_schema())]
    return state.select(
        F.lit(0).alias(TAG), F.lit(context.first - 1).cast("bigint").alias(WINDOW),
        _before(1), *_keys(key), *_named([*values, F.lit(False)], columns),
    )  # fmt: skip


def _mark(spark: SparkSession, context: OperatorContext) -> DataFrame:
    return spark.range(1).select(
        F.lit(NO_TAG).alias(TAG), F.lit(context.first - 1).cast("bigint").alias(WINDOW), _before(0)
    )


def _before(place: int) -> Column:
    """Returns an order before that of all tuples: the mark's, then that of state."""
    return F.lit(place - 2**63).cast("bigint").alias(_ORDER)


def _keys(columns: list[Column]) -> list[Column]:
    return [column.alias(f"_key_{place}") for place, column in enumerate(columns)]


def _values(columns: Columns) -> list[Column]:
    """Returns the columns of a port as it declares them, so that keys of two ports are equal; times as microseconds."""
    found = []
    for field in columns.schema:
        column = F.col(quoted_column(field.name)).cast(spark_schema(pa.schema([field]))[0].dataType)
        found.append(F.unix_micros(column.cast("timestamp")) if pa.types.is_timestamp(field.type) else column)
    return found


def _named(values: list[Column], columns: Columns) -> list[Column]:
    return [value.alias(name) for value, name in zip(values, columns.names, strict=True)]


def _untagged(rows: DataFrame, columns: Columns, *more: str) -> DataFrame:
    values = []
    for field, sent in zip(columns.schema, columns.names, strict=True):
        column = F.timestamp_micros(sent) if pa.types.is_timestamp(field.type) else F.col(sent)
        values.append(column.cast(spark_schema(pa.schema([field]))[0].dataType).alias(field.name))
    return rows.where(F.col(TAG) == columns.tag).select(*more, *values)
