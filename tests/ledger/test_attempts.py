"""Attempts: epochs, the fence on every write, and the count of failures (R89 to R91)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewindow.errors import FencedError
from rewindow.ledger import AttemptEnd, Ledger, PortCount, Replay, ReplayState
from tests.ledger.life import WORKERS, begin, plan, results
from tests.ledger.workers import report_until_fenced, take_epochs


def test_epochs_of_concurrent_processes_are_unique_and_increasing(
    ledger: Ledger,
    url: str,
    replay: Replay,
    workers: ProcessPoolExecutor,
) -> None:
    jobs = [workers.submit(take_epochs, url, "r", 15) for _ in range(WORKERS)]
    taken = results(jobs)
    assert all(epochs == sorted(epochs) for epochs in taken)
    assert sorted(epoch for epochs in taken for epoch in epochs) == list(range(1, 15 * WORKERS + 1))


WRITES: dict[str, Callable[[Ledger, int], object]] = {
    "begin": lambda ledger, epoch: ledger.attempts.begin("r", epoch, "zombie", 1, 1, 1.0),
    "report": lambda ledger, epoch: ledger.attempts.report_progress(
        "r",
        epoch,
        99,
        99,
        {},
        [PortCount("out", "o", 1, 9, 1)],
    ),
    "warm up": lambda ledger, epoch: ledger.attempts.report_warm_up("r", epoch),
    "end": lambda ledger, epoch: ledger.attempts.end("r", epoch, "done"),
}


@pytest.mark.parametrize("write", WRITES)
def test_write_by_an_older_attempt_is_rejected(ledger: Ledger, replay: Replay, write: str) -> None:
    old = begin(ledger, "r")
    new = begin(ledger, "r")
    before = (ledger.replays.get("r"), ledger.attempts.of("r"), ledger.counts.index("r"))
    with pytest.raises(
        FencedError,
        match=f"attempt {old} .* is no longer the newest one, which is {new}",
    ) as caught:
        WRITES[write](ledger, old)
    assert not caught.value.retryable
    assert caught.value.detail == "It stops; windows that it had committed are kept."
    assert (ledger.replays.get("r"), ledger.attempts.of("r"), ledger.counts.index("r")) == before


def test_report_is_never_recorded_after_a_newer_epoch(
    ledger: Ledger,
    url: str,
    replay: Replay,
    workers: ProcessPoolExecutor,
) -> None:
    jobs = [workers.submit(report_until_fenced, url, "r", 8) for _ in range(WORKERS)]
    while not all(job.done() for job in jobs):
        now = ledger.replays.get("r")
        assert now.mark // 1000 <= now.epoch
    assert sorted(epoch for epochs in results(jobs) for epoch in epochs) == list(
        range(1, 8 * WORKERS + 1)
    )
    reported = [
        (attempt.epoch, attempt.mark) for attempt in ledger.attempts.of("r") if attempt.mark
    ]
    assert all(mark // 1000 == epoch for epoch, mark in reported)
    assert ledger.replays.get("r").mark == reported[-1][1]


def test_attempt_stores_host_process_group_and_identity_unchanged(
    ledger: Ledger,
    replay: Replay,
) -> None:
    # They are compared with the running process before a kill.
    ledger.attempts.begin("r", ledger.attempts.next_epoch("r"), "box", 77, 76, "boot/4711")
    last = ledger.attempts.last("r")
    assert last is not None and last.outcome is None
    assert (last.host, last.pid, last.process_group, last.process_identity) == (
        "box",
        77,
        76,
        "boot/4711",
    )
    assert ledger.replays.get("r").state is ReplayState.RUNNING


@pytest.mark.parametrize(
    ("outcome", "state"),
    [("done", "ended"), ("failed", "failed"), ("killed", "failed"), ("interrupted", "failed")],
)
def test_attempt_end_sets_the_state_once_and_releases_the_windows(
    ledger: Ledger,
    replay: Replay,
    outcome: str,
    state: str,
) -> None:
    ledger.leases.acquire("r", ["app.out"], 100, 199)
    epoch = begin(ledger, "r")
    ledger.attempts.end("r", epoch, outcome, "so it went")
    ledger.attempts.end("r", epoch, "killed", "said the launcher, later")
    now = ledger.replays.get("r")
    assert (now.state, now.message, now.mark) == (
        state,
        "so it went",
        100 if outcome == "done" else 0,
    )
    assert ledger.leases.held() == []
    assert [(a.outcome, a.message) for a in ledger.attempts.of("r")] == [(outcome, "so it went")]


def test_repeated_progress_report_changes_nothing(ledger: Ledger, replay: Replay) -> None:
    epoch = begin(ledger, "r")
    for _ in range(2):
        ledger.attempts.report_progress(
            "r",
            epoch,
            10,
            10,
            {"write": 0.5},
            [PortCount("out", "o", 100, 109, 42)],
        )
    assert [(part.first, part.last, part.tuples) for part in ledger.counts.index("r")] == [
        (100, 109, 42)
    ]
    assert [(timing.mark, timing.timings) for timing in ledger.attempts.timings("r")] == [
        (10, {"write": 0.5})
    ]


def test_timings_are_returned_newest_first_up_to_the_limit(ledger: Ledger, replay: Replay) -> None:
    for _ in range(2):
        epoch = begin(ledger, "r")
        for mark in (10, 20, 30):
            ledger.attempts.report_progress("r", epoch, mark, None, {"compute": mark / 10})
    assert [(t.epoch, t.mark) for t in ledger.attempts.timings("r", limit=4)] == [
        (2, 30),
        (2, 20),
        (2, 10),
        (1, 30),
    ]


def test_failures_are_counted_from_the_newest_checkpoint(ledger: Ledger, replay: Replay) -> None:
    # Rules: R90
    def fail(*checkpoints: int) -> int:
        epoch = begin(ledger, "r")
        for mark in checkpoints:
            ledger.attempts.report_progress("r", epoch, mark, mark)
        ledger.attempts.end("r", epoch, "failed")
        return ledger.attempts.since_checkpoint("r")

    assert [fail(), fail(), fail()] == [1, 2, 3]
    assert fail(10) == 1
    assert fail(10) == 2
    assert fail(20, 30) == 1


def test_attempt_without_a_reported_end_is_a_failure_once_the_next_epoch_starts(
    ledger: Ledger,
    replay: Replay,
) -> None:
    begin(ledger, "r")
    assert ledger.attempts.since_checkpoint("r") == 0
    epoch = begin(ledger, "r")
    assert ledger.attempts.since_checkpoint("r") == 1
    assert [a.outcome for a in ledger.attempts.of("r")] == [AttemptEnd.LOST, None]
    ledger.attempts.end("r", epoch, "interrupted")
    assert ledger.attempts.since_checkpoint("r") == 1


_ENDS = st.sampled_from(["failed", "killed", "interrupted", "lost"])
_ATTEMPT = st.tuples(st.lists(st.integers(1, 60), max_size=4), _ENDS)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(history=st.lists(_ATTEMPT, max_size=6))
def test_failures_equal_a_naive_count(
    sqlite_url: str,
    history: list[tuple[list[int], str]],
) -> None:
    # Rules: R90
    ledger = Ledger.open(sqlite_url)
    replay_id = f"r{len(ledger.replays.newest(limit=1000))}"
    plan(ledger, replay_id)
    newest = count = 0
    for marks, end in history:
        epoch = begin(ledger, replay_id)
        for mark in sorted(set(marks)):
            ledger.attempts.report_progress(replay_id, epoch, mark, mark)
            if mark > newest:
                newest = mark
                count = 0
        if end != "lost":
            ledger.attempts.end(replay_id, epoch, end)
        count += end != "interrupted"
    ledger.attempts.next_epoch(replay_id)
    assert ledger.attempts.since_checkpoint(replay_id) == count
    ledger.close()
