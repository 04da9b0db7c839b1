"""Generated cases for the Heartbeat, and how many of them are run in one Spark job: one clock, so one key, for each."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from rewindow.operators.heartbeat import HeartbeatResult, HeartbeatSettings
from tests.operators.heartbeat_reference import Arrival, Emitted, Rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNIT_US = 250
"""Times are mostly multiples of this, so that borders, ties and multiples of the interval are often met."""
WINDOW_US = 1_000
WINDOWS = 40

Case = list[Arrival]

_steps = st.tuples(st.integers(0, 24), st.integers(-40, 60), st.sampled_from([0, 0, 0, 0, -1, 1, 7]))
_tuples = st.tuples(_steps, st.booleans(), st.integers(0, 9))


def _to_case(drawn: list[Any]) -> Case:
    case: Case = []
    at_us, ahead_us = 0, 0
    for offset, ((gap, step, jitter), follows, luck) in enumerate(drawn):
        at_us = min(at_us + gap * UNIT_US + (jitter if gap else 0), WINDOW_US * WINDOWS - 1)
        ahead_us = ahead_us + abs(step) * UNIT_US // 3 + jitter if follows else step * UNIT_US + jitter
        case.append(Arrival(at_us, None if luck == 0 else ahead_us, offset))
    return case


cases = st.lists(st.lists(_tuples, max_size=14).map(_to_case), min_size=20, max_size=30)
"""Lists of recordings: out of order, equal, null and negative timestamps; ties of arrivals; silences and jumps."""

rules = st.builds(
    Rules,
    interval_us=st.sampled_from([4, 4, 5, 10, 16]).map(lambda units: units * UNIT_US),
    slack_us=st.sampled_from([0, 0, 1, 2, 5, 11]).map(lambda units: units * UNIT_US),
)


def settings_of(rules: Rules, **more: Any) -> HeartbeatSettings:
    """Returns the library's settings for a reference's rules."""
    seconds = Decimal(1_000_000)
    return HeartbeatSettings(
        interval=rules.interval_us / seconds,
        slack=rules.slack_us / seconds,
        event_at="ts",
        key_by=("case",),
        crossing=rules.crossing,
        first_on_multiple=rules.first_on_multiple,
        early_crossing=rules.early_crossing,
        slack_restart=rules.slack_restart,
        slack_after_timeout=rules.slack_after_timeout,
        tie=rules.tie,
        max_jump=None if rules.max_jump_us is None else rules.max_jump_us / seconds,
        max_timers=rules.max_timers,
        on_too_many=rules.on_too_many,
        speed=Decimal(rules.speed.numerator) / rules.speed.denominator,
        **more,
    )


def to_frame(spark: SparkSession, cases: list[Case], *, windows: bool = False) -> DataFrame:
    """Returns all cases as one frame: `case`, `arrived_at`, `ts`, `offset`, and with `windows` the window id."""
    rows = [
        (key, one.at_us, one.ts_us, one.offset, f"{key}/{one.offset}", one.at_us // WINDOW_US)
        for key, case in enumerate(cases)
        for one in case
    ]
    frame = spark.createDataFrame(
        rows, "case INT, arrived_at BIGINT, ts BIGINT, offset BIGINT, payload STRING, window_id BIGINT"
    )
    return frame if windows else frame.drop("window_id")


def emitted_by_case(result: HeartbeatResult, count: int) -> list[list[Emitted]]:
    """Returns what the library emitted for each case, in emission order; quarantined tuples come with the others."""
    found: dict[int, list[Emitted]] = defaultdict(list)
    for row in result.tuples.orderBy("case", "emission").collect():
        if row["is_timer"]:
            assert row["payload"] is None, "a timer has no field but its timestamp (H2)"
            found[row["case"]].append(Emitted(row["cause"], row["arrived_at"], row["ts"], row["offset"], row["timer_count"]))
        else:
            assert row["payload"] == f"{row['case']}/{row['offset']}", "data pass unchanged (H1)"
            found[row["case"]].append(Emitted("data", row["arrived_at"], row["ts"], row["offset"], None))
        if "window_id" in result.tuples.columns:
            assert row["window_id"] == row["arrived_at"] // WINDOW_US, "a tuple's window holds its emission (H56)"
    return [found[key] for key in range(count)]


def speeds() -> st.SearchStrategy[Fraction]:
    """Returns playback speeds, exact as decimals."""
    return st.sampled_from([Fraction(1), Fraction(2), Fraction(5, 2), Fraction(1, 4), Fraction(100)])
