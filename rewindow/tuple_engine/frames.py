"""Runs tuple operators on Spark: one pass of Arrow batches over the tagged rows of states and of
all input ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from rewindow.application import WRITTEN, OperatorContext, PartSink
from rewindow.names import quoted_column
from rewindow.operators.tuples.operator import TupleOperator
from rewindow.sequences import map_values
from rewindow.spark.columns import bigint
from rewindow.spark.digests import hash_of
from rewindow.spark.frames import spark_schema
from rewindow.spark.repeated_tasks import refuse_repeated_task
from rewindow.tuple_engine.chain_range import ForeignTuples
from rewindow.tuple_engine.failing import TUPLE_KEY, FailingTuple, failing_rows
from rewindow.tuple_engine.keyed_state import merge_states
from rewindow.tuple_engine.partition_rows import PartitionMeter
from rewindow.tuple_engine.partitions import PARTITION, Division
from rewindow.tuple_engine.passes import ALONE, STATE, Member, Pass, alone_ports, control_rows
from rewindow.tuple_engine.tagged_rows import (
    DELETED,
    SORT_KEY,
    TAG_BITS,
    WINDOW,
    WINDOW_BITS,
    Columns,
    OperatorPort,
    sort_key,
    untagged,
)

EMITTED = "_rw_emitted"
"""The column of an operator's tuples with the order in which they were emitted."""
FOREIGN_OFFSET = 1 << 62
"""Tuples that were emitted under another key than their own have offsets from this number on."""
_ORDER = "_rw_order"
_HASH = "_rw_hash"
_OFFSET = "offset"


def emitted_frames(
    operator: TupleOperator,
    inputs: Mapping[str, DataFrame],
    state: DataFrame | None,
    context: OperatorContext,
) -> dict[str, DataFrame]:
    """Returns the tuples that a group emits on each port, with `window_id` and the columns of the
    port.
    """
    parts = _parts(
        operator,
        inputs,
        state,
        context,
    )
    return {port: parts[port] for port in operator.output_ports()}


def states_after(
    operator: TupleOperator,
    inputs: Mapping[str, DataFrame],
    state: DataFrame | None,
    context: OperatorContext,
) -> DataFrame:
    """Returns the rows of state after a group, from the same pass.

    With a key, the rows of removed keys are marked.
    """
    states = _parts(
        operator,
        inputs,
        state,
        context,
    )[STATE].drop(WINDOW, EMITTED)
    if operator.placing.spread and operator.fields:
        return _merged(operator, states)
    return states if operator.state_increments else states.drop(DELETED)


def _merged(operator: TupleOperator, states: DataFrame) -> DataFrame:
    """Returns the single state of an operator with `spread`, merged from the states of its
    instances.

    Rules: R100
    """
    name = type(operator).__name__

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches, schema=operator.state_columns())
        yield from merge_states(
            operator,
            rows,
            name,
        ).to_batches()

    return states.coalesce(1).mapInArrow(run, states.schema)


def _parts(
    operator: TupleOperator,
    inputs: Mapping[str, DataFrame],
    state: DataFrame | None,
    context: OperatorContext,
) -> Mapping[str, DataFrame]:
    """Returns the results of a group's single pass: the tuples of each port, and the state.

    In a replay the pass runs only once per group.
    """
    tags = _alone(operator, context).parts
    if context.parts is None:
        rows = one_pass(
            operator,
            inputs,
            state,
            context=context,
        )
        return map_values(
            lambda columns: _untagged(
                rows,
                columns,
                context,
            ),
            tags,
        )
    schemas = map_values(lambda columns: columns.schema, tags)
    return context.parts(
        schemas,
        lambda sink: one_pass(
            operator,
            inputs,
            state,
            context=context,
            sink=sink,
        ),
    )


def one_pass(
    operator: TupleOperator,
    inputs: Mapping[str, DataFrame],
    state: DataFrame | None,
    context: OperatorContext,
    sink: PartSink | None = None,
) -> DataFrame:
    """Returns the tagged rows that a group emits on all ports, and the rows of the state after it;
    see `pass_of`.
    """
    given = alone_ports(inputs)
    return pass_of(
        _alone(operator, context),
        given,
        {ALONE: state} if state is not None else {},
        context=context,
        sink=sink,
    )


def _alone(operator: TupleOperator, context: OperatorContext) -> Pass:
    member = Member(
        operator,
        context.windowing,
        unordered=context.unordered,
        followed=context.followed,
    )
    return Pass({ALONE: member})


def pass_of(
    one: Pass,
    inputs: Mapping[OperatorPort, DataFrame],
    states: Mapping[str, DataFrame],
    context: OperatorContext,
    sink: PartSink | None = None,
) -> DataFrame:
    """Returns the tagged rows that the operators of a pass emit on all ports, and the rows of their
    states after it.

    With a sink, tasks pass their rows to it, and the returned rows are the names of the written
    files.

    The tuples of a window are processed port by port, then by recorded offset. Tuples of an
    operator are processed in the order of emission if the column `EMITTED` is present. All other
    tuples, including those of a published stream, are processed in the order of a hash of their
    columns.

    Args:
        one: the pass.
        inputs: frames of the ports that are fed from outside, by operator and port.
        states: the states before the group, by operator.
        context: the group's windows.
        sink: writes rows to files in a task.

    Rules: O39, X40, X43, X51
    """
    placed = _divided(
        one,
        inputs,
        states,
        context,
    )
    names = placed.columns
    # Only ports without an order have a hash column to sort by.
    ordered = placed.sortWithinPartitions(
        SORT_KEY,
        _ORDER,
        *{_HASH}.intersection(names),
    )
    sent = []
    for name in one.sent.names:
        sent.append(name if name in names else F.lit(None).alias(name))
    members = one.members
    alone = context.alone()
    controls = {}
    for place, columns in one.controls.items():
        if place in inputs:
            controls[place] = _controls(inputs[place], columns)

    reports = alone.reports_failing and sink is not None
    if reports:
        sent.append(TUPLE_KEY)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if alone.mode.may_lose:
            refuse_repeated_task(alone.operator)
        meter = PartitionMeter()
        fused = Pass(members)
        failing: list[FailingTuple] = []
        taken = failing if reports else None
        results = fused.run(
            alone,
            meter.count(batches),
            controls=controls,
            failing=taken,
        )
        if sink is not None:
            results = sink(
                untagged(
                    fused.parts,
                    alone.first - 1,
                    results,
                )
            )
        try:
            yield from results
        except ForeignTuples as error:
            yield error.rows()
        yield from failing_rows(failing)
        if sink is not None:
            yield meter.report()

    return ordered.select(*sent).mapInArrow(
        run, spark_schema(one.made if sink is None else WRITTEN)
    )


def _divided(
    one: Pass,
    inputs: Mapping[OperatorPort, DataFrame],
    states: Mapping[str, DataFrame],
    context: OperatorContext,
) -> DataFrame:
    """Returns the tagged rows of inputs and states, each in its partition."""
    # All ports and states are processed in one pass of Python. Therefore they are combined into
    # one frame, with a tag per port and shared columns, which is divided by key and sorted by
    # window, port and offset. Each task then calls the operators of one or more key ranges.
    session = next(iter(inputs.values())).sparkSession
    division = Division(one, int(session.conf.get("spark.sql.shuffle.partitions", "1")))
    parts = []
    for place, columns in one.inputs.items():
        if place in inputs:
            has_offset = place[1] not in one.members[place[0]].unordered
            partition = partial(division.of_input, place) if division.names_partitions else None
            parts.append(
                _tagged(
                    inputs[place],
                    columns,
                    context,
                    has_offset=has_offset,
                    partition=partition,
                )
            )
    for name, columns in one.loaded.items():
        if name in states:
            tagged = _tagged_state(
                states[name],
                columns,
                context,
            )
            if division.names_partitions:
                tagged = tagged.withColumn(PARTITION, division.of_state())
            parts.append(tagged)
    return division.divide(parts)


def _tagged(
    frame: DataFrame,
    columns: Columns,
    context: OperatorContext,
    *,
    has_offset: bool,
    partition: Callable[[Column, Column | None], Column] | None,
) -> DataFrame:
    window = F.col(WINDOW).cast("bigint")
    before = F.lit(context.first - 1)
    place = (window - before) * F.lit(1 << WINDOW_BITS) + F.lit(columns.tag)
    is_recorded = has_offset and _OFFSET in frame.columns and EMITTED not in frame.columns
    selected = [place.alias(SORT_KEY), *_named(columns)]
    if partition is not None:
        of_row = partition(_hash(columns.schema), F.col(_OFFSET) if is_recorded else None)
        selected.append(of_row.alias(PARTITION))
    if context.reports_failing:
        key = tuple_key(
            frame,
            columns.schema,
            has_offset=has_offset,
        )
        selected.append(key.alias(TUPLE_KEY))
    if EMITTED in frame.columns:
        is_foreign = F.col(EMITTED) >= FOREIGN_OFFSET
        order = F.when(is_foreign, FOREIGN_OFFSET).otherwise(F.col(EMITTED))
        selected += [order.alias(_ORDER), F.when(is_foreign, _hash(columns.schema)).alias(_HASH)]
    elif has_offset and _OFFSET in frame.columns:
        selected.append(F.col(_OFFSET).cast("bigint").alias(_ORDER))
    else:
        selected += [bigint(0).alias(_ORDER), _hash(columns.schema).alias(_HASH)]
    return frame.select(*selected)


def tuple_key(frame: DataFrame, schema: pa.Schema, *, has_offset: bool) -> Column:
    """Returns the key that identifies a tuple of a port within its window in every attempt.

    For a recorded tuple, the key is its offset. Otherwise it is a hash of the columns, which equal
    tuples share.
    """
    is_recorded = has_offset and _OFFSET in frame.columns
    return F.col(_OFFSET).cast("bigint") if is_recorded else _hash(schema)


def _hash(schema: pa.Schema) -> Column:
    """Returns a hash of a port's columns, computed from their names and declared types."""
    values = {}
    for field in schema:
        values[field.name] = (_declared(field), _type_of(field))
    return hash_of(values)


def _controls(frame: DataFrame, columns: Columns) -> pa.Table:
    """Returns the control tuples of a group.

    There are few of them, so they are sent to all tasks together with the code.
    """
    return control_rows(frame.select(WINDOW, *_named(columns)).toArrow())


def _tagged_state(
    state: DataFrame,
    columns: Columns,
    context: OperatorContext,
) -> DataFrame:
    before = context.first - 1
    return state.select(
        *_at(
            sort_key(
                before,
                columns.tag,
                before,
            )
        ),
        *_named(columns),
    )


def _at(place: int) -> tuple[Column, Column]:
    """Returns the sort columns of rows that are not ordered among each other."""
    return bigint(place).alias(SORT_KEY), bigint(0).alias(_ORDER)


def _named(columns: Columns) -> list[Column]:
    """Returns the columns of a port with their declared types, so that the keys of two ports are
    comparable.

    Times become microseconds.
    """
    selected = []
    for field, name in zip(
        columns.schema,
        columns.names,
        strict=True,
    ):
        column = _declared(field)
        value = (
            F.unix_micros(column.cast("timestamp")) if pa.types.is_timestamp(field.type) else column
        )
        selected.append(value.alias(name))
    return selected


def _declared(field: pa.Field) -> Column:
    """Returns a column with the type that the port declares."""
    return F.col(quoted_column(field.name)).cast(_type_of(field))


def _type_of(field: pa.Field) -> DataType:
    return spark_schema(pa.schema([field]))[0].dataType


def _untagged(
    rows: DataFrame,
    columns: Columns,
    context: OperatorContext,
) -> DataFrame:
    place = F.col(SORT_KEY)
    values = []
    for field, sent in zip(
        columns.schema,
        columns.names,
        strict=True,
    ):
        column = F.timestamp_micros(sent) if pa.types.is_timestamp(field.type) else F.col(sent)
        values.append(column.cast(_type_of(field)).alias(field.name))
    window = F.shiftright(place, WINDOW_BITS) + F.lit(context.first - 1)
    return rows.where(place.bitwiseAND(F.lit((1 << TAG_BITS) - 1)) == columns.tag).select(
        window.alias(WINDOW),
        *values,
    )
