"""Tuple operators on Spark: one pass of Arrow batches over the tagged rows of state and of all input ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rewindow.application import WRITTEN, OperatorContext, PartSink
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
    untagged,
)
from rewindow.spark.frames import spark_schema

_ORDER = "_rw_order"
_OFFSET = "offset"
_STATE = ""
"""The part of a pass that is state: no port has this name."""


def emitted(
    operator: TupleOperator, inputs: Mapping[str, DataFrame], state: DataFrame | None, context: OperatorContext
) -> dict[str, DataFrame]:
    """Returns what a group emits on each port: `window_id` and its columns."""
    found = _parts(operator, inputs, state, context)
    return {port: found[port] for port in operator.output_ports()}


def states(
    operator: TupleOperator, inputs: Mapping[str, DataFrame], state: DataFrame | None, context: OperatorContext
) -> DataFrame:
    """Returns the state rows after a group, of the same pass; a key that is gone is marked where there are keys."""
    found = _parts(operator, inputs, state, context)[_STATE].drop(WINDOW)
    return found if operator.state_increments else found.drop(GONE)


def _parts(
    operator: TupleOperator, inputs: Mapping[str, DataFrame], state: DataFrame | None, context: OperatorContext
) -> Mapping[str, DataFrame]:
    """Returns what the one pass of a group gives, by port, and the state; in a replay nothing is computed twice."""
    tags = {_STATE: state_tag(operator), **output_tags(operator)}
    if context.parts is None:
        rows = one_pass(operator, inputs, state, context)
        return {part: _untagged(rows, columns) for part, columns in tags.items()}
    schemas = {part: columns.schema for part, columns in tags.items()}
    return context.parts(schemas, lambda sink: one_pass(operator, inputs, state, context, sink))


def one_pass(
    operator: TupleOperator,
    inputs: Mapping[str, DataFrame],
    state: DataFrame | None,
    context: OperatorContext,
    sink: PartSink | None = None,
) -> DataFrame:
    """Returns the tagged rows of what a group emits on all ports, and of the state after it.

    With a sink, tasks give it their rows, and the files that it has written come back.

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
    tags = {_STATE: state_tag(operator), **output_tags(operator)}
    alone = context.alone()

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = KeyRange(operator, alone).run(batches)
        return made if sink is None else sink(untagged(tags, made))

    return sent.mapInArrow(run, spark_schema(tagged_schema(tags.values()) if sink is None else WRITTEN))


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


def _untagged(rows: DataFrame, columns: Columns) -> DataFrame:
    values = []
    for field, sent in zip(columns.schema, columns.names, strict=True):
        column = F.timestamp_micros(sent) if pa.types.is_timestamp(field.type) else F.col(sent)
        values.append(column.cast(spark_schema(pa.schema([field]))[0].dataType).alias(field.name))
    return rows.where(F.col(TAG) == columns.tag).select(WINDOW, *values)
