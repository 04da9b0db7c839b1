"""Sources before the range, up to `look_back` (G35, G36): function and operator against the
references.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.application import Application
from rewindow.application.validation import validate
from rewindow.errors import InputError, ValidationFailed
from rewindow.operators import FillSettings, fill_gaps
from tests.operators import test_fill_operator as carried
from tests.operators import test_filling as plain
from tests.operators import test_filling_sources as sources
from tests.operators.filling_reference import Row, fill, fill_nulls
from tests.operators.test_filling import END, STEP, S, is_same

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN = 105
BACK = 100
CASES = 300
"""The range begins beside the grid; the periods of seasonal columns are up to 100."""


@pytest.mark.parametrize("look_back", [pytest.param(BACK, marks=pytest.mark.long), 137])
def test_rows_before_the_range_within_look_back_are_fill_sources(
    spark: SparkSession,
    look_back: int,
) -> None:
    random = Random(look_back)
    cases = {(case, "x"): plain.make_rows(random) for case in range(CASES)}
    settings = plain.settings(
        from_time=BEGIN * S,
        look_back=look_back,
        expected_keys=[list(key) for key in cases],
    )
    frame = plain.frame_of(spark, cases)
    filled = fill_gaps(frame, settings)
    found = plain.made_of(filled)
    for place, rows in cases.items():
        wanted = fill(rows, list(plain.METHODS.values()), STEP, BEGIN, END, look_back=look_back)
        mine = found.get(place, [])
        assert len(mine) == len(wanted), f"{place}: {sorted(rows)}"
        for one, want in zip(mine, wanted, strict=True):
            assert is_same(one, want), f"{place}: {sorted(rows)}\nwanted {want}\nfound  {one}"
    assert filled.where("not _rw_is_made").select(frame.columns).exceptAll(frame).count() == 0
    early = (BEGIN - look_back) * S
    assert filled.where(f"_rw_before_us between {early} and {BEGIN * S - 1}").count() > CASES


@pytest.mark.long
def test_look_back_also_applies_to_columns_with_a_source_condition(spark: SparkSession) -> None:
    # Rules: G4, G27
    random = Random(11)
    cases = [sources.make_rows(random) for _ in range(CASES)]
    given = {
        "from_time": BEGIN * S,
        "look_back": BACK,
        "expected_keys": [[case] for case in range(CASES)],
    }
    filled = fill_gaps(sources.frame_of(spark, cases), sources.settings(**given))
    made: list[dict[int, Any]] = [{} for _ in cases]
    nulls: list[dict[tuple[int, int], Any]] = [{} for _ in cases]
    for row in filled.where("_rw_is_made or _rw_methods is not null").collect():
        methods = row["_rw_methods"]
        if row["_rw_is_made"]:
            made[row["case"]][row["ts"]] = [(row[name], methods[name]) for name in sources.GIVEN]
            continue
        for number, name in enumerate(sources.GIVEN):
            if name in methods:
                nulls[row["case"]][row["ts"], number] = row[f"_rw_filled_{name}"], methods[name]
    for case, rows in enumerate(cases):
        every = list(sources.METHODS.values())
        wanted = {one.ts: one.values for one in fill(rows, every, STEP, BEGIN, END, look_back=BACK)}
        expected = fill_nulls(rows, every, STEP, BEGIN, END, look_back=BACK)
        assert sorted(made[case]) == sorted(wanted) and sorted(nulls[case]) == sorted(expected), (
            sorted(rows)
        )
        pairs = [
            (made[case][ts][n], value)
            for ts, values in wanted.items()
            for n, value in enumerate(values)
        ]
        pairs += [(nulls[case][place], value) for place, value in expected.items()]
        assert all(sources.is_close(one, want) for one, want in pairs), f"{sorted(rows)}: {pairs}"


@pytest.mark.parametrize(
    "cuts",
    [pytest.param([0, 2, 8], marks=pytest.mark.long), [0, 1, 3, 8]],
    ids=str,
)
def test_filling_in_groups_of_windows_uses_earlier_rows_from_its_state(
    spark: SparkSession,
    cuts: list[int],
) -> None:
    # Rules: G34 to G36, G38
    random = Random(23)
    cases = {case: carried.make_case(random) for case in range(150)}
    fills = carried.operator(
        from_time=BEGIN * S,
        to_time=END * S,
        look_back=BACK,
        expected_keys=tuple((case,) for case in cases),
    )
    found, _ = carried.run(spark, fills, cases, cuts)
    looked = 0
    for case, tuples in cases.items():
        inside = [one for one in tuples if one.ts is not None and BEGIN - BACK <= one.ts < 310]
        counted = carried.moving(
            [one for one in inside if one.at // carried.WIDTH <= carried.CLOSING]
        )
        rows = [Row(one.ts, one.a, one.b) for one in counted if one.ts is not None]
        wanted = fill(rows, list(carried.METHODS.values()), STEP, BEGIN, END, look_back=BACK)
        closers = sorted((one.ts, one.at // carried.WIDTH) for one in counted if one.ts is not None)
        placed = sorted(
            (next((window for ts, window in closers if ts > row.ts), carried.CLOSING), row)
            for row in wanted
        )
        mine = found.get(case, [])
        assert [(window, row.ts) for window, row in mine] == [
            (window, row.ts) for window, row in placed
        ], f"{case}"
        for (_, one), (_, want) in zip(mine, placed, strict=True):
            assert is_same(one, want), (
                f"case {case}: {sorted(tuples, key=repr)}\nwanted {want}\nfound  {one}"
            )
        looked += any(row.ts < BEGIN for row in rows) and bool(wanted)
    assert looked > 50


def lacking(rows: list[tuple[int, float]], spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(rows, "ts bigint, a double")


def test_look_back_is_inclusive_and_older_sources_yield_null(spark: SparkSession) -> None:
    # Rules: G35, G36
    given = {
        "event_at": "ts",
        "unit": "s",
        "step": 10,
        "from_time": 100 * S,
        "to_time": 130 * S,
        "look_back": 30,
    }
    settings = FillSettings(**given, columns={"a": "forward"})
    made = (
        fill_gaps(lacking([(80, 1.0), (5, 9.0)], spark), settings)
        .where("_rw_is_made")
        .orderBy("ts")
        .collect()
    )
    assert [(row["ts"], row["a"]) for row in made] == [(100, 1.0), (110, 1.0), (120, None)]
    assert [row["_rw_methods"]["a"] for row in made] == ["forward"] * 3
    assert not fill_gaps(lacking([(69, 1.0)], spark), settings).where("_rw_is_made").count(), (
        "nobody knows the key"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"look_back": 0}, "look_back must be above 0, not 0"),
        ({"look_back": -5}, "duration must be from 0 to 100 years, not -5"),
        ({"look_back": "long"}, 'duration "long" cannot be read'),
        (
            {"look_back": 60, "columns": {"a": {"method": "seasonal", "periods": [50, 100]}}},
            "column a has a period of 100 s, which is longer than look_back, 1 min",
        ),
    ],
)
def test_invalid_look_back_is_rejected_by_function_and_operator(
    given: dict[str, Any],
    words: str,
) -> None:
    with pytest.raises(InputError) as caught:
        plain.settings(**given)
    assert words in str(caught.value)
    fills = {"fill": given.get("columns", {}), "look_back": given["look_back"]}
    app = Application("readings", window="1 min")
    node = app.add("fill", carried.operator(**fills), stream=app.input("readings"))
    app.output("filled", node, key=[])
    with pytest.raises(ValidationFailed) as refused:
        validate(app)
    assert words in str(refused.value)
