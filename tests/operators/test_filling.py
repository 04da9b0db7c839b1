"""Gap filling against a reference that asks point by point; what it leaves alone; settings that
cannot be.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from rewindow.errors import InputError
from rewindow.operators import FillSettings, GapSettings, fill_gaps, gap_report
from rewindow.operators.filling.values import PROVENANCE
from tests.operators.filling_reference import Made, Method, Row, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEP = 10
BEGIN = 5
END = 305
CASES = 400
S = 1_000_000
METHODS = {
    "plain": Method("null", "a"),
    "same": Method("constant", "a", constant=7.5),
    "before": Method("forward", "a", max_carry=30),
    "behind": Method("backward", "a", max_gap=40),
    "closer": Method("nearest", "a", max_carry=25, max_gap=100),
    "line": Method("linear", "a", max_gap=60),
    "near_line": Method("linear", "a", max_carry=30),
    "level": Method("linear", "a", max_carry=70, extrapolate=True),
    "other": Method("previous_of", "b"),
    "again": Method("seasonal", "a", periods=(50, 100), fallback="nearest", max_carry=50),
}
GIVEN: dict[str, Any] = {
    "plain": "null",
    "same": {"method": "constant", "value": 7.5},
    "before": {"method": "forward", "max_carry": 30},
    "behind": {"method": "backward", "max_gap": 40},
    "closer": {"method": "nearest", "max_carry": "25 s", "max_gap": "100 s"},
    "line": {"method": "linear", "max_gap": "1 min"},
    "near_line": {"method": "linear", "max_carry": 30},
    "level": {"method": "linear", "max_carry": 70, "extrapolate": True},
    "other": {"method": "previous_of", "column": "b"},
    "again": {
        "method": "seasonal",
        "periods": ["50 s", "100 s"],
        "fallback": "nearest",
        "max_carry": 50,
    },
}


def settings(**more: Any) -> FillSettings:
    """Returns the settings of these tests: seconds as whole numbers, two keys, a column for each
    method.
    """
    given = {
        "event_at": "ts",
        "unit": "s",
        "step": STEP,
        "from_time": BEGIN * S,
        "to_time": END * S,
        "columns": GIVEN,
        "keys": ["case", "key"],
    }
    return FillSettings(**{**given, **more})


def make_rows(random: Random) -> list[Row]:
    """Returns rows of a key: on and off the grid, some twice in a point, some outside, with
    nulls.
    """
    times = random.sample(range(-20, 330), random.choice([0, 1, 2, 5, 9, 25]))
    return [
        Row(ts, random.choice([None, float(ts), 2.5 * ts]), random.choice([None, ts]))
        for ts in times
    ]


def frame_of(spark: SparkSession, cases: dict[tuple[int, str], list[Row]]) -> DataFrame:
    """Returns the rows of all cases: columns of one source hold the same value."""
    columns = ", ".join(f"{name} {'bigint' if name == 'other' else 'double'}" for name in METHODS)
    rows = [
        (
            case,
            key,
            row.ts,
            row.a,
            row.b,
            *(getattr(row, method.source) for method in METHODS.values()),
        )
        for (case, key), listed in cases.items()
        for row in listed
    ]
    return spark.createDataFrame(
        rows,
        f"case int, key string, ts bigint, a double, b bigint, {columns}",
    )


def make_cases(seed: int) -> dict[tuple[int, str], list[Row]]:
    random = Random(seed)
    return {(case, key): make_rows(random) for case in range(CASES) for key in ("x", "y")}


def made_of(filled: DataFrame) -> dict[tuple[int, str], list[Made]]:
    found: dict[tuple[int, str], list[Made]] = {}
    for row in filled.where("_rw_is_made").collect():
        values = tuple((row[name], row["_rw_methods"][name]) for name in METHODS)
        made = Made(row["ts"], row["_rw_made_rows"], row["_rw_gap_is_open"], values)
        found.setdefault((row["case"], row["key"]), []).append(made)
    return {place: sorted(rows) for place, rows in found.items()}


def is_explained(
    method: Method,
    ts: int,
    value: float | None,
    word: str,
    times: list[int] | None,
    recorded: dict[int, Row],
) -> bool:
    """Returns whether a value is what the rows give that are named as its sources, by their
    timestamps.
    """
    if times is None:
        return value is None or word == "constant"
    if word in ("none", "expired", "null", "constant") or not set(times) <= {
        at * S for at in recorded
    }:
        return False
    rows = [recorded[time // S] for time in times]
    at = ts * S
    found = [getattr(row, method.source) for row in rows]
    is_before = word in ("forward", "previous_of", "seasonal")
    is_behind = word == "backward"
    if (
        (is_before and times[0] >= at)
        or (is_behind and times[0] <= at)
        or (method.fills_nulls and None in found)
    ):
        return False
    if len(times) == 1:
        given = found[0]
    else:
        share = (at - times[0]) / (times[1] - times[0])
        given = None if None in found else found[0] + (found[1] - found[0]) * share
    return given == value if None in (given, value) else math.isclose(given, value)


def is_same(one: Made, other: Made) -> bool:
    """Returns whether two rows are the same but for the last digits of a line."""
    pairs = zip(one.values, other.values, strict=True)
    close = all(
        mine == want
        or (
            None not in (mine[0], want[0])
            and math.isclose(mine[0], want[0], abs_tol=1e-9)
            and mine[1] == want[1]
        )
        for mine, want in pairs
    )
    return close and one[:3] == other[:3]


@pytest.mark.parametrize("max_rows", [pytest.param(1_000_000, marks=pytest.mark.long), 3])
def test_filling_equals_a_reference_implementation(spark: SparkSession, max_rows: int) -> None:
    # Rules: G2, G4 to G8, G19 to G24, G29 to G33, G39
    cases = make_cases(max_rows)
    expected = [[case, key] for case, key in cases]
    filled = fill_gaps(frame_of(spark, cases), settings(max_rows=max_rows, expected_keys=expected))
    found = made_of(filled)
    for row in filled.where("_rw_is_made").collect():
        recorded = {one.ts: one for one in cases[row["case"], row["key"]]}
        for name, method in METHODS.items():
            about = row[name], row["_rw_methods"][name], row["_rw_sources"][name]
            assert is_explained(method, row["ts"], *about, recorded), (
                f"{name} of {row}: {sorted(recorded)}"
            )
    for place, rows in cases.items():
        wanted = fill(rows, list(METHODS.values()), STEP, BEGIN, END, max_rows)
        mine = found.get(place, [])
        assert len(mine) == len(wanted), f"{place}: {rows}"
        for one, want in zip(mine, wanted, strict=True):
            assert is_same(one, want), f"{place}: {sorted(rows)}\nwanted {want}\nfound  {one}"


@pytest.mark.long
def test_filling_keeps_recorded_rows_and_is_idempotent(spark: SparkSession) -> None:
    # Rules: G40, X24, G26, G43, G44
    frame = frame_of(spark, dict(list(make_cases(3).items())[:40]))
    odd = [
        (None, "x", 100, 1.0, 1),
        (0, None, 100, 1.0, 1),
        (0, "x", None, 1.0, 1),
        (0, "x", 9_999, 1.0, 1),
    ]
    more = spark.createDataFrame(odd, "case int, key string, ts bigint, a double, b bigint")
    frame = frame.unionByName(more, allowMissingColumns=True)
    once = fill_gaps(frame, settings())
    recorded = once.where("not _rw_is_made")
    assert recorded.drop(*PROVENANCE).exceptAll(frame).count() == 0
    assert recorded.count() == frame.count()
    assert once.where("_rw_is_made and (case is null or key is null)").count() == 0, (
        "a null key is never filled (G6)"
    )
    made = once.where("_rw_is_made")
    assert made.count() > 100 and once.where("_rw_is_made and _rw_gap_id is null").count() == 0
    columns = [name for name in once.columns if name not in ("_rw_methods", "_rw_sources")]
    again = fill_gaps(once, settings())
    assert again.select(columns).exceptAll(once.select(columns)).count() == 0
    assert again.count() == once.count()


def test_row_with_a_null_fill_marker_is_a_recorded_row(spark: SparkSession) -> None:
    # Rules: G40, G44
    rows = [(0, 1, None), (10, 9, True), (20, 2, False)]
    frame = spark.createDataFrame(rows, "ts bigint, n bigint, _rw_is_made boolean")
    given = {"event_at": "ts", "unit": "s", "step": 10, "from_time": 0, "to_time": 30 * S}
    filled = fill_gaps(frame, FillSettings(**given, columns={"n": "forward"}))
    found = filled.select("ts", "n", "_rw_is_made").collect()
    assert sorted(map(tuple, found)) == [(0, 1, False), (10, 1, True), (20, 2, False)]


def test_source_among_rows_with_equal_timestamps_does_not_depend_on_their_order(
    spark: SparkSession,
) -> None:
    # Rules: G38
    rows = [(0, key, n, n) for key in range(40) for n in range(8)]
    given = {
        "event_at": "ts",
        "unit": "s",
        "step": 10,
        "from_time": 0,
        "to_time": 20 * S,
        "keys": ["key"],
    }
    columns = {"season": {"method": "seasonal", "periods": [10]}, "before": "forward"}
    found = []
    for listed in (rows, rows[::-1]):
        frame = spark.createDataFrame(
            listed,
            "ts bigint, key int, season int, before int",
        ).coalesce(1)
        made = fill_gaps(frame, FillSettings(**given, columns=columns)).where("_rw_is_made")
        found.append(sorted(map(tuple, made.select("key", "season", "before").collect())))
    assert len(found[0]) == 40 and found[0] == found[1]


def test_timestamp_columns_are_interpolated_at_their_resolution(spark: SparkSession) -> None:
    # Rules: G39
    rows = [
        (datetime(2024, 1, 1, 0, 20, tzinfo=UTC), 10),
        (datetime(2024, 1, 1, 3, 0, tzinfo=UTC), 15),
    ]
    frame = spark.createDataFrame(rows, "at timestamp, people int")
    filled = fill_gaps(
        frame,
        FillSettings(
            event_at="at",
            step="1 h",
            from_time="2024-01-01",
            to_time="2024-01-01T05:00Z",
            columns={"people": "linear"},
        ),
    )
    found = filled.where("_rw_is_made").selectExpr(
        "date_format(at, 'HH:mm')",
        "people",
        "_rw_before_us",
        "_rw_after_us is null",
        "_rw_gap_is_open",
    )
    first = int(rows[0][0].timestamp() * S)
    assert sorted(tuple(row) for row in found.collect()) == [
        ("01:00", 11, first, False, False),
        ("02:00", 13, first, False, False),
        ("04:00", None, int(rows[1][0].timestamp() * S), True, True),
    ]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown method": (
        {"columns": {"a": "lineal"}},
        'method "lineal" of column a is unknown. Did you mean "linear"',
    ),
    "no step": ({"step": 0}, "step must be above 0, not 0"),
    "a negative bound": (
        {"columns": {"a": {"method": "forward", "max_gap": -1}}},
        "duration must be from 0 to 100 years, not -1",
    ),
    "a range that is reversed": ({"from_time": 9, "to_time": 8}, "time range is empty or reversed"),
    "a grid that is too fine": ({"step": "1 us", "to_time": "2100-01-01"}, "is too short"),
    "a key of another length": (
        {"expected_keys": [["x"]]},
        "must have a non-null value for each of the keys",
    ),
    "a null as key": (
        {"expected_keys": [[1, None]]},
        "must have a non-null value for each of the keys",
    ),
    "a key as column": (
        {"columns": {"key": "forward"}},
        "column key cannot be filled: it is the event timestamp or a key",
    ),
    "what a method needs": ({"columns": {"a": "constant"}}, "method constant needs value"),
    "what it does not need": (
        {"columns": {"a": {"method": "forward", "value": 1}}},
        "value is only for method constant, not for forward",
    ),
    "extrapolation of another method": (
        {"columns": {"a": {"method": "nearest", "extrapolate": True}}},
        "extrapolate is only for linear",
    ),
    "an unknown bound": (
        {"columns": {"a": {"method": "forward", "max_age": "1 h"}}},
        'columns.a.max_age is unknown. Did you mean "max_carry"? Available settings: method, '
        "value, column, periods, fallback",
    ),
    "an unknown fallback": (
        {"columns": {"a": {"method": "seasonal", "periods": [1], "fallback": "magic"}}},
        'columns.a.fallback must be one of null, forward, backward, nearest, linear, not "magic"',
    ),
    "a number as method": (
        {"columns": {"a": 5}},
        "columns.a must be a table with the settings method",
    ),
    "a bound that is no duration": (
        {"columns": {"a": {"method": "forward", "max_gap": "soon"}}},
        'columns.a.max_gap: duration "soon" cannot be read',
    ),
    "a removed method": (
        {"columns": {"a": {"method": "expression", "sql": "previous.b"}}},
        'method "expression" of column a is unknown. Available methods: null, constant',
    ),
    "an unknown unit": ({"unit": "min"}, 'unit must be one of us, ms, s, not "min"'),
    "a removed setting": (
        {"time": "causal"},
        'time is unknown. Did you mean "to_time"? Available settings: zone, hours',
    ),
    "a period of nothing": (
        {"columns": {"a": {"method": "seasonal", "periods": [0]}}},
        "periods must be above 0, not 0",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_settings_are_rejected_immediately(case: str) -> None:
    replay_options, message = WRONG[case]
    with pytest.raises(InputError) as caught:
        settings(**replay_options)
    assert message in str(caught.value)
    with pytest.raises(InputError, match="^from_time is missing; to_time is missing"):
        FillSettings(event_at="at", step="1 h")


def test_columns_with_a_wrong_type_are_rejected_before_anything_runs(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(1, "x", 5, "text")],
        "case int, key string, ts bigint, word string",
    )
    for replay_options, message in (
        (
            {"columns": {"gone": "null"}},
            "frame has no column gone. Available columns: case, key, ts, word",
        ),
        (
            {"columns": {"word": "linear"}},
            'column "word" cannot be interpolated: it must be a number, not string',
        ),
        (
            {"columns": {"word": {"method": "previous_of", "column": "ts"}}},
            'column "word" is string, but "ts" is bigint',
        ),
        (
            {"columns": {}, "event_at": "word"},
            'column "word" must be a timestamp or an integer, not string',
        ),
    ):
        with pytest.raises(InputError) as caught:
            fill_gaps(frame, settings(**replay_options))
        assert message in str(caught.value)
    with pytest.raises(
        InputError,
        match="column _rw_Next has a name that gap filling reserves",
    ):
        fill_gaps(frame.withColumnRenamed("word", "_rw_Next"), settings(columns={}))


def test_grid_finer_than_the_timestamp_type_is_rejected(spark: SparkSession) -> None:
    # Rules: G2
    frame = spark.createDataFrame([(1, 1.0)], "ts bigint, a double")
    for grid in ({"step": "0.5 s"}, {"step": 1, "origin": 250_000}):
        settings = FillSettings(
            event_at="ts",
            unit="s",
            from_time=0,
            to_time=10 * S,
            columns={"a": "forward"},
            **grid,
        )
        with pytest.raises(
            InputError,
            match="counts whole s, but step or origin is not a multiple of 1 s",
        ):
            fill_gaps(frame, settings)


@pytest.mark.parametrize(
    ("kind", "ends", "between"),
    [
        ("decimal(30,5)", ["1234567890123456789012345.12345", "1234567890123456789012345.12348"],
         ["1234567890123456789012345.12346", "1234567890123456789012345.12347"]),
        ("bigint", ["9007199254740993", "9007199254740999"],
         ["9007199254740995", "9007199254740997"]),
        ("decimal(38,0)",
         ["-12345678901234567890123456789012345678", "-12345678901234567890123456789012345672"],
         ["-12345678901234567890123456789012345676", "-12345678901234567890123456789012345674"]),
    ],
)  # fmt: skip
def test_interpolation_between_large_numbers_keeps_all_digits(
    spark: SparkSession,
    kind: str,
    ends: list[str],
    between: list[str],
) -> None:
    # Rules: G22
    frame = spark.createDataFrame([(0, ends[0]), (30, ends[1])], "ts bigint, text string")
    frame = frame.selectExpr("ts", f"cast(text as {kind}) as a")
    settings = FillSettings(
        event_at="ts",
        unit="s",
        step=10,
        from_time=0,
        to_time=40 * S,
        columns={"a": "linear"},
    )
    made = (
        fill_gaps(frame, settings)
        .where("_rw_is_made")
        .orderBy("ts")
        .selectExpr("cast(a as string) as a")
    )
    assert [row["a"] for row in made.collect()] == between


KINDS = {
    "tinyint": (3, 0),
    "smallint": (5, 0),
    "int": (10, 0),
    "bigint": (19, 0),
    "decimal(5,2)": (5, 2),
    "decimal(18,18)": (18, 18),
    "decimal(18,0)": (18, 0),
    "decimal(19,4)": (19, 4),
    "decimal(37,6)": (37, 6),
    "decimal(38,0)": (38, 0),
    "decimal(38,18)": (38, 18),
    "decimal(38,38)": (38, 38),
}
"""Exact types, with the count of all digits and of those after the point."""
BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def on_line(first: int, last: int, since: int, span: int) -> int:
    """Returns the whole number on a line, rounded half away from zero."""
    value = first + Fraction((last - first) * since, span)
    rounded = int(abs(value) + Fraction(1, 2))
    return rounded if value >= 0 else -rounded


LONG = {"tinyint", "smallint", "decimal(5,2)", "decimal(18,0)", "decimal(37,6)", "decimal(38,38)"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind in LONG)) for kind in KINDS]
)
def test_linear_interpolation_between_exact_numbers_is_exact(
    spark: SparkSession, kind: str
) -> None:
    # Rules: G22
    digits, scale = KINDS[kind]
    least, most = -(10**digits) + 1, 10**digits - 1
    if bits := BITS.get(kind):
        least, most = -(2**bits), 2**bits - 1
    random = Random(kind)
    ends = [(least, most), (most, least), (most, most), (1, 1), (0, 1), (0, -1), (least, 0)]
    ends += [(random.randint(least, most), random.randint(least, most)) for _ in range(40)]
    near = [random.randint(least, most - 9) for _ in range(20)]
    ends += [(value, value + random.randint(0, 9)) for value in near]
    rows = []
    wanted = {}
    for key, (first, last) in enumerate(ends):
        span = 10 * random.randint(2, 9)
        rows += [(key, 0, str(first)), (key, span, str(last))]
        for at in range(10, span, 10):
            wanted[key, at] = on_line(first, last, at, span)
    # The text of a number with a point is made by moving the point of a whole number.
    whole = "cast(units as decimal(38,0))"
    if scale:
        text = f"lpad(ltrim('-', units), {digits + 1}, '0')"
        point = f"left({text}, {digits + 1 - scale}) || '.' || right({text}, {scale})"
        whole = f"if(units like '-%', '-', '') || {point}"
    number = f"cast({whole} as {kind})"
    frame = spark.createDataFrame(rows, "key bigint, ts bigint, units string")
    frame = frame.selectExpr("key", "ts", f"{number} as a")
    about: dict[str, Any] = {"event_at": "ts", "unit": "s", "step": 10, "keys": ["key"]}
    filling = FillSettings(from_time=0, to_time=100 * S, columns={"a": "linear"}, **about)
    made = fill_gaps(frame, filling).where("_rw_is_made and _rw_after_us is not null")
    found = made.selectExpr("key", "ts", "cast(a as string) as a").collect()
    units = {}
    for row in found:
        with localcontext(prec=80):
            units[row["key"], row["ts"]] = int(Decimal(row["a"]).scaleb(scale))
    assert units == wanted


@pytest.mark.parametrize(
    ("kind", "first", "last", "between"),
    [
        ("double", -1.7e308, 1.7e308, 0.0),
        ("double", 1.7e308, -1.7e308, 0.0),
        ("double", 5e-324, 5e-324, 5e-324),
        ("double", 0.1, 0.3, 0.1 + (0.3 - 0.1) * 0.5),
        ("double", 1.7e308, math.inf, math.inf),
        ("float", -3.4e38, 3.4e38, 0.0),
    ],
)
def test_interpolation_between_large_floats_does_not_overflow(
    spark: SparkSession,
    kind: str,
    first: float,
    last: float,
    between: float,
) -> None:
    # Rules: G22
    frame = spark.createDataFrame([(0, first), (20, last)], f"ts bigint, a {kind}")
    about: dict[str, Any] = {"event_at": "ts", "unit": "s", "step": 10}
    filling = FillSettings(from_time=0, to_time=30 * S, columns={"a": "linear"}, **about)
    (row,) = fill_gaps(frame, filling).where("_rw_is_made").select("a").collect()
    assert row["a"] == between


@pytest.mark.parametrize(
    ("kind", "recorded", "given"),
    [
        ("double", "1", [[1], [1.0], ["1"], [2]]),
        ("float", "0.1", [[0.1], [2.5]]),
        ("decimal(10,2)", "1", [[1], [Decimal("1.00")], [2.0]]),
        ("bigint", "1", [[1], ["1"], [2.0]]),
        ("boolean", "true", [[True], [False]]),
        ("date", "2024-01-01", [[date(2024, 1, 1)], ["2024-01-02"]]),
        ("timestamp", "2024-01-01 00:00:00", [[datetime(2024, 1, 1, tzinfo=UTC)], ["2024-01-02"]]),
        ("string", "1", [[1], ["x"]]),
    ],
)
def test_expected_key_accepts_any_value_of_its_type(
    spark: SparkSession,
    kind: str,
    recorded: str,
    given: list[list[Any]],
) -> None:
    # Rules: G7
    frame = spark.sql(f"SELECT CAST('{recorded}' AS {kind}) AS key, 0L AS ts, 1.0D AS a")
    about: dict[str, Any] = {"event_at": "ts", "unit": "s", "keys": ["key"]}
    about |= {"from_time": 0, "to_time": 30 * S, "expected_keys": given}
    filled = fill_gaps(frame, FillSettings(step=10, columns={"a": "forward"}, **about))
    counts = filled.where("_rw_is_made").groupBy("key").count().collect()
    assert sorted(row["count"] for row in counts) == [2, 3]
    report = gap_report(frame, GapSettings(cadence=10, **about)).completeness
    missing = report.select("missing", "is_expected").collect()
    assert sorted(map(tuple, missing)) == [(2, True), (3, True)]


def test_expected_key_of_a_wrong_type_is_rejected_with_value_and_type(spark: SparkSession) -> None:
    # Rules: G7
    frame = spark.sql("SELECT 1.0D AS key, 0L AS ts, 1.0D AS a")
    about: dict[str, Any] = {"event_at": "ts", "unit": "s", "keys": ["key"]}
    about |= {"from_time": 0, "to_time": 30 * S, "expected_keys": [["north"]]}
    filled = fill_gaps(frame, FillSettings(step=10, columns={"a": "forward"}, **about))
    for result in (filled, gap_report(frame, GapSettings(cadence=10, **about)).gaps):
        with pytest.raises(
            PySparkException, match='value of expected key "key" must be double, not north'
        ):
            result.collect()
