"""Taking back: publications that lie over each other, and ways out of one that cannot be
finished.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import write_deltalake

from rewindow.errors import InputError, TableError
from rewindow.ledger import Ledger, ReplayState
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo, withdraw
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from tests.publication.staging import simple

TABLES = ("app.ranks", "app.ranks.windows", "app.checkpoints")
NOTHING: dict[str, list[Any]] = {name: [] for name in TABLES}


class Died(Exception):
    pass


def die_at(step: str, number: int = 1) -> Callable[[str, int], None]:
    def die(reached: str, count: int) -> None:
        if (reached, count) == (step, number):
            raise Died

    return die


def stage(config: Config, replay_id: str, first: int, last: int, plus: int = 0) -> None:
    simple(config, replay_id, first, last, plus, publishable=True, outputs=("ranks",))


def contents(config: Config) -> dict[str, list[Any]]:
    """Returns what readers see, but for times and versions."""
    changing = ("data_version", "sealed_at")
    found = {}
    for name in TABLES:
        rows = query("select * from t", t=Table.open(config.stream_table(name)))
        found[name] = sorted(
            map(
                repr,
                rows.drop_columns([c for c in changing if c in rows.column_names]).to_pylist(),
            )
        )
    return found


def test_undoing_all_replays_restores_the_state_before_the_first_replay(config: Config) -> None:
    stage(config, "r1", 100, 103)
    publish(config, "r1")
    stage(config, "r2", 102, 105, plus=50)
    publish(config, "r2")
    publish(config, "r1", accept="r2 was wrong")
    undo(config, "r1")
    windows = query(
        "select distinct window_id as w from t order by w",
        t=Table.open(config.stream_table("app.ranks")),
    )
    assert windows["w"].to_pylist() == [102, 103, 104, 105], "of r2 alone"
    ledger = Ledger.open(config.ledger_url)
    assert (ledger.replays.get("r1").state, ledger.replays.get("r2").state) == (
        ReplayState.UNDONE,
        ReplayState.PUBLISHED,
    )
    undo(config, "r2")
    assert contents(config) == NOTHING
    assert undo(config, "r1").already
    assert [ledger.replays.get(name).state for name in ("r1", "r2")] == [ReplayState.UNDONE] * 2


def test_started_publication_without_its_source_is_withdrawn(config: Config) -> None:
    stage(config, "r0", 100, 105)
    publish(config, "r0")
    before = contents(config)
    stage(config, "fix", 102, 103, plus=9)
    stage(config, "next", 104, 107, plus=5)
    with pytest.raises(Died):
        publish(config, "fix", crash=die_at("table_committed"))
    shutil.rmtree(config.replay_root("fix"))
    for act in (lambda: publish(config, "next"), lambda: undo(config, "r0")):
        with pytest.raises(
            TableError,
            match='publication 2 of replay "fix" was started and cannot',
        ) as error:
            act()
        assert "rewindow publish fix --withdraw" in error.value.hint
    result = withdraw(config, "fix")
    assert (result.kind, result.already) == ("withdraw", False) and contents(config) == before
    ledger = Ledger.open(config.ledger_url)
    assert ledger.publications.unfinished() == [] and ledger.leases.held() == []
    assert (
        ledger.replays.get("fix").state is ReplayState.CHECKED
        and ledger.publications.get(2).withdrawn == "withdrawn on request"
    )
    assert withdraw(config, "fix").already
    assert not publish(config, "next").already
    undo(config, "next")
    undo(config, "r0")
    assert contents(config) == NOTHING


def test_started_undo_is_withdrawn_and_can_be_repeated(config: Config) -> None:
    stage(config, "r0", 100, 103)
    publish(config, "r0")
    before = contents(config)
    with pytest.raises(Died):
        undo(config, "r0", crash=die_at("table_committed", 2))
    assert contents(config) != before
    withdraw(config, "r0")
    assert contents(config) == before
    assert Ledger.open(config.ledger_url).replays.get("r0").state is ReplayState.PUBLISHED
    assert publish(config, "r0").already
    undo(config, "r0")
    assert contents(config) == NOTHING


def test_only_an_open_publication_can_be_withdrawn(config: Config) -> None:
    stage(config, "r0", 100, 101)
    with pytest.raises(InputError, match="has no unfinished publication"):
        withdraw(config, "r0")
    with pytest.raises(Died):
        publish(config, "r0", crash=die_at("opened"))
    result = withdraw(config, "r0")
    assert (result.withdrawn, result.already) == ("withdrawn on request", False)
    publish(config, "r0")
    with pytest.raises(InputError, match="has no unfinished publication") as error:
        withdraw(config, "r0")
    assert "rewindow undo r0" in error.value.hint


def test_undo_rejects_a_table_that_was_deleted_and_recreated(config: Config) -> None:
    stage(config, "r0", 100, 103)
    publish(config, "r0")
    path = config.stream_table("app.ranks")
    rows = query("select * from t", t=path)
    version = Table.open(path).version
    before = Table.open(path).id
    shutil.rmtree(path)
    for _ in range(version + 1):
        write_deltalake(str(path), rows, mode="overwrite")
    with pytest.raises(
        TableError,
        match='table "app.ranks" is another one than publication 1',
    ) as error:
        undo(config, "r0")
    assert before in str(error.value) and "rewindow publish r0" in error.value.hint
    ledger = Ledger.open(config.ledger_url)
    assert (ledger.publications.unfinished(), ledger.leases.held()) == ([], [])
    assert query("select * from t", t=path).num_rows == rows.num_rows


def test_replay_of_a_deleted_table_can_be_republished_and_undone_to_empty(
    config: Config,
) -> None:
    # The older publication was in the deleted table, so it must not come back from the new one.
    for name in ("r0", "r1"):
        stage(config, name, 100, 103)
        publish(config, name)
    for name in TABLES:
        shutil.rmtree(config.stream_table(name))
    assert not publish(config, "r1").already
    assert contents(config) != NOTHING
    undo(config, "r1")
    assert contents(config) == NOTHING
