"""Gaps of a frame against a reference that goes row by row and point by point; all random
recordings in one job.
"""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from rewindow.errors import InputError
from rewindow.inspection.gap_rows import Gap
from rewindow.operators import GapSettings, gap_report, learn_cadence
from rewindow.operators.gaps.function import _shown_totals
from rewindow.operators.gaps.sql import KINDS
from tests.operators.gaps_reference import Expectation, Found, Row, Total, report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
CASES = 300
RULES = 1
SCHEMA = (
    "case INT, window_id BIGINT, offset BIGINT, arrived_us BIGINT, at BIGINT, `k.1` STRING, "
    "v DOUBLE"
)


def make_rules(random: Random) -> Expectation:
    """Returns what is expected; ranges lie around zero, and on no border of the grid as often as on
    one.
    """
    cadence = random.choice([1, 2, 3]) * SECOND
    begin = random.randint(-8, 6) * SECOND + random.choice([0, 0, 1, 500_000])
    return Expectation(
        cadence,
        begin,
        begin + random.randint(1, 24) * SECOND,
        random.choice([0, 0, 300_000, -7 * SECOND]),
        random.choice([10, 10, 15, 25]),
        random.choice([1, 2, 4]) * SECOND,
        random.choice([(), ("a", "z")]),
        5 * SECOND,
    )


def make_case(random: Random) -> list[Row]:
    """Returns a recording with ties, null keys, times and values, late and far rows, and a clock
    that steps back.
    """
    rows = []
    at = random.randint(-10, 4) * SECOND
    for place in range(random.choice([0, 1, 3, 12, 30])):
        at += random.choice([0, 0, 1, 1, 2, 3, 9, -2]) * SECOND // random.choice([1, 1, 2])
        late = at - random.randint(0, 6) * SECOND
        early = at + random.choice([1, 400_000])
        t = random.choice([at, at, at, late, early, 10**15, None])
        rows.append(
            Row(
                at // (5 * SECOND),
                place,
                at,
                t,
                random.choice("aaab") if place % 7 else None,
                random.choice([None, 1.0, 2.0]),
            )
        )
    random.shuffle(rows)
    return rows


def settings_of(rules: Expectation, cases: int) -> GapSettings:
    return GapSettings(
        event_at="at",
        cadence=rules.cadence / SECOND,
        from_time=rules.begin,
        to_time=rules.end,
        keys=["case", "k.1"],
        columns=["v"],
        expected_keys=[(case, key) for case in range(cases) for key in rules.keys],
        factor=rules.factor_tenths / 10,
        origin=rules.origin,
        arrived_at="arrived_us",
        lull=rules.lull / SECOND,
        window=rules.window / SECOND,
    )


def frame_of(spark: SparkSession, cases: list[list[Row]]) -> DataFrame:
    rows = [
        (n, r.window, r.place, r.at, r.t, r.key, r.value)
        for n, case in enumerate(cases)
        for r in case
    ]
    return spark.createDataFrame(rows, SCHEMA)


def us(moment: Any) -> int:
    return round(moment.timestamp() * SECOND)


def gaps_of(frame: DataFrame) -> dict[tuple[int, int], list[Found]]:
    """Returns the gaps of each set of rules and case; also that lengths and ids are as they should
    be.
    """
    found: dict[tuple[int, int], list[Found]] = {}
    ids = set()
    for row in frame.selectExpr(
        "*",
        "unix_micros(`from`) as f",
        "unix_micros(`to`) as u",
    ).collect():
        assert row["length_us"] == row["u"] - row["f"]
        gap = Found(
            row["k.1"],
            row["column"],
            row["kind"],
            row["f"],
            row["u"],
            row["missing"],
            row["open_left"],
            row["open_right"],
            row["closed_by"],
        )
        found.setdefault((row["rules"], row["case"]), []).append(gap)
        ids.add((row["rules"], row["gap_id"]))
    assert len(ids) == sum(map(len, found.values())), "each gap has an id of its own"
    return found


def totals_of(frame: DataFrame) -> dict[tuple[int, int], list[Total]]:
    found: dict[tuple[int, int], list[Total]] = {}
    for row in frame.collect():
        total = Total(row["k.1"], *(row[name] for name in Total._fields[1:]))
        found.setdefault((row["rules"], row["case"]), []).append(total)
        assert row["completeness"] == (total.present / total.expected if total.expected else None)
    return found


def united(frames: list[DataFrame]) -> DataFrame:
    """Returns the frames below each other, with a number for each."""
    from pyspark.sql import functions as F

    numbered = [frame.withColumn("rules", F.lit(number)) for number, frame in enumerate(frames)]
    return reduce(lambda one, other: one.unionByName(other), numbered)


def ordered(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2013])
def test_gaps_equal_a_naive_row_scan(spark: SparkSession, seed: int) -> None:
    # Rules: G1, G2, G4 to G18, G38, X24, X34
    # In one piece, and in pieces of windows in any order with carried state.
    random = Random(seed)
    rules = [make_rules(random) for _ in range(RULES)]
    cases = [make_case(random) for _ in range(CASES)]
    frame = frame_of(spark, cases)
    once = [gap_report(frame, settings_of(each, CASES)) for each in rules]
    pieces = []
    for each in rules:
        cuts = random.choice([2, 3])
        state = None
        for piece in range(cuts):
            part = frame.where(f"pmod(hash(window_id, case), {cuts}) = {piece}")
            last = gap_report(part, settings_of(each, CASES), state=state)
            state = last.state
        pieces.append(last)
    reports = [*once, *pieces]
    gaps = gaps_of(united([one.gaps for one in reports]))
    totals = totals_of(united([one.completeness for one in reports]))
    kinds = set()
    for place, each in enumerate(rules):
        for case, rows in enumerate(cases):
            expected_gaps, expected_totals = report(rows, each)
            for number in (place, place + RULES):
                assert ordered(gaps.get((number, case), [])) == ordered(expected_gaps), (each, rows)
                assert ordered(totals.get((number, case), [])) == ordered(expected_totals), (
                    each,
                    rows,
                )
            kinds |= {gap.kind for gap in expected_gaps}
    assert kinds == set(KINDS)


def test_completeness_query_fails_if_its_counts_do_not_balance(spark: SparkSession) -> None:
    # Rules: G18
    settings = GapSettings(event_at="at", cadence="1 s", from_time=0, to_time=3 * SECOND)
    kind = ", ".join(
        f"{name} BIGINT"
        for name in ("part", "present", "nulls", "missing", "tolerated", "is_expected")
    )
    balanced = spark.createDataFrame([(0, 1, 0, 2, 0, 0)], kind)
    assert _shown_totals(balanced, settings).first()["expected"] == 3  # type: ignore[index]
    lacking = spark.createDataFrame([(0, 1, 0, 1, 0, 0)], kind)
    with pytest.raises(PySparkException, match="counts of the gap report do not add up"):
        _shown_totals(lacking, settings).collect()


def hourly(spark: SparkSession) -> DataFrame:
    """Returns three days of one station, one row an hour, with a hole on the second day and a null
    on the third.
    """
    rows = [(h, "JFK", None if h == 60 else 1.0) for h in range(72) if not 30 <= h < 35]
    return spark.createDataFrame(rows, "hour INT, origin STRING, temp DOUBLE").selectExpr(
        "timestamp_seconds(hour * 3600) AS at",
        "origin",
        "temp",
    )


def test_gap_report_equals_the_documented_example(spark: SparkSession) -> None:
    # Rules: G9, G17
    frame = hourly(spark)
    cadence = learn_cadence(frame, "at", ["origin"])
    assert (cadence.cadence_us, cadence.found, cadence.steps) == (3600 * SECOND, 65, 66)
    settings = GapSettings(
        event_at="at",
        cadence=cadence.cadence_us / SECOND,
        from_time="1970-01-01",
        to_time="1970-01-04",
        keys=["origin"],
        columns=["temp"],
        expected_keys=[["JFK"]],
    )
    result = gap_report(frame, settings)
    gaps = result.gaps.selectExpr(
        "origin",
        "column",
        "kind",
        "unix_micros(`from`)",
        "missing",
        "closed_by",
    ).collect()
    assert sorted(map(tuple, gaps), key=repr) == [
        ("JFK", "temp", "recorded_nulls", 60 * 3600 * SECOND, 1, None),
        ("JFK", None, "missing_rows", 30 * 3600 * SECOND, 5, None),
    ]
    ids = {row["kind"]: row["gap_id"] for row in result.gaps.collect()}
    hour = 3600 * SECOND
    alike = Gap(
        "missing_rows",
        None,
        30 * hour,
        35 * hour,
        5,
        {"origin": "JFK"},
        since_us=30 * hour,
    )
    assert ids["missing_rows"] == alike.gap_id, "as in the report of a recorded stream"
    totals = result.completeness.where("column is null").collect()
    assert [(row["expected"], row["present"], row["missing"]) for row in totals] == [(72, 67, 5)]
    assert totals[0]["completeness"] == 67 / 72


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cadence": -1}, "must be from 0 to 100 years, not -1"),
        ({"cadence": 0}, "must be above 0"),
        ({"cadence": "1 us"}, "is too short: the range would have 259,200,000,000 rows per key"),
        ({"from_time": "1970-01-05"}, "range is empty or reversed"),
        ({"to_time": "yesterday"}, 'time "yesterday" cannot be read'),
        ({"factor": 0.5}, "greater than or equal to 1"),
        ({"expected_keys": [["JFK", "x"]]}, "must have a non-null value for each of the keys"),
        ({"expected_keys": [[None]]}, "must have a non-null value for each of the keys"),
        ({"columns": ["origin"]}, "is named twice as a key or column"),
        ({"window": 0}, "must be above 0"),
        (
            {"window": "1 h", "zone": "UTC", "hours": "09:00-17:00"},
            "window cannot be used with hours",
        ),
    ],
)
def test_invalid_settings_are_rejected_by_name_before_anything_runs(
    change: dict[str, Any],
    words: str,
) -> None:
    # Rules: G2, G4, X24
    given = {
        "event_at": "at",
        "cadence": "1 h",
        "from_time": "1970-01-01",
        "to_time": "1970-01-04",
        "keys": ["origin"],
    }
    with pytest.raises(InputError, match=words):
        GapSettings(**given | change)


def test_frame_without_keys_is_analyzed_as_a_single_key_even_when_empty(
    spark: SparkSession,
) -> None:
    settings = GapSettings(
        event_at="at",
        cadence="1 d",
        from_time=0,
        to_time="1970-01-04",
        columns=["temp"],
    )
    full, empty = (
        gap_report(frame, settings) for frame in (hourly(spark), hourly(spark).where("temp > 5"))
    )
    assert full.gaps.count() == 0 and [row["kind"] for row in empty.gaps.collect()] == [
        "never_started"
    ]
    assert {row["missing"] for row in empty.completeness.collect()} == {3}


def test_missing_columns_are_rejected_with_a_suggestion(spark: SparkSession) -> None:
    given: dict[str, Any] = {"event_at": "at", "cadence": "1 h", "from_time": 0, "to_time": 10**9}
    with pytest.raises(InputError, match='no column "orig"') as error:
        gap_report(hourly(spark), GapSettings(**given, keys=["orig"]))
    assert 'Did you mean "origin"?' in error.value.hint
    with pytest.raises(InputError, match='"`origin`" of stream "frame" must be a timestamp'):
        gap_report(hourly(spark), GapSettings(**given | {"event_at": "origin"}))


def test_cadence_that_cannot_be_learned_is_rejected(spark: SparkSession) -> None:
    # One row of each key has no distance to another.
    with pytest.raises(InputError, match="no key has two rows"):
        learn_cadence(hourly(spark), "at", ["at"])
