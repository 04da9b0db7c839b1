"""Leases: two replays never work on the same windows of a published table at once (R97)."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from rewindow.errors import OverlapError
from rewindow.ledger import Ledger
from tests.ledger.life import WORKERS, begin, plan, results, run_to_end
from tests.ledger.workers import acquire_at_once


def test_overlap_names_the_holder_its_range_and_the_way_on(ledger: Ledger) -> None:
    """A replay that comes second learns who is in the way, in which state, and what to do."""
    plan(ledger, "first")
    plan(ledger, "second")
    ledger.leases.acquire("first", ["app.out", "app.other"], 100, 199)
    begin(ledger, "first")
    with pytest.raises(OverlapError) as caught:
        ledger.leases.acquire("second", ["app.out"], 199, 250)
    assert caught.value.holder == "first" and caught.value.retryable
    text = str(caught.value)
    assert 'windows [199, 250] of table "app.out" overlap [100, 199], which replay "first" holds' in text
    assert "It is running" in text and "rewindow abandon first" in text
    assert [lease.replay_id for lease in ledger.leases.held()] == ["first", "first"]


@pytest.mark.parametrize("wanted", [(50, 100), (199, 250), (150, 150), (50, 250), (100, 199)])
def test_one_window_in_common_is_an_overlap(ledger: Ledger, wanted: tuple[int, int]) -> None:
    """Ranges are closed: a single window at either end, inside, around or all of it is refused."""
    plan(ledger, "first")
    plan(ledger, "second")
    ledger.leases.acquire("first", ["app.out"], 100, 199)
    with pytest.raises(OverlapError):
        ledger.leases.acquire("second", ["app.out"], *wanted)


def test_disjoint_ranges_and_other_tables_stand_side_by_side(ledger: Ledger) -> None:
    """Ranges that only touch are no overlap, nor are equal ranges of different tables."""
    for name in ("a", "b", "c"):
        plan(ledger, name)
    ledger.leases.acquire("a", ["app.out"], 100, 199)
    ledger.leases.acquire("b", ["app.out"], 200, 299)
    ledger.leases.acquire("c", ["app.other"], 100, 299)
    assert [(lease.table_name, lease.replay_id) for lease in ledger.leases.held()] == [
        ("app.other", "c"), ("app.out", "a"), ("app.out", "b"),
    ]  # fmt: skip


def test_lease_is_for_all_tables_or_none(ledger: Ledger) -> None:
    """A replay that cannot have one of its tables gets none."""
    plan(ledger, "a")
    plan(ledger, "b")
    ledger.leases.acquire("a", ["app.z"], 100, 199)
    with pytest.raises(OverlapError):
        ledger.leases.acquire("b", ["app.a", "app.z"], 150, 160)
    assert ledger.leases.held("b") == []


def test_next_attempt_takes_the_lease_over(ledger: Ledger) -> None:
    """The holder is the replay: its next attempt gets what the killed one had, and nobody else does."""
    plan(ledger, "a")
    plan(ledger, "b")
    ledger.leases.acquire("a", ["app.out"], 100, 199)
    begin(ledger, "a")
    ledger.leases.acquire("a", ["app.out"], 100, 199)
    begin(ledger, "a")
    with pytest.raises(OverlapError):
        ledger.leases.acquire("b", ["app.out"], 100, 199)


END: dict[str, Callable[[Ledger], object]] = {
    "ended": lambda ledger: run_to_end(ledger, "a"),
    "abandoned": lambda ledger: ledger.replays.abandon("a"),
    "released": lambda ledger: ledger.leases.release("a"),
}


@pytest.mark.parametrize("end", END)
def test_replay_that_works_no_more_does_not_block(ledger: Ledger, end: str) -> None:
    """Ended, abandoned and released replays leave their windows to others."""
    plan(ledger, "a")
    plan(ledger, "b")
    ledger.leases.acquire("a", ["app.out"], 100, 199)
    END[end](ledger)
    ledger.leases.acquire("b", ["app.out"], 100, 199)


def test_publishing_holds_the_windows_too(ledger: Ledger) -> None:
    """A replay that has ended takes its windows again to publish them; closing the publication frees them."""
    plan(ledger, "a")
    plan(ledger, "b")
    run_to_end(ledger, "a")
    ledger.leases.acquire("a", ["app.out"], 100, 199)
    with pytest.raises(OverlapError, match="It is checked, and being published"):
        ledger.leases.acquire("b", ["app.out"], 100, 199)
    number = ledger.publications.open("a", {"app.out": 0}, 100, 199).number
    ledger.publications.mark_done(number, "app.out", 1)
    ledger.publications.close(number)
    ledger.leases.acquire("b", ["app.out"], 100, 199)


def test_of_overlapping_leases_asked_for_at_once_exactly_one_is_granted(
    ledger: Ledger, url: str, workers: ProcessPoolExecutor
) -> None:
    """Four processes ask for ranges that all hold window 500, many times over: one gets it, the others learn who."""
    rounds = 30
    numbers = random.Random(7)
    jobs = []
    for worker in range(WORKERS):
        plan(ledger, f"w{worker}")
        ranges = [(500 - numbers.randrange(50), 500 + numbers.randrange(50)) for _ in range(rounds)]
        jobs.append(workers.submit(acquire_at_once, url, f"w{worker}", ranges))
    for number, holders in enumerate(zip(*results(jobs), strict=True)):
        winners = [f"w{worker}" for worker, holder in enumerate(holders) if holder is None]
        assert len(winners) == 1, (number, holders)
        assert {holder for holder in holders if holder} == set(winners)
