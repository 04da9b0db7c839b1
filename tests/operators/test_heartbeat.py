"""The Heartbeat against an event-by-event reference (docs/rules/heartbeat.md part 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from rewindow.operators.heartbeat.function import HeartbeatResult, heartbeat
from rewindow.windows import Grid
from tests.operators.heartbeat_cases import (
    MS,
    UNIT_US,
    WINDOW_US,
    WINDOWS,
    Case,
    assert_same,
    cases,
    emitted_by_case,
    long_case,
    readings,
    rules,
    settings_of,
    to_frame,
    varying_slack,
)
from tests.operators.heartbeat_reference import Emitted, Rules, emit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings(
    "ignore:The Tuple Output Interval:UserWarning",
    "ignore:slack of:UserWarning",
)
END_US = WINDOW_US * WINDOWS
anywhere = st.sets(st.integers(1, WINDOWS - 1), min_size=1, max_size=2)


def batches(count: int) -> settings:
    """Returns Hypothesis settings for examples that each hold eighty recordings; a seed cannot be
    shrunk.
    """
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )


def expected(cases: list[Case], rules: Rules, *, included: bool = True) -> list[list[Emitted]]:
    """Returns the reference's output, without quarantined tuples."""
    return [
        [one for one in emit(case, rules, END_US, included=included) if one.kind != "refused"]
        for case in cases
    ]


def results_in_groups(
    frame: DataFrame,
    rules: Rules,
    cuts: set[int],
    grid: Grid = MS,
    **more: object,
) -> list[HeartbeatResult]:
    """Returns the results of a recording that is taken in groups of windows, each from the state of
    the one before.
    """
    made: list[HeartbeatResult] = []
    for first, end in pairwise(
        sorted({grid.window(cut * WINDOW_US) for cut in {0, *cuts, WINDOWS}})
    ):
        part = frame.where(f"window_id >= {first} AND window_id < {end}")
        state = made[-1].state.localCheckpoint() if made else None
        end_us = grid.start_us(end)
        settings = settings_of(rules, **more)
        made.append(
            heartbeat(part, settings, state=state, end_us=end_us, end_included=False, grid=grid)
        )
    return made


def in_groups(frame: DataFrame, rules: Rules, cuts: set[int], **more: Any) -> DataFrame:
    return union(result.tuples for result in results_in_groups(frame, rules, cuts, **more))


def union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def refused(errors: DataFrame) -> set[tuple[int, int]]:
    """Returns case and offset of the tuples in the error frame."""
    return {(row["case"] or 0, row["offset"]) for row in errors.collect()}


def expected_refused(cases: list[Case], rules: Rules) -> set[tuple[int, int]]:
    walked = enumerate(emit(case, rules, END_US) for case in cases)
    return {
        (key, one.offset)
        for key, found in walked
        for one in found
        if one.kind == "refused" and one.offset is not None
    }


@batches(1)
@given(cases=cases, rules=rules, end_included=st.booleans())
def test_heartbeat_equals_a_state_machine(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
    end_included: bool,
) -> None:
    # Rules: H1 to H13, H47 to H54
    result = heartbeat(
        to_frame(spark, cases),
        settings_of(rules),
        end_us=END_US,
        end_included=end_included,
    )
    assert_same(
        emitted_by_case(result.tuples, len(cases)),
        expected(cases, rules, included=end_included),
        cases,
    )


@batches(2)
@given(cases=cases, rules=readings)
def test_heartbeat_variants_equal_a_state_machine(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
) -> None:
    # Rules: H14, H27 to H39, H41, H62
    result = heartbeat(to_frame(spark, cases), settings_of(rules), end_us=END_US)
    assert_same(emitted_by_case(result.tuples, len(cases)), expected(cases, rules), cases)


@batches(1)
@given(cases=cases, rules=st.one_of(rules, readings), cuts=anywhere)
def test_heartbeat_is_independent_of_the_grouping_of_windows(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
    cuts: set[int],
) -> None:
    # Rules: H55 to H57
    tuples = in_groups(to_frame(spark, cases, MS), rules, cuts)
    assert_same(emitted_by_case(tuples, len(cases)), expected(cases, rules, included=False), cases)


@pytest.mark.long
@batches(2)
@given(
    case=long_case,
    rules=st.one_of(rules, readings),
    cuts=st.sets(st.integers(1, WINDOWS - 1), max_size=1),
)
def test_heartbeat_with_a_single_clock_equals_one_pass_if_sorted_per_window(
    spark: SparkSession,
    case: Case,
    rules: Rules,
    cuts: set[int],
) -> None:
    # Rules: H46, H57
    tuples = in_groups(to_frame(spark, [case], MS), rules, cuts, key_by=())
    found = emitted_by_case(tuples, 1)
    assert_same(found, expected([case], rules, included=False), [case])


@batches(1)
@given(cases=cases, rules=varying_slack, cuts=anywhere)
def test_heartbeat_state_includes_a_slack_that_depends_on_earlier_tuples(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
    cuts: set[int],
) -> None:
    # Rules: H31, H37
    tuples = in_groups(to_frame(spark, cases, MS), rules, cuts)
    assert_same(emitted_by_case(tuples, len(cases)), expected(cases, rules, included=False), cases)


@batches(1)
@given(cases=cases, rules=rules, jump=st.integers(1, 30))
def test_heartbeat_quarantines_tuples_beyond_max_jump(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
    jump: int,
) -> None:
    # Rules: H61
    rules = replace(rules, max_jump_us=jump * UNIT_US)
    result = heartbeat(to_frame(spark, cases), settings_of(rules), end_us=END_US)
    assert_same(emitted_by_case(result.tuples, len(cases)), expected(cases, rules), cases)
    assert refused(result.errors) == expected_refused(cases, rules)


@pytest.mark.exhaustive
@batches(1)
@given(cases=cases, case=long_case, rules=rules, jump=st.integers(1, 30), cuts=anywhere)
def test_heartbeat_quarantine_is_independent_of_the_grouping_of_windows(
    spark: SparkSession,
    cases: list[Case],
    case: Case,
    rules: Rules,
    jump: int,
    cuts: set[int],
) -> None:
    # Rules: H57, H61
    rules = replace(rules, max_jump_us=jump * UNIT_US)
    for taken, key_by in ((cases, ("case",)), ([case], ())):
        made = results_in_groups(to_frame(spark, taken, MS), rules, cuts, key_by=key_by)
        tuples = emitted_by_case(union(result.tuples for result in made), len(taken))
        assert_same(tuples, expected(taken, rules, included=False), taken)
        assert refused(union(result.errors for result in made)) == expected_refused(taken, rules)


@batches(1)
@given(cases=cases, rules=st.one_of(rules, readings), cuts=anywhere)
def test_heartbeat_reads_microseconds_and_the_origin_affects_only_windows(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
    cuts: set[int],
) -> None:
    # Rules: H40, H57
    grid = Grid(3, origin_ms=-5)
    frame = to_frame(spark, cases, grid).withColumns(
        {name: F.timestamp_micros(name) for name in ("arrived_at", "ts")}
    )
    tuples = in_groups(frame, rules, cuts, grid=grid)
    assert {tuples.schema[name].dataType.simpleString() for name in ("arrived_at", "ts")} == {
        "timestamp"
    }
    tuples = tuples.withColumns({name: F.unix_micros(name) for name in ("arrived_at", "ts")})
    found = emitted_by_case(tuples, len(cases), grid)
    assert_same(found, expected(cases, rules, included=False), cases)


@pytest.mark.long
@batches(1)
@given(cases=cases, rules=st.one_of(rules, readings), cuts=anywhere)
def test_heartbeat_timers_do_not_depend_on_the_window_width(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
    cuts: set[int],
) -> None:
    # Rules: H5, H57
    rules = replace(rules, answered="drop")
    wanted = expected(cases, rules, included=False)
    answers = sum(
        one.ts_us is not None and one.ts_us % rules.interval_us == 0
        for case in cases
        for one in case
    )
    assert answers > 10, "tuples on a multiple of the interval are what this is about"
    for width_ms in (1, 5, WINDOWS):
        grid = Grid(width_ms)
        tuples = in_groups(to_frame(spark, cases, grid), rules, cuts, grid=grid)
        assert_same(emitted_by_case(tuples, len(cases), grid), wanted, cases)


@batches(1)
@given(cases=cases, case=long_case, rules=rules, seed=st.integers(0, 2**32), cuts=anywhere)
def test_heartbeat_clamps_arrivals_independently_of_the_grouping_of_windows(
    spark: SparkSession,
    cases: list[Case],
    case: Case,
    rules: Rules,
    seed: int,
    cuts: set[int],
) -> None:
    # Rules: H45, H57
    random = Random(seed)
    for taken, key_by in ((cases, ("case",)), ([case], ())):
        recorded = [
            [one.at_us - random.choice([0, 0, random.randint(0, 1_500)]) for one in case]
            for case in taken
        ]
        rows = [
            (key, one.offset, at)
            for key, case in enumerate(taken)
            for one, at in zip(case, recorded[key], strict=True)
        ]
        arrivals = spark.createDataFrame(rows, "_case INT, _offset BIGINT, recorded BIGINT")
        frame = to_frame(spark, taken, MS).join(
            arrivals,
            F.expr("coalesce(case, 0) = _case AND offset = _offset"),
        )
        frame = frame.withColumn("arrived_at", F.col("recorded")).drop("_case", "_offset")
        made = results_in_groups(frame, rules, cuts, key_by=key_by, arrival_regression="clamp")
        tuples = union(result.tuples for result in made).localCheckpoint()
        assert tuples.where("NOT _rw_is_timer AND arrived_at != recorded").isEmpty()
        counted = [clamped(case, arrived) for case, arrived in zip(taken, recorded, strict=True)]
        found = emitted_by_case(
            tuples.withColumn("arrived_at", F.col("_rw_emission.at_us")),
            len(taken),
        )
        assert_same(found, expected(counted, rules, included=False), counted)
        assert refused(union(result.errors for result in made)) == {
            (key, one.offset)
            for key, case in enumerate(counted)
            for one in case
            if one.at_us > recorded[key][one.offset]
        }


def clamped(case: Case, recorded: list[int]) -> Case:
    """Returns a recording with its arrivals as `clamp` counts them; the windows are those of the
    arrivals in `case`.
    """
    counted: Case = []
    for one, at_us in zip(case, recorded, strict=True):
        begin_us = one.at_us // WINDOW_US * WINDOW_US
        counted.append(
            one._replace(at_us=max(at_us, begin_us, *(before.at_us for before in counted)))
        )
    return counted


@batches(1)
@given(cases=cases, rules=rules, jump=st.integers(1, 30), cuts=anywhere)
def test_heartbeat_distinguishes_tuples_with_equal_order_by_their_timestamps(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
    jump: int,
    cuts: set[int],
) -> None:
    rules = replace(rules, max_jump_us=jump * UNIT_US)
    cases = [in_order_of_times(case) for case in cases]
    made = results_in_groups(to_frame(spark, cases, MS), rules, cuts, order_by=("arrived_at",))
    rows = union(result.errors for result in made).collect()
    found = Counter((row["case"] or 0, row["arrived_at"], row["ts"]) for row in rows)
    walked = ((key, one) for key, case in enumerate(cases) for one in emit(case, rules, END_US))
    assert found == Counter(
        (key, one.at_us, one.ts_us) for key, one in walked if one.kind == "refused"
    )
    assert {(row["_rw_reason"], row["_rw_position"]) for row in rows} == {
        ("jump", str(at)) for _, at, _ in found
    }


def in_order_of_times(case: Case) -> Case:
    """Returns a recording whose tuples of one arrival come by timestamp, those without one
    first.
    """
    in_order = sorted(case, key=lambda one: (one.at_us, one.ts_us is not None, one.ts_us or 0))
    return [one._replace(offset=offset) for offset, one in enumerate(in_order)]
