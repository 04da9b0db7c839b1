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

pytestmark = pytest.mark.filterwarnings("ignore:The Tuple Output Interval:UserWarning", "ignore:slack of:UserWarning")
END_US = WINDOW_US * WINDOWS
anywhere = st.sets(st.integers(1, WINDOWS - 1), min_size=1, max_size=2)


def batches(count: int) -> settings:
    """Returns Hypothesis settings for examples that each hold eighty recordings; a seed cannot be shrunk."""
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )


def expected(cases: list[Case], rules: Rules, *, included: bool = True) -> list[list[Emitted]]:
    """Returns the reference's output, without quarantined tuples."""
    return [[one for one in emit(case, rules, END_US, included=included) if one.kind != "refused"] for case in cases]


def results_in_groups(
    frame: DataFrame, rules: Rules, cuts: set[int], grid: Grid = MS, **more: object
) -> list[HeartbeatResult]:
    """Returns the results of a recording that is taken in groups of windows, each from the state of the one before."""
    made: list[HeartbeatResult] = []
    for first, end in pairwise(sorted({grid.window(cut * WINDOW_US) for cut in {0, *cuts, WINDOWS}})):
        part = frame.where(f"window_id >= {first} AND window_id < {end}")
        state, end_us = made[-1].state.localCheckpoint() if made else None, grid.start_us(end)
        settings = settings_of(rules, **more)
        made.append(heartbeat(part, settings, state=state, end_us=end_us, end_included=False, grid=grid))
    return made


def in_groups(frame: DataFrame, rules: Rules, cuts: set[int], **more: Any) -> DataFrame:
    """Returns the tuples of a recording that is taken in groups of windows."""
    return union(result.tuples for result in results_in_groups(frame, rules, cuts, **more))


def union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def refused(errors: DataFrame) -> set[tuple[int, int]]:
    """Returns case and offset of the tuples in the error frame."""
    return {(row["case"] or 0, row["offset"]) for row in errors.collect()}


def expected_refused(cases: list[Case], rules: Rules) -> set[tuple[int, int]]:
    """Returns the reference's quarantined tuples."""
    walked = enumerate(emit(case, rules, END_US) for case in cases)
    return {
        (key, one.offset) for key, found in walked for one in found if one.kind == "refused" and one.offset is not None
    }


@batches(1)
@given(cases=cases, rules=rules, end_included=st.booleans())
def test_heartbeat_emits_what_a_machine_would_emit(
    spark: SparkSession, cases: list[Case], rules: Rules, end_included: bool
) -> None:
    """The set-based form gives the tuples of the event-by-event form, in its order (H1 to H13, H47 to H54)."""
    result = heartbeat(to_frame(spark, cases), settings_of(rules), end_us=END_US, end_included=end_included)
    assert_same(emitted_by_case(result.tuples, len(cases)), expected(cases, rules, included=end_included), cases)


@batches(2)
@given(cases=cases, rules=readings)
def test_heartbeat_follows_every_reading(spark: SparkSession, cases: list[Case], rules: Rules) -> None:
    """So do the other readings of the documentation, playback speeds and summaries (H14, H27 to H39, H41, H62)."""
    result = heartbeat(to_frame(spark, cases), settings_of(rules), end_us=END_US)
    assert_same(emitted_by_case(result.tuples, len(cases)), expected(cases, rules), cases)


@batches(1)
@given(cases=cases, rules=st.one_of(rules, readings), cuts=anywhere)
def test_heartbeat_is_the_same_in_any_grouping_of_windows(
    spark: SparkSession, cases: list[Case], rules: Rules, cuts: set[int]
) -> None:
    """Groups of windows with carried state give the tuples of one pass, each in its emission's window (H55-H57)."""
    tuples = in_groups(to_frame(spark, cases, MS), rules, cuts)
    assert_same(emitted_by_case(tuples, len(cases)), expected(cases, rules, included=False), cases)


@pytest.mark.long
@batches(2)
@given(case=long_case, rules=st.one_of(rules, readings), cuts=st.sets(st.integers(1, WINDOWS - 1), max_size=1))
def test_heartbeat_of_one_clock_is_the_same_window_beside_window(
    spark: SparkSession, case: Case, rules: Rules, cuts: set[int]
) -> None:
    """A stream without keys, whose windows are sorted apart, gives the tuples of one pass as well (H46, H57)."""
    tuples = in_groups(to_frame(spark, [case], MS), rules, cuts, key_by=())
    found = emitted_by_case(tuples, 1)
    assert_same(found, expected([case], rules, included=False), [case])


@batches(1)
@given(cases=cases, rules=varying_slack, cuts=anywhere)
def test_heartbeat_folds_a_slack_that_depends_on_the_past(
    spark: SparkSession, cases: list[Case], rules: Rules, cuts: set[int]
) -> None:
    """Slack counted from the arrival, or not paid again after timeouts, in groups of windows (H31, H37)."""
    tuples = in_groups(to_frame(spark, cases, MS), rules, cuts)
    assert_same(emitted_by_case(tuples, len(cases)), expected(cases, rules, included=False), cases)


@batches(1)
@given(cases=cases, rules=rules, jump=st.integers(1, 30))
def test_heartbeat_quarantines_what_runs_too_far_ahead(
    spark: SparkSession, cases: list[Case], rules: Rules, jump: int
) -> None:
    """A tuple beyond `max_jump` leaves by the error frame and moves no clock (H61)."""
    rules = replace(rules, max_jump_us=jump * UNIT_US)
    result = heartbeat(to_frame(spark, cases), settings_of(rules), end_us=END_US)
    assert_same(emitted_by_case(result.tuples, len(cases)), expected(cases, rules), cases)
    assert refused(result.errors) == expected_refused(cases, rules)


@pytest.mark.long
@batches(1)
@given(cases=cases, case=long_case, rules=rules, jump=st.integers(1, 30), cuts=anywhere)
def test_heartbeat_quarantines_the_same_in_any_grouping_of_windows(
    spark: SparkSession, cases: list[Case], case: Case, rules: Rules, jump: int, cuts: set[int]
) -> None:
    """What is believed is carried over the end of a group, with keys and for one clock of all (H57, H61)."""
    rules = replace(rules, max_jump_us=jump * UNIT_US)
    for taken, key_by in ((cases, ("case",)), ([case], ())):
        made = results_in_groups(to_frame(spark, taken, MS), rules, cuts, key_by=key_by)
        tuples = emitted_by_case(union(result.tuples for result in made), len(taken))
        assert_same(tuples, expected(taken, rules, included=False), taken)
        assert refused(union(result.errors for result in made)) == expected_refused(taken, rules)


@batches(1)
@given(cases=cases, rules=st.one_of(rules, readings), cuts=anywhere)
def test_heartbeat_counts_timestamps_and_windows_from_where_their_grid_begins(
    spark: SparkSession, cases: list[Case], rules: Rules, cuts: set[int]
) -> None:
    """TIMESTAMP columns are read to the microsecond; an origin moves windows, and no timer (H40, H57)."""
    grid = Grid(3, origin_ms=-5)
    frame = to_frame(spark, cases, grid).withColumns({name: F.timestamp_micros(name) for name in ("arrived_at", "ts")})
    tuples = in_groups(frame, rules, cuts, grid=grid)
    assert {tuples.schema[name].dataType.simpleString() for name in ("arrived_at", "ts")} == {"timestamp"}
    tuples = tuples.withColumns({name: F.unix_micros(name) for name in ("arrived_at", "ts")})
    found = emitted_by_case(tuples, len(cases), grid)
    assert_same(found, expected(cases, rules, included=False), cases)


@pytest.mark.long
@batches(1)
@given(cases=cases, rules=st.one_of(rules, readings), cuts=anywhere)
def test_heartbeat_has_the_same_timers_whatever_the_width_of_its_windows(
    spark: SparkSession, cases: list[Case], rules: Rules, cuts: set[int]
) -> None:
    """Also where a tuple stands for the timer of exactly its timestamp: no other tuple of a window does (H5, H57)."""
    rules = replace(rules, answered="drop")
    wanted = expected(cases, rules, included=False)
    answers = sum(one.ts_us is not None and one.ts_us % rules.interval_us == 0 for case in cases for one in case)
    assert answers > 10, "tuples on a multiple of the interval are what this is about"
    for width_ms in (1, 5, WINDOWS):
        grid = Grid(width_ms)
        tuples = in_groups(to_frame(spark, cases, grid), rules, cuts, grid=grid)
        assert_same(emitted_by_case(tuples, len(cases), grid), wanted, cases)


@batches(1)
@given(cases=cases, case=long_case, rules=rules, seed=st.integers(0, 2**32), cuts=anywhere)
def test_heartbeat_clamps_the_same_in_any_grouping_of_windows(
    spark: SparkSession, cases: list[Case], case: Case, rules: Rules, seed: int, cuts: set[int]
) -> None:
    """An arrival counts as the latest so far, and not before its window; the tuple is reported as it was (H45, H57)."""
    random = Random(seed)
    for taken, key_by in ((cases, ("case",)), ([case], ())):
        recorded = [[one.at_us - random.choice([0, 0, random.randint(0, 1_500)]) for one in case] for case in taken]
        rows = [
            (key, one.offset, at) for key, case in enumerate(taken) for one, at in zip(case, recorded[key], strict=True)
        ]
        arrivals = spark.createDataFrame(rows, "_case INT, _offset BIGINT, recorded BIGINT")
        frame = to_frame(spark, taken, MS).join(arrivals, F.expr("coalesce(case, 0) = _case AND offset = _offset"))
        frame = frame.withColumn("arrived_at", F.col("recorded")).drop("_case", "_offset")
        made = results_in_groups(frame, rules, cuts, key_by=key_by, arrival_regression="clamp")
        tuples = union(result.tuples for result in made).localCheckpoint()
        assert tuples.where("NOT _rw_is_timer AND arrived_at != recorded").isEmpty()
        counted = [clamped(case, arrived) for case, arrived in zip(taken, recorded, strict=True)]
        found = emitted_by_case(tuples.withColumn("arrived_at", F.col("_rw_emission.at_us")), len(taken))
        assert_same(found, expected(counted, rules, included=False), counted)
        assert refused(union(result.errors for result in made)) == {
            (key, one.offset)
            for key, case in enumerate(counted)
            for one in case
            if one.at_us > recorded[key][one.offset]
        }


def clamped(case: Case, recorded: list[int]) -> Case:
    """Returns a recording with its arrivals as `clamp` counts them; the windows are those of the arrivals in `case`."""
    counted: Case = []
    for one, at_us in zip(case, recorded, strict=True):
        begin_us = one.at_us // WINDOW_US * WINDOW_US
        counted.append(one._replace(at_us=max(at_us, begin_us, *(before.at_us for before in counted))))
    return counted


@batches(1)
@given(cases=cases, rules=rules, jump=st.integers(1, 30), cuts=anywhere)
def test_heartbeat_tells_tuples_of_one_place_apart_by_their_times(
    spark: SparkSession, cases: list[Case], rules: Rules, jump: int, cuts: set[int]
) -> None:
    """Only the bad tuple is quarantined where `order_by` is not unique: the lower timestamp is first then."""
    rules = replace(rules, max_jump_us=jump * UNIT_US)
    cases = [in_order_of_times(case) for case in cases]
    made = results_in_groups(to_frame(spark, cases, MS), rules, cuts, order_by=("arrived_at",))
    rows = union(result.errors for result in made).collect()
    found = Counter((row["case"] or 0, row["arrived_at"], row["ts"]) for row in rows)
    walked = ((key, one) for key, case in enumerate(cases) for one in emit(case, rules, END_US))
    assert found == Counter((key, one.at_us, one.ts_us) for key, one in walked if one.kind == "refused")
    assert {(row["_rw_reason"], row["_rw_position"]) for row in rows} == {("jump", str(at)) for _, at, _ in found}


def in_order_of_times(case: Case) -> Case:
    """Returns a recording whose tuples of one arrival come by timestamp, those without one first."""
    in_order = sorted(case, key=lambda one: (one.at_us, one.ts_us is not None, one.ts_us or 0))
    return [one._replace(offset=offset) for offset, one in enumerate(in_order)]
