"""FillGaps where columns choose their sources, against the reference of one pass, in any grouping
of windows.
"""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rewindow.application import Application, OperatorContext
from rewindow.application.error_tuples import DETAIL, EMITTED, REASON
from rewindow.application.validation import validate
from rewindow.errors import ValidationFailed
from rewindow.operators import FillGaps
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.windows import Grid, WindowRange
from tests.operators.filling_reference import Row, fill, fill_nulls
from tests.operators.test_fill_operator import (
    AHEAD,
    BOUNDS,
    CLOSING,
    WIDTH,
    WINDOWS,
    Tuple,
    make_case,
    moving,
)
from tests.operators.test_filling import BEGIN, END, STEP, S
from tests.operators.test_filling_sources import is_close, method_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASES = 250
GIVEN: dict[str, dict[str, Any]] = {
    "same": {"method": "constant", "value": 7.5, "treat_null_as_missing": True},
    "before": {"method": "forward", "max_carry": 70, "treat_null_as_missing": True},
    "again": {
        "method": "seasonal", "periods": (50, 100), "fallback": "forward",
        "treat_null_as_missing": True,
    },
    "kept": {"method": "forward"},
    "sane": {"method": "forward", "min_value": 50, "max_value": 3200, "max_carry": 200},
    "both": {
        "method": "forward", "min_value": 50, "max_value": 3200, "treat_null_as_missing": True,
    },
}  # fmt: skip
METHODS = {name: method_of(given) for name, given in GIVEN.items()}
COLUMNS = pa.schema(
    [
        ("arrived_at", pa.int64()),
        ("case", pa.int32()),
        ("ts", pa.int64()),
        *((name, pa.float64()) for name in GIVEN),
    ]
)


def operator(**properties: Any) -> FillGaps:
    given = {
        "columns": COLUMNS,
        "event_at": "ts",
        "unit": "s",
        "step": STEP,
        "keys": ("case",),
        "fill": GIVEN,
        "max_ahead": AHEAD,
    }
    return FillGaps(**{**given, **properties})


def frame_of(spark: SparkSession, cases: dict[int, list[Tuple]], windows: WindowRange) -> DataFrame:
    rows = [
        (one.at // WIDTH, one.at * S, case, one.ts, *[one.a] * len(GIVEN))
        for case, tuples in cases.items()
        for one in tuples
        if one.at // WIDTH in windows
    ]
    kinds = ", ".join(f"{name} double" for name in GIVEN)
    return spark.createDataFrame(
        rows,
        f"window_id bigint, arrived_at bigint, case int, ts bigint, {kinds}",
    )


def counted(case: list[Tuple], *, bounded: bool) -> tuple[list[Row], int, int]:
    """Returns the rows that count, and the range that is filled."""
    if bounded:
        first = -(-BEGIN // STEP)
        last = -(-END // STEP) - 1
        case = [one for one in case if one.ts is not None and first <= one.ts // STEP <= last]
        case = [one for one in case if one.at // WIDTH <= CLOSING]
    rows = [Row(one.ts, one.a, one.b) for one in moving(case) if one.ts is not None]
    if bounded:
        return rows, BEGIN, END
    times = [row.ts for row in rows] or [0]
    return rows, min(times) // STEP * STEP, max(times) // STEP * STEP + STEP


def run(
    spark: SparkSession,
    fills: FillGaps,
    cases: dict[int, list[Tuple]],
    cuts: list[int],
) -> tuple[dict[int, dict[int, Any]], dict[int, dict[tuple[int, int], Any]]]:
    """Returns values and methods of made rows, and of recorded nulls by arrival and number of the
    column.
    """
    made: dict[int, dict[int, Any]] = {case: {} for case in cases}
    nulls: dict[int, dict[tuple[int, int], Any]] = {case: {} for case in cases}
    times_of = {case: {one.ts for one in tuples} for case, tuples in cases.items()}
    state = to_frame(spark, fills.initial_state())
    for first, end in pairwise(cuts):
        context = OperatorContext(Grid(WIDTH * 1000), WindowRange(first, end - 1))
        stream = frame_of(spark, cases, context.windows)
        out = conform(
            fills.transform({"stream": stream}, state, context)["out"],
            fills.output_ports()["out"].schema,
            "",
        )
        for row in out.withColumn(
            "methods",
            F.from_json("_rw_methods", "map<string,string>"),
        ).collect():
            methods = row["methods"] or {}
            sources = json.loads(row["_rw_sources"] or "{}")
            for name, word in methods.items():
                value = row[name] if row["_rw_is_made"] else row[f"_rw_filled_{name}"]
                assert value is None or (sources.get(name) is None) == (word == "constant"), (
                    f"{name}: {row}"
                )
                assert all(
                    time // S in times_of[row["case"]] for time in sources.get(name) or ()
                ), f"{name}: {row}"
            if row["_rw_is_made"]:
                assert row["ts"] not in made[row["case"]], "no row is made twice"
                made[row["case"]][row["ts"]] = [(row[name], methods[name]) for name in GIVEN]
                continue
            for number, name in enumerate(GIVEN):
                if name in methods:
                    assert row[name] is None, "the null stays (G40)"
                    nulls[row["case"]][row["ts"], number] = row[f"_rw_filled_{name}"], methods[name]
        after = fills.next_state({"stream": stream}, {}, state, context)
        state = to_frame(spark, to_arrow(after, fills.state_columns(), "state"))
    return made, nulls


@pytest.mark.parametrize(
    ("bounded", "cuts"),
    [
        pytest.param(True, [0, 3, 8], marks=pytest.mark.long),
        pytest.param(False, [0, 2, 5, 8], marks=pytest.mark.long),
    ],
    ids=str,
)
def test_fill_sources_are_found_across_window_borders(
    spark: SparkSession,
    *,
    bounded: bool,
    cuts: list[int],
) -> None:
    # Rules: G34, G35, G27
    assert cuts[-1] == WINDOWS
    random = Random(8)
    cases = {case: make_case(random) for case in range(CASES)}
    expects = {"expected_keys": tuple((case,) for case in cases), **BOUNDS} if bounded else {}
    made, nulls = run(spark, operator(**expects), cases, cuts)
    for case, tuples in cases.items():
        rows, begin, end = counted(tuples, bounded=bounded)
        listed = list(METHODS.values())
        wanted = (
            {one.ts: one.values for one in fill(rows, listed, STEP, begin, end)}
            if rows or bounded
            else {}
        )
        expected = fill_nulls(rows, listed, STEP, begin, end)
        assert sorted(made[case]) == sorted(wanted) and sorted(nulls[case]) == sorted(expected), (
            sorted(tuples)
        )
        for ts, values in wanted.items():
            for name, one, want in zip(GIVEN, made[case][ts], values, strict=True):
                assert is_close(one, want), f"{name} at {ts} of {sorted(tuples)}: {one}, not {want}"
        for place, want in expected.items():
            one = nulls[case][place]
            assert is_close(one, want), (
                f"{list(GIVEN)[place[1]]} at {place[0]} of {sorted(tuples)}: {one}, not {want}"
            )
    assert sum(map(len, nulls.values())) > CASES


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"method": "linear"},
            "column before cannot have linear with treat_null_as_missing",
        ),
        (
            {"method": "forward", "max_gap": 5},
            "column before cannot have max_gap with treat_null_as_missing",
        ),
        (
            {"method": "seasonal", "periods": [50], "fallback": "nearest"},
            "column before cannot have nearest",
        ),
    ],
)
def test_null_fill_method_that_needs_later_rows_is_reported_at_launch(
    given: dict[str, Any],
    words: str,
) -> None:
    # Rules: G27, O53
    fills = operator(fill={"before": {**given, "treat_null_as_missing": True}})
    app = Application("readings", window="1 min")
    app.output("filled", app.add("fill", fills, stream=app.input("readings")), key=[])
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    assert words in str(caught.value)


def test_out_of_bounds_values_are_reported_and_do_not_close_gaps(spark: SparkSession) -> None:
    # Rules: G40
    bounded_columns = {
        "sane": {"method": "linear", "max_value": 100},
        "level": {"method": "linear", "extrapolate": True},
    }
    fills = operator(
        columns=pa.schema([*list(COLUMNS)[:3], ("sane", pa.float64()), ("level", pa.float64())]),
        fill={**bounded_columns, "level": {**bounded_columns["level"], "max_value": 100}},
    )
    rows = [
        (0, 5 * S, 0, 5, 7.0, 7.0),
        (0, 35 * S, 0, 35, 500.0, 500.0),
        (0, 55 * S, 0, 55, 9.0, 9.0),
    ]
    names = "window_id bigint, arrived_at bigint, case int, ts bigint, sane double, level double"
    context = OperatorContext(Grid(WIDTH * 1000), WindowRange(0, 0))
    ports = fills.transform({"stream": spark.createDataFrame(rows, names)}, None, context)
    made = ports["out"].where("_rw_is_made").select("ts", "sane", "level").collect()
    assert sorted(map(tuple, made)) == [(10, None, 7.0), (20, None, 7.0), (40, 8.4, 8.4)]
    (error,) = ports["errors"].collect()
    assert error["ts"] == 35 and error[REASON] == EMITTED and "sane, level" in error[DETAIL]
