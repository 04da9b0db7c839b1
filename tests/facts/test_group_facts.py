"""The fact rows of a group: which windows get one, what it says, and that a million windows are
columns.
"""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rewindow.application import Output, PortHandle
from rewindow.errors import TableError
from rewindow.facts.group_facts import GroupFacts, check_input_counts
from rewindow.facts.window_facts import COUNTS_SCHEMA, DIGESTS_SCHEMA, WindowFacts
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.windows import WindowRange

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
OUT = Output("sums", PortHandle("sum", "out"), (), None)


def counts(tuples: dict[int, int]) -> WindowFacts:
    return WindowFacts.of(pa.table([list(tuples), list(tuples.values())], schema=COUNTS_SCHEMA))


def seals(*rows: tuple[int, int, str, str | None, int]) -> WindowFacts:
    """Returns seals from window, tuples, digest, float digest and attempt."""
    schema = pa.schema([*DIGESTS_SCHEMA, ("attempt", pa.int64())])
    return WindowFacts.of(pa.table(list(zip(*rows, strict=True)), schema=schema), schema)


def rows_of(facts: GroupFacts, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(facts.table()[name].to_pylist() for name in names), strict=True))


@pytest.fixture
def facts() -> GroupFacts:
    """Facts of windows 10 to 14, of which 10 has its rows already."""
    return GroupFacts(WindowRange(10, 14), attempt=3, began_at=BEGAN, above=10)


@pytest.mark.parametrize("tuples", [{10: 2, 12: 4}, {10: 2}, {10: 2, 11: 1, 12: 3}])
def test_first_window_with_a_tuple_count_unlike_its_seal_is_reported(
    tuples: dict[int, int],
) -> None:
    # Rules: R58
    sealed = {10: 2, 11: 0, 12: 3}
    wrong = next(window for window in sealed if tuples.get(window, 0) != sealed[window])
    words = f'window {wrong} of stream "clicks" has {tuples.get(wrong, 0)} tuples, but'
    with pytest.raises(TableError, match=f"{words} {sealed[wrong]} were sealed"):
        check_input_counts("clicks", counts(tuples), counts(sealed))
    check_input_counts("clicks", counts({10: 2, 12: 3, 13: 9}), counts(sealed))


def test_input_facts_have_a_row_for_every_new_window(facts: GroupFacts) -> None:
    # Rules: O65
    facts.add_input("clicks", counts({14: 2, 10: 9, 11: 1, 15: 7, 3: 1}))
    facts.add_dropped("split.rest", WindowFacts.empty(), lost=True)
    found = rows_of(facts, "window_id", "direction", "port", "tuples", "attempt", "lost", "digest")
    assert found == [
        *[
            (window, "in", "clicks", tuples, 3, False, None)
            for window, tuples in ((11, 1), (12, 0), (13, 0), (14, 2))
        ],
        *[(window, "dropped", "split.rest", 0, 3, True, None) for window in range(11, 15)],
    ]
    assert set(rows_of(facts, "group_first", "group_last", "began_at")) == {(10, 14, BEGAN)}
    assert facts.table().schema == FACTS_SCHEMA and facts.table()["ended_at"].null_count == 0


def test_seal_contains_its_attempt_and_unsealed_windows_have_no_row(facts: GroupFacts) -> None:
    # Rules: R15
    facts.add_output(
        OUT,
        seals(*((w, w, f"d{w}", "f" if w == 12 else None, w - 10) for w in (13, 12, 10))),
    )
    facts.add_lost(OUT, WindowRange(9, 11))
    found = rows_of(
        facts,
        "window_id",
        "direction",
        "tuples",
        "digest",
        "float_digest",
        "attempt",
        "lost",
    )
    assert found == [
        (12, "out", 12, "d12", "f", 2, False),
        (13, "out", 13, "d13", None, 3, False),
        (11, "out", 0, None, None, 3, True),
    ]


def test_skip_can_record_losses_of_windows_before_the_group(facts: GroupFacts) -> None:
    # Rules: X2, X3
    facts.add_skip("sum", np.array([4, 5]), counts({9: 6, 8: 1}))
    found = rows_of(facts, "window_id", "direction", "port", "tuples", "lost")
    lacking = [(window, "state", "sum", 0, True) for window in (4, 5)]
    assert found == [*lacking, (8, "skipped", "sum", 1, True), (9, "skipped", "sum", 6, True)]


def test_recomputed_windows_do_not_add_fact_rows() -> None:
    # Exactly once recomputes windows that have their rows already.
    facts = GroupFacts(WindowRange(10, 14), attempt=3, began_at=BEGAN, above=20)
    facts.add_input("clicks", counts({12: 1}))
    facts.add_output(OUT, seals((12, 1, "d", None, 1)))
    assert facts.table().num_rows == 0 and facts.table().schema == FACTS_SCHEMA


def test_window_facts_are_built_by_column() -> None:
    # Python objects would need some 800 bytes a row, several gigabytes for a million windows.
    facts = GroupFacts(WindowRange(1, 50_000), attempt=1, began_at=BEGAN, above=0)
    found = counts(dict.fromkeys(range(1, 50_001), 1))
    tracemalloc.start()
    for port in ("a", "b", "c"):
        facts.add_input(port, found)
    assert facts.table().num_rows == 150_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 150_000, peak
