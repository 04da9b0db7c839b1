"""Lateness against a reference that goes tuple by tuple and tick by tick, negative timestamps too
(X27).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from random import Random, getrandbits
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import functions as F

from rewindow.errors import InputError
from rewindow.operators.event_time import watermarks as marks
from rewindow.operators.event_time.jumps import fold_jumps
from rewindow.operators.event_time.lateness import Lateness, lateness, refused_because
from rewindow.operators.event_time.settings import EventTime, StreamTime
from tests.operators.lateness_reference import Arrival, Classified, Rules, classify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNIT_US = 250
END_US = 24_000
CASES = 270
DRAWS = pytest.mark.parametrize(
    "draw",
    [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.exhaustive)],
)
"""Several settings in each run: one setting leaves most modes untested."""
Case = list[Arrival]
S = Decimal(1_000_000)


def make_rules(random: Random, streams: int | None = None) -> Rules:
    """Returns settings: one to three streams, with and without idle timeouts and limits."""
    streams = streams or random.randint(1, 3)
    idles = random.random() < 0.4
    return Rules(
        streams=streams,
        interval_us=random.choice([1, 2, 4, 7]) * UNIT_US,
        lag_us=random.choice([0, 0, 1, 3, 20]) * UNIT_US,
        timeouts_us=tuple(
            random.choice([0, 2, 5, 9]) * UNIT_US if idles and random.random() < 0.7 else None
            for _ in range(streams)
        ),
        aheads_us=tuple(random.choice([None, None, 8 * UNIT_US]) for _ in range(streams)),
        tick_first=random.random() < 0.3,
        jumps_us=tuple(random.choice([None, 0, 3, 10]) for _ in range(streams))
        if random.random() < 0.4
        else (),
    )


def make_case(random: Random, streams: int) -> Case:
    """Returns a recording with ties, silences, and equal, null, negative, late and far
    timestamps.
    """
    case = []
    at_us = random.choice([0, 0, 3_000])
    for _ in range(random.randint(0, 25)):
        at_us = min(
            at_us
            + random.choice([0, 0, 1, 2, 3, random.randint(0, 20)])
            * UNIT_US
            // random.choice([1, 2]),
            END_US - 1,
        )
        near = at_us - random.randint(-2, 8) * UNIT_US
        far = random.randint(-60, 120) * UNIT_US
        ts_us = None if random.random() < 0.1 else random.choice([near, near, near, far, at_us])
        case.append(Arrival(random.randrange(streams), at_us, ts_us))
    random.shuffle(case)
    return case


def settings_of(rules: Rules) -> EventTime:
    streams = {
        f"s{number}": StreamTime(
            event_at="ts",
            idle_timeout=None if timeout is None else timeout / S,
            max_ahead=None if ahead is None else ahead / S,
            max_jump=None if jump is None else jump / S,
        )
        for number, (timeout, ahead, jump) in enumerate(
            zip(
                rules.timeouts_us,
                rules.aheads_us,
                rules.jumps_us or [None] * rules.streams,
                strict=True,
            )
        )
    }
    tie = "tick_first" if rules.tick_first else "tuple_first"
    return EventTime(
        streams=streams,
        lag=rules.lag_us / S,
        watermark_interval=rules.interval_us / S,
        tie=tie,
    )


def frames_of(spark: SparkSession, cases: Sequence[Case], rules: Rules) -> dict[str, DataFrame]:
    """Returns a frame per stream: `case`, `number`, `arrived_at`, `ts`."""
    rows = [
        (key, number, one.stream, one.at_us, one.ts_us)
        for key, case in enumerate(cases)
        for number, one in enumerate(case)
    ]
    frame = spark.createDataFrame(
        rows,
        "case INT, number INT, stream INT, arrived_at BIGINT, ts BIGINT",
    ).cache()
    return {
        f"s{number}": frame.where(f"stream = {number}").drop("stream")
        for number in range(rules.streams)
    }


def outcomes(results: Sequence[Lateness]) -> dict[tuple[int, int], Classified]:
    columns = ("case", "number", "_rw_outcome", "_rw_watermark_us")
    rows = []
    for result in results:
        streams = [frame.select(*columns) for frame in result.tuples.values()]
        rows += reduce(lambda one, other: one.unionByName(other), streams).collect()
    assert len(rows) == len({(row["case"], row["number"]) for row in rows}), (
        "each tuple has one outcome (E39)"
    )
    return {
        (row["case"], row["number"]): Classified(row["_rw_outcome"], row["_rw_watermark_us"])
        for row in rows
    }


def raised(results: Sequence[Lateness], cases: int) -> list[list[tuple[int, int]]]:
    """Returns by case the ticks that raised the watermark before the end."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(cases)]
    for row in (
        row for result in results for row in result.ticks.where(f"tick_us < {END_US}").collect()
    ):
        found[row["case"]].append((row["tick_us"], row["watermark_us"]))
    return [sorted(ticks) for ticks in found]


def assert_same(
    results: Sequence[Lateness],
    cases: Sequence[Case],
    rules: Rules,
    seed: int,
) -> None:
    """Shows the shortest recording whose tuples or ticks differ from the reference."""
    found = outcomes(results)
    ticks = raised(results, len(cases))
    wrong = []
    for key, case in enumerate(cases):
        wanted, wanted_ticks = classify(case, rules, 0, END_US)
        mine = [found[key, number] for number in range(len(case))]
        # The library makes ticks only for recordings with tuples: what nothing was sent for is not
        # asked.
        if mine != wanted or (case and ticks[key] != wanted_ticks):
            wrong.append((case, wanted, mine, wanted_ticks, ticks[key]))
    if wrong:
        case, wanted, mine, wanted_ticks, own_ticks = min(wrong, key=lambda one: len(one[0]))
        rows = [
            f"{one}: wanted {want}, found {got}"
            for one, want, got in zip(case, wanted, mine, strict=True)
        ]
        text = [
            f"{len(wrong)} of {len(cases)} recordings differ (seed {seed}, {rules}); the shortest:",
            *rows,
        ]
        raise AssertionError(
            "\n".join([*text, f"ticks wanted {wanted_ticks}", f"ticks found {own_ticks}"])
        )


def new_seed() -> int:
    """Returns another seed in each run; with one batch of recordings a run, Hypothesis would always
    begin with 0.
    """
    return getrandbits(32)


@DRAWS
def test_lateness_equals_a_state_machine(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    draw: int,
) -> None:
    # Rules: E1 to E4, E15, E23 to E26, E47, E50, X27
    seed = new_seed()
    random = Random(seed)
    rules = make_rules(random, streams=draw + 1)
    cases = [make_case(random, rules.streams) for _ in range(CASES)]
    monkeypatch.setattr(marks, "BLOCK", random.choice([3, 10, 4_096]))
    result = lateness(
        frames_of(spark, cases, rules),
        settings_of(rules),
        start_us=0,
        recording_keys=("case",),
    )
    assert_same([result], cases, rules, seed)
    longest = [
        max(cases, key=len)
    ]  # Of one recording, known to have few ticks, they lie in no blocks.
    alone = lateness(
        frames_of(spark, longest, rules),
        settings_of(rules),
        start_us=0,
        end_us=END_US,
    )
    # Where tuples may jump, finding those has blocks of its own.
    assert rules.jumps_us or "_block" not in alone.ticks._jdf.queryExecution().analyzed().toString()
    assert_same(
        [replace(alone, ticks=alone.ticks.withColumn("case", F.lit(0)))],
        longest,
        rules,
        seed,
    )


@pytest.mark.long
@DRAWS
def test_lateness_is_independent_of_the_grouping(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    draw: int,
) -> None:
    # Rules: E41, E42, E46, X35
    seed = new_seed()
    random = Random(seed)
    monkeypatch.setattr(marks, "BLOCK", random.choice([3, 10, 4_096]))
    rules = make_rules(random, streams=draw + 1)
    cases = [make_case(random, rules.streams) for _ in range(CASES)]
    frames = frames_of(spark, cases, rules)
    cuts = sorted(
        {0, END_US, *(random.randrange(1, END_US, 125) for _ in range(random.choice([1, 1, 2])))}
    )
    results: list[Lateness] = []

    def materialize(_: str, make: Callable[[], DataFrame]) -> DataFrame:
        return make().localCheckpoint()

    for first_us, end_us in pairwise(cuts):
        part = {
            name: frame.where(f"arrived_at >= {first_us} AND arrived_at < {end_us}")
            for name, frame in frames.items()
        }
        state = (
            results[-1].state.localCheckpoint()
            if results and results[-1].state is not None
            else None
        )
        about: dict[str, Any] = {
            "start_us": 0,
            "end_us": end_us,
            "recording_keys": ("case",),
            "materialize": materialize,
        }
        results.append(lateness(part, settings_of(rules), state=state, **about))
    assert_same(results, cases, rules, seed)


@pytest.mark.parametrize("seed", range(200))
def test_single_pass_timestamp_check_equals_a_loop(seed: int) -> None:
    # Rules: E50
    random = Random(seed)
    jump = random.choice([0, 1, 5])
    highest = random.randint(-5, 5)
    values = [
        random.randint(-20, 20) + random.choice([0, 0, number // 3])
        for number in range(random.randint(0, 60))
    ]
    wanted = []
    known = highest
    for value in values:
        wanted.append(value > known + jump)
        known = known if wanted[-1] else max(known, value)
    found = np.zeros(len(values), bool)
    cut = random.randint(0, len(values))
    ts = np.array(values, np.int64)
    middle = fold_jumps(ts[:cut], found[:cut], highest, jump)
    assert fold_jumps(ts[cut:], found[cut:], middle, jump) == known
    assert found.tolist() == wanted


def test_tuple_far_in_the_future_does_not_make_other_tuples_late(spark: SparkSession) -> None:
    # Rules: E50
    rows = [
        ("a", 1, 10), ("a", 2, 999), ("a", 3, 20), ("a", 4, 21), ("a", 5, 500), ("a", 6, 15),
        ("b", 1, 999), ("b", 2, 1_000), ("b", 3, 1_011),
    ]  # fmt: skip
    frame = spark.createDataFrame(
        [(k, at * 10**6, ts * 10**6) for k, at, ts in rows],
        "k STRING, arrived_at BIGINT, ts BIGINT",
    )
    stream = StreamTime(event_at="ts", max_ahead=None, max_jump=10)
    classified = lateness({"s": frame}, EventTime(streams={"s": stream}), recording_keys=("k",))
    found = {
        (row["k"], row["ts"] // 10**6): row["_rw_outcome"]
        for row in classified.tuples["s"].collect()
    }
    assert found == {
        ("a", 10): "on_time",
        ("a", 999): "jump",
        ("a", 20): "on_time",
        ("a", 21): "on_time",
        ("a", 500): "jump",
        ("a", 15): "late",
        ("b", 999): "on_time",
        ("b", 1_000): "on_time",
        ("b", 1_011): "jump",
    }
    assert classified.errors["s"].count() == 3


def test_ticks_that_do_not_raise_the_watermark_are_not_created(spark: SparkSession) -> None:
    # Rules: E31, X35
    year = 366 * 86_400 * 10**6
    rows = [(number * year // 5, number * year // 5 - 3) for number in range(6)]
    frame = spark.createDataFrame(rows, "arrived_at BIGINT, ts BIGINT")
    time = EventTime(
        streams={"s": StreamTime(event_at="ts", max_ahead=None)},
        watermark_interval="1 s",
    )
    classified = lateness({"s": frame}, time, start_us=0, end_us=year + 10**6)
    assert classified.ticks.count() == len(rows)
    assert classified.tuples["s"].where("_rw_watermark_us IS NOT NULL").count() == len(rows) - 1


def test_first_tick_of_a_resumed_run_uses_the_carried_watermark(spark: SparkSession) -> None:
    # Rules: E41, E42
    second = 10**6
    end_us = marks.BLOCK * second
    rows = [
        (end_us - second, end_us - second),
        (end_us, 10 * second),
        (end_us + 2 * second, end_us),
    ]
    frame = spark.createDataFrame(rows, "arrived_at BIGINT, ts BIGINT")
    time = EventTime(streams={"s": StreamTime(event_at="ts")}, lag="5 s", watermark_interval="1 s")
    before = lateness({"s": frame.where(f"arrived_at < {end_us}")}, time, start_us=0, end_us=end_us)
    # Where the end of the piece is not known, ticks may be many, and lie in blocks.
    after = lateness({"s": frame.where(f"arrived_at >= {end_us}")}, time, state=before.state)
    found = (
        after.tuples["s"].orderBy("arrived_at").select("_rw_outcome", "_rw_watermark_us").collect()
    )
    assert [tuple(row) for row in found] == [
        ("late", end_us - 6 * second),
        ("on_time", end_us - 6 * second),
    ]


def one_stream(spark: SparkSession, **more: Any) -> DataFrame:
    """Returns two tuples with timestamps of every kind."""
    return spark.sql("""
        SELECT timestamp_micros(at) AS arrived_at, at AS us, at div 1000 AS ms,
            timestamp_micros(at) AS stamp,
               CAST(at AS STRING) AS text, at / 1.0 AS number
        FROM VALUES (1000000), (2000000) AS rows(at)""")


def test_lateness_matches_the_worked_example(spark: SparkSession) -> None:
    # Rules: E2, E4
    # With a lag of 5 s, after the tick that follows 06:00:05, 05:59:59 is late and 06:00:00 is not.
    rows = [(5.0, "06:00:05"), (5.5, "05:59:59"), (7.0, "05:59:59"), (7.5, "06:00:00")]
    frame = spark.createDataFrame(rows, "at DOUBLE, ts STRING").selectExpr(
        "timestamp_micros(CAST(at * 1000000 AS BIGINT)) AS arrived_at",
        "to_timestamp(concat('1970-01-01 ', ts)) AS ts",
        "at",
    )
    time = EventTime(
        streams={"s": StreamTime(event_at="ts", max_ahead=None)},
        lag=5,
        watermark_interval=1,
    )
    classified = lateness({"s": frame}, time).tuples["s"]
    assert {row["at"]: row["_rw_outcome"] for row in classified.collect()} == {
        5.0: "on_time",
        5.5: "late",
        7.0: "late",
        7.5: "on_time",
    }
    assert [row["_rw_late_by_us"] for row in classified.where("at = 7.0").collect()] == [1_000_000]


def test_lateness_accepts_timestamps_integers_and_expressions(spark: SparkSession) -> None:
    # Rules: E17, E21
    frame = one_stream(spark)
    ways: list[dict[str, Any]] = [
        {"event_at": "stamp"},
        {"event_at": "us"},
        {"event_at": "ms", "unit": "ms"},
        {"event_at": "timestamp_micros(CAST(text AS BIGINT))"},
    ]
    streams = {str(number): StreamTime(**way) for number, way in enumerate(ways)}
    classified = lateness(dict.fromkeys(streams, frame), EventTime(streams=streams)).tuples.values()
    rows = reduce(lambda one, other: one.unionByName(other), classified).collect()
    assert sorted(row["_rw_event_us"] for row in rows) == [1_000_000] * len(ways) + [
        2_000_000
    ] * len(ways)


def test_timestamp_in_a_wrong_unit_does_not_make_all_other_tuples_late(spark: SparkSession) -> None:
    numbers = (1, 2**63 - 1, 1_700_000_000_000_000, -(2**63), -5, 2)
    rows = [(1 + second, number) for second, number in enumerate(numbers)]
    frame = spark.createDataFrame(rows, "arrived LONG, ts LONG")
    frame = frame.selectExpr("timestamp_seconds(arrived) AS arrived_at", "ts")
    streams = {unit: StreamTime(event_at="ts", unit=unit) for unit in ("s", "us")}
    classified = lateness(
        dict.fromkeys(streams, frame),
        EventTime(streams=streams, watermark_interval="1 s"),
    )
    rows = classified.tuples["s"].unionByName(classified.tuples["us"]).collect()
    wanted = ["on_time", "far_future", "far_future", "late", "late", "on_time"]
    for part in (rows[:6], rows[6:]):
        assert [
            row["_rw_outcome"] for row in sorted(part, key=lambda row: row["arrived_at"])
        ] == wanted


def test_seconds_configured_as_milliseconds_are_error_tuples_with_a_hint(
    spark: SparkSession,
) -> None:
    # Rules: E50
    at = 1_700_000_000
    rows = [
        ("ms", at * 1_000),
        ("s", at - 5),
        ("us", at * 1_000_000),
        ("old", (at - 40_000_000) * 1_000),
        ("zero", 0),
    ]
    frame = spark.createDataFrame(rows, "name STRING, ts LONG")
    frame = frame.withColumn(
        "arrived_at",
        F.timestamp_seconds(F.lit(at) + F.when(F.col("name") == "ms", 0).otherwise(9)),
    )
    wanted = {"ms": "on_time", "s": "bad_type", "us": "far_future", "old": "late", "zero": "late"}
    for unit, factor in (("ms", 1), ("us", 1_000)):
        scaled = frame.withColumn(
            "ts",
            F.when(F.col("name") == "us", F.col("ts")).otherwise(F.col("ts") * factor),
        )
        if unit == "us":
            scaled = scaled.withColumn(
                "ts",
                F.when(F.col("name") == "s", at).otherwise(F.col("ts")),
            )
        time = EventTime(
            streams={"s": StreamTime(event_at="ts", unit=unit)},
            watermark_interval="1 s",
        )
        classified = lateness({"s": scaled.where("name <> 'us'") if unit == "us" else scaled}, time)
        found = {row["name"]: row["_rw_outcome"] for row in classified.tuples["s"].collect()}
        assert found == {name: outcome for name, outcome in wanted.items() if name in found}
        arrived_us = F.unix_micros("arrived_at")
        why = {
            row["name"]: row["why"]
            for row in classified.errors["s"]
            .withColumn("why", refused_because(arrived_us))
            .collect()
        }
        times = "thousand" if unit == "ms" else "million"
        assert (
            f"; a {times} times this value would be close to the arrival: check the unit"
            in why["s"]
        )
        assert unit == "us" or "; a value a thousand times smaller would be close" in why["us"]
    believed = EventTime(
        streams={"s": StreamTime(event_at="ts", unit="ms", max_ahead=None)},
        watermark_interval="1 s",
    )
    assert lateness({"s": frame}, believed).errors["s"].count() == 0


@pytest.mark.parametrize(
    ("event_at", "words"),
    [
        ("text", "must be a timestamp or an integer, not string"),
        ("number", r"must be a timestamp or an integer, not decimal"),
        ("nothing", "neither a column nor"),
    ],
)
def test_lateness_rejects_an_unreadable_timestamp_before_anything_runs(
    spark: SparkSession,
    event_at: str,
    words: str,
) -> None:
    # Rules: E22
    with pytest.raises(InputError, match=words):
        lateness({"s": one_stream(spark)}, EventTime(streams={"s": StreamTime(event_at=event_at)}))


def test_lateness_rejects_undeclared_streams(spark: SparkSession) -> None:
    # Rules: E24, X28
    frame = one_stream(spark)
    time = EventTime(
        streams={
            "a": StreamTime(event_at="us"),
            "b": StreamTime(event_at="us", idle_timeout="1 min"),
        }
    )
    with pytest.raises(InputError, match="frames must be the declared streams a, b, not a"):
        lateness({"a": frame}, time)
    with pytest.raises(InputError, match="start of the recording"):
        lateness({"a": frame, "b": frame}, time)


def test_lateness_can_fail_on_a_missing_timestamp(spark: SparkSession) -> None:
    # Rules: E23
    frame = one_stream(spark).selectExpr("arrived_at", "CAST(NULL AS TIMESTAMP) AS stamp")
    time = EventTime(streams={"s": StreamTime(event_at="stamp")}, on_unreadable="fail")
    with pytest.raises(Exception, match='a tuple of stream "s" has no timestamp'):
        lateness({"s": frame}, time).tuples["s"].collect()


def test_lateness_counts_add_up_and_include_the_largest_delay(spark: SparkSession) -> None:
    # Rules: E40
    random = Random(7)
    rules = make_rules(random)
    cases = [make_case(random, rules.streams) for _ in range(20)]
    frames = frames_of(spark, cases, rules)
    classified = lateness(frames, settings_of(rules), start_us=0, recording_keys=("case",))
    rows = classified.counts("case").collect()
    assert sum(row["tuples"] for row in rows) == sum(map(len, cases))
    assert all((row["late_by_us_max"] is not None) == (row["outcome"] == "late") for row in rows)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"lag": -1}, "must be from 0 to 100 years, not -1"),
        ({"lag": "2147483648 ms"}, "lag must be at most"),
        ({"lag": "soon"}, "cannot be read"),
        ({"watermark_interval": 0}, "must be above 0"),
        ({"streams": {}}, r"streams must have at least 1 item after validation, not \{\}"),
        ({"streams": {"s": {}}}, "stream s: event_at is missing"),
        (
            {"streams": {"s": 5}},
            "streams.s must be a table with the settings event_at, unit",
        ),
        ({"lagg": 1}, 'lagg is unknown. Did you mean "lag"'),
        ({"delay": 1}, 'delay is unknown. Did you mean "lag"'),
    ],
)
def test_event_time_rejects_wrong_settings_by_name(wrong: dict[str, Any], words: str) -> None:
    # Rules: E18, E21
    with pytest.raises(InputError, match=words):
        EventTime(**({"streams": {"s": StreamTime(event_at="ts")}} | wrong))
    assert (
        EventTime(streams={"s": StreamTime(event_at="ts")}, lag="2147483647 ms").lag_us
        == 2_147_483_647_000
    )
    with pytest.raises(InputError, match='unit must be one of us, ms, s, not "min"'):
        StreamTime(event_at="ts", unit="min")
    with pytest.raises(
        InputError,
        match=r'"never" cannot be read\. Write a number and a unit',
    ) as caught:
        StreamTime(event_at="ts", max_ahead="never")
    assert caught.value.hint == "Set max_ahead=None to turn it off."


def test_lateness_counts_accept_any_column_names_except_reserved_names(spark: SparkSession) -> None:
    # Rules: E40
    frame = spark.createDataFrame(
        [(1, 1, "x", "y")],
        "arrived_at BIGINT, ts BIGINT, `a.b` STRING, outcome STRING",
    )
    classified = lateness({"s": frame}, EventTime(streams={"s": StreamTime(event_at="ts")}))
    assert [tuple(row) for row in classified.counts("a.b").collect()] == [
        ("s", "x", "on_time", 1, None)
    ]
    for name, words in (
        ("outcome", "counts cannot be grouped by column outcome"),
        ("c", 'stream "s" has no column c to group counts by'),
    ):
        with pytest.raises(InputError, match=words):
            classified.counts(name)
