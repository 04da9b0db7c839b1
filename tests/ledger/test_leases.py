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


def test_overlap_error_names_holder_range_state_and_next_steps(ledger: Ledger) -> None:
    plan(ledger, "first")
    plan(ledger, "second")
    ledger.leases.acquire("first", ["app.out", "app.other"], 100, 199)
    begin(ledger, "first")
    with pytest.raises(OverlapError) as caught:
        ledger.leases.acquire("second", ["app.out"], 199, 250)
    assert caught.value.holder == "first" and caught.value.retryable
    text = str(caught.value)
    assert (
        'windows [199, 250] of table "app.out" overlap [100, 199], which replay "first" has locked'
        in text
    )
    assert "It is running" in text and "rewindow abandon first" in text
    assert [lease.replay_id for lease in ledger.leases.held()] == ["first", "first"]


@pytest.mark.parametrize("wanted", [(50, 100), (199, 250), (150, 150), (50, 250), (100, 199)])
def test_leases_with_one_common_window_overlap(ledger: Ledger, wanted: tuple[int, int]) -> None:
    plan(ledger, "first")
    plan(ledger, "second")
    ledger.leases.acquire("first", ["app.out"], 100, 199)
    with pytest.raises(OverlapError):
        ledger.leases.acquire("second", ["app.out"], *wanted)


def test_leases_of_disjoint_ranges_or_different_tables_do_not_overlap(ledger: Ledger) -> None:
    for name in ("a", "b", "c"):
        plan(ledger, name)
    ledger.leases.acquire("a", ["app.out"], 100, 199)
    ledger.leases.acquire("b", ["app.out"], 200, 299)
    ledger.leases.acquire("c", ["app.other"], 100, 299)
    assert [(lease.table_name, lease.replay_id) for lease in ledger.leases.held()] == [
        ("app.other", "c"),
        ("app.out", "a"),
        ("app.out", "b"),
    ]


def test_lease_is_granted_for_all_tables_or_none(ledger: Ledger) -> None:
    plan(ledger, "a")
    plan(ledger, "b")
    ledger.leases.acquire("a", ["app.z"], 100, 199)
    with pytest.raises(OverlapError):
        ledger.leases.acquire("b", ["app.a", "app.z"], 150, 160)
    assert ledger.leases.held("b") == []


def test_next_attempt_of_the_same_replay_acquires_its_lease(ledger: Ledger) -> None:
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
def test_ended_abandoned_and_released_replays_do_not_block_leases(ledger: Ledger, end: str) -> None:
    plan(ledger, "a")
    plan(ledger, "b")
    ledger.leases.acquire("a", ["app.out"], 100, 199)
    END[end](ledger)
    ledger.leases.acquire("b", ["app.out"], 100, 199)


def test_publication_leases_its_windows_until_it_is_closed(ledger: Ledger) -> None:
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


def test_exactly_one_of_concurrent_overlapping_leases_is_granted(
    ledger: Ledger,
    url: str,
    workers: ProcessPoolExecutor,
) -> None:
    # Rules: R97
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
