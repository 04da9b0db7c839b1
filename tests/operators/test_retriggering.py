"""Windows that fire more than once against a reference that goes tuple by tuple and instant by
instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.operators.event_time.lateness import lateness
from rewindow.operators.event_time.settings import EventTime, StreamTime
from rewindow.operators.event_time_windows.settings import (
    AnyWindows,
    ApexWindows,
    EventWindows,
    GlobalWindow,
    SessionWindows,
)
from rewindow.operators.event_time_windows.windows import Windows, event_windows
from tests.operators.lateness_reference import Classified, Rules, classify
from tests.operators.test_event_windows import (
    KEYED,
    MERGING,
    balances,
    check_balance,
    counted,
    found_in,
    key_of,
    map_expr,
    order_of,
    value_of,
)
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
from tests.operators.tuple_accounting_reference import first_fired, tuple_accounting
from tests.operators.windows_reference import Again, Shown, fire, fire_again, fire_sessions_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDINGS = 80


def make_again(random: Random, rules: Rules) -> Again:
    """Returns windows with allowed lateness, early instants, early multiples, or several of them;
    or the global one.
    """
    length, slide = random.choice([(4, 4), (8, 8), (8, 2), (7, 3), (9, 6), (None, 1)])
    allowed = random.choice([0, 2, 10, 100]) * UNIT_US
    early = random.choice([None, 1, 3, 8])
    tuples = random.choice([None, None, 1, 2, 3])
    if length is not None and not allowed and early is None and tuples is None:
        tuples = 2
    is_apex = length is not None and random.random() < 0.3
    lets_late_in = length is not None and (allowed or is_apex)
    return Again(
        length_us=None if length is None else length * UNIT_US,
        slide_us=slide * UNIT_US,
        allowed_us=1 << 60 if is_apex and not allowed else allowed,
        early_us=None if early is None else early * UNIT_US,
        early_tuples=tuples,
        accumulation=random.choice(["discarding", "accumulating", "retracting"]),
        interval_us=rules.interval_us,
        tick_first=rules.tick_first,
        is_apex=is_apex,
        late_us=random.choice([None, None, 3 * UNIT_US, 9 * UNIT_US]) if lets_late_in else None,
        late_tuples=random.choice([None, 1, 2, 3, 5]) if lets_late_in else None,
    )


def windows_of(again: Again) -> EventWindows | GlobalWindow:
    given: dict[str, Any] = {
        "allowed_lateness": again.allowed_us / S,
        "early": None if again.early_us is None else again.early_us / S,
        "early_tuples": again.early_tuples,
        "late": None if again.late_us is None else again.late_us / S,
        "late_tuples": again.late_tuples,
        "accumulation": again.accumulation,
    }
    if again.length_us is None:
        return GlobalWindow(**given)
    if again.is_apex:
        allowed = given.pop("allowed_lateness")
        given["lateness"] = None if again.allowed_us == 1 << 60 else allowed
        return ApexWindows(length=again.length_us / S, slide=again.slide_us / S, **given)
    return EventWindows(length=again.length_us / S, slide=again.slide_us / S, **given)


def wanted(row: Shown, length_us: int | None) -> tuple[Any, ...]:
    values = [value for number in row.tuples if (value := value_of(number)) is not None]
    least = min(values, default=None)
    most = max(values, default=None)
    total, mean = (sum(values), sum(values) / len(values)) if values else (None, None)
    folded = (len(row.tuples), len(values), total, least, most, mean)
    end_us = None if row.begin_us is None or length_us is None else row.begin_us + length_us
    return (row.begin_us, end_us, row.pane, row.kind, row.at_us, row.key, *folded)


def last_of(
    outcomes: Sequence[Classified],
    again: Again,
    fired: list[str],
    ends: bool,
) -> list[str]:
    """Returns what became of each tuple at last; only the end lets tuples leave the global
    window.
    """
    if again.length_us is not None:
        return fired
    return [
        "pending_after" if one.outcome == "on_time" and not ends else one.outcome
        for one in outcomes
    ]


def in_pieces(
    spark: SparkSession,
    cases: list[Case],
    rules: Rules,
    windows: AnyWindows,
    random: Random,
    ends: bool,
    aggregates: dict[str, tuple[str, str]] = MERGING,
) -> tuple[list[Windows], list[int]]:
    """Returns the windows of each piece, each with the state of the one before, and where the
    pieces are cut.

    They may be cut anywhere, so each instant is a streaming window.
    """
    frames = {
        name: frame.select("*", *map_expr(KEYED))
        for name, frame in frames_of(spark, cases, rules).items()
    }
    frames = {
        name: frame.withColumn("window_id", frame["arrived_at"]) for name, frame in frames.items()
    }
    classified = lateness(
        frames,
        time_of(rules),
        start_us=0,
        end_us=END_US,
        recording_keys=("case",),
    )
    tuples = {name: frame.localCheckpoint() for name, frame in classified.tuples.items()}
    ticks = classified.ticks.localCheckpoint()
    results: list[Windows] = []
    cuts = sorted({0, END_US, *(random.randrange(END_US) for _ in range(random.randrange(4)))})
    for begin_us, end_us in pairwise(cuts):
        piece = replace(
            classified,
            tuples={
                name: frame.where(f"arrived_at >= {begin_us} AND arrived_at < {end_us}")
                for name, frame in tuples.items()
            },
            ticks=ticks.where(f"tick_us >= {begin_us} AND tick_us < {end_us}"),
            clock=replace(classified.clock, end_us=end_us),
        )
        state = (
            results[-1].state.localCheckpoint()
            if results and results[-1].state is not None
            else None
        )
        ended_us = END_US if ends and end_us == END_US else None
        more: dict[str, Any] = {"state": state, "ended_us": ended_us, "recording_keys": ("case",)}
        results.append(event_windows(piece, windows, aggregates, keys=["key"], **more))
    return results, cuts


@pytest.mark.long
@pytest.mark.exhaustive
def test_retriggered_windows_equal_a_state_machine(spark: SparkSession) -> None:
    # Rules: E41, E49, E51 to E61, E64 to E66, X29
    seed = new_seed()
    random = Random(seed)
    rules = make_rules(random)
    ends = random.random() < 0.5
    again = make_again(random, rules)
    cases = [make_case(random, rules.streams) for _ in range(RECORDINGS)]
    results, cuts = in_pieces(spark, cases, rules, windows_of(again), random, ends)
    found = found_in(results, merging=True)
    counts = counted(results)
    of_windows = balances(results, width_us=1)
    for number, case in enumerate(cases):
        outcomes, raised = classify(case, rules, 0, END_US)
        keys = [key_of(one) for one in range(len(case))]
        orders = [order_of(one, merging=True) for one in range(len(case))]
        shown = fire_again(case, keys, orders, outcomes, raised, again, END_US, ends)
        rows = sorted((wanted(row, again.length_us) for row in shown), key=str)
        mine = sorted(found.get(number, []), key=str)
        told = f"seed {seed}\n{rules}\n{again}\n{case}\nticks {raised}\ncuts {cuts}, ends {ends}"
        assert mine == rows, f"{told}\nwanted {rows}\nfound {mine}"
        length_us = again.length_us or 1
        ended_us = END_US if ends else None
        passed = [(tick, watermark - again.is_apex) for tick, watermark in raised]
        on_time, fired = fire(case, keys, outcomes, passed, length_us, again.slide_us, ended_us)
        last = last_of(outcomes, again, fired, ends)
        check_balance(counts, number, case, last, told, groups=len(results))
        first = first_fired((one.tick_us, one.tuples) for one in on_time)
        if again.length_us is None:
            first = dict.fromkeys(first, END_US) if ends else {}
        assert of_windows.get(number, {}) == tuple_accounting(
            case,
            keys,
            outcomes,
            last,
            first,
            width_us=1,
        ), told


@pytest.mark.long
@pytest.mark.exhaustive
def test_sessions_changed_by_late_tuples_equal_a_state_machine(spark: SparkSession) -> None:
    # Rules: E42, E49, E61, E65 to E69, X29, X37
    seed = new_seed()
    random = Random(seed)
    rules = make_rules(random)
    ends = random.random() < 0.5
    inclusive = random.random() < 0.3
    gap_us = random.choice([1, 2, 5, 9]) * UNIT_US
    allowed_us = random.choice([2, 10, 30, 100]) * UNIT_US
    again = Again(
        gap_us,
        gap_us,
        allowed_us,
        None,
        None,
        "retracting",
        rules.interval_us,
        rules.tick_first,
    )
    sessions = SessionWindows(
        gap=gap_us / S,
        gap_inclusive=inclusive,
        allowed_lateness=allowed_us / S,
    )
    cases = [make_case(random, rules.streams) for _ in range(RECORDINGS)]
    results, cuts = in_pieces(spark, cases, rules, sessions, random, ends)
    found = found_in(results, merging=True)
    counts = counted(results)
    of_windows = balances(results, width_us=1)
    for number, case in enumerate(cases):
        outcomes, raised = classify(case, rules, 0, END_US)
        keys = [key_of(one) for one in range(len(case))]
        shown, last = fire_sessions_again(
            case,
            keys,
            outcomes,
            raised,
            again,
            inclusive,
            END_US,
            ends,
        )
        lengths = [
            max(case[one].ts_us or 0 for one in row.tuples) - (row.begin_us or 0) + gap_us
            for row in shown
        ]
        rows = sorted(
            (wanted(row, length) for row, length in zip(shown, lengths, strict=True)), key=str
        )
        mine = sorted(found.get(number, []), key=str)
        told = f"seed {seed}\n{rules}\n{sessions}\n{case}\nticks {raised}\ncuts {cuts}, ends {ends}"
        assert mine == rows, f"{told}\nwanted {rows}\nfound {mine}"
        check_balance(counts, number, case, last, told, groups=len(results))
        first = first_fired((row.at_us, row.tuples) for row in shown if row.kind != "retraction")
        assert of_windows.get(number, {}) == tuple_accounting(
            case,
            keys,
            outcomes,
            last,
            first,
            width_us=1,
        ), told


TIME = EventTime(streams={"clicks": StreamTime(event_at="at")}, watermark_interval="10 s")
LATE_WINDOW = [
    (1, 1),
    (2, 9),
    (12, 15),
    (21, 3),
    (22, 12),
    (33, 5),
    (34, 4),
    (36, 6),
    (41, 25),
    (45, 8),
    (75, 40),
]
"""Arrivals and timestamps in seconds; of those of the window [0, 10) the first two come on time."""


@pytest.mark.parametrize(
    ("late", "cut", "shows"),
    [
        # The third tuple waits; the tick at 40 sees the fifth one make up a multiple of 5, and
        # shows the sixth too.
        ({"late_tuples": 5}, 100, [(20, "on_time", 2), (40, "late", 6), (50, "late", 7)]),
        # The instant at 35 shows five, which were a multiple; the tick at 40 has none to show, and
        # 6 is no multiple.
        (
            {"late_tuples": 5, "late": "35 s"},
            100,
            [(20, "on_time", 2), (35, "late", 5), (50, "late", 7)],
        ),
        # The watermark passes the end by what is allowed at 50, before another multiple or instant.
        pytest.param(
            {"late_tuples": 99},
            34,
            [(20, "on_time", 2), (50, "late", 7)],
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"late": "99 s"},
            60,
            [(20, "on_time", 2), (50, "late", 7)],
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"late_tuples": 5},
            36,
            [(20, "on_time", 2), (40, "late", 6), (50, "late", 7)],
            marks=pytest.mark.long,
        ),
    ],
)
def test_late_tuples_retrigger_windows_by_count_and_on_removal(
    spark: SparkSession,
    late: dict[str, Any],
    cut: int,
    shows: list[tuple[int, str, int]],
) -> None:
    # Rules: E41, E53, E57, E58
    rows = spark.createDataFrame(LATE_WINDOW, "arrived INT, at INT")
    clicks = rows.selectExpr(
        "timestamp_seconds(arrived) AS arrived_at",
        "timestamp_seconds(at) AS at",
    )
    windows = EventWindows(
        length="10 s",
        slide="10 s",
        allowed_lateness="15 s",
        accumulation="accumulating",
        **late,
    )
    shown: list[tuple[int, str, int]] = []
    before = state = None
    for first, end in pairwise(sorted({0, cut, 100})):
        part = clicks.where(
            f"arrived_at >= timestamp_seconds({first}) AND arrived_at < timestamp_seconds({end})"
        )
        classified = lateness(
            {"clicks": part},
            TIME,
            state=before,
            start_us=0,
            end_us=end * 1_000_000,
        )
        result = event_windows(classified, windows, {"n": ("count", "*")}, state=state)
        assert classified.state is not None and result.state is not None
        before = classified.state.localCheckpoint()
        state = result.state.localCheckpoint()
        fired = result.fired.where("window_begin_us = 0").orderBy("fired_us").collect()
        shown += [(row["fired_us"] // 1_000_000, row["kind"], row["n"]) for row in fired]
    assert shown == shows


@pytest.mark.long
@pytest.mark.parametrize("cut", [100, 23])
def test_late_tuples_at_a_gap_border_stay_in_separate_sessions(
    spark: SparkSession,
    cut: int,
) -> None:
    # Rules: E41, E67, E69
    arrivals = [(1, 1), (12, 30), (21, 3), (22, 20)]
    rows = spark.createDataFrame(arrivals, "arrived INT, at INT")
    clicks = rows.selectExpr(
        "timestamp_seconds(arrived) AS arrived_at",
        "timestamp_seconds(at) AS at",
    )
    sessions = SessionWindows(gap="5 s", allowed_lateness="60 s")
    shown: list[tuple[int, int, str, int]] = []
    before = state = None
    for first, end in pairwise(sorted({0, cut, 100})):
        part = clicks.where(
            f"arrived_at >= timestamp_seconds({first}) AND arrived_at < timestamp_seconds({end})"
        )
        classified = lateness(
            {"clicks": part},
            TIME,
            state=before,
            start_us=0,
            end_us=end * 1_000_000,
        )
        result = event_windows(classified, sessions, {"n": ("count", "*")}, state=state)
        assert classified.state is not None and result.state is not None
        before = classified.state.localCheckpoint()
        state = result.state.localCheckpoint()
        columns = "window_begin_us DIV 1000000", "fired_us DIV 1000000", "kind", "n"
        shown += [tuple(row) for row in result.fired.selectExpr(*columns).collect()]
    assert sorted(shown) == [
        (1, 20, "on_time", 1),
        (1, 30, "late", 2),
        (1, 30, "retraction", 1),
        (20, 30, "late", 1),
    ]


def only_updates(rows: list[Shown], accumulation: str) -> list[tuple[Any, ...]]:
    """Returns what of the rows is another value than was shown last, numbered anew, and what each
    takes back (E62).
    """
    found: list[tuple[Any, ...]] = []
    last: dict[tuple[Any, ...], list[Any]] = {}
    for row in sorted((row for row in rows if row.kind != "retraction"), key=lambda row: row.pane):
        values = [value for number in row.tuples if (value := value_of(number)) is not None]
        shown = (max(values, default=None), sum(values) / len(values) if values else None)
        place = (row.begin_us, row.key)
        before = last.setdefault(place, [])
        if before and before[-1] == shown:
            continue
        if before and accumulation == "retracting":
            found.append(
                (row.begin_us, len(before) - 1, "retraction", row.at_us, row.key, *before[-1])
            )
        found.append((row.begin_us, len(before), row.kind, row.at_us, row.key, *shown))
        before.append(shown)
    return found


@pytest.mark.long
def test_firings_with_unchanged_results_can_be_omitted(spark: SparkSession) -> None:
    # Rules: E62
    seed = new_seed()
    random = Random(seed)
    rules = make_rules(random)
    ends = random.random() < 0.5
    again = replace(
        make_again(random, rules),
        early_us=UNIT_US,
        accumulation=random.choice(["accumulating", "retracting"]),
    )
    cases = [make_case(random, rules.streams) for _ in range(RECORDINGS)]
    windows = windows_of(again).model_copy(update={"only_updated_panes": True})
    aggregates = {"most": ("max", "value"), "mean": ("avg", "value")}
    results, cuts = in_pieces(spark, cases, rules, windows, random, ends, aggregates)
    names = ["case", "window_begin_us", "pane", "kind", "fired_us", "key", *aggregates]
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in (row for result in results for row in result.fired.select(*names).collect()):
        found.setdefault(row["case"], []).append(tuple(row)[1:])
    left_out = 0
    for number, case in enumerate(cases):
        outcomes, raised = classify(case, rules, 0, END_US)
        keys = [key_of(one) for one in range(len(case))]
        orders = [order_of(one, merging=True) for one in range(len(case))]
        shown = fire_again(case, keys, orders, outcomes, raised, again, END_US, ends)
        rows = sorted(only_updates(shown, again.accumulation), key=str)
        left_out += len(shown) - len(rows)
        told = f"seed {seed}\n{rules}\n{again}\n{case}\nticks {raised}\ncuts {cuts}, ends {ends}"
        mine = sorted(found.get(number, []), key=str)
        assert mine == rows, f"{told}\nwanted {rows}\nfound {mine}"
    assert left_out > 0
