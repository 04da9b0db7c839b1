"""The hash of a row: Python's and Spark's are one, whatever the types."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from rewindow.errors import InputError
from rewindow.spark.digests import bucket_of, sum_of_rows
from rewindow.spark.digests import row_hashes as in_spark
from rewindow.spark.frames import spark_schema
from rewindow.state.row_hash import buckets_of, row_hashes, row_sum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NESTED = pa.struct([("z", pa.int64()), ("a", pa.string()), ("l", pa.list_(pa.float64()))])
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [0, -1, 127, -128]),
    "short": (pa.int16(), [0, -300, 300]),
    "int": (pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    "long": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "single": (pa.float32(), [0.0, -0.0, 1.5, float("nan"), float("inf")]),
    "double": (pa.float64(), [0.0, -0.0, -1.5, float("nan"), float("-inf"), 1e300]),
    "day": (pa.date32(), [date(1970, 1, 1), date(1900, 2, 3), date(2026, 1, 1)]),
    "at": (
        pa.timestamp("us", tz="UTC"),
        [datetime(2020, 1, 1, 1, 2, 3, 4, UTC), datetime(1960, 1, 1, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), [datetime(2020, 1, 1, 1, 2, 3, 4)]),
    "span": (pa.duration("us"), [timedelta(seconds=3), timedelta(microseconds=-1)]),
    "money": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("-12.34"), Decimal("9999999999.99")]),
    "wide": (
        pa.decimal128(38, 3),
        [Decimal(n).scaleb(-3) for n in (0, -1, 127, 128, -128, -129, 10**37, -(10**37))],
    ),
    "text": (
        pa.string(),
        ["", "a", "ä€😀", *("x" * n for n in (3, 4, 7, 8, 11, 12, 31, 32, 33, 40, 64, 101))],
    ),
    "bytes": (pa.binary(), [b"", b"\x00", bytes(range(256))]),
    "list": (pa.list_(pa.int32()), [[], [1], [1, None, 3], [None]]),
    "lists": (pa.list_(pa.list_(pa.string())), [[], [[]], [["a"], None, ["b", "c" * 40]]]),
    "struct": (NESTED, [{"z": 1, "a": None, "l": [1.0, None]}, {"z": None, "a": "x", "l": None}]),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        [[], [("a", 1), ("b", None)], [("b", 2), ("a", 1), ("c", -3)]],
    ),
}


def random_frame(rng: random.Random, names: list[str], rows: int = 60) -> pa.Table:
    columns = {name: [rng.choice([None, *VALUES[name][1]]) for _ in range(rows)] for name in names}
    return pa.table(columns, schema=pa.schema([(name, VALUES[name][0]) for name in names]))


@pytest.mark.parametrize(
    "names",
    [*([name] for name in VALUES), list(VALUES)],
    ids=lambda names: "+".join(names)[:20],
)
def test_python_and_spark_row_hashes_are_equal(names: list[str], spark: SparkSession) -> None:
    frame = random_frame(random.Random(1), names)
    schema = spark_schema(frame.schema)
    rows = spark.createDataFrame(frame).withColumns(
        {"_h": in_spark(schema, ())[0], "_b": bucket_of(schema, (), 8)}
    )
    found = rows.select("_h", "_b").toArrow()
    assert row_hashes(frame).view(np.int64).tolist() == found["_h"].to_pylist()
    assert buckets_of(frame, (), 8).tolist() == found["_b"].to_pylist()
    (total,) = spark.createDataFrame(frame).agg(sum_of_rows(schema)).first()
    assert f"{row_sum(frame):016x}" == total


def test_row_hash_supports_more_columns_than_one_bitmap(spark: SparkSession) -> None:
    # A null bitmap holds 62 columns.
    frame = pa.table(
        {f"c{n:03}": pa.array([None if n % 3 else n, n], pa.int32()) for n in range(130)}
    )
    rows = (
        spark.createDataFrame(frame)
        .select(in_spark(spark_schema(frame.schema), ())[0].alias("h"))
        .toArrow()
    )
    assert row_hashes(frame).view(np.int64).tolist() == rows["h"].to_pylist()


def test_state_bucket_depends_only_on_the_key(spark: SparkSession) -> None:
    # Rules: X47
    frame = random_frame(random.Random(2), ["text", "long", "double"])
    schema = spark_schema(frame.schema)
    rows = (
        spark.createDataFrame(frame)
        .select(bucket_of(schema, ("text", "long"), 4).alias("b"))
        .toArrow()
    )
    assert buckets_of(frame, ("text", "long"), 4).tolist() == rows["b"].to_pylist()
    assert (
        buckets_of(frame, ("text", "long"), 4).tolist()
        == buckets_of(frame.drop_columns("double"), (), 4).tolist()
    )


def test_row_hash_does_not_depend_on_slices_and_chunks() -> None:
    frame = random_frame(random.Random(3), list(VALUES))
    chunked = pa.concat_tables([frame.slice(0, 7), frame.slice(7, 20), frame.slice(27)])
    assert row_hashes(chunked).tolist() == row_hashes(frame).tolist()
    assert row_hashes(frame.slice(11, 5)).tolist() == row_hashes(frame).tolist()[11:16]
    assert row_hashes(frame.slice(0, 0)).tolist() == []


def test_type_without_a_hash_is_rejected_by_name() -> None:
    with pytest.raises(InputError, match="values of type uint8 cannot be stored in a state"):
        row_sum(pa.table({"a": pa.array([], pa.uint8())}))
