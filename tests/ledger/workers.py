"""What the worker processes of the ledger's tests do; each call runs in a process of its own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

from rewindow.errors import FencedError, InputError, OverlapError
from rewindow.ledger import Ledger, Publication, publish_app_id
from rewindow.ledger.publication_details import PublicationDetails
from tests.ledger.life import newest_over

_barrier: Any = None
TABLES = ("app.out", "app.checkpoints")


def keep_barrier(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def together() -> None:
    try:
        _barrier.wait(timeout=20)
    except BrokenBarrierError:
        _barrier.reset()
        raise AssertionError("a worker did not come, see the others") from None


def open_at_once(urls: list[str]) -> list[bool]:
    opened = []
    for url in urls:
        together()
        ledger = Ledger.open(url)
        opened.append(ledger.replays.newest() == [])
        ledger.close()
    return opened


def create_at_once(url: str, plans: list[dict[str, int]]) -> list[bool]:
    """Creates replays under the same ids as the other workers; returns whether each was taken as
    equal.
    """
    ledger = Ledger.open(url)
    outcome = []
    for number, plan in enumerate(plans):
        together()
        try:
            ledger.replays.create(f"r{number}", "app", 1, 10, "exactly_once", plan, "v1")
            outcome.append(True)
        except InputError:
            outcome.append(False)
    return outcome


def take_epochs(url: str, replay_id: str, count: int) -> list[int]:
    ledger = Ledger.open(url)
    together()
    return [ledger.attempts.next_epoch(replay_id) for _ in range(count)]


def report_until_fenced(url: str, replay_id: str, rounds: int) -> list[int]:
    """Takes an epoch and reports progress until another worker takes a newer one; returns the
    epochs it had.
    """
    ledger = Ledger.open(url)
    epochs = []
    for _ in range(rounds):
        epoch = ledger.attempts.next_epoch(replay_id)
        epochs.append(epoch)
        for mark in range(1, 6):
            try:
                ledger.attempts.report_progress(replay_id, epoch, epoch * 1000 + mark)
            except FencedError:
                break
    return epochs


def acquire_at_once(url: str, replay_id: str, ranges: list[tuple[int, int]]) -> list[str | None]:
    """Asks for a lease on each range of one table; returns the holder that stood in the way, None
    when granted.
    """
    ledger = Ledger.open(url)
    holders: list[str | None] = []
    for number, (first, last) in enumerate(ranges):
        together()
        try:
            ledger.leases.acquire(replay_id, [f"table{number}"], first, last)
            holders.append(None)
        except OverlapError as error:
            holders.append(error.holder)
    return holders


def open_publications_at_once(url: str, replay_id: str, rounds: int) -> list[int | None]:
    """Opens a publication of one table per round; returns its number, None when another one was
    open.
    """
    ledger = Ledger.open(url)
    numbers: list[int | None] = []
    for number in range(rounds):
        together()
        try:
            numbers.append(
                ledger.publications.open(replay_id, {f"table{number}": 1}, 100, 199).number
            )
        except OverlapError:
            numbers.append(None)
    return numbers


def publish_often(url: str, replay_id: str, store: str, rounds: int) -> int:
    """Publishes the replay again and again, against other workers on the same tables; returns how
    often it was.
    """
    ledger = Ledger.open(url)
    tables = FakeTables(Path(store))
    done = 0
    while done < rounds:
        try:
            publish(ledger, tables, replay_id, lambda step: None)
            done += 1
        except OverlapError:
            continue
    return done


def hold_publishing(url: str, table: str, ready: Any) -> None:
    with Ledger.open(url).publications.publishing([table]):
        ready.set()
        signal.pause()


def act_until_killed(act: str, url: str, store: str, replay_id: str, step: str) -> None:
    def crash(here: str) -> None:
        if here == step:
            os.kill(os.getpid(), signal.SIGKILL)

    ACTS[act](Ledger.open(url), FakeTables(Path(store)), replay_id, crash)


class FakeTables:
    """Published tables as files: the transaction id and content of each version, as Delta would
    keep them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def versions(self, name: str) -> list[dict[str, Any]]:
        """Returns every version of a table, oldest first; version 0 is empty."""
        file = self.folder / f"{name}.json"
        return (
            json.loads(file.read_text())
            if file.exists()
            else [{"txn": 0, "content": "nothing", "metadata": {}}]
        )

    def commit(self, name: str, publication: Publication, content: str) -> None:
        """Adds a version with the publication's transaction id; refuses one that is not newer."""
        versions = self.versions(name)
        assert versions[-1]["txn"] < publication.number, (
            f"{publish_app_id(name)} went back to {publication.number}"
        )
        metadata = publication.commit_metadata()
        versions.append({"txn": publication.number, "content": content, "metadata": metadata})
        new = self.folder / f"{name}.{os.getpid()}"
        new.write_text(json.dumps(versions))
        new.rename(self.folder / f"{name}.json")


def publish(
    ledger: Ledger,
    tables: FakeTables,
    replay_id: str,
    crash: Callable[[str], None],
) -> None:
    with ledger.publications.publishing(TABLES) as unfinished:
        crash("locked")
        for publication in unfinished:
            finish(ledger, tables, publication, lambda step: None)
        replay = ledger.replays.get(replay_id)
        ledger.leases.acquire(replay_id, TABLES, replay.first, replay.last)
        crash("leased")
        before: dict[str, int | None] = {name: len(tables.versions(name)) - 1 for name in TABLES}
        details = PublicationDetails(replay_id)
        publication = ledger.publications.open(
            replay_id,
            before,
            replay.first,
            replay.last,
            details,
        )
        crash("opened")
        finish(ledger, tables, publication, crash)
    crash("unlocked")


def undo(ledger: Ledger, tables: FakeTables, replay_id: str, crash: Callable[[str], None]) -> None:
    with ledger.publications.publishing(TABLES) as unfinished:
        crash("locked")
        for publication in unfinished:
            finish(ledger, tables, publication, lambda step: None)
        replay = ledger.replays.get(replay_id)
        if replay.state == "undone":
            return
        ledger.leases.acquire(replay_id, TABLES, replay.first, replay.last)
        crash("leased")
        newest = newest_over(ledger, TABLES[0], replay.first, replay.last)
        assert newest is not None, "there is something to undo"
        before: dict[str, int | None] = {name: len(tables.versions(name)) - 1 for name in TABLES}
        publication = ledger.publications.open_undo(newest.number, before)
        crash("opened")
        finish(ledger, tables, publication, crash)
    crash("unlocked")


ACTS = {"publish": publish, "undo": undo}


def finish(
    ledger: Ledger,
    tables: FakeTables,
    publication: Publication,
    crash: Callable[[str], None],
) -> None:
    n = publication.number
    for index, table in enumerate(publication.tables):
        if table.done:
            continue
        if tables.versions(table.name)[-1]["txn"] < n:
            tables.commit(
                table.name,
                publication,
                _content(ledger, tables, publication, table.name),
            )
        crash(f"committed {index}")
        assert tables.versions(table.name)[-1]["txn"] == n
        ledger.publications.mark_done(n, table.name, len(tables.versions(table.name)) - 1)
        crash(f"marked {index}")
    ledger.stale.add("app", "app.out", 200, 299, since=n)
    crash("stale")
    ledger.publications.close(n)
    crash("closed")


def _content(ledger: Ledger, tables: FakeTables, publication: Publication, name: str) -> str:
    if publication.undoes is None:
        return str(publication.details.application)
    undone = {table.name: table for table in ledger.publications.get(publication.undoes).tables}
    version = undone[name].version_before
    assert version is not None
    return str(tables.versions(name)[version]["content"])
