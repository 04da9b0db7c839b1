"""Fired rows as one row for each window, against a reference that takes them one by one, and the
tuples themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from rewindow.errors import InputError
from rewindow.operators import current_windows
from rewindow.operators.event_time_windows.settings import SessionWindows
from tests.operators.lateness_reference import Classified, classify
from tests.operators.test_event_windows import MERGING, key_of, order_of, value_of
from tests.operators.test_lateness import END_US, UNIT_US, Case, S, make_case, make_rules, new_seed
from tests.operators.test_retriggering import in_pieces, make_again, windows_of
from tests.operators.windows_reference import Again, Shown, fire_again, fire_sessions_again

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDINGS = 40
KEYS = ["case", "key"]
ADDED = {name: call for name, call in MERGING.items() if call[0] != "avg"}
RowKey = tuple[int | None, int | None, int | None]


def current(
    case: Case,
    shown: Sequence[Shown],
    gap_us: int | None,
    accumulation: str,
) -> dict[RowKey, set[int]]:
    """Returns by begin, end and key the tuples of what stands when all rows are taken in their
    order.
    """
    held: dict[RowKey, set[int]] = {}
    for row in shown:
        end_us = (
            None
            if gap_us is None
            else max(case[number].ts_us or 0 for number in row.tuples) + gap_us
        )
        place = (row.begin_us, end_us, row.key)
        if row.kind == "retraction":
            assert held.pop(place) == set(row.tuples)
        else:
            held[place] = set(row.tuples) | (
                held.get(place, set()) if accumulation == "discarding" else set()
            )
    return held


def accepted(
    case: Case,
    outcomes: Sequence[Classified],
    again: Again,
) -> dict[tuple[int | None, int | None], set[int]]:
    """Returns by begin and key the tuples of each window that is not a session, straight from the
    recording.
    """
    held: dict[tuple[int | None, int | None], set[int]] = {}
    for number, (one, (outcome, watermark)) in enumerate(zip(case, outcomes, strict=True)):
        ts_us = one.ts_us
        if ts_us is None or outcome not in ("on_time", "late"):
            continue
        if outcome == "late" and watermark is not None and ts_us < watermark - again.allowed_us:
            continue
        begins: list[int | None] = [None]
        if again.length_us is not None:
            last = ts_us // again.slide_us
            around = range(last - again.length_us // again.slide_us - 1, last + 1)
            begins = [
                at * again.slide_us
                for at in around
                if ts_us < at * again.slide_us + again.length_us
            ]
        for begin in begins:
            held.setdefault((begin, key_of(number)), set()).add(number)
    return held


def folded(numbers: set[int]) -> tuple[Any, ...]:
    """Returns the aggregates that panes can be added up by."""
    values = [value for number in numbers if (value := value_of(number)) is not None]
    total = sum(values) if values else None
    return (len(numbers), len(values), total, min(values, default=None), max(values, default=None))


def rows_of(frame: DataFrame) -> dict[int, list[tuple[Any, ...]]]:
    """Returns by recording begin, key and values of the windows."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in frame.select("case", "window_begin_us", "key", *ADDED).collect():
        found.setdefault(row["case"], []).append(tuple(row)[1:])
    return {number: sorted(rows, key=str) for number, rows in found.items()}


def in_a_row(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", ["windows", "sessions"])
def test_current_windows_equal_those_of_a_naive_reader(spark: SparkSession, shape: str) -> None:
    # Rules: E49, E69
    seed = new_seed()
    random = Random(seed)
    rules, ends, inclusive = make_rules(random), random.random() < 0.7, random.random() < 0.3
    again, gap_us = make_again(random, rules), None
    if shape == "sessions":
        gap_us, allowed_us = (
            random.choice([1, 2, 5, 9]) * UNIT_US,
            random.choice([2, 10, 30, 100]) * UNIT_US,
        )
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
    windows = windows_of(again) if gap_us is None else sessions
    cases = [make_case(random, rules.streams) for _ in range(RECORDINGS)]
    results, _ = in_pieces(spark, cases, rules, windows, random, ends)
    fired = reduce(
        lambda one, other: one.unionByName(other),
        [one.fired for one in results],
    ).localCheckpoint()

    def merged(rows: DataFrame) -> DataFrame:
        kind: Any = again.accumulation
        return current_windows(
            rows,
            KEYS,
            accumulation=kind,
            aggregates=MERGING if kind != "discarding" else ADDED,
        )

    doubled = fired.unionByName(fired.where("pmod(hash(case, pane), 2) = 0"))
    once = merged(doubled).localCheckpoint()
    found = rows_of(once)
    for number, case in enumerate(cases):
        outcomes, raised = classify(case, rules, 0, END_US)
        keys = [key_of(one) for one in range(len(case))]
        if gap_us is None:
            orders = [order_of(one, merging=True) for one in range(len(case))]
            shown = fire_again(case, keys, orders, outcomes, raised, again, END_US, ends)
            in_order = shown
        else:
            shown, _ = fire_sessions_again(
                case,
                keys,
                outcomes,
                raised,
                again,
                inclusive,
                END_US,
                ends,
            )
            in_order = sorted(shown, key=lambda row: (row.at_us, row.kind != "retraction"))
        held = current(case, in_order, gap_us, again.accumulation)
        wanted = sorted(
            ((begin, key, *folded(one)) for (begin, _, key), one in held.items()), key=str
        )
        told = f"seed {seed}\n{rules}\n{again}\n{case}\nticks {raised}\nends {ends}"
        assert found.get(number, []) == wanted, told
        if ends and gap_us is None:
            whole = (
                (begin, key, *folded(one))
                for (begin, key), one in accepted(case, outcomes, again).items()
            )
            assert wanted == sorted(whole, key=str), told
    assert in_a_row(merged(once)) == in_a_row(once), f"seed {seed}: merged again"
    first = merged(fired.where(f"fired_us < {END_US // 2}"))
    later = first.unionByName(fired.select(first.columns).where(f"fired_us >= {END_US // 2}"))
    assert in_a_row(merged(later)) == in_a_row(once), f"seed {seed}: merged with later rows"


FIRED = (
    "key STRING, window_begin_us BIGINT, window_end_us BIGINT, pane INT, kind STRING, "
    "fired_us BIGINT"
)
PUBLISHED = [
    (7, "a", 0, 10, 0, "early", 5, 1), (8, "a", 0, 10, 0, "retraction", 10, 1),
    (8, "a", 0, 10, 1, "on_time", 10, 3),
    (9, None, 0, 10, 0, "on_time", 10, 4), (9, "a", 10, 20, 0, "on_time", 20, 5),
    # The session [20, 30) has become [18, 30).
    (9, "a", 20, 30, 0, "on_time", 30, 6), (9, "a", 20, 30, 0, "retraction", 40, 6),
    (9, "a", 18, 30, 0, "late", 40, 7),
]  # fmt: skip


def published(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(PUBLISHED, f"window_id BIGINT, {FIRED}, n INT")


def test_current_window_is_its_newest_row_unless_retracted(spark: SparkSession) -> None:
    # Rules: E49, E69
    rows = published(spark)
    merged = current_windows(rows, ["key"])
    assert merged.schema.simpleString() == rows.schema.simpleString()
    standing = [PUBLISHED[number] for number in (2, 3, 4, 7)]
    assert sorted(map(tuple, merged.collect()), key=str) == sorted(standing, key=str)
    more = current_windows(rows.unionByName(rows).unionByName(merged), ["key"])
    assert sorted(map(tuple, more.collect()), key=str) == sorted(standing, key=str)


def test_panes_of_windows_in_discarding_mode_are_merged(spark: SparkSession) -> None:
    # Rules: E49, E59
    panes = [(0, "early", 5, 1, 9), (1, "on_time", 10, 2, 7), (2, "late", 20, 4, 8)]
    fired = spark.createDataFrame(
        [("a", 0, 10, *pane) for pane in panes],
        f"{FIRED}, n INT, most INT",
    )
    fired = fired.withColumn("sum", F.expr("CAST(n AS DECIMAL(9, 2))"))
    for aggregates in (
        {"n": ("count", "*"), "most": ("max", "n"), "sum": ("sum", "n")},
        {"n": "count(*)", "most": "MAX(n)", "sum": "sum(n)"},
    ):
        given: Any = aggregates
        merged = current_windows(
            fired.unionByName(fired),
            ["key"],
            accumulation="discarding",
            aggregates=given,
        )
        assert merged.schema.simpleString() == fired.schema.simpleString()
        assert [tuple(row) for row in merged.collect()] == [("a", 0, 10, 2, "late", 20, 7, 9, 7)]


@pytest.mark.parametrize(
    ("keys", "more", "words"),
    [
        (["town"], {}, "fired rows have no column town"),
        (["kay"], {}, 'fired rows have no column kay\n.*"key"'),
        (
            ["key"],
            {"accumulation": "all"},
            'must be one of discarding, accumulating, retracting, not "all"',
        ),
        (
            ["key"],
            {"accumulation": "discarding"},
            "without `aggregates`\n.*Pass the aggregates of the windows",
        ),
        (
            ["key"],
            {"accumulation": "discarding", "aggregates": {"m": "avg(n)"}},
            'aggregate "m" cannot be computed from panes: avg',
        ),
        (
            ["key"],
            {"accumulation": "discarding", "aggregates": {"m": "sum(n)"}},
            "fired rows have no column m",
        ),
    ],
)
def test_windows_that_cannot_be_merged_are_rejected_before_anything_runs(
    spark: SparkSession,
    keys: list[str],
    more: dict[str, Any],
    words: str,
) -> None:
    with pytest.raises(InputError, match=words):
        current_windows(published(spark), keys, **more)


def test_query_fails_if_rows_cannot_be_ordered(spark: SparkSession) -> None:
    # Rules: E49
    rows = published(spark)
    with pytest.raises(
        PySparkException, match='pane; pass all keys in `keys`: .*"window_begin_us":0'
    ):
        current_windows(rows, []).collect()
    rows = rows.where("kind <> 'retraction'")
    with pytest.raises(
        PySparkException, match='no retractions of the older ones; .*"window_begin_us":0'
    ):
        current_windows(rows, ["key"]).collect()
    kept = current_windows(rows, ["key"], accumulation="accumulating").where(
        "key = 'a' AND window_begin_us = 0"
    )
    assert [row["n"] for row in kept.collect()] == [3]
    added = current_windows(rows, ["key"], accumulation="discarding", aggregates={"n": "sum(n)"})
    assert [row["n"] for row in added.where("key = 'a' AND window_begin_us = 0").collect()] == [4]
    twice = added.unionByName(rows.drop("window_id"))
    with pytest.raises(
        PySparkException, match="several different rows were fired for one window and pane"
    ):
        current_windows(
            twice,
            ["key"],
            accumulation="discarding",
            aggregates={"n": "sum(n)"},
        ).collect()
