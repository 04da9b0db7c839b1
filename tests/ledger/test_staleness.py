"""Stale ranges: marks and clearings of any overlap, against a set of windows."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewindow.ledger import Ledger


def test_clearing_the_middle_of_a_stale_range_leaves_both_ends_stale(ledger: Ledger) -> None:
    ledger.stale.add("app", "app.out", 100, 199, since=4)
    ledger.stale.add("other", "other.out", 1, 2, since=5)
    ledger.stale.clear("app", "app.out", 120, 129)
    assert [(r.table_name, r.first, r.last, r.since) for r in ledger.stale.ranges("app")] == [
        ("app.out", 100, 119, 4),
        ("app.out", 130, 199, 4),
    ]
    assert len(ledger.stale.ranges()) == 3


_RANGE = st.tuples(st.integers(0, 30), st.integers(0, 12)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(acts=st.lists(st.tuples(st.booleans(), _RANGE), max_size=8))
def test_stale_windows_equal_a_naive_set(
    sqlite_url: str,
    acts: list[tuple[bool, tuple[int, int]]],
) -> None:
    ledger = Ledger.open(sqlite_url)
    ledger.stale.clear("app", "out", 0, 100)
    naive: dict[int, int] = {}
    for number, (marks, (first, last)) in enumerate(acts):
        for window in range(first, last + 1):
            naive.pop(window, None)
        if marks:
            ledger.stale.add("app", "out", first, last, since=number)
            naive |= dict.fromkeys(range(first, last + 1), number)
        else:
            ledger.stale.clear("app", "out", first, last)
    found = [
        (w, row.since) for row in ledger.stale.ranges("app") for w in range(row.first, row.last + 1)
    ]
    assert found == sorted(naive.items())
    ledger.close()
