"""The outbox: every publication, undo and withdrawal that readers see is in it until it is
emitted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sqlalchemy import text

from rewindow.ledger import Emitter, Ledger
from rewindow.ledger.models import VERSION, metadata
from tests.ledger.life import plan, run_to_end
from tests.ledger.workers import FakeTables, publish, undo

TASK = Emitter("emit_publications", "scheduled__1", "emit_publications", -1)
OTHER = replace(TASK, run_id="scheduled__2")


def nothing(step: str) -> None:
    pass


def published(ledger: Ledger, folder: Path) -> None:
    plan(ledger, "r")
    run_to_end(ledger, "r")
    publish(ledger, FakeTables(folder), "r", nothing)


def waiting(ledger: Ledger) -> list[tuple[int, str, Emitter | None]]:
    return [(act.number, act.kind, emitter) for act, emitter in ledger.outbox.waiting(100)]


def test_publications_and_undos_wait_in_the_outbox_until_they_are_marked_as_done(
    ledger: Ledger,
    tmp_path: Path,
) -> None:
    published(ledger, tmp_path)
    undo(ledger, FakeTables(tmp_path), "r", nothing)
    assert waiting(ledger) == [(1, "publish", None), (2, "undo", None)]
    ledger.publications.close(2)
    assert [act.number for act, _ in ledger.outbox.waiting(1)] == [1]
    ledger.outbox.mark_done(1)
    assert waiting(ledger) == [(2, "undo", None)]


def test_open_publication_is_not_in_the_outbox_but_its_withdrawal_is(ledger: Ledger) -> None:
    plan(ledger, "r")
    run_to_end(ledger, "r")
    first = ledger.publications.open("r", {"app.out": 0}, 100, 199)
    ledger.publications.mark_done(first.number, "app.out", 1)
    assert waiting(ledger) == []
    withdrawal = ledger.publications.open_withdrawal(first.number, "damaged", {"app.out": 1})
    ledger.publications.mark_done(withdrawal.number, "app.out", 2)
    ledger.publications.close(withdrawal.number)
    assert waiting(ledger) == [(2, "withdraw", None)]
    unchanged = ledger.publications.open("r", {"app.out": 2}, 100, 199)
    ledger.publications.withdraw(unchanged.number, "dropped")
    assert waiting(ledger) == [(2, "withdraw", None)]


def test_only_one_of_two_tasks_becomes_the_emitter(ledger: Ledger, tmp_path: Path) -> None:
    published(ledger, tmp_path)
    assert ledger.outbox.take(1, TASK, previous=None)
    assert not ledger.outbox.take(1, OTHER, previous=None)
    assert waiting(ledger) == [(1, "publish", TASK)]
    assert ledger.outbox.take(1, OTHER, previous=TASK)
    ledger.outbox.mark_done(1)
    assert not ledger.outbox.take(1, TASK, previous=OTHER)
    assert waiting(ledger) == []


def test_publications_of_an_older_ledger_count_as_emitted(ledger: Ledger, tmp_path: Path) -> None:
    published(ledger, tmp_path)
    with ledger.database.writing() as connection:
        for added in ("outbox", "notices", "recordings"):
            metadata.tables[added].drop(connection)
        connection.execute(text("UPDATE alembic_version SET version_num = '0005'"))
    upgraded = Ledger.open(str(ledger.database.place.url.render_as_string(hide_password=False)))
    assert upgraded.outbox.waiting(100) == []
    with upgraded.database.reading() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version"))
        assert found.scalar_one() == VERSION
    upgraded.close()
