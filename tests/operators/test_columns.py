"""Instants at the ends of their types: every operator takes them, and what it returns for other
tuples is as without them.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.operators import (
    EventTime,
    EventWindows,
    FillSettings,
    GapSettings,
    StreamTime,
    event_windows,
    fill_gaps,
    gap_report,
    lateness,
)
from rewindow.operators.columns import FARTHEST_US, instant_us
from rewindow.operators.heartbeat.function import HeartbeatSettings, heartbeat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.xdist_group("columns")
"""Its tests share what is computed of the tuples without an extreme instant."""
LEAST = -(2**63)
MOST = 2**63 - 1
START = 1_704_067_200
"""2024-01-01, in seconds."""
HOUR = 3_600
PLAIN = {"first": START, "second": START + 3 * HOUR, "third": START + 4 * HOUR}
ARRIVALS = {"first": 1, "extreme": 2, "second": 3, "third": 4}
"""Hours after the start."""
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}
RANGE: dict[str, Any] = {"from_time": "2024-01-01", "to_time": "2024-01-01T06:00Z", "keys": ["key"]}


def frame_of(spark: SparkSession, kind: str, extreme: int | None) -> DataFrame:
    """Returns three tuples of a key, and after the first of them one with an extreme event time.

    Args:
        kind: TIMESTAMP, or the unit of a whole number.
        extreme: its event time: microseconds of a TIMESTAMP, units of a whole number.
    """
    unit = UNITS.get(kind, 1_000_000)
    times = {name: second * unit for name, second in PLAIN.items()}
    if extreme is not None:
        times = {"first": times.pop("first"), "extreme": extreme, **times}
    rows = [
        ("a", name, at, START + ARRIVALS[name] * HOUR, offset, float(offset))
        for offset, (name, at) in enumerate(times.items())
    ]
    frame = spark.createDataFrame(
        rows, "key STRING, name STRING, at BIGINT, s BIGINT, offset BIGINT, v DOUBLE"
    )
    at = "timestamp_micros(at) AS at" if kind == "TIMESTAMP" else "at"
    return frame.selectExpr("key", "name", at, "timestamp_seconds(s) AS arrived_at", "offset", "v")


MARKS: dict[str, Any] = {
    "TIMESTAMP most": (),
    "us least": (),
    "s most": pytest.mark.long,
    "ms least": pytest.mark.long,
}
"""Every kind of column once; `make test-all` has each of them with both ends."""
EXTREMES = [
    pytest.param(
        kind,
        value,
        id=f"{kind} {name}",
        marks=MARKS.get(f"{kind} {name}", pytest.mark.exhaustive),
    )
    for kind in ("TIMESTAMP", *UNITS)
    for name, value in (("least", LEAST), ("most", MOST))
]


def plain(frame: DataFrame, *columns: str) -> list[Row]:
    """Returns the rows as numbers and text, in order: Python cannot hold all instants."""
    return sorted(frame.selectExpr(*columns).collect(), key=repr)


def unit_of(kind: str) -> str:
    return kind if kind in UNITS else "us"


@pytest.mark.parametrize(("kind", "extreme"), EXTREMES)
def test_timestamps_are_limited_to_64_bit_microseconds(
    spark: SparkSession,
    kind: str,
    extreme: int,
) -> None:
    unit_us = 1 if kind == "TIMESTAMP" else 1_000_000 // UNITS[kind]
    frame = frame_of(spark, kind, extreme)
    column = instant_us(frame["at"], frame.schema["at"].dataType, unit_us)
    found = {row["name"]: row["us"] for row in frame.select("name", column.alias("us")).collect()}
    farthest = found.pop("extreme")
    assert found == {name: second * 1_000_000 for name, second in PLAIN.items()}
    assert FARTHEST_US - unit_us < (farthest if extreme > 0 else -farthest) <= FARTHEST_US
    nothing = spark.sql("SELECT CAST(NULL AS TIMESTAMP) AS at")
    assert nothing.select(instant_us(nothing["at"], nothing.schema["at"].dataType)).first() == (
        None,
    )


@functools.cache
def filling_and_gaps(spark: SparkSession, kind: str, extreme: int | None) -> tuple[list[Row], ...]:
    """Returns filled rows, gaps and completeness; computed once for the tuples without extreme."""
    about: dict[str, Any] = {"event_at": "at", "unit": unit_of(kind), **RANGE}
    at = "unix_micros(at) AS us" if kind == "TIMESTAMP" else "at"
    frame = frame_of(spark, kind, extreme)
    filled = fill_gaps(frame, FillSettings(step="1 h", columns={"v": "linear"}, **about))
    report = gap_report(frame, GapSettings(cadence="1 h", **about))
    assert filled.where("NOT _rw_is_made").count() == frame.count()
    return (
        plain(filled.where("_rw_is_made"), at, "v IS NULL AS is_null"),
        plain(report.gaps, "kind", "unix_micros(`from`) AS us", "missing"),
        plain(report.completeness, "present", "missing"),
    )


@pytest.mark.parametrize(("kind", "extreme"), EXTREMES)
def test_extreme_timestamp_does_not_change_filling_and_gaps(
    spark: SparkSession,
    kind: str,
    extreme: int,
) -> None:
    assert filling_and_gaps(spark, kind, extreme) == filling_and_gaps(spark, kind, None)


@functools.cache
def lateness_and_windows(
    spark: SparkSession,
    kind: str,
    extreme: int | None,
) -> tuple[list[Row], list[Row], list[Row]]:
    """Returns outcomes and windows of the other tuples, and the outcome of the extreme one."""
    stream = StreamTime(event_at="at", unit=unit_of(kind))
    time = EventTime(streams={"s": stream}, lag="1 h", watermark_interval="1 h")
    classified = lateness({"s": frame_of(spark, kind, extreme)}, time)
    tuples = classified.tuples["s"]
    fired = event_windows(
        classified,
        EventWindows(length="1 h", slide="1 h"),
        {"tuples": ("count", "*")},
        keys=["key"],
    ).fired
    return (
        plain(tuples.where("name <> 'extreme'"), "name", "_rw_outcome"),
        plain(fired.where(f"window_begin_us >= {START * 1_000_000}"), "window_begin_us", "tuples"),
        plain(tuples.where("name = 'extreme'"), "_rw_outcome"),
    )


@pytest.mark.parametrize(("kind", "extreme"), EXTREMES)
def test_extreme_timestamp_does_not_change_lateness_and_windows_of_other_tuples(
    spark: SparkSession,
    kind: str,
    extreme: int,
) -> None:
    *others, [row] = lateness_and_windows(spark, kind, extreme)
    assert others == list(lateness_and_windows(spark, kind, None)[:2])
    assert row[0] in (("far_future",) if extreme > 0 else ("late", "on_time"))


@pytest.mark.parametrize(
    "speed", ["1", *(pytest.param(speed, marks=pytest.mark.long) for speed in ("1000", "0.001"))]
)
@pytest.mark.parametrize(("kind", "extreme"), [EXTREMES[1], *EXTREMES[-2:]])
def test_heartbeat_quarantines_an_extreme_jump_and_timers_do_not_change(
    spark: SparkSession,
    kind: str,
    extreme: int,
    speed: str,
) -> None:
    settings = HeartbeatSettings(
        interval="1 h", event_at="at", key_by=("key",), max_jump="1 day", speed=speed
    )
    at = "unix_micros(at) AS us" if kind == "TIMESTAMP" else "at AS us"
    end_us = (START + 6 * HOUR) * 1_000_000
    results = []
    for value in (None, extreme):
        found = heartbeat(frame_of(spark, kind, value), settings, end_us=end_us)
        timers = found.tuples.where("_rw_is_timer")
        results.append(plain(timers, at, "unix_micros(arrived_at) AS arrival", "_rw_cause"))
    assert results[0] == results[1]
    reasons = [row["_rw_reason"] for row in found.errors.select("_rw_reason").collect()]
    assert reasons == (["jump"] if extreme > 0 else [])


@pytest.mark.parametrize("kind", ["TIMESTAMP", "us"])
def test_heartbeat_failure_suggests_the_setting_that_helps(spark: SparkSession, kind: str) -> None:
    from pyspark.errors import PySparkException

    settings = HeartbeatSettings(interval="1 min", event_at="at", key_by=("key",))
    far_ahead = datetime(2999, 12, 31, 12, tzinfo=UTC)
    frame = frame_of(spark, kind, round(far_ahead.timestamp()) * 1_000_000)
    with pytest.raises(PySparkException) as caught:
        heartbeat(frame, settings).tuples.collect()
    text = str(caught.value)
    count = (far_ahead - datetime(2024, 1, 1, 1, tzinfo=UTC)) // timedelta(minutes=1)
    assert f"interval 1 min would add {count:,} timers" in text
    assert "Hint: Set max_jump in the settings of the stream" in text
    first, last = "2024-01-01T01:01:00Z", "2999-12-31T14:00:00Z"
    if kind == "us":
        seconds = START + HOUR + 60, round(far_ahead.timestamp()) + 2 * HOUR
        first, last = (f"{second}000000 us" for second in seconds)
    assert f"from {first} to {last}, but at most 1,000,000 are allowed" in text


@pytest.mark.exhaustive
def test_watermarks_and_windows_of_recordings_support_any_column_names(
    spark: SparkSession,
) -> None:
    time = EventTime(
        streams={"s": StreamTime(event_at="at", max_jump="1 day", max_ahead=None)},
        lag="1 h",
        watermark_interval="1 h",
    )
    results = []
    for names in ({}, {"key": "sensor.id", "name": "select"}):
        frame = frame_of(spark, "us", (START + 72 * HOUR) * 1_000_000).withColumnsRenamed(names)
        recording, key = names.get("key", "key"), names.get("name", "name")
        end_us = (START + 12 * HOUR) * 1_000_000
        classified = lateness({"s": frame}, time, end_us=end_us, recording_keys=[recording])
        fired = event_windows(
            classified,
            EventWindows(length="1 h", slide="1 h"),
            {"tuples": ("count", "*")},
            keys=[key],
            recording_keys=[recording],
        ).fired
        assert classified.state is not None
        outcomes = classified.tuples["s"].select(f"`{key}`", "_rw_outcome")
        frames = [outcomes, classified.ticks, classified.state, fired]
        results.append([sorted(map(str, map(tuple, one.collect()))) for one in frames])
    assert results[0] == results[1]
    assert "('extreme', 'jump')" in results[0][0] and all(results[0])
