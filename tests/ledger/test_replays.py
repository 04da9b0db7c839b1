"""Replays: one plan per id, states, and what may follow on what."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pytest

from rewindow.application import Mode
from rewindow.errors import FencedError, InputError, OverlapError, RangeError
from rewindow.ledger import Ledger, Replay, ReplayState
from rewindow.recovery import Plan, StartState
from tests.ledger.life import WORKERS, begin, plan, results, run_to_end
from tests.ledger.workers import create_at_once


def test_create_returns_the_existing_replay_for_an_identical_plan(
    ledger: Ledger,
    replay: Replay,
) -> None:
    epoch = begin(ledger, "r")
    again = plan(ledger, "r")
    assert (again.state, again.epoch, again.created_at) == (
        ReplayState.RUNNING,
        epoch,
        replay.created_at,
    )


def test_create_rejects_a_different_plan_and_reports_the_difference(
    ledger: Ledger,
    replay: Replay,
) -> None:
    with pytest.raises(InputError, match="last is 199 in the ledger and 198 now"):
        plan(ledger, "r", last=198)
    differences = (
        'plan.replay_id is "r" in the ledger and "s" now; '
        "plan.groups is null in the ledger and 7 now"
    )
    with pytest.raises(InputError, match=differences) as caught:
        ledger.replays.create(
            "r",
            "app",
            100,
            199,
            "exactly_once",
            {"groups": 7, "replay_id": "s"},
            "v1",
        )
    assert caught.value.exit_code == 2


def test_create_rejects_an_empty_range(ledger: Ledger) -> None:
    with pytest.raises(RangeError, match="window range is empty"):
        plan(ledger, "r", 10, 9)


def test_concurrent_creation_stores_exactly_one_plan(
    ledger: Ledger,
    url: str,
    workers: ProcessPoolExecutor,
) -> None:
    rounds = 12
    jobs = [
        workers.submit(
            create_at_once,
            url,
            [{"from": worker % (1 + number % 2)} for number in range(rounds)],
        )
        for worker in range(WORKERS)
    ]
    taken = [sum(outcome) for outcome in zip(*results(jobs), strict=True)]
    assert taken == [WORKERS, WORKERS // 2] * (rounds // 2)


def test_replays_are_listed_newest_first_and_filtered_by_application_and_state(
    ledger: Ledger,
) -> None:
    for name in ("a", "b", "c"):
        plan(ledger, name)
    ledger.replays.create("other", "other_app", 1, 2, "at_least_once", {}, "v1")
    begin(ledger, "b")
    assert [row.replay_id for row in ledger.replays.newest("app")] == ["c", "b", "a"]
    assert [row.replay_id for row in ledger.replays.newest(state="running")] == ["b"]
    assert [
        row.replay_id
        for row in ledger.replays.newest(state=[ReplayState.PLANNED, ReplayState.RUNNING], limit=2)
    ] == [
        "other",
        "c",
    ]
    assert ledger.replays.find("nobody") is None
    with pytest.raises(InputError, match='replay "nobody" is unknown'):
        ledger.replays.get("nobody")


def _published(ledger: Ledger) -> None:
    run_to_end(ledger, "r")
    publication = ledger.publications.open("r", {"app.out": 0}, 100, 199)
    ledger.publications.mark_done(publication.number, "app.out", 1)
    ledger.publications.close(publication.number)


def _undone(ledger: Ledger) -> None:
    _published(ledger)
    publication = ledger.publications.open_undo(1, {"app.out": 1})
    ledger.publications.mark_done(publication.number, "app.out", 2)
    ledger.publications.close(publication.number)


def _failed(ledger: Ledger) -> None:
    ledger.attempts.end("r", begin(ledger, "r"), "failed")


REACH: dict[ReplayState, Callable[[Ledger], object]] = {
    ReplayState.PLANNED: lambda ledger: None,
    ReplayState.RUNNING: lambda ledger: begin(ledger, "r"),
    ReplayState.FAILED: _failed,
    ReplayState.ENDED: lambda ledger: run_to_end(ledger, "r", passed=False),
    ReplayState.CHECKED: lambda ledger: run_to_end(ledger, "r"),
    ReplayState.PUBLISHED: _published,
    ReplayState.UNDONE: _undone,
    ReplayState.ABANDONED: lambda ledger: ledger.replays.abandon("r"),
}
ACTS: dict[str, Callable[[Ledger], object]] = {
    "next_epoch": lambda ledger: ledger.attempts.next_epoch("r"),
    "check": lambda ledger: ledger.checks.record("r", "passed"),
    "accept": lambda ledger: ledger.checks.accept("r", "it is known", "me"),
    "publish": lambda ledger: ledger.publications.open("r", {"app.out": 0}, 100, 199),
    "abandon": lambda ledger: ledger.replays.abandon("r"),
}
ALLOWED = {
    ReplayState.PLANNED: {"next_epoch", "abandon"},
    ReplayState.RUNNING: {"next_epoch", "abandon"},
    ReplayState.FAILED: {"next_epoch", "abandon"},
    ReplayState.ENDED: {"check", "accept", "abandon"},
    ReplayState.CHECKED: {"check", "accept", "publish", "abandon"},
    ReplayState.PUBLISHED: {"check", "accept", "publish"},
    ReplayState.UNDONE: {"check", "accept", "publish", "abandon"},
    ReplayState.ABANDONED: {"abandon"},
}


@pytest.mark.parametrize("state", list(ReplayState))
def test_each_replay_state_allows_exactly_the_listed_actions(
    sqlite_url: str, state: ReplayState
) -> None:
    allowed = set()
    plain = Ledger.open(sqlite_url)
    plan(plain, "r")
    REACH[state](plain)
    plain.close()
    for name, act in ACTS.items():
        shutil.copyfile(
            sqlite_url.removeprefix("sqlite:///"),
            f"{sqlite_url}.{name}".removeprefix("sqlite:///"),
        )
        ledger = Ledger.open(f"{sqlite_url}.{name}")
        assert ledger.replays.get("r").state is state
        try:
            act(ledger)
            allowed.add(name)
        except InputError:
            assert ledger.replays.get("r").state is state
    assert allowed == ALLOWED[state]


def test_failed_check_prevents_publication_until_accepted(
    ledger: Ledger,
    replay: Replay,
) -> None:
    run_to_end(ledger, "r")
    ledger.checks.record("r", "failed", "/results/2", {"failed": 3}, epoch=1)
    assert ledger.replays.get("r").state is ReplayState.ENDED
    ledger.checks.accept("r", "late flights are known", "me")
    assert ledger.replays.get("r").state is ReplayState.CHECKED
    newest, oldest = ledger.checks.newest("r")
    assert (newest.verdict, newest.results, newest.summary, newest.epoch) == (
        "failed",
        "/results/2",
        {"failed": 3},
        1,
    )
    assert oldest.verdict == "passed"
    assert [(row.reason, row.who) for row in ledger.checks.acceptances("r")] == [
        ("late flights are known", "me")
    ]
    with pytest.raises(InputError, match="needs a reason") as caught:
        ledger.checks.accept("r", "  ", "me")
    assert 'rewindow publish r --accept "' in caught.value.hint


def test_dags_and_newest_verdicts_of_many_replays_are_read_at_once(ledger: Ledger) -> None:
    for name, dag in (("daily", "replay_daily"), ("by-hand", ""), ("unchecked", None)):
        values = {"replay_id": name} if dag is None else {"replay_id": name, "dag": dag}
        ledger.replays.create(name, "app", 100, 199, "exactly_once", values, "1")
    for name in ("daily", "by-hand"):
        run_to_end(ledger, name)
    ledger.checks.record("daily", "failed")
    names = ["daily", "by-hand", "unchecked", "unknown"]
    assert ledger.replays.dags(names) == {"daily": "replay_daily", "by-hand": "", "unchecked": ""}
    assert ledger.checks.verdicts(names) == {"daily": "failed", "by-hand": "passed"}


def test_abandon_fences_the_attempt_and_releases_the_leases(ledger: Ledger, replay: Replay) -> None:
    ledger.leases.acquire("r", ["app.out"], 100, 199)
    epoch = begin(ledger, "r")
    ledger.replays.abandon("r", "wrong code")
    assert ledger.leases.held() == [] and ledger.replays.get("r").message == "wrong code"
    with pytest.raises(FencedError, match="The replay was abandoned"):
        ledger.attempts.report_progress("r", epoch, 5)
    with pytest.raises(InputError, match="abandoned"):
        ledger.leases.acquire("r", ["app.out"], 100, 199)


def test_abandon_waits_for_an_open_publication(ledger: Ledger, replay: Replay) -> None:
    run_to_end(ledger, "r")
    ledger.publications.open("r", {"app.out": 0}, 100, 199)
    with pytest.raises(OverlapError, match="publication 1 is open"):
        ledger.replays.abandon("r")


def test_stored_plan_is_read_unchanged_or_rejected_by_name(ledger: Ledger) -> None:
    made = whole_plan("whole")
    ledger.replays.create(
        "whole",
        "app",
        100,
        119,
        "exactly_once",
        made.model_dump(mode="json"),
        "v1",
    )
    assert ledger.replays.get("whole").read_plan() == made
    newer = {**made.model_dump(mode="json"), "of_a_later_version": 1}
    ledger.replays.create("newer", "app", 100, 119, "exactly_once", newer, "v1")
    with pytest.raises(InputError, match='the plan of replay "newer" cannot be read') as caught:
        ledger.replays.get("newer").read_plan()
    assert "of_a_later_version" in caught.value.detail


def whole_plan(replay_id: str) -> Plan:
    return Plan(
        replay_id=replay_id,
        application="app",
        code_version="v1",
        configuration_digest="c",
        first=100,
        last=119,
        width_ms=3_600_000,
        origin_ms=0,
        mode=Mode.EXACTLY_ONCE,
        checkpoint_windows=5,
        inputs=[],
        outputs=[],
        start=StartState(source="initial"),
    )
