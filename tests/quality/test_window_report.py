"""The window report, against what a reader would count by hand."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from rewindow.errors import GateError
from rewindow.loading.measures import Measure
from rewindow.quality import window_table
from rewindow.quality.window_table import Sources, build_report
from rewindow.windows import WindowRange
from tests.quality.staging import StagedReplay


def report_of(staged: StagedReplay, *measures: Measure) -> pa.Table:
    sources = Sources.open(
        staged.config.replay_root(staged.replay_id),
        staged.output,
        staged.config.quarantine_table,
    )
    return build_report(staged.plan, staged.plan.outputs[0], sources, measures)


def column(report: pa.Table, name: str) -> dict[int, Any]:
    """Returns window to value."""
    return dict(zip(report["window_id"].to_pylist(), report[name].to_pylist(), strict=True))


def test_window_report_has_a_row_for_every_window_even_without_output(staged: StagedReplay) -> None:
    staged.rows = [row for row in staged.rows if row["window_id"] != 107]
    staged.facts = [fact for fact in staged.facts if fact["window_id"] != 107]
    report = report_of(staged.write())
    assert report["window_id"].to_pylist() == list(range(100, 120))
    assert [w for w, lost in column(report, "undeclared_lost").items() if lost] == [107]
    assert column(report, "output_rows")[107] == 0
    assert report["starts_at"][0].as_py().isoformat() == "1970-01-05T04:00:00+00:00"


def test_facts_already_in_order_are_not_sorted_again(
    staged: StagedReplay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Sorting a million windows takes longer than reading them.
    in_order = window_table.in_order
    moved = []

    def noted(rows: pa.Table, *names: str) -> pa.Table:
        moved.append(in_order(rows, *names) is not rows)
        return in_order(rows, *names)

    def refused(*_: object) -> None:
        raise AssertionError("facts are sorted")

    monkeypatch.setattr(window_table, "in_order", noted)
    monkeypatch.setattr(np, "lexsort", refused)
    report_of(staged.write())
    assert moved and not any(moved)


def test_sealed_empty_window_is_reported_as_neither_lost_nor_missing(staged: StagedReplay) -> None:
    staged.rows = [row for row in staged.rows if row["window_id"] != 107]
    for fact in staged.facts:
        if fact["window_id"] == 107:
            fact["tuples"] = 0
    staged.seals = [
        {**seal, "tuples": 0 if seal["window_id"] == 107 else 6} for seal in staged.seals
    ]
    staged.seals = [seal for seal in staged.seals if seal["window_id"] != 108]
    report = report_of(staged.write())
    assert sum(column(report, "undeclared_lost").values()) == 0
    assert [w for w, gap in column(report, "gaps").items() if gap] == [107]
    assert [w for w, missing in column(report, "missing_inputs").items() if missing] == [108]


def test_inputs_of_a_lost_window_are_counted_as_lost_and_not_as_processed(
    staged: StagedReplay,
) -> None:
    staged.mode = "at_most_once"
    staged.rows = [row for row in staged.rows if row["window_id"] != 107]
    staged.facts = [
        {**fact, "lost": True, "tuples": 6 if fact["direction"] == "in" else 0}
        if fact["window_id"] == 107
        else fact
        for fact in staged.facts
    ]
    staged.facts += [staged.fact(108, "in", "flights", 5, attempt=2)]
    report = report_of(staged.write())
    given_up = column(report, "lost_tuples")
    processed = column(report, "tuples_in")
    assert (processed[106], given_up[106]) == (6, 0) and (processed[107], given_up[107]) == (0, 6)
    assert processed[108] == 5 and column(report, "unaccounted_tuples")[108] == 1


def test_rows_outside_the_range_are_rejected(staged: StagedReplay) -> None:
    staged.rows.append({**staged.rows[0], "window_id": 120})
    with pytest.raises(GateError, match="1 rows of window 120, which is outside its range"):
        report_of(staged.write())


def test_timers_are_counted_separately(staged: StagedReplay) -> None:
    staged.rows[4]["is_timer"] = True
    report = report_of(staged.write())
    assert column(report, "heartbeats")[101] == 1
    assert column(report, "data_rows")[101] == 2


def test_quarantined_tuples_are_counted_by_reason_and_source(staged: StagedReplay) -> None:
    staged.quarantine = [
        {"window_id": 103, "source": "flights", "reason": "late"},
        {"window_id": 103, "source": "flights", "reason": "arrived_at is null"},
        {"window_id": 103, "source": "weather", "reason": "late"},
        {"window_id": None, "source": "flights", "reason": "malformed"},
    ]
    report = report_of(staged.write())
    assert (column(report, "late")[103], column(report, "quarantined")[103]) == (1, 1)
    assert sum(column(report, "late").values()) == 1


def test_measures_are_null_in_lost_windows_and_defaults_in_empty_windows(
    staged: StagedReplay,
) -> None:
    staged.rows = [row for row in staged.rows if row["window_id"] not in (107, 108)]
    for fact in staged.facts:
        if fact["window_id"] == 107 and fact["direction"] == "out":
            fact["tuples"] = 0
        if fact["window_id"] == 108:
            fact["lost"] = True
    staged.mode = "at_most_once"
    query = (
        "select window_id, count(*) as value from output where origin = 'EWR' group by window_id"
    )
    report = report_of(
        staged.write(),
        Measure("flights", "sum(flights)", empty=0),
        Measure("best", "max(flights)"),
        Measure("newark", query, empty=0, over_rows=True),
    )
    assert [column(report, "flights")[w] for w in (106, 107, 108)] == [6, 0, None]
    assert [column(report, "best")[w] for w in (106, 107, 108)] == [2, None, None]
    assert [column(report, "newark")[w] for w in (106, 107, 108)] == [1, 0, None]


def test_row_measures_use_only_rows_visible_to_readers(staged: StagedReplay) -> None:
    staged.mode = "at_least_once"
    staged.rows += [
        {**row, "attempt": 2, "flights": 5} for row in staged.rows if row["window_id"] == 105
    ]
    staged.facts.append(staged.fact(105, "out", "made", 3, attempt=2))
    query = "select window_id, sum(flights) as value from output group by window_id"
    report = report_of(staged.write(), Measure("flights", query, over_rows=True))
    assert [column(report, "flights")[w] for w in (104, 105, 106)] == [6, 15, 6]
    assert (column(report, "output_rows")[105], column(report, "repeated")[105]) == (3, 3)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (
            Measure("broken", "sum(nowhere)"),
            'measures "broken" of output "made" cannot be computed',
        ),
        (Measure("broken", "select window_id from output", over_rows=True), "cannot be computed"),
        (
            Measure(
                "odd",
                "max(case when window_id = 103 then cast('nan' as double) else 1.5 end)",
            ),
            'measure "odd" of output "made" is not a number in window 103',
        ),
        (
            Measure(
                "odd",
                "select distinct window_id, cast('nan' as double) as value from output",
                over_rows=True,
            ),
            'measure "odd" of output "made" is not a number in window 100',
        ),
        (
            Measure("many", "select window_id, 1 as value from output", over_rows=True),
            "returns several values for a window",
        ),
        (
            Measure("odd", "count(*) filter (where flights > {most})"),
            'uses the value "most", which is not set',
        ),
        (
            Measure(
                "odd",
                "select window_id, 1 as value from weather",
                over_rows=True,
                inputs=("weather",),
            ),
            'refers to input "weather", which does not exist',
        ),
    ],
)
def test_measure_that_cannot_be_computed_is_reported_by_name(
    staged: StagedReplay,
    measure: Measure,
    message: str,
) -> None:
    with pytest.raises(GateError, match=message):
        report_of(staged.write(), measure)


ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 3), st.sampled_from(["EWR", "JFK", None])),
    min_size=0,
    max_size=40,
)
SEALS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.booleans()), max_size=12)


@settings(max_examples=20, deadline=None)
@given(
    rows=ROWS,
    seals=SEALS,
    mode=st.sampled_from(["exactly_once", "at_least_once", "at_most_once"]),
)
def test_window_report_equals_a_naive_count(
    rows: list[tuple[int, int, str | None]],
    seals: list[tuple[int, int, bool]],
    mode: str,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        staged = StagedReplay(Path(folder), mode=mode, windows=WindowRange(0, 4))
        staged.rows = [
            {"window_id": w, "attempt": a, "origin": origin, "flights": 1, "is_timer": False}
            for w, a, origin in rows
        ]
        staged.facts = [
            staged.fact(w, "out", "made", 3, attempt=a, lost=lost) for w, a, lost in seals
        ]
        staged.facts += [staged.fact(w, "in", "flights", 6) for w in range(5)]
        report = report_of(staged.write())
    for window in range(5):
        kept = [a for w, a, lost in seals if w == window and not lost]
        taken = max(kept, default=None)
        mine = [origin for w, a, origin in rows if w == window and a == taken]
        all_rows = sum(w == window for w, _, _ in rows)
        declared = taken is None and any(w == window and lost for w, _, lost in seals)
        assert column(report, "output_rows")[window] == len(mine)
        assert column(report, "repeated")[window] == (0 if taken is None else all_rows - len(mine))
        assert column(report, "null_keys")[window] == mine.count(None)
        assert column(report, "repeated_keys")[window] == sum(
            count - 1 for count in Counter(mine).values()
        )
        assert column(report, "lost")[window] == int(declared)
        assert column(report, "undeclared_lost")[window] == int(
            taken is None and not (declared and mode == "at_most_once")
        )
        assert column(report, "attempts")[window] == len({a for w, a, _ in seals if w == window})


def test_report_counts_error_tuples_of_the_newest_seal_only(staged: StagedReplay) -> None:
    for window, tuples, attempt in ((101, 3, 1), (101, 4, 2), (102, 5, 1), (103, 2, 1)):
        staged.facts.append(
            staged.fact(window, "error", "made.rejected", tuples, attempt, lost=window == 102)
        )
    found = column(report_of(staged.write()), "error_tuples")
    assert {window: tuples for window, tuples in found.items() if tuples} == {101: 4, 103: 2}


def test_row_measure_compares_with_an_input_only_if_both_are_sealed(staged: StagedReplay) -> None:
    staged.inputs = ["raw.flights"]
    staged.mode = "at_most_once"
    staged.seals = [{"window_id": w, "tuples": 6, "stream": "raw.flights"} for w in staged.windows]
    staged.facts = [
        {**fact, "port": "raw.flights"} if fact["direction"] == "in" else fact
        for fact in staged.facts
    ]
    staged.facts = [{**fact, "lost": fact["window_id"] == 103} for fact in staged.facts]
    staged.rows = [row for row in staged.rows if row["window_id"] != 103]
    recorded = [{"window_id": w, "origin": "EWR", "seats": w} for w in (99, 102, 103, 104, 104)]
    write_deltalake(str(staged.config.stream_table("raw.flights")), pa.Table.from_pylist(recorded))
    query = (
        "select window_id, sum(seats) as value from raw_flights where seats >= {least} group "
        "by window_id"
    )
    measure = Measure("seats", query, empty=0, over_rows=True, inputs=("raw_flights",))
    staged.suite_parameters = {"least": 100}
    found = column(report_of(staged.write(), measure), "seats")
    assert [found[w] for w in (101, 102, 103, 104)] == [0, 102, None, 208]


def test_row_measure_of_an_output_without_rows_is_computed(staged: StagedReplay) -> None:
    staged.rows.clear()
    for fact in staged.facts:
        fact["tuples"] = 0 if fact["direction"] == "out" else fact["tuples"]
    staged.write()
    missing = Measure("missing", "select 105 as window_id, 1 as value", 0, over_rows=True)
    found = column(report_of(staged, missing), "missing")
    assert {window for window, value in found.items() if value} == {105}
