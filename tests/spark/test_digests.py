"""Digests: what must differ, what must not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from rewindow.errors import InputError
from rewindow.spark.digests import (
    check_digestible,
    digest_columns,
    empty_digests,
    row_hashes,
    schema_hash,
    window_digests,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFUSED_BY_PLAIN_HASHING = {
    "null before a value and behind it": (
        "select cast(null as string) a, 'x' b",
        "select 'x' a, cast(null as string) b",
    ),
    "arrays cut at another place": (
        "select array(1, 2) a, array(3) b",
        "select array(1) a, array(2, 3) b",
    ),
    "empty array and null": (
        "select cast(array() as array<int>) a",
        "select cast(null as array<int>) a",
    ),
    "null in another field of a struct": (
        "select named_struct('x', 1, 'y', cast(null as int)) a",
        "select named_struct('x', cast(null as int), 'y', 1) a",
    ),
    "null struct and struct of nulls": (
        "select cast(null as struct<x: int>) a",
        "select named_struct('x', cast(null as int)) a",
    ),
    "null in an array and a shorter array": ("select array(1, null) a", "select array(1) a"),
    "null at another place of an array": ("select array(null, 1) a", "select array(1, null) a"),
    "true and 1": ("select true a", "select 1 a"),
    "a date and its day number": ("select date'2020-01-01' a", "select 18262 a"),
    "an int and a bigint": ("select 1 a", "select 1L a"),
    "maps with values exchanged": ("select map('a', 1, 'b', 2) a", "select map('a', 2, 'b', 1) a"),
    "empty map and null": (
        "select cast(map() as map<string, int>) a",
        "select cast(null as map<string, int>) a",
    ),
    "columns exchanged": ("select 1 a, 2 b", "select 2 a, 1 b"),
    "another column name": ("select 1 a", "select 1 b"),
    "nested arrays cut at another place": (
        "select array(array(1, 2), array(3)) a",
        "select array(array(1), array(2, 3)) a",
    ),
    "a decimal of another scale": (
        "select cast(1 as decimal(4, 0)) a",
        "select cast(1 as decimal(4, 2)) a",
    ),
}
THE_SAME = {
    "-0.0 and 0.0": ("select -0D a", "select 0D a"),
    "maps written in another order": (
        "select map('a', 1, 'b', 2) a",
        "select map('b', 2, 'a', 1) a",
    ),
    "columns in another order": ("select 1 a, 'x' b", "select 'x' b, 1 a"),
    "fields of a struct in another order": (
        "select named_struct('x', 1, 'y', 2) a",
        "select named_struct('y', 2, 'x', 1) a",
    ),
    "NaN and NaN": ("select double('NaN') a", "select -double('NaN') a"),
    "a nullable column without a null": ("select 1 a", "select if(rand() < 2, 1, null) a"),
}
EXCHANGED = {
    "bool": ("true", "false"), "tiny": ("1Y", "2Y"), "short": ("1S", "2S"), "i": ("1", "2"),
    "l": ("1L", "2L"),
    "dec": ("1.5BD", "2.5BD"), "str": ("'a'", "'b'"), "bin": ("X'01'", "X'02'"),
    "nul": ("'a'", "null"),
    "day": ("date'2020-01-01'", "date'2020-01-02'"),
    "at": ("timestamp'2020-01-01 00:00:00'", "timestamp'2020-01-01 00:00:01'"),
    "ntz": ("timestamp_ntz'2020-01-01 00:00:00'", "timestamp_ntz'2020-01-01 00:00:01'"),
    "span": ("interval '1' day", "interval '2' day"),
    "months": ("interval '1' month", "interval '2' month"),
    "arr": ("array(1, 2)", "array(2, 1)"), "rec": ("named_struct('x', 1)", "named_struct('x', 2)"),
    "dict": ("map('a', 1)", "map('a', 2)"), "flo": ("1.5F", "2.5F"), "dou": ("1.5D", "2.5D"),
    "nan": ("double('NaN')", "1D"), "nulldou": ("cast(null as double)", "1D"),
    "floats": ("array(1.5D)", "array(2.5D)"),
    "deep": ("named_struct('x', 1, 'y', 1.5D)", "named_struct('x', 1, 'y', 2.5D)"),
    "fmap": ("map('a', 1.5D)", "map('a', 2.5D)"),
}  # fmt: skip
"""Column to the values of two rows, one column of every type that can be digested."""
MANY = """select id % 7 window_id, id offset, timestamp_micros(id * 1000) arrived_at,
    'k' || id % 11 k,
          if(id % 3 = 0, null, id) x, double(id) / 7 y from range(5000)"""


def digest_of(spark: SparkSession, query: str) -> tuple[object, ...]:
    """Returns tuples, digest and float digest of a query's rows as one window."""
    rows = window_digests(spark.sql(f"select 0L window_id, * from ({query})")).collect()
    assert len(rows) == 1
    return tuple(rows[0])[1:]


@pytest.mark.parametrize("pair", CONFUSED_BY_PLAIN_HASHING)
def test_digest_differs_for_values_with_equal_xxhash64(spark: SparkSession, pair: str) -> None:
    one, other = CONFUSED_BY_PLAIN_HASHING[pair]
    assert digest_of(spark, one) != digest_of(spark, other)


@pytest.mark.parametrize("pair", THE_SAME)
def test_digests_of_equal_values_are_equal(spark: SparkSession, pair: str) -> None:
    one, other = THE_SAME[pair]
    assert digest_of(spark, one) == digest_of(spark, other)


def test_digest_ignores_order_and_partitioning(spark: SparkSession) -> None:
    frame = spark.sql(MANY)
    expected = {tuple(row) for row in window_digests(frame).collect()}
    mixed = frame.select(*reversed(frame.columns)).repartition(5).sortWithinPartitions("k", "x")
    assert {tuple(row) for row in window_digests(mixed).collect()} == expected
    assert len(expected) == 7


def test_digest_ignores_offset_and_attempt(spark: SparkSession) -> None:
    assert digest_of(spark, "select 1L offset, 1L attempt, 'x' a") == digest_of(
        spark,
        "select 2L offset, 'x' a",
    )


@pytest.mark.parametrize(
    "change",
    ["union all select 'x'", "union all select 'z'", "union all select null"],
)
def test_digest_counts_duplicates_and_additions(spark: SparkSession, change: str) -> None:
    before = digest_of(spark, "select 'x' a")
    after = digest_of(spark, f"select 'x' a {change}")
    assert before[1] != after[1]
    assert (before[0], after[0]) == (1, 2)


def test_digest_changes_when_one_tuple_replaces_another(spark: SparkSession) -> None:
    one = digest_of(spark, "select * from values ('x'), ('x'), ('y') t(a)")
    assert one != digest_of(spark, "select * from values ('x'), ('y'), ('y') t(a)")


def test_digest_is_the_sum_of_its_tuple_digests_modulo_2_64(spark: SparkSession) -> None:
    every = digest_of(spark, "select cast(id as string) a, id * 0.5D f from range(100)")
    rows = spark.sql("select id as window_id, cast(id as string) a, id * 0.5D f from range(100)")
    singles = [tuple(row)[1:] for row in window_digests(rows).collect()]
    for place in (1, 2):
        parts = [[int(text, 16) for text in found[place].split("-")] for found in (every, *singles)]
        assert parts[0][1:] == [sum(one[half] for one in parts[1:]) % 2**64 for half in (1, 2)]


def test_digests_in_format_2_are_stable(spark: SparkSession) -> None:
    # Stored seals and facts contain these values.
    found = digest_of(spark, "select 1 a, 'x' b, 0.5D f union all select 2, null, null")
    assert found == (
        2,
        "367e5a27-e52cc743fc3b7a64-6a26d516599bf1a8",
        "367e5a27-c5028cf42f112902-cd31651d1f7b1aa8",
    )
    names = row_hashes(spark.sql("select 1 a, 'x' b").schema)
    assert tuple(spark.sql("select 1 a, 'x' b").select(*names).collect()[0]) == (
        -6029574794745043002,
        780353114734605292,
    )


def test_changes_in_float_columns_affect_only_the_float_digest(spark: SparkSession) -> None:
    one = digest_of(spark, "select 1 a, array(named_struct('y', 1.5D)) f")
    other = digest_of(spark, "select 1 a, array(named_struct('y', 2.5D)) f")
    assert one[1] == other[1]
    assert one[2] != other[2]
    assert digest_of(spark, "select 1 a")[2] is None


def test_digest_detects_every_partial_swap_of_values_between_two_rows(
    spark: SparkSession,
) -> None:
    # Rules: X17
    names = list(EXCHANGED)
    whole = (1 << len(names)) - 1
    rng = random.Random(11)
    masks = [1 << place for place in range(len(names))]
    masks += [whole ^ mask for mask in masks] + [rng.randrange(1, whole) for _ in range(200)]
    rows = [(number, bool(row), mask) for number, mask in enumerate([0, *masks]) for row in (0, 1)]
    chosen = [
        f"if((shiftright(mask, {place}) & 1) = cast(second as int), {one}, {other}) {name}"
        for place, (name, (one, other)) in enumerate(EXCHANGED.items())
    ]
    frame = spark.createDataFrame(rows, "window_id bigint, second boolean, mask bigint")
    frame = frame.selectExpr("window_id", *chosen)
    found = {
        row["window_id"]: (row["digest"], row["float_digest"])
        for row in window_digests(frame).collect()
    }
    unseen = [mask for number, mask in enumerate(masks, 1) if found[number] == found[0]]
    assert not unseen, [
        [name for place, name in enumerate(names) if mask >> place & 1] for mask in unseen
    ]


def test_digest_distinguishes_nulls_in_wide_schemas(spark: SparkSession) -> None:
    wide = ", ".join(f"if(id = {i}, null, 1) c{i:03}" for i in range(140))
    digests = (
        window_digests(spark.sql(f"select id window_id, {wide} from range(140)"))
        .select("digest")
        .collect()
    )
    assert len(set(digests)) == 140


def test_several_frames_are_digested_in_one_job(spark: SparkSession) -> None:
    frame = spark.sql(MANY)
    grouped = frame.groupBy("window_id").agg(*digest_columns(frame.schema))
    assert {tuple(row) for row in grouped.collect()} == {
        tuple(row) for row in window_digests(frame).collect()
    }


UNSUPPORTED = [
    "select parse_json('1') a",
    "select null a",
    "select array('x' collate UTF8_LCASE) a",
]


@pytest.mark.parametrize("query", UNSUPPORTED)
def test_unsupported_types_are_rejected_with_the_column(spark: SparkSession, query: str) -> None:
    with pytest.raises(InputError, match='column "a" of type'):
        check_digestible(spark.sql(query).schema)


def test_empty_digest_is_specific_to_the_schema(spark: SparkSession) -> None:
    schema = spark.sql(MANY).schema
    digest, float_digest = empty_digests(schema)
    assert digest == float_digest == f"{schema_hash(schema)}-{'0' * 16}-{'0' * 16}"
    assert empty_digests(spark.sql("select 1L window_id, 1 a").schema)[1] is None
