"""Publications: numbers that rise, one publisher a table, and the same end wherever a publisher was
killed.
"""

from __future__ import annotations

import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from rewindow.errors import InputError, OverlapError
from rewindow.ledger import Ledger, ReplayState
from rewindow.ledger.publication_details import PublicationDetails
from rewindow.ledger.publication_rows import effective_publications
from tests.ledger.life import WORKERS, newest_over, plan, results, run_to_end
from tests.ledger.workers import (
    ACTS,
    TABLES,
    FakeTables,
    act_until_killed,
    finish,
    hold_publishing,
    open_publications_at_once,
    publish,
    publish_often,
    undo,
)

STEPS = [
    "locked",
    "leased",
    "opened",
    "committed 0",
    "marked 0",
    "committed 1",
    "marked 1",
    "stale",
    "closed",
]
STEPS += ["unlocked"]


@pytest.fixture
def tables(tmp_path: Path) -> FakeTables:
    return FakeTables(tmp_path)


def checked(ledger: Ledger, *replay_ids: str, first: int = 100, last: int = 199) -> None:
    for replay_id in replay_ids:
        plan(ledger, replay_id, first, last)
        run_to_end(ledger, replay_id)


def nothing(step: str) -> None:
    pass


def test_publication_writes_its_number_to_each_table_and_releases_the_lease(
    ledger: Ledger,
    tables: FakeTables,
) -> None:
    checked(ledger, "r")
    publish(ledger, tables, "r", nothing)
    (publication,) = ledger.publications.newest("r")
    assert [(t.name, t.version_before, t.version_after, t.done) for t in publication.tables] == [
        ("app.out", 0, 1, True),
        ("app.checkpoints", 0, 1, True),
    ]
    assert publication.closed_at is not None and publication.kind == "publish"
    assert tables.versions("app.out")[-1]["metadata"] == {
        "publication": 1,
        "replay": "r",
        "kind": "publish",
        "first": 100,
        "last": 199,
        "undoes": None,
        "details": {"application": "r"},
        "versions_before": {"app.out": 0, "app.checkpoints": 0},
    }
    assert ledger.replays.get("r").state is ReplayState.PUBLISHED and ledger.leases.held() == []


def test_undo_restores_the_previous_versions_under_a_new_number(
    ledger: Ledger,
    tables: FakeTables,
) -> None:
    checked(ledger, "a", "b")
    publish(ledger, tables, "a", nothing)
    publish(ledger, tables, "b", nothing)
    undo(ledger, tables, "b", nothing)
    assert [v["content"] for v in tables.versions("app.out")] == ["nothing", "a", "b", "a"]
    newest = newest_over(ledger, "app.out", 150, 150)
    assert newest is not None and newest.replay_id == "a"
    assert [
        (p.number, p.kind, p.undoes) for p in ledger.publications.newest(application="app")
    ] == [
        (3, "undo", 2),
        (2, "publish", None),
        (1, "publish", None),
    ]
    assert ledger.replays.get("b").state is ReplayState.UNDONE
    publish(ledger, tables, "b", nothing)
    assert ledger.replays.get("b").state is ReplayState.PUBLISHED


def test_undo_reverts_all_publications_of_the_replay(ledger: Ledger, tables: FakeTables) -> None:
    checked(ledger, "r", "over")
    for name in ("r", "over", "r"):
        publish(ledger, tables, name, nothing)
    undo(ledger, tables, "r", nothing)
    assert ledger.replays.get("r").state is ReplayState.UNDONE
    newest = newest_over(ledger, "app.out", 100, 199)
    assert newest is not None and newest.replay_id == "over"
    undo(ledger, tables, "over", nothing)
    assert newest_over(ledger, "app.out", 100, 199) is None
    assert effective_publications(ledger.publications.newest()) == []
    publish(ledger, tables, "r", nothing)
    assert [act.number for act in effective_publications(ledger.publications.newest())] == [6]


def test_withdrawal_cancels_an_open_publication_or_undo_and_keeps_the_replay(
    ledger: Ledger,
) -> None:
    checked(ledger, "r")
    tables = {"app.out": 0, "app.x": 0}
    first = ledger.publications.open("r", tables, 100, 199)
    ledger.publications.mark_done(first.number, "app.out", 1)
    with pytest.raises(InputError, match="to withdraw it, add --withdraw"):
        ledger.publications.withdraw(first.number, "no")
    withdrawal = ledger.publications.open_withdrawal(first.number, "damaged", {"app.out": 1})
    assert (withdrawal.kind, withdrawal.undoes, withdrawal.details.reason) == (
        "withdraw",
        1,
        "damaged",
    )
    assert ledger.publications.unfinished() == [withdrawal]
    with pytest.raises(InputError, match="is closed and cannot be withdrawn"):
        ledger.publications.open_withdrawal(first.number, "again", {"app.out": 1})
    with pytest.raises(InputError, match="is a withdrawal and cannot be withdrawn"):
        ledger.publications.open_withdrawal(withdrawal.number, "again", {"app.out": 1})
    ledger.publications.mark_done(withdrawal.number, "app.out", 2)
    ledger.publications.close(withdrawal.number)
    assert (
        ledger.replays.get("r").state is ReplayState.CHECKED
        and effective_publications(ledger.publications.newest()) == []
    )
    second = ledger.publications.open("r", {"app.out": 2}, 100, 199)
    ledger.publications.mark_done(second.number, "app.out", 3)
    ledger.publications.close(second.number)
    undo = ledger.publications.open_undo(second.number, {"app.out": 3})
    back = ledger.publications.open_withdrawal(undo.number, "versions are gone", {"app.out": 3})
    ledger.publications.mark_done(back.number, "app.out", 4)
    ledger.publications.close(back.number)
    assert [act.number for act in effective_publications(ledger.publications.newest())] == [
        second.number
    ]
    assert ledger.replays.get("r").state is ReplayState.PUBLISHED


def test_undo_is_rejected_after_a_later_publication_of_the_same_windows(
    ledger: Ledger,
    tables: FakeTables,
) -> None:
    checked(ledger, "old")
    checked(ledger, "adjacent", first=200, last=210)
    checked(ledger, "over", first=190, last=195)
    for name in ("old", "adjacent", "over"):
        publish(ledger, tables, name, nothing)
    assert [p.replay_id for p in ledger.publications.later_overlapping(1)] == ["over"]
    acts = ledger.publications.of_replays(["old", "over", "unknown"])
    assert {name: [act.number for act in its] for name, its in acts.items()} == {
        "old": [1],
        "over": [3],
    }
    standing = ledger.publications.standing([TABLES[0], "app.other"])
    assert list(standing) == [TABLES[0]]
    ranges = [(act.number, act.replay_id, str(act.range)) for act in standing[TABLES[0]]]
    assert ranges == [
        (1, "old", "[100, 199]"),
        (2, "adjacent", "[200, 210]"),
        (3, "over", "[190, 195]"),
    ]
    with pytest.raises(InputError, match=r'3 \(replay "over", windows \[190, 195\]\)'):
        ledger.publications.open_undo(1, dict.fromkeys(TABLES, 3))
    undo(ledger, tables, "over", nothing)
    assert [act.number for act in ledger.publications.standing(TABLES)[TABLES[1]]] == [1, 2]
    assert ledger.publications.later_overlapping(1) == []
    undo(ledger, tables, "old", nothing)
    with pytest.raises(InputError, match="publication 1 is already undone"):
        ledger.publications.open_undo(1, dict.fromkeys(TABLES, 3))
    with pytest.raises(InputError, match="nothing to undo"):
        ledger.publications.open_undo(4, dict.fromkeys(TABLES, 3))


def test_reopening_a_publication_returns_the_recorded_number_and_versions(ledger: Ledger) -> None:
    checked(ledger, "r")
    first = ledger.publications.open("r", {"app.out": 7}, 100, 199, PublicationDetails("one"))
    assert (
        ledger.publications.open("r", {"app.out": 8}, 100, 199, PublicationDetails("two")) == first
    )
    assert ledger.publications.unfinished() == [first]


def test_publication_is_rejected_while_another_one_of_a_shared_table_is_open(
    ledger: Ledger,
) -> None:
    checked(ledger, "a", "b")
    ledger.publications.open("a", {"app.out": 0, "app.x": 0}, 100, 199)
    with pytest.raises(OverlapError, match='publication 1 of replay "a" is open') as caught:
        ledger.publications.open("b", {"app.out": 0}, 100, 199)
    assert caught.value.holder == "a" and "rewindow publish a" in caught.value.hint
    assert ledger.publications.open("b", {"app.y": 0}, 100, 199).number == 2
    assert [p.number for p in ledger.publications.unfinished(["app.x"])] == [1]


def test_publication_of_windows_outside_the_replay_is_rejected(ledger: Ledger) -> None:
    checked(ledger, "r")
    with pytest.raises(InputError, match=r"windows \[100, 200\] are not all in replay"):
        ledger.publications.open("r", {"app.out": 0}, 100, 200)


def test_blocked_publication_is_withdrawn_if_it_has_no_commit(ledger: Ledger) -> None:
    checked(ledger, "r")
    ledger.publications.open("r", {"app.out": 0, "app.x": 0}, 100, 199)
    ledger.publications.withdraw(1, "app.x was dropped")
    assert ledger.publications.get(1).withdrawn == "app.x was dropped"
    assert (
        newest_over(ledger, "app.out", 100, 199) is None
        and ledger.replays.get("r").state is ReplayState.CHECKED
    )
    second = ledger.publications.open("r", {"app.out": 0, "app.x": 0}, 100, 199)
    ledger.publications.mark_done(second.number, "app.out", 1)
    with pytest.raises(InputError, match='publication 2 has been committed to table "app.out"'):
        ledger.publications.withdraw(2, "no")
    with pytest.raises(AssertionError, match=r"not done for \['app.x'\]"):
        ledger.publications.close(2)


@pytest.mark.parametrize(("act", "step"), list(itertools.product(("publish", "undo"), STEPS)))
def test_publisher_killed_at_any_step_is_rolled_forward_once_in_every_table(
    ledger: Ledger,
    url: str,
    tables: FakeTables,
    act: str,
    step: str,
) -> None:
    checked(ledger, "old", "r")
    publish(ledger, tables, "old", nothing)
    if act == "undo":
        publish(ledger, tables, "r", nothing)
    context = multiprocessing.get_context("forkserver")
    killed = context.Process(
        target=act_until_killed,
        args=(act, url, str(tables.folder), "r", step),
        daemon=True,
    )
    killed.start()
    killed.join(60)
    assert killed.exitcode == -9
    with ledger.publications.publishing(TABLES) as unfinished:
        assert len(unfinished) == (
            STEPS.index("opened") <= STEPS.index(step) < STEPS.index("closed")
        )
        for publication in unfinished:
            finish(ledger, tables, publication, nothing)
    begun = STEPS.index(step) >= STEPS.index("opened")
    expected = {"publish": ["nothing", "old", "r"], "undo": ["nothing", "old", "r", "old"]}[act]
    for name in TABLES:
        versions = tables.versions(name)
        assert [v["content"] for v in versions] == (expected if begun else expected[:-1]), name
        assert [v["txn"] for v in versions] == list(range(len(versions))), name
    state = {"publish": ReplayState.PUBLISHED, "undo": ReplayState.UNDONE}[act]
    assert (
        ledger.publications.unfinished() == [] and (ledger.replays.get("r").state is state) == begun
    )
    assert all(lease.replay_id == "r" and step == "leased" for lease in ledger.leases.held())
    ACTS[act](ledger, tables, "r", nothing)
    assert tables.versions("app.out")[-1]["content"] == expected[-1] and ledger.leases.held() == []


def test_exactly_one_of_concurrently_opened_publications_is_recorded(
    ledger: Ledger,
    url: str,
    workers: ProcessPoolExecutor,
) -> None:
    rounds = 20
    checked(ledger, *(f"w{worker}" for worker in range(WORKERS)))
    jobs = [
        workers.submit(open_publications_at_once, url, f"w{worker}", rounds)
        for worker in range(WORKERS)
    ]
    numbers = []
    for of_round in zip(*results(jobs), strict=True):
        given = [number for number in of_round if number is not None]
        assert len(given) == 1, of_round
        numbers += given
    assert sorted(numbers) == list(range(1, rounds + 1))


def test_concurrent_publishers_commit_in_increasing_order(
    ledger: Ledger,
    url: str,
    tables: FakeTables,
    workers: ProcessPoolExecutor,
) -> None:
    checked(ledger, *(f"w{worker}" for worker in range(WORKERS)))
    jobs = [
        workers.submit(publish_often, url, f"w{worker}", str(tables.folder), 3)
        for worker in range(WORKERS)
    ]
    assert results(jobs) == [3] * WORKERS
    for name in TABLES:
        assert [v["txn"] for v in tables.versions(name)] == list(range(3 * WORKERS + 1)), name


def test_publisher_lock_is_released_when_its_process_is_killed(ledger: Ledger, url: str) -> None:
    context = multiprocessing.get_context("forkserver")
    ready = context.Event()
    holder = context.Process(target=hold_publishing, args=(url, "app.out", ready), daemon=True)
    holder.start()
    assert ready.wait(60)
    with (
        pytest.raises(OverlapError, match='table "app.out" is being published by') as caught,
        ledger.publications.publishing(["app.a", "app.out"], wait_s=0),
    ):
        pass
    assert caught.value.retryable
    with ledger.publications.publishing(["app.a"]):
        pass
    holder.kill()
    holder.join(60)
    with ledger.publications.publishing(["app.a", "app.out"]):
        pass


def test_tables_of_an_open_publication_are_locked_together(ledger: Ledger, url: str) -> None:
    checked(ledger, "r")
    ledger.publications.open("r", {"app.out": 0, "app.checkpoints": 0}, 100, 199)
    with Ledger.open(url).publications.publishing(["app.checkpoints"]) as unfinished:
        assert [p.number for p in unfinished] == [1]
        with (
            pytest.raises(OverlapError, match='"app.out" is being published') as caught,
            ledger.publications.publishing(["app.out"], wait_s=0),
        ):
            pass
        assert 'It is publication 1, publish of replay "r".' in caught.value.detail
