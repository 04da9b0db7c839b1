"""Divides the tagged rows of a pass between Spark tasks.

Rules: O85 to O92, X55
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, IntegralType, StringType

from rewindow.application.placing import Placing, mask_of
from rewindow.errors import InputError
from rewindow.names import quoted_column
from rewindow.spark.columns import union_all
from rewindow.spark.digests import hash_of
from rewindow.spark.frames import spark_schema
from rewindow.tuple_engine.passes import Pass
from rewindow.tuple_engine.tagged_rows import PLACEHOLDER, SORT_KEY, OperatorPort

PARTITION = "_rw_partition"
"""Column with the partition of a row; null if the partition follows from the key."""
_INT = 1 << 32


class Division:
    """Divides the rows of a pass: by Spark's hash of their keys, by partition id, round robin, or
    into one task.

    Rows have a partition id if the operator declares partitions, a codec or a broadcast port.

    Attributes:
        names_partitions: whether rows have the column `PARTITION`.
    """

    def __init__(self, one: Pass, spark_partitions: int) -> None:
        self._pass = one
        self._placing: Placing = one.placing
        self._count = self._placing.partitions or spark_partitions
        placing = self._placing
        declared = placing.partitions or placing.partitioner or one.codec or one.broadcast
        self.is_by_id = bool(one.keys and declared)
        self.names_partitions = self.is_by_id or placing.spread is not None

    def of_input(self, place: OperatorPort, row_hash: Column, offset: Column | None) -> Column:
        """Returns the partition of the tuples of an input port.

        A tuple of a broadcast port becomes one row in each partition.

        Args:
            place: operator and port.
            row_hash: hash of all columns of the port.
            offset: offset of recorded tuples; None for other tuples.
        """
        if self._placing.spread:
            chosen = row_hash if offset is None else offset
            return F.pmod(chosen, F.lit(self._placing.spread)).cast("int")
        if place in self._pass.broadcast and self.is_by_id:
            return F.explode(F.sequence(F.lit(0), F.lit(self._count - 1)))
        return F.lit(None).cast("int")

    def of_state(self) -> Column:
        """Returns the partition of rows of state. With `spread`, the first instance loads them."""
        return F.lit(0 if self._placing.spread else None).cast("int")

    def divide(self, parts: Sequence[DataFrame]) -> DataFrame:
        """Returns the rows of all parts, each in its partition."""
        spark = parts[0].sparkSession
        if self._pass.keys:
            rows = union_all(parts, allow_missing=True)
            return self._by_id(rows) if self.is_by_id else rows.repartition(*self._pass.keys)
        # Spark does not call a task without rows, but each instance must process all windows. So
        # each instance gets one placeholder row.
        instances = self._placing.spread or 1
        marks = spark.range(instances).select(
            F.lit(PLACEHOLDER).cast("bigint").alias(SORT_KEY),
            F.lit(0).cast("bigint").alias("_rw_order"),
            F.col("id").cast("int").alias(PARTITION),
        )
        if not self._placing.spread:
            return union_all([*parts, marks.drop(PARTITION)], allow_missing=True).coalesce(1)
        rows = union_all([*parts, marks], allow_missing=True)
        return rows.repartitionById(instances, PARTITION)

    def _by_id(self, rows: DataFrame) -> DataFrame:
        schema = self._key_schema()
        keys = {}
        for field, sent in zip(
            schema,
            self._pass.keys,
            strict=True,
        ):
            is_time = pa.types.is_timestamp(field.type)
            column = F.timestamp_micros(sent) if is_time else F.col(sent)
            keys[field.name] = column.cast(_type_of(field))
        # Rows of state and tuples get their partition from the same expression over the same
        # columns, so a key and its state are in one task.
        # Rules: O92
        partitioner = self._placing.partitioner
        if partitioner in (None, "apex"):
            chosen = self._by_hash(
                schema,
                keys,
                is_apex=partitioner is not None,
            )
            placed = rows.withColumn(PARTITION, F.coalesce(PARTITION, chosen))
        else:
            placed = self._by_expression(
                rows,
                keys,
                str(partitioner),
            )
        return placed.repartitionById(self._count, PARTITION)

    def _by_hash(self, schema: pa.Schema, keys: dict[str, Column], *, is_apex: bool) -> Column:
        if self._pass.codec == "java":
            values = []
            for field in schema:
                values.append(java_hash_of(keys[field.name], field))
            hashed = _java_list(values) if len(values) > 1 else values[0]
        else:
            typed = {}
            for field in schema:
                typed[field.name] = (keys[field.name], _type_of(field))
            hashed = hash_of(typed)
        if is_apex:
            hashed = hashed.bitwiseAND(F.lit(mask_of(self._count)))
        return F.pmod(hashed, F.lit(self._count)).cast("int")

    def _by_expression(
        self,
        rows: DataFrame,
        keys: dict[str, Column],
        expression: str,
    ) -> DataFrame:
        """Adds to rows the partition that a SQL expression over the key columns returns.

        Raises:
            InputError: the expression is random, or does not return a whole number.
        """
        named = []
        for name, column in keys.items():
            named.append(column.alias(name))
        chosen = rows.select(F.struct("*").alias("_rw_row"), *named).select(
            "_rw_row",
            F.expr(expression).alias("_rw_chosen"),
            F.to_json(F.struct(*map(quoted_column, keys))).alias("_rw_key"),
        )
        kind = chosen.schema["_rw_chosen"].dataType
        if not isinstance(kind, IntegralType):
            raise InputError(
                f'the partitioner "{expression}" returns {kind.simpleString()}, not a whole number'
            )
        if not chosen._jdf.queryExecution().analyzed().deterministic():
            raise InputError(
                f'the partitioner "{expression}" is random',
                detail="A key must always be in the same partition.",
            )
        # Spark would reduce any number modulo the partitions, and send null to the first one, so
        # a wrong partitioner would go unnoticed.
        value = F.col("_rw_chosen").cast("bigint")
        wrong = F.concat(
            F.lit(f'the partitioner "{expression}" returns '),
            F.coalesce(value.cast("string"), F.lit("null")),
            F.lit(" for the key "),
            F.col("_rw_key"),
            F.lit(f", not a number from 0 to {self._count - 1}"),
        )
        is_right = value.between(0, self._count - 1)
        checked = F.when(is_right, value).otherwise(F.raise_error(wrong).cast("bigint"))
        is_placed = F.col("_rw_row")[PARTITION].isNotNull()
        place = F.when(is_placed, F.col("_rw_row")[PARTITION]).otherwise(checked.cast("int"))
        return chosen.select("_rw_row.*", place.alias("_rw_placed")).withColumns(
            {PARTITION: F.col("_rw_placed")}
        )

    def _key_schema(self) -> pa.Schema:
        for member in self._pass.members.values():
            schema = member.operator.key_schema()
            if len(schema) == len(self._pass.keys):
                return schema
        raise AssertionError("the pass has keys")


def _type_of(field: pa.Field) -> DataType:
    return spark_schema(pa.schema([field]))[0].dataType


def java_hash_of(column: Column, field: pa.Field) -> Column:
    """Returns the value of Java's hashCode for a column, as BIGINT; 0 for null.

    Rules: O85
    """
    kind = _type_of(field)
    if isinstance(kind, BooleanType):
        hashed = F.when(column, 1231).otherwise(1237).cast("bigint")
    elif isinstance(kind, StringType):
        hashed = _java_text(column)
    elif field.type == pa.int64():
        # Java folds the upper half of a long into the lower one.
        high = F.shiftrightunsigned(column, 32)
        hashed = _as_int(column.bitwiseXOR(high).bitwiseAND(F.lit(_INT - 1)))
    else:
        hashed = column.cast("bigint")
    return F.when(column.isNull(), F.lit(0).cast("bigint")).otherwise(hashed)


def _java_text(column: Column) -> Column:
    """Returns the value of Java's hashCode for a text: 31 * hash + unit, over its UTF-16 code
    units.
    """
    units = F.encode(column, "UTF-16BE")
    count = (F.octet_length(units) / F.lit(2)).cast("int")
    places = F.when(count > 0, F.sequence(F.lit(0), count - 1)).otherwise(
        F.array().cast("array<int>")
    )

    # 64-bit arithmetic, cut to 32 bits after each step, because ANSI mode rejects an overflow.
    def step(hashed: Column, place: Column) -> Column:
        unit = F.conv(
            F.hex(F.substring(units, place * 2 + 1, F.lit(2))),
            16,
            10,
        )
        return (hashed * 31 + unit.cast("bigint")).bitwiseAND(F.lit(_INT - 1))

    return _as_int(
        F.aggregate(
            places,
            F.lit(0).cast("bigint"),
            step,
        )
    )


def _java_list(hashes: Sequence[Column]) -> Column:
    """Returns the hashCode of a java.util.List whose values have the given hashes."""
    hashed = F.lit(1).cast("bigint")
    for item in hashes:
        hashed = (hashed * 31 + item).bitwiseAND(F.lit(_INT - 1))
    return _as_int(hashed)


def _as_int(column: Column) -> Column:
    """Returns the low 32 bits of a number as a signed number."""
    return F.when(column >= _INT // 2, column - _INT).otherwise(column)
