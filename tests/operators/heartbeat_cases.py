"""Generated cases for the Heartbeat, and how many of them are run in one Spark job: one clock, so
one key, for each.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from rewindow.operators.heartbeat.function import HeartbeatSettings
from rewindow.windows import Grid
from tests.operators.heartbeat_reference import Arrival, Emitted, Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNIT_US = 250
"""Times are mostly multiples of this, so that borders, ties and multiples of the interval are often
met."""
WINDOW_US = 1_000
WINDOWS = 40
MS = Grid(1)
"""The grid of these windows."""

Case = list[Arrival]


def _make_case(random: Random, length_max: int) -> Case:
    """Returns a recording with equal, null, negative and out-of-order timestamps, ties of arrivals,
    silences, jumps.
    """
    case: Case = []
    at_us = 0
    ts_us = random.randint(-40, 20) * UNIT_US
    for offset in range(random.randint(1, length_max)):
        jitter = random.choice([0, 0, 0, 0, -1, 1, 7])
        gap = random.choice([0, 1, 2, 3, random.randint(0, 24)])
        at_us = min(at_us + (gap * UNIT_US + jitter if gap else 0), WINDOW_US * WINDOWS - 1)
        follows = random.random() < 0.6
        ts_us = (
            ts_us + random.randint(0, 8) * UNIT_US + jitter
            if follows
            else random.randint(-40, 60) * UNIT_US
        )
        case.append(Arrival(at_us, None if random.random() < 0.1 else ts_us, offset))
    return case


def _make_cases(seed: int) -> list[Case]:
    random = Random(seed)
    return [_make_case(random, 14) for _ in range(80)]


_seeds = st.integers(0, 2**32)
cases = _seeds.map(_make_cases)
"""Lists of recordings."""
long_case = _seeds.map(lambda seed: _make_case(Random(seed), 80))
"""One recording, with several tuples in a window."""

rules = st.builds(
    Rules,
    interval_us=st.sampled_from([4, 4, 5, 10, 16]).map(lambda units: units * UNIT_US),
    slack_us=st.sampled_from([0, 0, 1, 2, 5, 11]).map(lambda units: units * UNIT_US),
    answered=st.sampled_from(["emit", "drop"]),
)


readings = st.builds(
    Rules,
    interval_us=st.sampled_from([4, 4, 5, 10]).map(lambda units: units * UNIT_US),
    slack_us=st.sampled_from([1, 2, 5, 11]).map(lambda units: units * UNIT_US),
    crossing=st.sampled_from(["all", "last"]),
    first_on_multiple=st.sampled_from(["none", "timer"]),
    early_crossing=st.sampled_from(["timer_first", "data_first"]),
    answered=st.sampled_from(["emit", "drop"]),
    tie=st.sampled_from(["timer_first", "tuple_first"]),
    max_timers=st.sampled_from([1, 2, 5, 1_000_000]),
    on_too_many=st.just("summary"),
    speed=st.sampled_from(
        [Fraction(1), Fraction(2), Fraction(5, 2), Fraction(1, 4), Fraction(100)]
    ),
)
"""Every reading of section 3 that leaves the slack alone, with playback speeds and a limit on
timers."""

varying_slack = st.builds(
    replace,
    readings,
    slack_restart=st.sampled_from(["arrival", "arrival", "scheduled"]),
    slack_after_timeout=st.sampled_from(["none", "none", "again"]),
)
"""Readings in which the slack depends on what came before (H31, H37)."""


def settings_of(rules: Rules, **more: Any) -> HeartbeatSettings:
    seconds = Decimal(1_000_000)
    more = {"key_by": ("case",)} | more
    return HeartbeatSettings(
        interval=rules.interval_us / seconds,
        slack=rules.slack_us / seconds,
        event_at="ts",
        crossing=rules.crossing,
        first_on_multiple=rules.first_on_multiple,
        early_crossing=rules.early_crossing,
        slack_restart=rules.slack_restart,
        slack_after_timeout=rules.slack_after_timeout,
        answered_crossing=rules.answered,
        tie=rules.tie,
        max_jump=None if rules.max_jump_us is None else rules.max_jump_us / seconds,
        max_timers=rules.max_timers,
        on_too_many=rules.on_too_many,
        speed=Decimal(rules.speed.numerator) / rules.speed.denominator,
        **more,
    )


def assert_same(found: list[list[Emitted]], wanted: list[list[Emitted]], cases: list[Case]) -> None:
    """Shows the shortest recording whose tuples differ."""
    differing = [key for key in range(len(cases)) if found[key] != wanted[key]]
    if differing:
        key = min(differing, key=lambda key: len(cases[key]))
        rows = [
            f"{len(differing)} of {len(cases)} recordings differ; the shortest:",
            *map(str, cases[key]),
        ]
        rows += ["wanted:", *map(str, wanted[key]), "found:", *map(str, found[key])]
        raise AssertionError("\n".join(rows))


def to_frame(spark: SparkSession, cases: list[Case], grid: Grid | None = None) -> DataFrame:
    """Returns all cases as one frame: `case`, `arrived_at`, `ts`, `offset`, and on a grid the
    window id.

    The key of the first is null.
    """
    rows = [
        (
            key or None,
            one.at_us,
            one.ts_us,
            one.offset,
            f"{key}/{one.offset}",
            (grid or MS).window(one.at_us),
        )
        for key, case in enumerate(cases)
        for one in case
    ]
    frame = spark.createDataFrame(
        rows,
        "case INT, arrived_at BIGINT, ts BIGINT, offset BIGINT, payload STRING, window_id BIGINT",
    )
    return frame if grid else frame.drop("window_id")


def emitted_by_case(tuples: DataFrame, count: int, grid: Grid = MS) -> list[list[Emitted]]:
    """Returns what the library emitted for each case, in emission order."""
    found: dict[int, list[Emitted]] = defaultdict(list)
    for row in tuples.fillna({"case": 0}).orderBy("case", "_rw_emission").collect():
        if row["_rw_is_timer"]:
            assert row["payload"] is None, "a timer has no field but its timestamp (H2)"
            timer = Emitted(
                row["_rw_cause"],
                row["arrived_at"],
                row["ts"],
                row["offset"],
                row["_rw_timer_count"],
            )
            found[row["case"]].append(timer)
        else:
            assert row["payload"] == f"{row['case']}/{row['offset']}", "data pass unchanged (H1)"
            found[row["case"]].append(
                Emitted("data", row["arrived_at"], row["ts"], row["offset"], None)
            )
        if "window_id" in tuples.columns:
            assert row["window_id"] == grid.window(row["arrived_at"]), (
                "a tuple's window holds its emission (H56)"
            )
    return [found[key] for key in range(count)]
