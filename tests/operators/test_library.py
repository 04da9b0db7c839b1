"""The library's frame operators against rows of Python, for any cut into groups; wrong
properties.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.application import Application, FrameOperator, OperatorContext
from rewindow.operators import Aggregate, Sample, Select, Split, TopN, Union
from rewindow.testing import run_application
from rewindow.windows import Grid, WindowRange
from tests.operators import library_reference as reference
from tests.operators.library_reference import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("number", pa.int64()),
        ("price", pa.float64()),
    ]
)
WINDOWS = range(20, 32)
CALLS = [*reference.FUNCTIONS, "count(*)", "first(number)", "last(price)"]


def make_rows(seed: int) -> list[Row]:
    """Returns tuples with ties, nulls and empty windows; prices whose sum depends on its order."""
    chosen = random.Random(seed)
    rows = []
    for window in WINDOWS:
        for offset in range(chosen.choice([0, 3, 9])):
            rows.append(
                {
                    "window_id": window,
                    "offset": offset,
                    "key": chosen.choice(["a", "b", None]),
                    "number": chosen.choice([1, 2, 3, None]),
                    "price": chosen.choice([0.1, 1e16, -1e16, 2.5, None]),
                }
            )
    return rows


def run(
    spark: SparkSession,
    operator: FrameOperator,
    rows: list[Row],
    *cuts: list[int],
    **attributes: Any,
) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the tuples of each port, which must be equal for every cut into groups."""
    found = []
    for cut in cuts or ([len(WINDOWS)],):
        app = Application("a", "1 s")
        feeds = {port: app.input(port, COLUMNS) for port in operator.input_ports()}
        node = app.add("o", operator, **attributes, **feeds)  # type: ignore[arg-type]
        for port in node.output_ports():
            app.output(port, node[port], key=())
        tuples: dict[int, list[Row]] = {}
        for row in rows:
            tuples.setdefault(row["window_id"], []).append(
                {name: value for name, value in row.items() if name not in ("window_id", "offset")}
            )
        ran = run_application(
            app,
            dict.fromkeys(feeds, tuples),
            windows=(WINDOWS[0], WINDOWS[-1]),
            group_windows=cut,
            spark=spark,
        )
        found.append({port: sorted(rows, key=repr) for port, rows in ran.outputs.items()})
    assert all(one == found[0] for one in found)
    return found[0]


@pytest.mark.jvm
@pytest.mark.parametrize(("length", "slide"), [(1, None), (4, None), (6, 4)])
def test_aggregates_equal_the_reference_for_any_grouping(
    spark: SparkSession,
    length: int,
    slide: int | None,
) -> None:
    # Rules: O113, O114, O116, O117, O118, O119, O120, O128
    rows = make_rows(length)
    calls = {f"c{number}": text for number, text in enumerate(CALLS)}
    operator = Aggregate(columns=COLUMNS, aggregates=calls, by=("key",))
    found = run(
        spark,
        operator,
        rows,
        [12],
        [3, 7, 2],
        application_windows=length,
        slide_windows=slide,
    )
    expected = []
    for window, members in reference.results_of(rows, WINDOWS, length, slide).items():
        for key, group in reference.by_values(members, ["key"]).items():
            values = [reference.aggregate(group, text) for text in CALLS]
            expected.append((window, *key, *values))
    assert rounded(found["out"]) == rounded(expected)


@pytest.mark.jvm
def test_sums_of_floats_are_exact_for_any_magnitude(spark: SparkSession) -> None:
    # Rules: O114, O116
    inf, nan = math.inf, math.nan
    groups = [
        [1e16, 1.0, -1e16],
        [0.1] * 10,
        [-1e300, 1e-300, 1e300, 3.0, None],
        [5e-324, 5e-324, -5e-324],
        [1.7e308, -1.7e308, 2.0**31, -(2.0**30), 2.0**-70],
        [-0.0, -0.0],
        [None, None],
        [inf, 1.0, -1e300],
        [-inf, -inf, 2.0],
        [inf, -inf],
        [nan, 1e300, inf],
    ]
    chosen = random.Random(1)
    for _ in range(20):
        groups.append(
            [math.ldexp(chosen.random() - 0.5, chosen.randint(-60, 60)) for _ in range(9)]
        )
    values = [(7, place, value) for place, group in enumerate(groups) for value in group]
    columns = pa.schema([("key", pa.int64()), ("price", pa.float64())])
    calls = {"spent": "sum(price)", "mean": "avg(price)", "n": "count(price)", "u": "unique(price)"}
    operator = Aggregate(columns=columns, aggregates=calls, by=("key",))
    frame = spark.createDataFrame(values, "window_id bigint, key bigint, price double")
    context = OperatorContext(Grid(1000), WindowRange(7, 7))
    for partitions in (1, 3):
        rows = {"rows": frame.repartition(partitions, "price")}
        found = {row.key: row for row in operator.transform(rows, None, context).collect()}
        for place, group in enumerate(groups):
            numbers = [value for value in group if value is not None]
            row = found[place]
            assert row.n == len(numbers)
            if not numbers:
                assert (row.spent, row.mean) == (None, None)
                continue
            total = nan if {inf, -inf} <= {*numbers} else math.fsum(numbers)
            assert row.spent == pytest.approx(total, rel=4e-16, abs=0, nan_ok=True), group
            assert row.mean == pytest.approx(total / len(numbers), rel=4e-16, abs=0, nan_ok=True)


def rounded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns the rows with 12 digits of each number, in order."""
    found = []
    for row in rows:
        found.append(tuple(float(f"{one:.12g}") if isinstance(one, float) else one for one in row))
    return sorted(found, key=repr)


@pytest.mark.jvm
@pytest.mark.parametrize(("length", "slide"), [(1, None), (6, 4)])
def test_top_tuples_equal_the_reference_for_any_grouping(
    spark: SparkSession,
    length: int,
    slide: int | None,
) -> None:
    # Rules: O121
    rows = make_rows(8)
    operator = TopN(columns=COLUMNS, top=2, by=("number",), per=("key",))
    found = run(
        spark,
        operator,
        rows,
        [12],
        [1, 6, 5],
        application_windows=length,
        slide_windows=slide,
    )
    expected = []
    for window, members in reference.results_of(rows, WINDOWS, length, slide).items():
        for row in reference.top(members, 2, "number", ["key"]):
            expected.append((window, row["key"], row["number"], row["price"]))
    assert found["out"] == sorted(expected, key=repr)


@pytest.mark.jvm
def test_range_reduce_and_counts_of_empty_windows_equal_plain_python(spark: SparkSession) -> None:
    # Rules: O115, O129
    rows = make_rows(3)
    operator = Aggregate(
        columns=COLUMNS, aggregates={"n": "count(*)"}, where="number > 1", emit_empty=True
    )
    found = run(spark, operator, rows, [12], [5, 7])["out"]
    expected = []
    for window in WINDOWS:
        chosen = [row for row in rows if row["window_id"] == window and (row["number"] or 0) > 1]
        expected.append((window, len(chosen)))
    assert found == sorted(expected, key=repr) and 0 in [count for _, count in found]
    operator = Aggregate(columns=COLUMNS, aggregates={"number": "range(number)"})
    # Rules: O122
    reducing = Aggregate(
        columns=COLUMNS,
        aggregates={"product": "reduce(number)", "spent": "sum(price)"},
        reduce={"product": "one * other"},
        by=("key",),
    )
    products = []
    for (window, key), some in reference.by_values(rows, ["window_id", "key"]).items():
        numbers = [row["number"] for row in some if row["number"]]
        products.append((window, key, math.prod(numbers) if numbers else None))
    reduced = run(spark, reducing, rows, [5, 7])["out"]
    assert [row[:3] for row in reduced] == sorted(products, key=repr)
    for window, low, high in run(spark, operator, rows)["out"]:
        numbers = [row["number"] for row in rows if row["window_id"] == window and row["number"]]
        assert (low, high) == (min(numbers), max(numbers))


@pytest.mark.jvm
def test_selection_of_tuples_equals_the_reference(spark: SparkSession) -> None:
    # Rules: O109, O110, O111, O112, O125
    rows = make_rows(4)
    operator = Select(
        columns=COLUMNS,
        where="number >= 2",
        keep=["number"],
        expressions={
            "name": "key",
            "number": "number * 2",
            "dear": "price > 1",
            "part": "sequence(1, number)",
        },
        types={"number": "int", "dear": "boolean", "part": "array<bigint>"},
        explode="part",
    )
    expected = []
    for row in rows:
        if row["number"] is not None and row["number"] >= 2:
            dear = None if row["price"] is None else row["price"] > 1
            for part in range(1, row["number"] + 1):
                expected.append((row["window_id"], row["number"] * 2, row["key"], dear, part))
    assert run(spark, operator, rows)["out"] == sorted(expected, key=repr)


@pytest.mark.jvm
def test_split_union_and_sample_do_not_change_tuples(spark: SparkSession) -> None:
    # Rules: O124, O126, O143
    rows = make_rows(5)
    whole = [(row["window_id"], row["key"], row["number"], row["price"]) for row in rows]
    conditions = {"two": "number = 2", "above": "number >= 2"}
    found = run(spark, Split(columns=COLUMNS, conditions=conditions), rows)
    expected: dict[str, list[Any]] = {"two": [], "above": [], "rest": []}
    for row in whole:
        expected["two" if row[2] == 2 else "above" if row[2] == 3 else "rest"].append(row)
    assert found == {port: sorted(some, key=repr) for port, some in expected.items()}
    found = run(spark, Split(columns=COLUMNS, conditions=conditions, every=True), rows)
    assert found["above"] == sorted(expected["two"] + expected["above"], key=repr)

    found = run(spark, Union(columns=COLUMNS, source="from"), rows)
    both = [(*row, port) for row in whole for port in ("left", "right")]
    assert found["out"] == sorted(both, key=repr)

    parts = []
    for fraction in (0.3, 0.7, 1):
        sample = Sample(columns=COLUMNS, fraction=fraction, key=("number", "price"))
        parts.append(set(run(spark, sample, rows)["out"]))
    assert parts[0] < parts[1] < parts[2] == set(whole)
    keys = {row[2:] for row in parts[1]}
    assert parts[1] == {row for row in whole if row[2:] in keys}


@pytest.mark.jvm
def test_results_do_not_depend_on_the_partitions_of_spark(spark: SparkSession) -> None:
    # Rules: O121
    rows = make_rows(6)
    calls = {"spent": "sum(price)", "mean": "avg(price)", "most": "most_frequent(price)"}
    operators = [
        Aggregate(columns=COLUMNS, aggregates=calls),
        TopN(columns=COLUMNS, top=2, by=("number",), rank="rank"),
    ]
    context = OperatorContext(Grid(1000), WindowRange(WINDOWS[0], WINDOWS[-1]))
    kind = "window_id bigint, offset bigint, key string, number bigint, price double"
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], kind)
    for operator in operators:
        found = []
        for partitions in (1, 2, 5):
            inputs = {"rows": frame.repartition(partitions, "price", "key")}
            result = operator.transform(inputs, None, context)
            found.append(sorted(map(tuple, result.collect()), key=repr))
        assert found[0] == found[1] == found[2] != []


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (TopN(columns=COLUMNS, top=0, by=("price",)), "greater than or equal to 1"),
        (TopN(columns=COLUMNS, top=1, by=("prise",)), 'no column "prise". Did you mean "price"'),
        (Sample(columns=COLUMNS, fraction=1.5, key=("key",)), "less than or equal to 1"),
        (Sample(columns=COLUMNS, fraction=0, key=("key",)), "greater than 0"),
        (
            Aggregate(columns=COLUMNS, aggregates={"q": "quantile(price, 1.5)"}),
            "aggregates.q: the share of a quantile must be from 0 to 1, not 1.5",
        ),
        (Aggregate(columns=COLUMNS, aggregates={"q": "quantile(price)"}), "quantile needs a share"),
        (
            Aggregate(columns=COLUMNS, aggregates={"m": "sum(key)"}),
            'column "key" must be a number, not string',
        ),
        (Aggregate(columns=COLUMNS, aggregates={"m": "mean(price)"}), "must be one of sum"),
        (
            Aggregate(columns=COLUMNS, aggregates={"n": "count(*)"}, by=("key",), emit_empty=True),
            "emit_empty",
        ),
        (
            Aggregate(columns=COLUMNS, aggregates={"p": "reduce(price)"}),
            "reduce: it must have an expression for each aggregate that uses reduce",
        ),
        (
            Aggregate(
                columns=COLUMNS, aggregates={"p": "reduce(price)"}, reduce={"p": "one + price"}
            ),
            'reduce.p: the expression can only use one and other, not "price"',
        ),
        (Select(columns=COLUMNS, where="nummer > 1"), 'where: the input has no column "nummer"'),
        (Select(columns=COLUMNS, where="rand() < 0.5"), '"rand" cannot be used'),
        (
            Select(columns=COLUMNS, expressions={"x": "price * 2"}),
            "types.x: set the type of the expression",
        ),
        (Select(columns=COLUMNS, expressions={"x": "key"}, types={"x": "txt"}), "is not a type"),
        (Select(columns=COLUMNS, explode="key"), 'column "key" must be a list, not string'),
        (Split(columns=COLUMNS, conditions={"rest": "true"}), "the name of a built-in port"),
        (Union(columns=COLUMNS, ports=("a", "a")), "ports: names must be different, not a, a"),
    ],
)
def test_wrong_properties_are_reported_by_name(operator: FrameOperator, message: str) -> None:
    [wrong] = operator.wrong_properties()
    assert message in f"{wrong.path}: {wrong.message}"


def test_sql_keywords_and_lambda_parameters_are_not_mistaken_for_columns() -> None:
    sql = "case when `number` in (1, 2) then upper(key) like 'a%' else date '2020-01-01' < now end"
    assert "now" in Select(columns=COLUMNS, where=sql).wrong_properties()[0].message
    for known in (
        sql.replace("< now", "is not null"),
        "cast(price as decimal(10, 2)) > 1e3 and PRICE is null",
        "exists(array(number), x -> x > 1)",
    ):
        assert not Select(columns=COLUMNS, where=known).wrong_properties()


def test_operators_have_state_only_with_application_windows() -> None:
    operator = TopN(columns=COLUMNS, top=1, by=("price",))
    app = Application("a", "1 s")
    node = app.add("top", operator, rows=app.input("s"))
    assert not node.operator.is_stateful
    other = TopN(columns=COLUMNS, top=1, by=("price",))
    app.add("hour", other, application_windows=5, rows=app.input("s"))
    assert other.is_stateful
    other.set_properties(top=2)
    assert other.is_stateful and other.top == 2
