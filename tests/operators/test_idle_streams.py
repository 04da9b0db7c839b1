"""Streams that are silent: when they no longer hold the watermark back, and what that makes late
(E47, E48, X28).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from rewindow.operators import EventTime, StreamTime
from rewindow.operators.event_time.lateness import ADDED, late_by_idleness, lateness
from tests.operators.lateness_reference import Classified, classify
from tests.operators.test_lateness import (
    CASES,
    END_US,
    UNIT_US,
    frames_of,
    make_case,
    make_rules,
    new_seed,
    outcomes,
    settings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("cut_us", [8_700_000, pytest.param(9_000_000, marks=pytest.mark.long)])
def test_resumed_stream_is_idle_until_the_first_tick_after_a_cut(
    spark: SparkSession,
    cut_us: int,
) -> None:
    # Rules: E42, E47
    arrivals = [(0, 1.0, 100), (1, 2.0, 50), (0, 8.5, 60), (0, 8.8, 70)]
    rows = [
        (0, number, stream, int(at * 1e6), ts * 10**6)
        for number, (stream, at, ts) in enumerate(arrivals)
    ]
    frame = spark.createDataFrame(
        rows,
        "case INT, number INT, stream INT, arrived_at BIGINT, ts BIGINT",
    )
    stream = StreamTime(event_at="ts", idle_timeout="5 s", max_ahead=None)
    time = EventTime(streams={"s0": stream, "s1": stream})
    state = None
    results = []
    for first_us, end_us in pairwise([0, cut_us, 20_000_000]):
        piece = frame.where(f"arrived_at >= {first_us} AND arrived_at < {end_us}")
        frames = {
            f"s{number}": piece.where(f"stream = {number}").drop("stream") for number in (0, 1)
        }
        results.append(lateness(frames, time, state=state, start_us=0, end_us=end_us))
        assert results[-1].state is not None
        state = results[-1].state.localCheckpoint()
    assert {place[1]: one for place, one in outcomes(results).items()} == {
        0: Classified("on_time", None),
        1: Classified("on_time", None),
        2: Classified("on_time", 50_000_000),
        3: Classified("on_time", 50_000_000),
    }
    ticks = [tuple(row) for result in results for row in result.ticks.collect()]
    assert sorted(ticks) == [(2_000_000, 50_000_000, None), (9_000_000, 100_000_000, 50_000_000)]


def test_silence_starts_at_the_last_tuple_even_before_the_first_tick(
    spark: SparkSession,
) -> None:
    # Rules: E47, X28
    stream = StreamTime(event_at="ts", idle_timeout="1 s", max_ahead=None)
    time = EventTime(streams={"s0": stream, "s1": stream}, watermark_interval="10 s")
    kind = "arrived_at BIGINT, ts BIGINT"
    second = 10**6
    frames = {
        "s0": spark.createDataFrame([(3 * second, 3 * second)], kind),
        "s1": spark.createDataFrame([(10 * second, 10 * second), (12 * second, 5 * second)], kind),
    }
    classified = lateness(frames, time, start_us=1, end_us=30 * second)
    assert [tuple(row)[:2] for row in classified.ticks.collect()] == [(10 * second, 10 * second)]
    assert classified.late["s1"].count() == 1


@pytest.mark.long
def test_tuples_late_only_because_of_an_idle_timeout_are_reported(spark: SparkSession) -> None:
    # Rules: E48
    seed = new_seed()
    random = Random(seed)
    known = {"timeouts_us": (2 * UNIT_US, 5 * UNIT_US), "aheads_us": (None, None), "jumps_us": ()}
    rules = replace(make_rules(random), streams=2, **known)  # type: ignore[arg-type]
    cases = [make_case(random, rules.streams) for _ in range(CASES // 4)]
    found = late_by_idleness(
        frames_of(spark, cases, rules),
        settings_of(rules),
        start_us=0,
        recording_keys=("case",),
    )
    mine = {(row["case"], row["number"]) for frame in found.values() for row in frame.collect()}
    patient = replace(rules, timeouts_us=(None, None))
    wanted = set()
    for key, case in enumerate(cases):
        pairs = zip(
            classify(case, rules, 0, END_US)[0],
            classify(case, patient, 0, END_US)[0],
            strict=True,
        )
        wanted |= {
            (key, number)
            for number, (one, other) in enumerate(pairs)
            if one.outcome == "late" != other.outcome
        }
    assert mine == wanted and wanted, f"seed {seed}\n{rules}"
    assert list(found["s0"].columns)[-4:] == list(ADDED)
