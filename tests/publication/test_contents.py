"""What a publication takes of a replay: of each window the newest sealed attempt, of each state the
newest. No JVM.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.application import Mode
from rewindow.certificate.snapshots import staged_snapshot
from rewindow.errors import FencedError
from rewindow.facts import readers
from rewindow.facts.readers import staged_seals
from rewindow.ledger import Ledger, publish_app_id
from rewindow.publication.commits import commit_once
from rewindow.publication.contents import checkpoint_rows, saved_states
from rewindow.retention.horizon import retention_days, undo_horizon
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, create_table, query
from rewindow.storage.names import open_published
from rewindow.windows import WindowRange
from tests.publication.staging import StagedReplay, prepared, rows_of, simple, state_of

RANGE = WindowRange(100, 105)


@pytest.fixture
def repeated(config: Config) -> StagedReplay:
    """Windows 100 to 105, of which a second attempt has computed 103 to 105 again, with other rows
    and states.

    A third attempt was killed before it sealed what it had written.
    """
    replay = StagedReplay(config, "r", 100, 105, mode=Mode.AT_LEAST_ONCE, outputs=("ranks",))
    replay.group(100, 102, rows_of(range(100, 103)), 1, state=state_of(1))
    replay.group(103, 105, rows_of(range(103, 106)), 1, state=state_of(2))
    later = rows_of(range(103, 106), plus=7)
    later["ranks"][104] = later["ranks"][104][:1]
    replay.group(103, 105, later, 2, state=state_of(3))
    replay.write("ranks", 104, 105, rows_of([104, 105], plus=9)["ranks"], 3)
    return replay.end(epoch=3)


def test_newest_sealed_attempt_of_a_window_is_published(
    config: Config,
    repeated: StagedReplay,
) -> None:
    facts = Table.open(repeated.root / "facts")
    seals = staged_seals(facts, "ranks", RANGE).to_pylist()
    assert [(seal["window_id"], seal["attempt"], seal["tuples"]) for seal in seals] == [
        (100, 1, 2),
        (101, 1, 2),
        (102, 1, 2),
        (103, 2, 2),
        (104, 2, 1),
        (105, 2, 2),
    ]
    wanted = {(fact["window_id"], fact["attempt"]): fact["digest"] for fact in repeated.facts}
    assert [seal["digest"] for seal in seals] == [
        wanted[seal["window_id"], seal["attempt"]] for seal in seals
    ]


def test_seals_of_a_million_windows_are_read_once_without_join_or_sort(
    repeated: StagedReplay,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def noted(sql: str, **tables: Table) -> pa.Table:
        asked.append(sql)
        return query(sql, **tables)

    monkeypatch.setattr(readers, "query", noted)
    staged_seals(Table.open(repeated.root / "facts"), "ranks", RANGE)
    assert [sql.lower().count(" from facts") for sql in asked] == [1]
    assert not {"join", "order", "distinct"} & set(asked[0].lower().split())


def test_certificate_also_compares_the_newest_sealed_attempt(
    config: Config,
    repeated: StagedReplay,
) -> None:
    seals = staged_snapshot(config, "r").output_seals("ranks")
    published = staged_seals(Table.open(repeated.root / "facts"), "ranks", RANGE)
    assert seals["digest"].to_pylist() == published["digest"].to_pylist()


def test_newest_state_after_each_window_is_published(
    config: Config, repeated: StagedReplay
) -> None:
    table = Table.open(repeated.root / "checkpoints")
    (row,) = checkpoint_rows(table, [105]).to_pylist()
    assert stored.decode(row, Path()).equals(state_of(3))
    states = saved_states(table)
    assert sorted(states) == [99, 102, 105]
    assert states[105] == stored.state_digest(checkpoint_rows(table, [105]))


def test_outdated_publication_does_not_commit(config: Config) -> None:
    plan = simple(config, "r", 100, 105).plan
    ledger = Ledger.open(config.ledger_url)
    late = ledger.publications.open("r", prepared(config, plan), 100, 105)
    table = open_published(config, "app.ranks")
    table.commit_files([], app_id=publish_app_id("app.ranks"), version=late.number + 1)
    done: list[str] = []
    with pytest.raises(
        FencedError,
        match='table "app.ranks" already has publication 2, so 1 is outdated',
    ):
        commit_once(config, "app.ranks", late, lambda: done.append("committed"))
    assert done == [] and open_published(config, "app.ranks").version == table.version


def test_undo_horizon_defaults_to_the_retention_of_delta(config: Config) -> None:
    path = config.stream_table("app.ranks")
    table = create_table(path, stored.SCHEMA)
    assert retention_days(table) == 7.0
    assert (undo_horizon(config, "app").days, undo_horizon(config, "app").short) == (
        7.0,
        {"app.ranks": 7.0},
    )
    table.delta.alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 60 days"}
    )
    assert retention_days(Table.open(path)) == 30.0
