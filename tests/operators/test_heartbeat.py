"""The Heartbeat against an event-by-event reference, and against what its rules print (rules/heartbeat.md part 1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewindow.errors import InputError
from rewindow.operators.heartbeat import HeartbeatSettings, heartbeat
from rewindow.windows import Grid
from tests.operators.heartbeat_cases import (
    WINDOW_US,
    WINDOWS,
    Case,
    cases,
    emitted_by_case,
    rules,
    settings_of,
    speeds,
    to_frame,
)
from tests.operators.heartbeat_reference import Arrival, Emitted, Rules, emit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:The Tuple Output Interval:UserWarning", "ignore:slack of:UserWarning")
END_US = WINDOW_US * WINDOWS


def batches(count: int) -> settings:
    """Returns Hypothesis settings for examples that each hold some twenty recordings."""
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


def expected(cases: list[Case], rules: Rules, *, included: bool = True) -> list[list[Emitted]]:
    """Returns the reference's output, without quarantined tuples."""
    return [[one for one in emit(case, rules, END_US, included=included) if one.kind != "refused"] for case in cases]


@batches(4)
@given(cases=cases, rules=rules, end_included=st.booleans())
def test_heartbeat_emits_what_a_machine_would_emit(
    spark: SparkSession, cases: list[Case], rules: Rules, end_included: bool
) -> None:
    """The set-based form gives the tuples of the event-by-event form, in its order (H1 to H13, H47 to H54)."""
    end_us = END_US
    result = heartbeat(to_frame(spark, cases), settings_of(rules), end_us=end_us, end_included=end_included)
    assert emitted_by_case(result, len(cases)) == expected(cases, rules, included=end_included)


@batches(3)
@given(cases=cases, rules=rules, cuts=st.sets(st.integers(1, WINDOWS - 1), min_size=1, max_size=2))
def test_heartbeat_is_the_same_in_any_grouping_of_windows(
    spark: SparkSession, cases: list[Case], rules: Rules, cuts: set[int]
) -> None:
    """Groups of windows with carried state give the tuples of one pass (H55 to H57)."""
    borders = [0, *sorted(cuts), WINDOWS]
    frame, found, state = to_frame(spark, cases, windows=True), [[] for _ in cases], None
    for first, last in zip(borders, borders[1:], strict=False):
        part = frame.where(f"window_id >= {first} AND window_id < {last}")
        made = heartbeat(
            part, settings_of(rules), state=state, end_us=last * WINDOW_US, end_included=False, grid=Grid(1)
        )
        for whole, piece in zip(found, emitted_by_case(made, len(cases)), strict=True):
            whole += piece
        state = spark.createDataFrame(made.state.collect(), made.state.schema)
    assert found == expected(cases, rules, included=False)
