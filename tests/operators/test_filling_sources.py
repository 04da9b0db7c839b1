"""Columns that choose their sources: recorded nulls, values beyond bounds; against a reference that
asks one by one.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.errors import InputError
from rewindow.operators import FillSettings, fill_gaps
from tests.operators.filling_reference import Method, Row, fill, fill_nulls
from tests.operators.test_filling import BEGIN, END, STEP, S, is_explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASES = 700
GIVEN: dict[str, dict[str, Any]] = {
    "same": {"method": "constant", "value": 7.5, "treat_null_as_missing": True},
    "before": {"method": "forward", "max_carry": 30, "treat_null_as_missing": True},
    "behind": {"method": "backward", "max_gap": 40, "treat_null_as_missing": True},
    "closer": {"method": "nearest", "max_carry": 25, "max_gap": 100, "treat_null_as_missing": True},
    "line": {"method": "linear", "max_gap": 60, "treat_null_as_missing": True},
    "level": {"method": "linear", "extrapolate": True, "treat_null_as_missing": True},
    "again": {
        "method": "seasonal", "periods": (50, 100), "fallback": "nearest", "max_carry": 50,
        "treat_null_as_missing": True,
    },
    "kept": {"method": "forward"},
    "sane": {"method": "linear", "min_value": 0, "max_value": 700, "max_gap": 120},
    "low": {"method": "nearest", "max_value": 200.5, "treat_null_as_missing": True},
    "high": {"method": "backward", "min_value": 100, "max_carry": 100},
    "guarded": {
        "method": "seasonal", "periods": (50, 100), "fallback": "forward", "max_value": 700,
    },
}  # fmt: skip


GUARD = {"min_value": "low", "max_value": "high"}


def method_of(given: dict[str, Any]) -> Method:
    names = {"method": "name", "value": "constant", "treat_null_as_missing": "fills_nulls"} | GUARD
    return Method(source="a", **{names.get(name, name): value for name, value in given.items()})


METHODS = {name: method_of(given) for name, given in GIVEN.items()}


def settings(**more: Any) -> FillSettings:
    given = {
        "event_at": "ts",
        "unit": "s",
        "step": STEP,
        "from_time": BEGIN * S,
        "to_time": END * S,
        "columns": GIVEN,
        "keys": ["case"],
    }
    return FillSettings(**{**given, **more})


def make_rows(random: Random) -> list[Row]:
    """Returns rows of a key, many of them without a value, some with one that cannot be."""
    times = random.sample(range(-20, 330), random.choice([0, 1, 2, 5, 9, 25]))
    return [
        Row(ts, random.choice([None, None, float(ts), 2.5 * ts, 5000.0 + ts]), 0) for ts in times
    ]


def frame_of(spark: SparkSession, cases: list[list[Row]]) -> DataFrame:
    """Returns the rows of all cases, the same value in each column."""
    rows = [
        (case, row.ts, *[row.a] * len(GIVEN)) for case, listed in enumerate(cases) for row in listed
    ]
    return spark.createDataFrame(
        rows,
        f"case int, ts bigint, {', '.join(f'{name} double' for name in GIVEN)}",
    )


def is_close(found: tuple[Any, str], wanted: tuple[Any, str]) -> bool:
    """Returns whether value and method are the same but for the last digits of a line."""
    if None in (found[0], wanted[0]):
        return found == wanted
    return found[1] == wanted[1] and math.isclose(found[0], wanted[0], abs_tol=1e-9)


@pytest.mark.exhaustive
def test_fill_values_from_usable_rows_equal_the_reference(spark: SparkSession) -> None:
    # Rules: G26, G27, G39, G40
    random = Random(9)
    cases = [make_rows(random) for _ in range(CASES)]
    frame = frame_of(spark, cases)
    filled = fill_gaps(frame, settings(expected_keys=[[case] for case in range(CASES)]))
    found: list[dict[int, Any]] = [{} for _ in cases]
    nulls: list[dict[tuple[int, int], Any]] = [{} for _ in cases]
    for row in filled.where("_rw_is_made or _rw_methods is not null").collect():
        methods = row["_rw_methods"]
        recorded = {one.ts: one for one in cases[row["case"]]}
        for name, word in methods.items():
            value = row[name if row["_rw_is_made"] else f"_rw_filled_{name}"]
            times = row["_rw_sources"][name]
            about = f"{name} of {row}: {recorded}"
            assert is_explained(METHODS[name], row["ts"], value, word, times, recorded), about
        if row["_rw_is_made"]:
            found[row["case"]][row["ts"]] = [(row[name], methods[name]) for name in GIVEN]
            continue
        for number, name in enumerate(GIVEN):
            if name in methods:
                assert row[name] is None, "the null stays (G40)"
                nulls[row["case"]][row["ts"], number] = row[f"_rw_filled_{name}"], methods[name]
    for case, rows in enumerate(cases):
        wanted = {
            one.ts: one.values for one in fill(rows, list(METHODS.values()), STEP, BEGIN, END)
        }
        expected = fill_nulls(rows, list(METHODS.values()), STEP, BEGIN, END)
        assert sorted(found[case]) == sorted(wanted) and sorted(nulls[case]) == sorted(expected), (
            sorted(rows)
        )
        for ts, values in wanted.items():
            for name, one, want in zip(GIVEN, found[case][ts], values, strict=True):
                assert is_close(one, want), f"{name} at {ts} of {sorted(rows)}: {one}, not {want}"
        for place, want in expected.items():
            one = nulls[case][place]
            assert is_close(one, want), (
                f"{list(GIVEN)[place[1]]} at {place[0]} of {sorted(rows)}: {one}, not {want}"
            )
    assert sum(map(len, nulls)) > CASES
    beyond = filled.where("array_contains(_rw_outliers, 'sane')").count()
    assert (
        beyond
        == sum(row.a is not None and not 0 <= row.a <= 700 for rows in cases for row in rows)
        > CASES
    )
    recorded = filled.where("not _rw_is_made").select(frame.columns)
    assert recorded.exceptAll(frame).count() == 0 and recorded.count() == frame.count()


@pytest.mark.long
def test_filling_again_recomputes_filled_nulls(spark: SparkSession) -> None:
    # Rules: G43, G44
    frame = frame_of(
        spark,
        [[Row(20, 1.0, 0), Row(41, None, 0), Row(70, None, 0), Row(90, 4.0, 0)]],
    )
    once = fill_gaps(frame, settings()).localCheckpoint()
    again = fill_gaps(once, settings()).localCheckpoint()
    columns = [name for name in once.columns if name not in ("_rw_methods", "_rw_sources")]
    assert (
        again.columns == once.columns
        and again.select(columns).exceptAll(once.select(columns)).count() == 0
    )
    assert again.count() == once.count()


def test_filling_supports_columns_and_keys_named_previous_and_next(
    spark: SparkSession,
) -> None:
    # Rules: G27, G35
    rows = [(0, 1.0, 2.0, 7), (10, None, 3.0, 7), (30, 4.0, 5.0, 7)]
    frame = spark.createDataFrame(rows, "ts bigint, a double, previous double, next int")
    columns = {"a": {"method": "linear", "treat_null_as_missing": True}}
    given = FillSettings(
        event_at="ts",
        unit="s",
        step=10,
        from_time=0,
        to_time=40 * S,
        columns=columns,
        look_back="1 hour",
        keys=["next"],
    )
    found = (
        fill_gaps(frame, given)
        .orderBy("ts")
        .select("ts", "a", "previous", "_rw_filled_a")
        .collect()
    )
    assert [tuple(row) for row in found] == [
        (0, 1.0, 2.0, None),
        (10, None, 3.0, 2.0),
        (20, 3.0, None, None),
        (30, 4.0, 5.0, None),
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"method": "previous_of", "column": "b", "treat_null_as_missing": True},
            "treat_null_as_missing is only for constant, forward, backward, nearest, linear, "
            "seasonal, not for previous_of",
        ),
        (
            {"method": "constant", "value": 1, "min_value": 0},
            "for forward, backward, nearest, linear, seasonal, not",
        ),
        ({"method": "forward", "min_value": 2, "max_value": 1}, "min_value 2 is above max_value 1"),
        ({"method": "forward", "min_value": "inf"}, "min_value"),
    ],
)
def test_fill_method_that_does_not_support_source_selection_is_rejected(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        settings(columns={"a": given})
    assert words in str(caught.value)


def test_nan_is_not_a_fill_source_if_bounds_are_set_and_text_has_no_bounds(
    spark: SparkSession,
) -> None:
    # For Spark, NaN is above every number.
    frame = spark.createDataFrame(
        [(10, 3.0, "x"), (20, math.nan, "y")],
        "ts bigint, a double, word string",
    )
    given = {"keys": [], "from_time": 10 * S, "to_time": 40 * S}
    bounded_columns = {"a": {"method": "forward", "min_value": 0}}
    rows = (
        fill_gaps(frame, settings(**given, columns=bounded_columns)).where("_rw_is_made").collect()
    )
    assert [(row["ts"], row["a"]) for row in rows] == [(30, 3.0)]
    with pytest.raises(InputError) as caught:
        fill_gaps(frame, settings(**given, columns={"word": {"method": "forward", "min_value": 0}}))
    assert (
        'column "word" cannot have min_value or max_value: it must be a number, not string'
        in str(caught.value)
    )


def test_null_is_filled_with_a_value_of_the_same_timestamp(spark: SparkSession) -> None:
    # Rules: G22, G27
    rows = [(20, None), *((20, float(value)) for value in range(30)), (40, 99.0)]
    given = {"event_at": "ts", "unit": "s", "step": 10, "from_time": 0, "to_time": 50_000_000}
    filling = FillSettings(
        **given,
        columns={"a": {"method": "linear", "treat_null_as_missing": True}},
    )
    filled = fill_gaps(spark.createDataFrame(rows, "ts bigint, a double"), filling)
    found = filled.where("ts = 20 AND a IS NULL").select("_rw_filled_a").collect()
    assert len(found) == 1 and found[0][0] in range(30)
