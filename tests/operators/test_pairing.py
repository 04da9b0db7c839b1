"""Deduplicate, Join and Enrich against plain Python, for any division into commit groups."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.application import Application, FrameOperator
from rewindow.application.validation import find_violations
from rewindow.operators import Aggregate, Deduplicate, Enrich, Join, Select
from rewindow.testing import run_application
from tests.operators import library_reference as reference
from tests.operators.library_reference import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = pa.schema([("key", pa.string()), ("number", pa.int64()), ("at", TIME)])
OTHER = pa.schema([("key", pa.string()), ("value", pa.int64()), ("at_right", TIME)])
WINDOWS = range(20, 32)
DUPLICATES = {
    "columns": COLUMNS,
    "key": ("key",),
    "event_at": "at",
    "reference": "1970-01-01T00:00:20Z",
    "expire": "5 s",
    "span": "2 s",
}


def make_rows(seed: int, columns: pa.Schema = COLUMNS) -> list[Row]:
    """Returns tuples with late and future times, equal ones, nulls, and empty windows; times are
    seconds.
    """
    chosen = random.Random(seed)
    rows = []
    for window in WINDOWS:
        for offset in range(chosen.choice([0, 1, 4, 9])):
            at = None if chosen.random() < 0.05 else window + chosen.choice([-9, -4, -2, -1, 0, 1])
            if chosen.random() < 0.03:
                at = window + 6
            row = {
                "window_id": window,
                "offset": offset,
                "key": chosen.choice(["a", "b", "c", None]),
            }
            row[columns.names[1]] = chosen.choice([1, 2, 3])
            rows.append({**row, "at": at})
    return rows


def instant(at: int | None) -> datetime | None:
    return None if at is None else EPOCH + timedelta(seconds=at)


def values(row: Row | None) -> tuple[Any, ...]:
    if row is None:
        return (None, None, None)
    key, number, at = list(row.values())[2:]
    return key, number, instant(at)


def run(
    spark: SparkSession,
    operator: FrameOperator,
    inputs: Mapping[str, list[Row]],
    schemas: Mapping[str, pa.Schema],
    *runs: tuple[list[int], int],
    **attributes: Any,
) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the tuples of each port, equal for every cut into groups and number of partitions."""
    assert operator.wrong_properties() == []
    found = []
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    for cut, partitions in runs:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        app = Application("a", "1 s")
        feeds = {port: app.input(port, schemas[port]) for port in inputs}
        node = app.add("o", operator, **attributes, **feeds)
        for port in node.output_ports():
            app.output(port, node[port], key=())
        tuples: dict[str, dict[int, list[Any]]] = {}
        for port, rows in inputs.items():
            windows = tuples.setdefault(port, {})
            for row in rows:
                windows.setdefault(row["window_id"], []).append(values(row))
        ran = run_application(
            app, tuples, windows=(WINDOWS[0], WINDOWS[-1]), group_windows=cut, spark=spark
        )
        found.append({port: sorted(rows, key=repr) for port, rows in ran.outputs.items()})
    spark.conf.set("spark.sql.shuffle.partitions", before)
    assert found[1:] == found[:-1]
    return found[0]


def check_duplicates(spark: SparkSession, seed: int, cuts: list[tuple[list[int], int]]) -> None:
    for whole_range, null_keys in ((False, "apart"), (True, "equal")):
        operator = Deduplicate(**DUPLICATES, whole_range=whole_range, null_keys=null_keys)
        rows = make_rows(seed)
        found = run(spark, operator, {"rows": rows}, {"rows": COLUMNS}, *cuts)
        expected = reference.outcomes(rows, operator, start=15, span=2, buckets=3)
        for port in found:
            rows_of_port = expected[port.removeprefix("o.")]
            tuples = [(row["window_id"], *values(row)) for row in rows_of_port]
            assert found[port] == sorted(tuples, key=repr), (seed, port, whole_range)


@pytest.mark.jvm
def test_removed_duplicates_equal_the_reference_for_any_grouping(spark: SparkSession) -> None:
    # Rules: E71, E72, E73, E74, E75, E76, E78, X25, X39
    check_duplicates(spark, 3, [([12], 1), ([5, 7], 2)])


def check_pairs(
    spark: SparkSession,
    seed: int,
    cuts: list[tuple[list[int], int]],
    *primaries: tuple[str, ...],
) -> None:
    left, right = make_rows(seed), make_rows(seed + 1000, OTHER)
    inputs = {"left": left, "right": right}
    schemas = {"left": COLUMNS, "right": OTHER}
    for primary in primaries:
        null_keys = "apart" if primary else "equal"
        operator = Join(
            columns=COLUMNS,
            right_columns=OTHER,
            on=("key",),
            expire="3 s",
            event_at={"left": "at", "right": "at_right"},
            primary=primary,
            null_keys=null_keys,
        )
        found = run(spark, operator, inputs, schemas, *cuts)["out"]
        expected = []
        is_equal = null_keys == "equal"
        for pair in reference.pairs_with_expiry(left, right, 3, primary, is_equal):
            expected.append((pair[0], *values(pair[1]), *values(pair[2])[1:]))
        assert found == sorted(expected, key=repr) != [], (seed, primary)


@pytest.mark.jvm
def test_joins_with_expiry_equal_the_reference_for_any_grouping(spark: SparkSession) -> None:
    # Rules: E77, E78, X25
    check_pairs(spark, 4, [([12], 2), ([7, 5], 1)], (), ("left",))


@pytest.mark.jvm
@pytest.mark.parametrize(("length", "null_keys"), [(1, "apart"), (4, "equal")])
def test_joins_per_application_window_equal_the_reference_for_any_grouping(
    spark: SparkSession,
    length: int,
    null_keys: str,
) -> None:
    # Rules: O123, X25
    left, right = make_rows(5), make_rows(6, OTHER)
    operator = Join(columns=COLUMNS, right_columns=OTHER, on=("key",), null_keys=null_keys)
    found = run(
        spark,
        operator,
        {"left": left, "right": right},
        {"left": COLUMNS, "right": OTHER},
        *[([7, 5], 2)],
        application_windows=length,
    )["out"]
    expected = []
    lefts = reference.results_of(left, WINDOWS, length, None)
    rights = reference.results_of(right, WINDOWS, length, None)
    for window in lefts:
        is_equal = null_keys == "equal"
        for one, other in reference.pairs_of_windows(lefts[window], rights[window], is_equal):
            expected.append((window, *values(one), *values(other)[1:]))
    assert found == sorted(expected, key=repr) != []


@pytest.mark.jvm
def test_tuples_are_joined_with_the_newest_table_row_up_to_their_window(
    spark: SparkSession,
) -> None:
    # Rules: X25
    rows, table = make_rows(7), make_rows(8, OTHER)
    table = [row for row in table if row["window_id"] % 3 == 0]
    for null_keys in ("apart", "equal"):
        operator = Enrich(columns=COLUMNS, table_columns=OTHER, on=("key",), null_keys=null_keys)
        found = run(
            spark,
            operator,
            {"rows": rows, "table": table},
            {"rows": COLUMNS, "table": OTHER},
            *[([12], 1), ([5, 7], 2)],
        )["out"]
        expected = []
        for row, newest in reference.enriched(rows, table, null_keys == "equal"):
            expected.append((row["window_id"], *values(row), *values(newest)[1:]))
        assert found == sorted(expected, key=repr)


@pytest.mark.exhaustive
@pytest.mark.jvm
@pytest.mark.parametrize("seed", range(100, 108))
def test_duplicates_and_joins_equal_the_reference_for_many_groupings(
    spark: SparkSession,
    seed: int,
) -> None:
    # Rules: E71 to E78
    chosen = random.Random(seed)
    cut: list[int] = []
    while sum(cut) < len(WINDOWS):
        cut.append(min(chosen.randint(1, 6), len(WINDOWS) - sum(cut)))
    runs = [([12], 1), (cut, 2), (cut[::-1], 5)]
    check_duplicates(spark, seed, runs)
    check_pairs(spark, seed, runs, (), ("left",), ("right",), ("left", "right"))


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Deduplicate(**{**DUPLICATES, "expire": "0 s"}), "expire: it must be above 0"),
        (Deduplicate(**{**DUPLICATES, "span": "soon"}), '"soon" cannot be read'),
        (
            Deduplicate(**{**DUPLICATES, "event_at": "number"}),
            'column "number" must be a timestamp, not int64',
        ),
        (Deduplicate(**{**DUPLICATES, "key": ("k",)}), 'key: the input has no column "k"'),
        (Join(columns=COLUMNS, right_columns=OTHER, on=("number",)), 'has no column "number"'),
        (
            Join(columns=COLUMNS, right_columns=COLUMNS, on=("key",)),
            "at would appear twice in the output",
        ),
        (Join(columns=COLUMNS, right_columns=OTHER, on=("key",), expire="-1 s"), "expire"),
        (
            Join(columns=COLUMNS, right_columns=OTHER, on=("key",), expire="1 s"),
            'event_at.left: the left input has no column "None"',
        ),
        (
            Join(columns=COLUMNS, right_columns=OTHER, on=("key",), primary=("left",)),
            "expire: it must be set if event_at or primary is set",
        ),
        (
            Enrich(columns=COLUMNS, table_columns=pa.schema([("key", pa.int64())]), on=("key",)),
            'column "key" must have the same type in both inputs, not string and int64',
        ),
    ],
)
def test_wrong_properties_are_reported_by_name(operator: FrameOperator, message: str) -> None:
    [wrong] = operator.wrong_properties()
    assert message in f"{wrong.path}: {wrong.message}"


def test_recorded_order_requires_a_recorded_stream() -> None:
    # Rules: X43
    numbered = pa.schema([*COLUMNS, ("offset", pa.int64())])
    operators: dict[str, tuple[FrameOperator, str]] = {
        "once": (Deduplicate(**{**DUPLICATES, "order_by": ("offset",)}), "rows"),
        "ends": (Aggregate(columns=numbered, aggregates={"f": "first(number)"}), "rows"),
        "named": (Enrich(columns=OTHER, table_columns=COLUMNS, on=("key",)), "table"),
        "sum": (Aggregate(columns=COLUMNS, aggregates={"s": "sum(number)"}), "rows"),
    }
    found = {}
    for is_recorded in (True, False):
        app = Application("pairs", "1 second")
        stream = app.input("rows", COLUMNS)
        selected = app.add("selected", Select(columns=COLUMNS), rows=stream)
        for name, (operator, port) in operators.items():
            feeds = {port: stream if is_recorded else selected}
            if port == "table":
                feeds["rows"] = app.input("other", OTHER)
            app.add(name, operator, **feeds)  # type: ignore[arg-type]
        violations = find_violations(app)
        found[is_recorded] = sorted(one.operator for one in violations if one.rule == "X43")
    assert found == {True: [], False: ["ends", "named", "once"]}
