"""Windows over event time against a reference that goes tuple by tuple, for cuts of six pieces into
groups.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.errors import InputError
from rewindow.operators.columns import floor_div
from rewindow.operators.event_time.lateness import Lateness, lateness
from rewindow.operators.event_time.settings import EventTime, StreamTime
from rewindow.operators.event_time_windows.settings import (
    AnyWindows,
    CountWindows,
    EventWindows,
    SessionWindows,
)
from rewindow.operators.event_time_windows.windows import Windows, event_windows
from tests.operators.lateness_reference import classify
from tests.operators.test_lateness import (
    END_US,
    UNIT_US,
    Case,
    S,
    frames_of,
    make_case,
    make_rules,
    new_seed,
)
from tests.operators.test_lateness import settings_of as time_of
from tests.operators.tuple_accounting_reference import AccountKey, first_fired, tuple_accounting
from tests.operators.windows_reference import Fired, fire, fire_counted, fire_sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECES = 6
GROUPS = 3
RECORDINGS = 30
DRAWS = pytest.mark.parametrize(
    "draw", [0, *(pytest.param(draw, marks=pytest.mark.exhaustive) for draw in (1, 2, 3))]
)
"""Each draw has other settings, and every run other draws: one setting leaves most modes untested.
"""
WIDTH_US = 1_000
PIECE_US = END_US // PIECES
MERGING = {
    "n": ("count", "*"), "filled": ("count", "value"), "total": ("sum", "value"),
    "least": ("min", "value"),
    "most": ("max", "value"), "mean": ("avg", "value"),
}  # fmt: skip
WHOLE = {"n": ("count", "*"), "middle": ("median", "value"), "values": ("count_distinct", "value")}
BALANCE = ("pending_before", "input")


def key_of(number: int) -> int | None:
    """Returns the key of a tuple, as `KEYED` does."""
    return number % 3 or None


def value_of(number: int) -> int | None:
    """Returns the value of a tuple, as `KEYED` does."""
    return None if number % 5 == 0 else number * 7 % 11


KEYED = (
    "nullif(number % 3, 0) AS key",
    "IF(number % 5 = 0, NULL, number * 7 % 11) AS value",
    f"arrived_at div {WIDTH_US} AS window_id",
)


def make_windows(random: Random) -> EventWindows:
    """Returns settings: tumbling, sliding with and without a slide that divides, and sampling."""
    length, slide = random.choice([(4, 4), (8, 8), (1, 1), (8, 2), (8, 1), (7, 3), (9, 6), (2, 5)])
    return EventWindows(
        length=length * UNIT_US / S,
        slide=slide * UNIT_US / S,
        sampling=slide > length,
    )


def wanted_values(one: Fired, merging: bool) -> tuple[Any, ...]:
    values = [value for number in one.tuples if (value := value_of(number)) is not None]
    folded: tuple[Any, ...]
    if merging:
        mean = sum(values) / len(values) if values else None
        folded = (
            len(values),
            sum(values) if values else None,
            min(values, default=None),
            max(values, default=None),
            mean,
        )
    else:
        folded = (median(values) if values else None, len(set(values)))
    return (one.begin_us, one.end_us, 0, "on_time", one.tick_us, one.key, len(one.tuples), *folded)


GROUP = f"""aggregate(
    array(pmod(hash(case, 1), {PIECES + 1}), pmod(hash(case, 2), {PIECES + 1})), 0,
    (sum, cut) -> sum + IF({{at}} >= cut * {PIECE_US}, 1, 0))"""
"""Each recording is cut at two borders of its pieces, equal and outer ones too: in 16 ways, one of
which is whole."""


def in_own_groups(classified: Lateness) -> dict[str, DataFrame]:
    """Returns tuples and ticks by name, with their group."""
    from pyspark.sql import functions as F

    named = {
        **{name: (frame, "arrived_at") for name, frame in classified.tuples.items()},
        "": (classified.ticks, "tick_us"),
    }
    return {
        name: frame.withColumn("_group", F.expr(GROUP.format(at=at)))
        for name, (frame, at) in named.items()
    }


def in_groups(
    classified: Lateness,
    windows: AnyWindows,
    merging: bool,
    ends: bool,
) -> list[Windows]:
    """Returns the windows of each group, each with the state of the one before."""
    results: list[Windows] = []
    frames = {name: frame.localCheckpoint() for name, frame in in_own_groups(classified).items()}
    for group in range(GROUPS):
        own = {
            name: frame.where(f"_group = {group}").drop("_group") for name, frame in frames.items()
        }
        piece = replace(
            classified,
            tuples={name: frame for name, frame in own.items() if name},
            ticks=own[""],
        )
        state = (
            results[-1].state.localCheckpoint()
            if results and results[-1].state is not None
            else None
        )
        ended_us = END_US if ends and group == GROUPS - 1 else None
        results.append(
            event_windows(
                piece,
                windows,
                MERGING if merging else WHOLE,
                keys=["key"],
                state=state,
                ended_us=ended_us,
                recording_keys=("case",),
            )
        )
    return results


@pytest.mark.long
@DRAWS
def test_event_windows_equal_a_state_machine_for_every_cut(spark: SparkSession, draw: int) -> None:
    # Rules: E27, E28, E30, E32, E42, E44, E45, E63, X34 to X37
    seed = new_seed()
    random = Random(seed)
    merging = random.random() < 0.5
    rules = make_rules(random)
    windows = make_windows(random)
    ends = random.random() < 0.5
    cases = [make_case(random, rules.streams) for _ in range(RECORDINGS)]
    frames = {
        name: frame.select("*", *map_expr(KEYED))
        for name, frame in frames_of(spark, cases, rules).items()
    }
    classified = lateness(
        frames,
        time_of(rules),
        start_us=0,
        end_us=END_US,
        recording_keys=("case",),
    )
    results = in_groups(classified, windows, merging, ends)
    found = found_in(results, merging)
    counts = counted(results)
    of_windows = balances(results)
    for number, case in enumerate(cases):
        outcomes, ticks = classify(case, rules, 0, END_US)
        lengths = windows.length_us, windows.slide_us
        keys = [key_of(one) for one in range(len(case))]
        wanted, last = fire(case, keys, outcomes, ticks, *lengths, END_US if ends else None)
        rows = sorted((wanted_values(one, merging) for one in wanted), key=str)
        mine = sorted(found.get(number, []), key=str)
        told = f"draw {draw}, seed {seed}\n{rules}\n{windows}\n{case}\nticks {ticks}\nends {ends}"
        assert mine == rows, f"{told}\nwanted {rows}\nfound {mine}"
        check_balance(counts, number, case, last, told)
        first = first_fired((one.tick_us, one.tuples) for one in wanted)
        assert of_windows.get(number, {}) == tuple_accounting(
            case,
            keys,
            outcomes,
            last,
            first,
            WIDTH_US,
        ), told


@pytest.mark.long
@DRAWS
def test_sessions_equal_a_state_machine(spark: SparkSession, draw: int) -> None:
    # Rules: E67, E68, E70
    seed = new_seed()
    random = Random(seed)
    merging = random.random() < 0.5
    ends = random.random() < 0.5
    inclusive = random.random() < 0.3
    rules = make_rules(random)
    gap_us = random.choice([1, 2, 5, 20]) * UNIT_US
    sessions = SessionWindows(gap=gap_us / S, gap_inclusive=inclusive)
    cases = [make_case(random, rules.streams) for _ in range(RECORDINGS)]
    frames = {
        name: frame.select("*", *map_expr(KEYED))
        for name, frame in frames_of(spark, cases, rules).items()
    }
    classified = lateness(
        frames,
        time_of(rules),
        start_us=0,
        end_us=END_US,
        recording_keys=("case",),
    )
    results = in_groups(classified, sessions, merging, ends)
    found = found_in(results, merging)
    counts = counted(results)
    of_windows = balances(results)
    for number, case in enumerate(cases):
        outcomes, ticks = classify(case, rules, 0, END_US)
        keys = [key_of(one) for one in range(len(case))]
        ended_us = END_US if ends else None
        wanted, last = fire_sessions(
            case,
            keys,
            outcomes,
            ticks,
            gap_us,
            inclusive,
            rules.tick_first,
            ended_us,
        )
        rows = sorted((wanted_values(one, merging) for one in wanted), key=str)
        told = f"draw {draw}, seed {seed}\n{rules}\n{sessions}\n{case}\nticks {ticks}\nends {ends}"
        mine = sorted(found.get(number, []), key=str)
        assert mine == rows, f"{told}\nwanted {rows}\nfound {mine}"
        check_balance(counts, number, case, last, told)
        first = first_fired((one.tick_us, one.tuples) for one in wanted)
        assert of_windows.get(number, {}) == tuple_accounting(
            case,
            keys,
            outcomes,
            last,
            first,
            WIDTH_US,
        ), told


def order_of(number: int, merging: bool) -> tuple[int, ...]:
    """Returns by which the library orders tuples of one key, timestamp, arrival and stream: what
    they add.
    """
    value = value_of(number)
    return (value is not None, value or 0) if merging else (0 if value is None else value + 1,)


@pytest.mark.exhaustive
@DRAWS
def test_count_windows_equal_a_state_machine(spark: SparkSession, draw: int) -> None:
    # Rules: E13, E14, E18, E45
    seed = new_seed()
    random = Random(seed)
    merging = random.random() < 0.5
    ends = random.random() < 0.5
    length, slide = random.choice([(1, 1), (3, 3), (4, 2), (3, 2), (5, 1), (7, 7)])
    rules = make_rules(random)
    windows = CountWindows(length=length, slide=slide)
    cases = [make_case(random, rules.streams) for _ in range(RECORDINGS)]
    frames = {
        name: frame.select("*", *map_expr(KEYED))
        for name, frame in frames_of(spark, cases, rules).items()
    }
    classified = lateness(
        frames,
        time_of(rules),
        start_us=0,
        end_us=END_US,
        recording_keys=("case",),
    )
    results = in_groups(classified, windows, merging, ends)
    found = found_in(results, merging)
    counts = counted(results)
    of_windows = balances(results)
    for number, case in enumerate(cases):
        outcomes, ticks = classify(case, rules, 0, END_US)
        keys = [key_of(one) for one in range(len(case))]
        orders = [order_of(one, merging) for one in range(len(case))]
        ended_us = END_US if ends else None
        wanted, last = fire_counted(case, keys, orders, outcomes, ticks, length, slide, ended_us)
        values = [
            (*(shown := wanted_values(one, merging))[:2], place, *shown[3:])
            for place, one in wanted
        ]
        rows = sorted(values, key=str)
        told = f"draw {draw}, seed {seed}\n{rules}\n{windows}\n{case}\nticks {ticks}\nends {ends}"
        mine = sorted(found.get(number, []), key=str)
        assert mine == rows, f"{told}\nwanted {rows}\nfound {mine}"
        check_balance(counts, number, case, last, told)
        first = first_fired((one.tick_us, one.tuples) for _, one in wanted)
        assert of_windows.get(number, {}) == tuple_accounting(
            case,
            keys,
            outcomes,
            last,
            first,
            WIDTH_US,
        ), told


def map_expr(texts: tuple[str, ...]) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(text) for text in texts]


def found_in(results: list[Windows], merging: bool) -> dict[int, list[tuple[Any, ...]]]:
    names = ["case", "window_begin_us", "window_end_us", "pane", "kind", "fired_us", "key"]
    names += list(MERGING if merging else WHOLE)
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in (row for result in results for row in result.fired.select(*names).collect()):
        found.setdefault(row["case"], []).append(tuple(row)[1:])
    return found


Counts = dict[int, dict[tuple[int, str], Counter[str]]]


def counted(results: list[Windows]) -> Counts:
    """Returns counts by recording, then by group and stream."""
    counts: Counts = {}
    for group, result in enumerate(results):
        for row in result.counts("case").collect():
            of_case = counts.setdefault(row["case"], {})
            of_case.setdefault((group, row["stream"]), Counter())[row["outcome"]] += row["tuples"]
    return counts


def check_balance(
    counts: Counts,
    number: int,
    case: Case,
    last: list[str],
    told: str,
    groups: int = GROUPS,
) -> None:
    """Each group balances for each stream, and outcomes add up to the machine's (E39, E40, X37)."""
    mine: dict[str, Counter[str]] = {}
    for (group, stream), found in counts.get(number, {}).items():
        given = sum(found[name] for name in BALANCE)
        assert given == found.total() - given, f"{told}\ngroup {group}: {found}"
        settled = {
            name: many for name, many in found.items() if name not in (*BALANCE, "pending_after")
        }
        mine.setdefault(stream, Counter()).update(settled)
        if group == groups - 1:
            mine[stream]["pending_after"] += found["pending_after"]
    wanted: dict[str, Counter[str]] = {}
    for one, outcome in zip(case, last, strict=True):
        wanted.setdefault(f"s{one.stream}", Counter())[outcome] += 1
    assert {name: +found for name, found in mine.items() if +found} == wanted, told


Balances = dict[int, dict[AccountKey, tuple[int, int | None]]]


def balances(results: list[Windows], width_us: int = WIDTH_US) -> Balances:
    """Returns by recording, window, stream, key and outcome the tuples of all groups, and the
    largest delay.
    """
    from pyspark.sql import functions as F

    found: Balances = {}
    frames = [
        one.by_window(lambda at: floor_div(F.col(at), width_us), "case", "key") for one in results
    ]
    names = ("window_id", "stream", "key", "outcome", "tuples", "late_by_us_max")
    for row in (
        reduce(lambda one, other: one.unionByName(other), frames).select("case", *names).collect()
    ):
        place = tuple(row)[1:5]
        values = tuple(row)[5:]
        assert found.setdefault(row["case"], {}).setdefault(place, values) is values, (
            "a place has one row"
        )
    return found


def clicks(spark: SparkSession) -> DataFrame:
    """Returns a few tuples: arrival and timestamp in seconds, a country."""
    rows = [(1, 1, "a"), (2, 9, "b"), (12, 12, "a"), (13, 3, "a"), (25, 30, "a"), (26, 8, "b")]
    return spark.createDataFrame(rows, "arrived INT, at INT, country STRING").selectExpr(
        "timestamp_seconds(arrived) AS arrived_at",
        "timestamp_seconds(at) AS at",
        "country",
        "at AS value",
    )


TIME = EventTime(
    streams={"clicks": StreamTime(event_at="at")},
    lag="5 s",
    watermark_interval="10 s",
)


def test_recording_in_several_runs_continues_from_the_carried_state(spark: SparkSession) -> None:
    # Rules: E41, E45, E46
    frame = clicks(spark)
    windows = EventWindows(length="10 s", slide="10 s")
    rows: list[tuple[Any, ...]] = []
    states: list[Any] = []
    before = None
    for first, end in pairwise((0, 20, 40)):
        part = frame.where(
            f"arrived_at >= timestamp_seconds({first}) AND arrived_at < timestamp_seconds({end})"
        )
        classified = lateness(
            {"clicks": part},
            TIME,
            state=before,
            start_us=0,
            end_us=end * 1_000_000,
        )
        ended_us = end * 1_000_000 if end == 40 else None
        result = event_windows(
            classified,
            windows,
            {"n": ("count", "*")},
            keys=["country"],
            state=states[-1] if states else None,
            ended_us=ended_us,
        )
        assert (result.state is None) == (end == 40)
        before = classified.state and classified.state.localCheckpoint()
        states.append(result.state and result.state.localCheckpoint())
        rows += [
            (row["country"], row["window_begin_us"], row["fired_us"], row["n"])
            for row in result.fired.collect()
        ]
    s = 1_000_000
    assert sorted(rows) == [
        ("a", 0, 30 * s, 1),
        ("a", 10 * s, 30 * s, 1),
        ("a", 30 * s, 40 * s, 1),
        ("b", 0, 30 * s, 2),
    ]


def test_tuple_on_the_watermark_at_a_fired_end_is_in_all_its_windows(
    spark: SparkSession,
) -> None:
    # Rules: E33, E34
    rows = [(1, 5), (2, 10), (12, 10), (13, 30)]
    frame = spark.createDataFrame(rows, "arrived INT, at INT").selectExpr(
        "timestamp_seconds(arrived) AS arrived_at",
        "timestamp_seconds(at) AS at",
    )
    classified = lateness({"clicks": frame}, TIME.model_copy(update={"lag_us": 0}))
    assert {row["_rw_outcome"] for row in classified.tuples["clicks"].collect()} == {"on_time"}
    for slide, wanted in (
        (10, [(0, 10, 1), (10, 20, 2)]),
        (5, [(0, 10, 1), (5, 20, 3), (10, 20, 2)]),
    ):
        fired = event_windows(
            classified,
            EventWindows(length="10 s", slide=slide),
            {"n": ("count", "*")},
        ).fired.collect()
        found = [
            (row["window_begin_us"] // 1_000_000, row["fired_us"] // 1_000_000, row["n"])
            for row in fired
        ]
        assert sorted(found) == wanted, (
            "the window that ends at 10 has fired before the third tuple comes"
        )


def test_late_tuples_list_the_windows_that_they_missed(spark: SparkSession) -> None:
    # Rules: E5, E20
    classified = lateness(
        {"clicks": clicks(spark)},
        TIME.model_copy(update={"lag_us": 0}),
        start_us=0,
        end_us=40_000_000,
    )
    sliding = event_windows(
        classified,
        EventWindows(length="10 s", slide="5 s"),
        {"n": ("count", "*")},
    )
    late = sliding.late["clicks"].orderBy("at").collect()
    assert [
        (row["value"], row["_rw_window_begin_us"], row["_rw_window_end_us"]) for row in late
    ] == [
        (3, -5_000_000, 10_000_000),
        (8, 0, 15_000_000),
    ]
    sampled = event_windows(
        classified,
        EventWindows(length="2 s", slide="10 s", sampling=True),
        {"n": ("count", "*")},
    )
    assert sorted(row["value"] for row in sampled.between["clicks"].collect()) == [9, 12]


def test_aggregates_have_the_result_types_of_spark(spark: SparkSession) -> None:
    frame = clicks(spark).selectExpr(
        "*",
        "CAST(value AS DECIMAL(10, 2)) AS price",
        "CAST(value AS FLOAT) AS f",
    )
    calls = {
        f"{function}_{column}": (function, column)
        for function in ("avg", "sum", "min", "max", "count")
        for column in ("price", "f", "value")
    }
    classified = lateness({"clicks": frame}, TIME, start_us=0, end_us=40_000_000)
    for slide in ("100 s", "50 s"):
        windows = EventWindows(length="100 s", slide=slide)
        fired = event_windows(classified, windows, calls, ended_us=40_000_000).fired.where(
            "window_begin_us = 0"
        )
        plain = frame.where("value <> 3").selectExpr(
            *(f"{function}({column}) AS {name}" for name, (function, column) in calls.items())
        )
        mine = fired.select(*calls)
        assert mine.schema.simpleString() == plain.schema.simpleString()
        assert mine.collect() == plain.collect()


def test_event_windows_reject_unknown_aggregates_columns_and_foreign_state(
    spark: SparkSession,
) -> None:
    classified = lateness({"clicks": clicks(spark)}, TIME, start_us=0, end_us=40_000_000)
    windows = EventWindows(length="10 s", slide="10 s")
    again = EventWindows(length="10 s", slide="10 s", early="1 s")
    n = {"n": ("count", "*")}
    for words, aggregates, more in (
        ("aggregates is empty", {}, {}),
        ("has an unknown function", {"x": ("first", "value")}, {}),
        ("is not a valid expression: sum.nothing.", {"x": ("sum", "nothing")}, {}),
        ("has no column town", n, {"keys": ["town"]}),
        ("need aggregates that can be merged", {"x": ("median", "value")}, {"windows": again}),
        ("would appear twice", {"country": ("count", "*")}, {"keys": ["country"]}),
        (
            "state belongs to different windows",
            n,
            {"state": event_windows(classified, windows, n, keys=["country"]).state},
        ),
    ):
        with pytest.raises(InputError, match=words):
            event_windows(classified, more.pop("windows", windows), aggregates, **more)
