"""SplitLate against the reference of lateness, in any grouping of windows; in an application; wrong
properties.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rewindow.application import Application, OperatorContext
from rewindow.application.error_tuples import REASON
from rewindow.application.validation import validate
from rewindow.engine.ports import ports_to_count
from rewindow.errors import ValidationFailed
from rewindow.loading.catalog import load_application
from rewindow.operators import (
    EventTime,
    EventWindows,
    SplitLate,
    StreamTime,
    event_windows,
    lateness,
)
from rewindow.operators.heartbeat.function import heartbeat
from rewindow.operators.heartbeat.settings import HeartbeatSettings
from rewindow.settings.config import Config
from rewindow.spark.frames import conform, empty_frame, spark_schema, to_arrow, to_frame
from rewindow.windows import Grid, WindowRange
from tests.operators.lateness_reference import Arrival, Rules, classify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = pa.schema(
    [("arrived_at", pa.int64()), ("ts", pa.int64()), ("key", pa.string()), ("number", pa.int64())]
)
WINDOWS = 6
WIDTH_US = 1_000
LAG_US = 500
TICK_US = 250
AHEAD_US = 5_000
RULES = Rules(1, TICK_US, LAG_US, (None,), (AHEAD_US,))
Found = dict[str, list[tuple[Any, ...]]]


def operator(**properties: Any) -> SplitLate:
    given = {
        "columns": COLUMNS,
        "event_at": "ts",
        "lag": "500 us",
        "watermark_interval": "250 us",
        "max_ahead": "5 ms",
        "key_by": ("key",),
    }
    return SplitLate(**{**given, **properties})


def make_case(random: Random) -> list[Arrival]:
    """Returns a recording in order of arrival, with ties, silences, late, null and far
    timestamps.
    """
    arrivals = sorted(random.randrange(WINDOWS * WIDTH_US // 125) * 125 for _ in range(60))
    return [
        Arrival(
            0,
            at,
            random.choice([at, at - 300, at - random.randrange(3_000), at + 400, at + 6_000, None]),
        )
        for at in arrivals
    ]


def frame_of(spark: SparkSession, case: list[Arrival], first: int, last: int) -> DataFrame:
    rows = [
        (at // WIDTH_US, number, at, ts, f"k{number % 3}", number)
        for number, (_, at, ts) in enumerate(case)
        if first <= at // WIDTH_US <= last
    ]
    kind = (
        "window_id bigint, offset bigint, arrived_at bigint, ts bigint, key string, number bigint"
    )
    return spark.createDataFrame(rows, kind)


def run(spark: SparkSession, case: list[Arrival], cuts: list[int]) -> Found:
    """Returns as text what is emitted by port, sorted; windows between cuts come one group after
    the other.
    """
    split = operator()
    found = Found()
    state = to_frame(spark, split.initial_state())
    for first, end in pairwise(cuts):
        context = OperatorContext(Grid(1), WindowRange(first, end - 1))
        inputs = {"stream": frame_of(spark, case, first, end - 1)}
        ports = split.transform(inputs, state, context)
        of_ports = [as_text(port, split, frame) for port, frame in ports.items()]
        for port, values in reduce(lambda one, other: one.union(other), of_ports).collect():
            found.setdefault(port, []).append(tuple(values))
        after = to_arrow(
            split.next_state(inputs, {}, state, context),
            split.state_columns(),
            "state",
        )
        state = to_frame(spark, after)
    return {port: sorted(rows, key=repr) for port, rows in found.items()}


def as_text(port: str, split: SplitLate, frame: DataFrame) -> DataFrame:
    """Returns a port's tuples as lists of text, those of all ports in one job."""
    errors = frame.select("window_id", "number", REASON) if port == "errors" else None
    rows = conform(frame, split.output_ports()[port].schema, port) if errors is None else errors
    return rows.select(F.lit(port), F.array(*(F.col(name).cast("string") for name in rows.columns)))


def expected(case: list[Arrival]) -> Found:
    outcomes, raised = classify(case, RULES, 0, WINDOWS * WIDTH_US)
    found: Found = {"on_time": [], "late": [], "errors": [], "counts": []}
    counts: Counter[tuple[int, str, str]] = Counter()
    most: dict[tuple[int, str, str], int] = {}
    for number, ((_, at, ts), (outcome, watermark)) in enumerate(zip(case, outcomes, strict=True)):
        window = at // WIDTH_US
        key = f"k{number % 3}"
        counts[window, key, outcome] += 1
        if outcome == "on_time":
            found["on_time"].append((window, at, ts, key, number))
        elif outcome == "late":
            assert ts is not None and watermark is not None
            late_by = watermark - ts
            found["late"].append((window, at, ts, key, number, ts, watermark, late_by))
            most[window, key, outcome] = max(most.get((window, key, outcome), 0), late_by)
        else:
            found["errors"].append((window, number, outcome))
    found["counts"] = [(*place, tuples, most.get(place)) for place, tuples in counts.items()]
    found["ticks"] = [(tick // WIDTH_US, tick, watermark) for tick, watermark in raised]
    texts = {
        port: [tuple(None if value is None else str(value) for value in row) for row in rows]
        for port, rows in found.items()
    }
    return {port: sorted(rows, key=repr) for port, rows in texts.items()}


@pytest.mark.long
def test_split_late_equals_the_reference_in_any_grouping(spark: SparkSession) -> None:
    # Rules: E38 to E42, X37
    case = make_case(Random(7))
    wanted = expected(case)
    assert all(wanted.values()), "the case has something for every port"
    assert sum(int(row[3]) for row in wanted["counts"]) == len(case)
    for cuts in ([0, 6], [0, 2, 3, 6]):
        assert run(spark, case, cuts) == wanted, f"windows cut at {cuts}"


def test_watermark_tick_in_lost_windows_is_applied_in_the_next_window(spark: SparkSession) -> None:
    # Rules: R14, W17
    split = operator()
    known = {"stream": "stream", "until_us": 2_000, "ahead_us": 1_990, "arrived_us": 1_990}
    state = to_frame(
        spark,
        pa.Table.from_pylist([{**known, "watermark_us": 500}], split.state_columns()),
    )
    context = OperatorContext(Grid(1), WindowRange(4, 5))
    ports = split.transform({"stream": frame_of(spark, [], 4, 5)}, state, context)
    assert [tuple(row) for row in ports["ticks"].collect()] == [(4, 2_000, 1_490)]


def test_empty_group_does_not_fail_the_check_for_missing_arrivals(spark: SparkSession) -> None:
    split = operator()
    known = {
        "stream": "stream",
        "until_us": 2_000,
        "ahead_us": 1_990,
        "arrived_us": 1_990,
        "watermark_us": 500,
    }
    state = to_frame(spark, pa.Table.from_pylist([known], split.state_columns()))
    nothing = empty_frame(spark, spark_schema(pa.schema([("window_id", pa.int64()), *COLUMNS])))
    ports = split.transform({"stream": nothing}, state, OperatorContext(Grid(1), WindowRange(2, 3)))
    rows = reduce(
        lambda one, other: one.union(other), (as_text(port, split, ports[port]) for port in ports)
    )
    assert [tuple(row) for row in rows.collect()] == [("ticks", ["2", "2000", "1490"])]


@pytest.mark.long
def test_heartbeat_closes_event_windows_during_silence(spark: SparkSession) -> None:
    # Rules: H60
    # A timer moves the watermark, and no aggregate counts it.
    frame = spark.createDataFrame([(1_000_000, "a"), (2_000_000, "a")], "at bigint, key string")
    frame = frame.withColumn("arrived_at", F.col("at")).withColumn("offset", F.col("at"))
    beats = heartbeat(
        frame,
        HeartbeatSettings(interval=10, event_at="at", key_by=("key",)),
        end_us=45_000_000,
    ).tuples
    time = EventTime(streams={"s": StreamTime(event_at="at")}, watermark_interval="1 s")
    for tuples, fired, timers in ((frame, [], 0), (beats, [(0, 10_000_000, 2)], 4)):
        classified = lateness({"s": tuples}, time, end_us=45_000_000)
        windows = event_windows(
            classified,
            EventWindows(length="10 s", slide="10 s"),
            {"n": ("count", "*")},
        )
        found = windows.fired.select("window_begin_us", "window_end_us", "n").collect()
        assert [tuple(row) for row in found] == fired
        counts = {row["outcome"]: row["tuples"] for row in windows.counts().collect()}
        assert (counts["input"], counts.get("timer", 0)) == (2 + timers, timers)
        assert counts.get("on_time", 0) == (2 if fired else 0)


def test_late_tuples_and_error_tuples_are_stored_even_when_unread() -> None:
    # Rules: E21, E36
    app = Application("clicks", window="1 s")
    split = app.add("split", operator(), stream=app.input("clicks"))
    app.output("late", split["late"], key=["number"])
    app.output("counts", split["counts"], key=["key", "outcome"])
    validate(app, recorded={"clicks": COLUMNS})
    assert [error.name for error in app.errors().values()] == ["split.errors"]
    assert {str(port) for port in ports_to_count(app)} == {"split.on_time", "split.ticks"}, (
        "counted, and never written"
    )
    alone = Application("clicks", window="1 s")
    node = alone.add("split", operator(), stream=alone.input("clicks"))
    alone.output("on_time", node["on_time"], key=["number"])
    assert "split.late" in {str(port) for port in ports_to_count(alone)}


def test_flights_example_is_valid() -> None:
    config = Config.load(Path(__file__).parents[2] / "rewindow.toml")
    app = load_application(config, "flight_lateness").app
    needed = app.nodes["split"].input_ports()["stream"].schema
    assert needed is not None
    flights = needed.append(pa.field("offset", pa.int64()))
    validate(app, recorded={"flights": flights})
    assert {name: output.suite for name, output in app.outputs.items()} == {
        "late_flights": "late_flights",
        "lateness": "lateness",
    }


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a lag that is no duration": ({"lag": "soon"}, 'duration "soon" cannot be read'),
    "a negative lag": ({"lag": "-1 s"}, "duration must be from 0 to 100 years, not -1 s"),
    "no tick": ({"watermark_interval": 0}, "watermark_interval must be above 0, not 0"),
    "a negative limit": ({"max_ahead": -1}, "duration must be from 0 to 100 years, not -1"),
    "no timestamp": ({"event_at": ""}, "at least 1 character"),
    "an unknown key": (
        {"key_by": ("user",)},
        "the stream has no column user",
    ),
    "a key that counts has as a column": (
        {"columns": COLUMNS.append(pa.field("outcome", pa.string())), "key_by": ("outcome",)},
        "key_by cannot be outcome",
    ),
    "an unknown arrival": ({"arrived_at": "came"}, "the stream has no column came"),
    "a name that is taken": (
        {"columns": COLUMNS.append(pa.field("_rw_outcome", pa.string()))},
        "SplitLate adds a column _rw_outcome",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_properties_are_reported_at_launch(case: str) -> None:
    # Rules: O53
    properties, message = WRONG[case]
    app = Application("clicks", window="1 s")
    split = app.add("split", operator(**properties), stream=app.input("clicks"))
    app.output("late", split["late"], key=["number"])
    with pytest.raises(ValidationFailed) as caught:
        validate(app)
    assert message in str(caught.value)
