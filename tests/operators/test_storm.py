"""The fidelity mode storm against a reference that goes tuple by tuple; its surprises, one by
one.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.errors import InputError
from rewindow.operators import (
    CountWindows,
    EventTime,
    EventWindows,
    StormWindows,
    StreamTime,
    storm_windows,
)
from rewindow.operators.storm.machine import StormMachine, StormRules
from tests.operators.storm_reference import Member, Storm, Tuple, storm_by_arrival, storm_machine
from tests.operators.test_lateness import new_seed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDINGS = 60
SETTINGS = 4
END = 60


def make_storm(random: Random) -> Storm:
    """Returns settings: lengths and slides in time and in tuples, each with each."""
    length, length_tuples = random.choice([(4, 0), (10, 0), (7, 0), (0, 3), (0, 1), (0, 6)])
    slide, slide_tuples = random.choice([(4, 0), (2, 0), (3, 0), (0, 1), (0, 3)])
    return Storm(
        random.randint(1, 3),
        random.choice([1, 2, 5]),
        random.choice([0, 0, 1, 3, 12]),
        length,
        length_tuples,
        slide,
        slide_tuples,
        random.random() < 0.3,
    )


def make_case(random: Random, streams: int) -> list[Tuple]:
    """Returns a recording with ties, silences, and null, negative, late and far timestamps."""
    case = []
    at = 0
    for _ in range(random.randint(0, 30)):
        at = min(at + random.choice([0, 0, 1, 1, 2, 3, 9]), END - 1)
        ts = random.choice([at, at, at - random.randint(-3, 6), random.randint(-9, 90), None])
        case.append(Tuple(random.randrange(streams), at, ts))
    return case


def settings_of(storm: Storm) -> tuple[EventTime, StormWindows]:
    time = EventTime(
        streams={f"s{number}": StreamTime(event_at="ts") for number in range(storm.streams)},
        lag=storm.lag / 1_000,
        watermark_interval=storm.interval / 1_000,
        tie="tick_first" if storm.tick_first else "tuple_first",
    )
    return time, StormWindows(
        length=storm.length / 1_000 if storm.length else None,
        length_tuples=storm.length_tuples or None,
        slide=storm.slide / 1_000 if storm.slide else None,
        slide_tuples=storm.slide_tuples or None,
    )


def frames_of(spark: SparkSession, cases: list[list[Tuple]], streams: int) -> dict[str, DataFrame]:
    """Returns a frame per stream; timestamps lie some microseconds behind their millisecond
    (E17).
    """
    rows = [
        (
            key,
            number,
            one.stream,
            one.at * 1_000,
            None if one.ts is None else one.ts * 1_000 + number % 1_000,
        )
        for key, case in enumerate(cases)
        for number, one in enumerate(case)
    ]
    frame = spark.createDataFrame(
        rows,
        "case INT, number INT, stream_no INT, arrived_at BIGINT, ts BIGINT",
    ).cache()
    return {
        f"s{number}": frame.where(f"stream_no = {number}").drop("stream_no")
        for number in range(streams)
    }


def assert_storm(
    spark: SparkSession,
    random: Random,
    storm: Storm,
    seed: int,
    *,
    by_arrival: bool,
) -> None:
    """Fails unless members, roles and outcomes of random recordings are those of the reference."""
    time, windows = settings_of(storm)
    reference = storm_by_arrival if by_arrival else storm_machine
    cases = [make_case(random, storm.streams) for _ in range(RECORDINGS)]
    result = storm_windows(
        frames_of(spark, cases, storm.streams),
        None if by_arrival else time,
        windows,
        {"sum": ("sum", "number")},
        keys=["number"],
        end_us=END * 1_000,
        recording_keys=["case"],
    )
    members: dict[int, list[Member]] = {}
    for row in result.members.collect():
        place = (
            row["pane"],
            row["window_end_us"] // 1_000,
            row["fired_us"] // 1_000,
            row["number"],
            row["role"],
        )
        members.setdefault(row["case"], []).append(place)
    outcomes = {(row["case"], row["number"]): row["outcome"] for row in result.outcomes.collect()}
    for key, case in enumerate(cases):
        wanted, last = reference(case, storm, END)
        told = f"seed {seed}\n{storm}\n{case}"
        assert sorted(members.get(key, [])) == sorted(wanted), told
        assert [outcomes[key, number] for number in range(len(case))] == last, told


def test_storm_windows_equal_a_state_machine(spark: SparkSession) -> None:
    # Rules: E1 to E14, E17, E39, E44, X26, X38
    seed = new_seed()
    random = Random(seed)
    for _ in range(SETTINGS):
        assert_storm(spark, random, make_storm(random), seed, by_arrival=False)


@pytest.mark.parametrize(
    "windows",
    [(10, 0, 4, 0), (3, 0, 4, 0), (10, 0, 0, 2), (0, 3, 4, 0), (0, 3, 0, 2)],
    ids=lambda given: f"{given}",
)
def test_storm_mode_uses_arrival_if_no_timestamp_is_configured(
    spark: SparkSession,
    windows: tuple[int, int, int, int],
) -> None:
    # Rules: E16
    seed = new_seed()
    assert_storm(
        spark,
        Random(seed),
        Storm(2, 1, 0, *windows, tick_first=False),
        seed,
        by_arrival=True,
    )


def test_storm_recording_without_timestamps_ends_at_the_tick_after_its_last_tuple(
    spark: SparkSession,
) -> None:
    # Rules: E16
    rows = [(at * 1_000,) for at in (2, 9, 10, 16, 20)]
    clicks = {"clicks": spark.createDataFrame(rows, "arrived_at BIGINT")}

    def fired(length_ms: int, end_us: int | None) -> list[tuple[int, int]]:
        windows = StormWindows(length=f"{length_ms} ms", slide="10 ms")
        found = storm_windows(
            clicks,
            None,
            windows,
            {"tuples": ("count", "*")},
            end_us=end_us,
        ).fired
        return sorted((row["fired_us"] // 1_000, row["tuples"]) for row in found.collect())

    assert fired(10, None) == [(10, 2), (20, 2), (30, 1)]
    assert fired(20, None) == [(10, 2), (20, 4), (30, 3)] and fired(20, 60_000)[3:] == [(40, 1)]
    assert fired(5, None) == [(10, 2), (20, 1)], (
        "all at the first tick, then what came in the last 5 ms"
    )


def machine(**rules: Any) -> StormMachine:
    return StormMachine(
        StormRules(**{"streams": 1, "lag_ms": 0, "length_ms": 10, "slide_ms": 10, **rules})
    )


def ends(storm: StormMachine) -> list[tuple[int, int]]:
    return [(one.end_ms, one.tuple) for one in storm.tick(at_ms=0) if one.role != "expired"]


def test_storm_tuple_on_the_watermark_at_a_fired_end_is_accepted_and_lost() -> None:
    # Rules: E10, E33
    # It is on time by the rule of lateness, and in no window.
    storm = machine()
    storm.take(0, 0, 10)
    assert ends(storm) == [(10, 0)]
    storm.take(1, 0, 10)
    storm.take(2, 0, 20)
    assert ends(storm) == [(20, 2)]
    assert dict(storm.finish()) == {0: "on_time", 1: "lost_tie", 2: "on_time"}


def test_storm_tuples_after_one_far_in_the_future_are_never_processed() -> None:
    # Rules: E9, E32
    # The scan stops at a tuple that is further ahead than the lag.
    storm = machine()
    for number, ts in enumerate((30, 5, 30)):
        storm.take(number, 0, ts)
    assert ends(storm) == [(30, 0), (30, 2)]
    assert dict(storm.finish()) == {0: "on_time", 1: "hidden_by_scan", 2: "on_time"}


def test_storm_tuples_removed_by_an_empty_evaluation_are_not_listed_as_expired() -> None:
    # Rules: E12
    # Storm clears the list at every evaluation, and hands it on only where a window fires.
    storm = machine()
    for number, ts in enumerate((5, 40)):
        storm.take(number, 0, ts)
    assert [(one.end_ms, one.tuple, one.role) for one in storm.tick(at_ms=0)] == [
        (10, 0, "new"),
        (40, 1, "new"),
    ]
    storm.take(2, 0, 50)
    assert [(one.tuple, one.role) for one in storm.tick(at_ms=0)] == [(2, "new"), (1, "expired")]


def test_storm_windows_include_their_end_and_are_not_flushed_at_stream_end() -> None:
    # Rules: E6 to E8, E11, E35
    storm = machine(lag_ms=5)
    for number, ts in enumerate((1, 10, 11, 95, 101)):
        storm.take(number, 0, ts)
    assert ends(storm) == [(10, 0), (10, 1), (20, 2)]
    assert dict(storm.finish()) == {
        0: "on_time",
        1: "on_time",
        2: "on_time",
        3: "pending",
        4: "pending",
    }


def test_window_with_only_a_length_slides_by_one_tuple_only_in_storm_mode() -> None:
    # Rules: E19
    for length in ({"length": "10 ms"}, {"length_tuples": 3}):
        assert StormWindows(**length).rules(None).slide_tuples == 1
    assert StormWindows(length="10 ms", slide="10 ms").rules(None).slide_tuples == 0
    assert CountWindows(length=3).slide == 3
    with pytest.raises(InputError, match="slide"):
        EventWindows(**{"length": "10 s"})


def test_storm_tuple_at_an_unfired_empty_end_fires_with_the_next_watermark() -> None:
    # Rules: E29
    storm = machine(lag_ms=10)
    storm.take(0, 0, 10)
    storm.take(1, 0, 30)
    assert ends(storm) == [(10, 0)], "the end at 20 holds nothing"
    storm.take(2, 0, 20)
    assert ends(storm) == [] and dict(storm.finish())[2] == "pending", "the watermark is 20 still"
    storm.take(3, 0, 31)
    assert ends(storm) == [(20, 2)]
    assert dict(storm.finish()) == {0: "on_time", 1: "pending", 2: "on_time", 3: "pending"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "set either length or length_tuples"),
        ({"length": "1 s", "length_tuples": 3}, "set either length or length_tuples"),
        ({"length": "1 s", "slide": "1 s", "slide_tuples": 3}, "set slide or slide_tuples"),
        ({"length": "100 us"}, "must be 1 ms or more"),
        ({"length_tuples": 0}, "a count of tuples must be 1 or more, not 0"),
    ],
)
def test_storm_windows_reject_wrong_settings(wrong: dict[str, Any], words: str) -> None:
    # Rules: E18
    with pytest.raises(InputError, match=words):
        StormWindows(**wrong)
