"""Rebuild: a ledger that was lost comes back from the tables, but for what only it held."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.errors import InputError
from rewindow.ledger import Ledger, Publication, ReplayState, publish_app_id
from rewindow.ledger.publication_details import PublicationDetails, StaleWindows
from rewindow.ledger.rebuild import rebuild_ledger
from rewindow.planning.creation import create_staging
from rewindow.settings.config import Config
from rewindow.storage.delta import Table, create_table
from rewindow.storage.fence import fence
from rewindow.storage.layout import CHECKPOINTS, FACTS, app_id
from rewindow.windows import WindowRange
from tests.ledger.life import begin, newest_over
from tests.ledger.test_index import write_facts

ROW = pa.schema([("window_id", pa.int64()), ("x", pa.int64())])
OUT = "app.out"
SAVED = "app.checkpoints"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a life: replays in every state that tables know, one undone, one half
    published.
    """
    config = Config(state=tmp_path_factory.mktemp("lived"))
    ledger = Ledger.open(config.ledger_url)
    for name in (OUT, SAVED):
        create_table(config.state / "streams" / name, ROW)
    for replay_id, mode in (
        ("a", "exactly_once"),
        ("b", "exactly_once"),
        ("open", "exactly_once"),
        ("c", "at_most_once"),
    ):
        make(ledger, config, replay_id, mode)
    for replay_id in ("a", "b", "open"):
        run(ledger, config, replay_id, 100)
        ledger.checks.record(replay_id, "passed")
    run(ledger, config, "c", 40)
    make(ledger, config, "planned", "at_least_once")
    publish(ledger, config, "a", stale(200, 299))
    publish(ledger, config, "b", stale(200, 250))
    undone = ledger.publications.open_undo(2, versions(config), stale(200, 299))
    commit(ledger, config, undone, (OUT, SAVED))
    ledger.publications.close(undone.number)
    half = ledger.publications.open("open", versions(config), 100, 199, stale(210, 220))
    commit(ledger, config, half, (OUT,))
    ledger.close()
    return config.state


@pytest.fixture
def config(lived: Path, tmp_path: Path) -> Config:
    shutil.copytree(lived, tmp_path / "state")
    return Config(state=tmp_path / "state")


def make(ledger: Ledger, config: Config, replay_id: str, mode: str) -> None:
    plan = {
        "replay_id": replay_id,
        "application": "app",
        "first": 100,
        "last": 199,
        "mode": mode,
        "code_version": "v1",
    }
    root = config.replay_root(replay_id)
    create_staging(root, {"out": pa.schema([("x", pa.int64())])}, json.dumps(plan))
    ledger.replays.create(replay_id, "app", 100, 199, mode, plan, "v1")


def run(ledger: Ledger, config: Config, replay_id: str, to: int) -> None:
    """Runs a replay to a mark: an attempt that dies after mark 20, and one that gets there."""
    root = config.replay_root(replay_id)
    for first, mark in ((100, 20), (120, to)):
        epoch = begin(ledger, replay_id)
        for name in (CHECKPOINTS, "out", FACTS):
            fence(root / name, app_id(replay_id, name), epoch)
        write_facts(Table.open(root / FACTS), epoch, first, 99 + mark, 3, replay_id)
        for name in ("out", CHECKPOINTS):
            Table.open(root / name).commit_files(
                [],
                app_id=app_id(replay_id, name),
                version=(epoch << 40) | mark,
            )
    if to == 100:
        ledger.attempts.end(replay_id, epoch, "done")


def versions(config: Config) -> dict[str, int | None]:
    return {name: Table.open(config.state / "streams" / name).version for name in (OUT, SAVED)}


def stale(first: int, last: int) -> PublicationDetails:
    return PublicationDetails(stale=(StaleWindows(OUT, WindowRange(first, last)),))


def publish(ledger: Ledger, config: Config, replay_id: str, details: PublicationDetails) -> None:
    publication = ledger.publications.open(replay_id, versions(config), 100, 199, details)
    commit(ledger, config, publication, (OUT, SAVED))
    ledger.publications.close(publication.number)


def commit(
    ledger: Ledger,
    config: Config,
    publication: Publication,
    names: tuple[str, ...],
) -> None:
    for name in names:
        table = Table.open(config.state / "streams" / name)
        frame = pa.table({"window_id": [publication.first], "x": [publication.number]}, ROW)
        table.commit_arrow(
            frame,
            app_id=publish_app_id(name),
            version=publication.number,
            metadata=publication.commit_metadata(),
        )
        ledger.publications.mark_done(publication.number, name, table.version)


@pytest.fixture
def after(config: Config) -> Ledger:
    config.state.joinpath("ledger.sqlite").rename(config.state / "lost")
    (config.replay_root("broken") / "out").mkdir(parents=True)
    found = rebuild_ledger(config)
    assert (found.replays, found.publications, found.passed_over) == (5, 4, ("broken",))
    return Ledger.open(config.ledger_url)


def lost(config: Config) -> Ledger:
    return Ledger.open(f"sqlite:///{config.state / 'lost'}")


def test_rebuild_restores_replays_with_plans_marks_and_epochs(
    after: Ledger,
    config: Config,
) -> None:
    now = {row.replay_id: row for row in after.replays.newest()}
    for was in lost(config).replays.newest():
        row = now[was.replay_id]
        assert (row.plan, row.first, row.last, row.mode) == (
            was.plan,
            was.first,
            was.last,
            was.mode,
        )
        assert row.epoch == was.epoch
    states = {name: row.state for name, row in now.items()}
    assert states == {
        "a": ReplayState.PUBLISHED,
        "b": ReplayState.UNDONE,
        "open": ReplayState.ENDED,
        "c": ReplayState.FAILED,
        "planned": ReplayState.PLANNED,
    }
    assert {name: row.mark for name, row in now.items()} == {
        "a": 100,
        "b": 100,
        "open": 100,
        "c": 40,
        "planned": 0,
    }


def test_next_epoch_after_a_rebuild_is_above_every_epoch_in_the_tables(
    after: Ledger,
    config: Config,
) -> None:
    epoch = after.attempts.next_epoch("c")
    assert epoch == 3 and after.attempts.since_checkpoint("c") == 0
    fence(config.replay_root("c") / "out", app_id("c", "out"), epoch)


def test_rebuild_restores_index_and_attempts_from_the_facts(after: Ledger, config: Config) -> None:
    totals = [(total.port, total.windows, total.tuples) for total in after.counts.totals("a")]
    assert totals == [("s", 100, 300), ("o", 100, 300)] and after.counts.is_whole("a")
    assert [(a.epoch, a.mark, a.outcome) for a in after.attempts.of("a")] == [
        (1, 20, "lost"),
        (2, 100, "done"),
    ]


def test_rebuild_restores_publications_with_their_numbers(after: Ledger, config: Config) -> None:
    def told(ledger: Ledger) -> list[object]:
        return [
            (
                p.number,
                p.replay_id,
                p.kind,
                p.first,
                p.last,
                p.undoes,
                p.details,
                p.tables,
                p.closed_at is None,
            )
            for p in ledger.publications.newest()
        ]

    assert told(after) == told(lost(config))
    assert [p.number for p in after.publications.unfinished()] == [4]
    newest = newest_over(after, OUT, 100, 199)
    assert newest is not None and newest.number == 1
    commit(after, config, after.publications.get(4), (SAVED,))
    after.publications.close(4)
    after.checks.record("a", "passed")
    assert after.publications.open("a", versions(config), 100, 199).number == 5


def test_rebuild_restores_a_withdrawal_and_its_cancelled_publication(config: Config) -> None:
    ledger = Ledger.open(config.ledger_url)
    withdrawal = ledger.publications.open_withdrawal(4, "its source is gone", versions(config))
    commit(ledger, config, withdrawal, (OUT, SAVED))
    ledger.publications.close(withdrawal.number)
    ledger.close()
    (config.state / "ledger.sqlite").unlink()
    rebuild_ledger(config)
    after = Ledger.open(config.ledger_url)
    assert (after.publications.get(4).withdrawn, after.publications.get(5).kind) == (
        "its source is gone",
        "withdraw",
    )
    assert (
        after.publications.unfinished() == []
        and after.replays.get("open").state is ReplayState.ENDED
    )
    newest = newest_over(after, OUT, 100, 199)
    assert newest is not None and newest.number == 1


def test_rebuild_restores_stale_ranges_from_the_newest_publication(after: Ledger) -> None:
    assert [(s.table_name, s.first, s.last, s.since) for s in after.stale.ranges("app")] == [
        (OUT, 210, 220, 4)
    ]


def test_restored_publications_count_as_emitted(after: Ledger) -> None:
    assert after.outbox.waiting(100) == []


def test_ledger_with_replays_is_not_rebuilt(config: Config) -> None:
    with pytest.raises(InputError, match="already has replays"):
        rebuild_ledger(config)


def test_state_folder_without_tables_is_rebuilt_as_an_empty_ledger(tmp_path: Path) -> None:
    found = rebuild_ledger(Config(state=tmp_path))
    assert (found.replays, found.publications) == (0, 0)


def test_rebuild_restores_a_purged_replay_without_a_plan(config: Config) -> None:
    shutil.rmtree(config.replay_root("a") / CHECKPOINTS)
    config.state.joinpath("ledger.sqlite").unlink()
    rebuild_ledger(config)
    row = Ledger.open(config.ledger_url).replays.get("a")
    assert (row.plan, row.state) == ({}, ReplayState.PUBLISHED)
    with pytest.raises(InputError, match='the plan of replay "a" was purged') as caught:
        row.read_plan()
    assert "rewindow" in caught.value.hint
