"""The Heartbeat on the figures that its rules print, and its guards (docs/rules/heartbeat.md
sections 1, 6 and 13).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.application import OperatorContext, validate
from rewindow.errors import InputError
from rewindow.loading.stream_applications import heartbeat_application
from rewindow.operators.heartbeat.function import HeartbeatSettings, heartbeat, without_clock
from rewindow.settings.config import StreamConfig
from rewindow.windows import Grid, WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MINUTE = HeartbeatSettings(interval=60, slack=10, event_at="at", key_by=("case",))

# Seconds: (arrival, timestamp) of each tuple, then what must come out up to 200 s: (emission,
# timestamp, is timer).
EXAMPLES: dict[str, tuple[list[tuple[int, int | None]], list[tuple[int, int | None, bool]]]] = {
    "second 59, then second 0: the timer directly before the second tuple (H5, H28)": (
        [(59, 59), (60, 60)],
        [(59, 59, False), (60, 60, True), (60, 60, False), (130, 120, True), (190, 180, True)],
    ),
    "slack 10 s, nothing after second 59: the timer 11 s after it (H6, H7)": (
        [(59, 59)],
        [(59, 59, False), (70, 60, True), (130, 120, True), (190, 180, True)],
    ),
    "before S, before M: data out, clock resynchronised, no timer (H1, H8)": (
        [(30, 30), (50, 40)],
        [(30, 30, False), (50, 40, False), (80, 60, True), (140, 120, True), (200, 180, True)],
    ),
    "after S, within the slack, before M: the slack starts again (H8)": (
        [(30, 30), (65, 55)],
        [(30, 30, False), (65, 55, False), (80, 60, True), (140, 120, True), (200, 180, True)],
    ),
    "after S, within the slack, M or later: timer, then data (H5)": (
        [(30, 30), (65, 61)],
        [(30, 30, False), (65, 60, True), (65, 61, False), (134, 120, True), (194, 180, True)],
    ),
    "after the timeout timer M, before M: M is not repeated (H9)": (
        [(30, 30), (75, 50)],
        [(30, 30, False), (70, 60, True), (75, 50, False), (155, 120, True)],
    ),
    "first tuple exactly on a multiple: no timer because of it (H4, H29)": (
        [(60, 60)],
        [(60, 60, False), (130, 120, True), (190, 180, True)],
    ),
    "null and out of order: no effect at all (H3, H35)": (
        [(30, 30), (60, None), (65, 10)],
        [
            (30, 30, False),
            (60, None, False),
            (65, 10, False),
            (70, 60, True),
            (130, 120, True),
            (190, 180, True),
        ],
    ),
    "several multiples crossed: one timer each, ascending (H5, H27)": (
        [(30, 30), (40, 185)],
        [
            (30, 30, False),
            *[(40, m, True) for m in (60, 120, 180)],
            (40, 185, False),
            (105, 240, True),
            (165, 300, True),
        ],
    ),
    "before the epoch (H54)": (
        [(30, -90), (50, -60), (150, 30)],
        [
            (30, -90, False),
            (50, -60, True),
            (50, -60, False),
            (120, 0, True),
            (150, 30, False),
            (190, 60, True),
        ],
    ),
    "only nulls: no clock, no timer (H4)": ([(30, None)], [(30, None, False)]),
}


def frame_of(
    spark: SparkSession,
    recordings: Mapping[str, Sequence[tuple[int, int | None]]],
) -> DataFrame:
    """Returns recordings as one frame with TIMESTAMP columns, a key each and a payload."""
    rows = [
        (case, _time(arrived), None if at is None else _time(at), offset, 1.5)
        for case, tuples in recordings.items()
        for offset, (arrived, at) in enumerate(tuples)
    ]
    return spark.createDataFrame(
        rows,
        "case STRING, arrived_at TIMESTAMP, at TIMESTAMP, offset BIGINT, value DOUBLE",
    )


def seconds(tuples: DataFrame) -> dict[str, list[tuple[int, int | None, bool]]]:
    """Returns (emission, timestamp, is timer) of each case in emission order; timers carry nothing
    else (H2).
    """
    found = defaultdict(list)
    columns = tuples.selectExpr(
        "case",
        "unix_seconds(arrived_at)",
        "unix_seconds(at)",
        "_rw_is_timer",
        "value",
        "_rw_emission",
    )
    for case, arrived, at, is_timer, value, _ in columns.orderBy("case", "_rw_emission").collect():
        assert (value is None) == is_timer
        found[case].append((arrived, at, is_timer))
    return dict(found)


def _time(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_heartbeat_equals_the_examples_in_its_documentation(spark: SparkSession) -> None:
    frame = frame_of(spark, {case: given for case, (given, _) in EXAMPLES.items()})
    found = seconds(heartbeat(frame, MINUTE, end_us=200_000_000).tuples)
    assert found == {case: wanted for case, (_, wanted) in EXAMPLES.items()}


def test_heartbeat_ends_with_the_last_arrival_by_default(spark: SparkSession) -> None:
    # Rules: H13, H44, X23
    frame = frame_of(spark, {"a": [(59, 59)], "b": [(10, None), (130, None)]})
    assert seconds(heartbeat(frame, MINUTE).tuples)["a"] == [
        (59, 59, False),
        (70, 60, True),
        (130, 120, True),
    ]


def test_heartbeat_restarts_after_skipped_windows(spark: SparkSession) -> None:
    # Rules: H58, H10
    before = heartbeat(frame_of(spark, {"a": [(59, 59)]}), MINUTE, end_us=135_000_000)
    later = frame_of(spark, {"a": [(500, 100), (510, 130), (515, 185)]})
    found = seconds(
        heartbeat(later, MINUTE, state=without_clock(before.state), end_us=520_000_000).tuples
    )
    assert found["a"] == [(500, 100, False), (510, 130, False), (515, 180, True), (515, 185, False)]


def test_timers_emitted_before_a_skip_are_not_repeated(spark: SparkSession) -> None:
    # Rules: H58, H10
    # The restored state is older than the output, also for a clock that it does not know yet.
    first = {"a": [(30, 30)]}
    new = {"b": [(70, 70)]}
    restored = heartbeat(
        frame_of(spark, first),
        MINUTE,
        end_us=60_000_000,
        end_included=False,
    ).state
    emitted = heartbeat(frame_of(spark, first | new), MINUTE, end_us=200_000_000).tuples
    state = without_clock(restored, MINUTE, emitted)
    assert {
        (row["case"], row["timer_index"], row["clock_event_us"]) for row in state.collect()
    } == {
        ("a", 3, None),
        ("b", 3, None),
    }
    later = [(500, 100), (510, 130), (515, 185), (516, 245)]
    found = seconds(
        heartbeat(
            frame_of(spark, {"a": later, "b": later}),
            MINUTE,
            state=state,
            end_us=520_000_000,
        ).tuples
    )
    assert (
        [at for at in found["a"] if at[2]]
        == [at for at in found["b"] if at[2]]
        == [(516, 240, True)]
    )
    again = seconds(
        heartbeat(frame_of(spark, {"a": later}), MINUTE, state=without_clock(restored)).tuples
    )
    assert (510, 120, True) in again["a"], "the restored state alone would repeat a timer"


REFUSED: dict[str, tuple[list[tuple[int, int | None]], dict[str, Any], int, str]] = {
    "steps back": (
        [(60, 60), (59, 61)],
        {},
        100,
        r'\{"case":"a","offset":1\} 59000000 us is before that of the previous tuple, 60000000 us',
    ),
    "past the end": ([(60, 60)], {}, 59, "60000000 us is after the end of the range, 59000000 us"),
    "crossing": (
        [(0, 0), (1, 600)],
        {"max_timers": 9},
        10,
        "would add 10 timers from 1970-01-01T00:01:00Z to 1970-01-01T00:10:00Z",
    ),
    "silence": (
        [(0, 0)],
        {"max_timers": 2},
        200,
        "would add 3 timers from 1970-01-01T00:01:00Z to 1970-01-01T00:03:00Z, but at most 2 are "
        "allowed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_heartbeat_failure_message_has_the_reason_and_position(
    spark: SparkSession, case: str
) -> None:
    # Rules: H45, H13, H62
    rows, more, end, message = REFUSED[case]
    settings = MINUTE.model_copy(update=more)
    result = heartbeat(frame_of(spark, {"a": rows}), settings, end_us=end * 1_000_000)
    with pytest.raises(Exception, match=message):
        result.tuples.collect()


def test_heartbeat_clamps_decreasing_timestamps_on_request(spark: SparkSession) -> None:
    # Rules: H45, H1
    settings = MINUTE.model_copy(update={"arrival_regression": "clamp"})
    made = heartbeat(frame_of(spark, {"a": [(60, 50), (50, 59)]}), settings, end_us=72_000_000)
    shown = made.tuples.selectExpr(
        "unix_seconds(arrived_at) AS s",
        "_rw_emission.at_us / 1000000 AS e",
        "_rw_emission",
    )
    assert [(row.s, row.e) for row in shown.orderBy("_rw_emission").collect()] == [
        (60, 60),
        (50, 60),
        (71, 71),
    ]
    told = made.errors.selectExpr("unix_seconds(arrived_at)", "_rw_reason", "_rw_detail")
    words = "before that of an earlier tuple, or before the window; it was replaced by that time"
    assert [tuple(row) for row in told.collect()] == [
        (50, "clock_back", f"arrival is 10000000 us {words}")
    ]
    unknown = frame_of(spark, {"a": [(60, 50), (61, 59)]}).selectExpr(
        "* EXCEPT (arrived_at)",
        "IF(unix_seconds(arrived_at) = 61, NULL, arrived_at) AS arrived_at",
    )
    with pytest.raises(Exception, match="arrival of tuple .* is null"):
        heartbeat(unknown, settings, end_us=72_000_000).tuples.collect()


def test_heartbeat_reports_a_missing_column_before_anything_runs(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="frame has no column at, case"):
        heartbeat(spark.range(1).selectExpr("id AS arrived_at", "id AS offset"), MINUTE)
    with pytest.raises(InputError, match="frame has a column _rw_cause, which the heartbeat adds"):
        heartbeat(frame_of(spark, {"a": [(1, 1)]}).selectExpr("*", "'' AS _rw_cause"), MINUTE)
    windows = frame_of(spark, {"a": [(1, 1)]}).selectExpr("*", "0 AS window_id")
    with pytest.raises(InputError, match="so `grid` is required"):
        heartbeat(windows, MINUTE)


def test_heartbeat_application_omits_timers_at_the_time_of_a_tuple(
    spark: SparkSession,
) -> None:
    # Rules: H9, H19, H52
    time = pa.timestamp("us", tz="UTC")
    columns = [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", time),
        ("case", pa.string()),
    ]
    schema = pa.schema([*columns, ("at", time), ("value", pa.float64())])
    stream = StreamConfig(
        source="x",
        arrived_at="at",
        event_at="at",
        keys=["case"],
        interval="60",
        slack="10",
        width="2 minutes",
    )
    app = heartbeat_application("clicks", stream, schema)
    validate(app)
    rows = {"answered": [(59, 59), (60, 60), (118, 118)], "silent": [(59, 59), (71, 60)]}
    frame = frame_of(spark, rows).selectExpr("0L AS window_id", "*", "'' AS cause")
    beat = app.nodes["heartbeat"].operator
    context = OperatorContext(Grid(120_000), WindowRange(0, 1))
    state = spark.createDataFrame(
        [],
        "case STRING, " + ", ".join(f"{name} BIGINT" for name in STATE),
    )
    out = beat.transform({"stream": frame}, state, context)["out"]
    assert {name: str(output.source) for name, output in app.outputs.items()} == {
        "ticks": "heartbeat.out"
    }
    shown = out.selectExpr(
        "window_id",
        "_rw_emission",
        "case",
        "unix_seconds(at)",
        "_rw_cause",
    ).orderBy("window_id", "_rw_emission")
    assert [tuple(row) for row in shown.collect()] == [
        (0, 0, "answered", 59, None),
        (0, 1, "silent", 59, None),
        (0, 2, "answered", 60, None),
        (0, 3, "silent", 60, "timeout"),
        (0, 4, "silent", 60, None),
        (0, 5, "answered", 118, None),
        (1, 0, "answered", 120, "timeout"),
        (1, 1, "silent", 120, "timeout"),
        (1, 2, "answered", 180, "timeout"),
        (1, 3, "silent", 180, "timeout"),
    ]
    assert [error.name for error in app.errors().values()] == ["heartbeat.errors"]
    went_on = beat.state_after_skip(state, context.windows, {"out": out.where("window_id = 0")})
    assert {row["case"]: row["timer_index"] for row in went_on.collect()} == {
        "answered": 1,
        "silent": 1,
    }


STATE = ("clock_arrived_us", "clock_event_us", "timer_index", "silence_index", "silence_slack_us")
