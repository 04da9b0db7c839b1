"""What may be published: exactly what the gate judged or somebody accepted. No JVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rewindow.errors import GateError, TableError
from rewindow.ledger import Ledger
from rewindow.publication import publish as publishing
from rewindow.publication.finish import Publisher
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.layout import staged_contents
from tests.publication.staging import StagedReplay, prepared, simple


def flag_as_lost(root: Path) -> None:
    Table.open(root / "facts").delta.update(
        updates={"lost": "true"},
        predicate="window_id = 101 and port = 'ranks'",
    )


def turn_round(root: Path) -> None:
    """Makes an output's fact one of an input."""
    Table.open(root / "facts").delta.update(
        updates={"direction": "'in'"},
        predicate="window_id = 101 and port = 'ranks'",
    )


def flip_a_byte(table: str) -> Callable[[Path], None]:
    """Returns what changes a byte of a table's file, which makes no commit."""

    def flip(root: Path) -> None:
        file = Path(Table.open(root / table).files()[0].path)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    return flip


def drop_rows(root: Path) -> None:
    Table.open(root / "ranks").delta.delete("window_id = 101")


def drop_a_checkpoint(root: Path) -> None:
    """Deletes the start state."""
    Table.open(root / "checkpoints").delta.delete("window_id = 99")


ALTERATIONS = {
    "facts, a loss": (flag_as_lost, "facts"),
    "facts, a direction": (turn_round, "facts"),
    "facts, in place": (flip_a_byte("facts"), "facts"),
    "rows": (drop_rows, "ranks"),
    "checkpoints": (drop_a_checkpoint, "checkpoints"),
    "checkpoints, in place": (flip_a_byte("checkpoints"), "checkpoints"),
}


def refused(config: Config, ledger: Ledger, replay: StagedReplay) -> GateError:
    with pytest.raises(GateError) as error:
        publishing.check_publishable(
            config,
            ledger,
            ledger.replays.get(replay.replay_id),
            replay.plan,
        )
    return error.value


@pytest.mark.parametrize(("alter", "table"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_tables_altered_after_the_check_are_not_published(
    config: Config,
    alter: Callable[[Path], None],
    table: str,
) -> None:
    replay = simple(config, "r", 100, 103)
    ledger = Ledger.open(config.ledger_url)
    publishing.check_publishable(config, ledger, ledger.replays.get("r"), replay.plan)
    alter(replay.root)
    error = refused(config, ledger, replay)
    assert (
        error.primary == 'replay "r" cannot be published: its tables are not what its gate judged'
    )
    assert f"Changed since: {table} " in error.detail and "rewindow check r" in error.hint
    ledger.checks.record("r", "passed", tables=staged_contents(replay.root))
    publishing.check_publishable(config, ledger, ledger.replays.get("r"), replay.plan)


def test_tables_altered_after_the_acceptance_are_not_published(config: Config) -> None:
    replay = simple(config, "r", 100, 103, checked=False)
    ledger = Ledger.open(config.ledger_url)
    publishing.check_publishable(
        config,
        ledger,
        ledger.replays.get("r"),
        replay.plan,
        "a known outage",
        "me",
    )
    publishing.check_publishable(config, ledger, ledger.replays.get("r"), replay.plan)
    flag_as_lost(replay.root)
    assert "its tables are not what a user accepted" in refused(config, ledger, replay).primary


def test_check_without_recorded_table_versions_does_not_allow_publication(config: Config) -> None:
    replay = simple(config, "r", 100, 103, checked=False)
    ledger = Ledger.open(config.ledger_url)
    ledger.checks.record("r", "passed")
    assert refused(config, ledger, replay).detail == "The contents at that time are unknown."


def test_publication_uses_the_checked_versions(config: Config) -> None:
    replay = simple(config, "r", 100, 103)
    ledger = Ledger.open(config.ledger_url)
    judged = publishing.check_publishable(config, ledger, ledger.replays.get("r"), replay.plan)
    drop_rows(replay.root)
    details = publishing.publication_details(config, ledger, judged)
    assert details.staged_versions["ranks"] == Table.open(replay.root / "ranks").version - 1
    assert judged.replay.table("ranks").version == details.staged_versions["ranks"]


def test_publication_stops_when_the_facts_were_altered_after_its_start(config: Config) -> None:
    replay = simple(config, "r", 100, 103)
    ledger = Ledger.open(config.ledger_url)
    judged = publishing.check_publishable(config, ledger, ledger.replays.get("r"), replay.plan)
    details = publishing.publication_details(config, ledger, judged)
    publication = ledger.publications.open(
        "r",
        prepared(config, replay.plan),
        100,
        103,
        details,
    )
    flip_a_byte("facts")(replay.root)
    publisher = Publisher(None, config, ledger, lambda step, number: None)  # type: ignore[arg-type]
    with pytest.raises(TableError, match='table "facts" of replay "r" has changed since the gate'):
        publisher.finish(publication)
    assert "has changed since the gate" in str(publisher.roll_forward(publication).withdrawn)


def test_published_table_that_expires_transactions_is_rejected(config: Config) -> None:
    # Its last transaction identifies the publication that it holds.
    replay = simple(config, "r", 100, 103)
    prepared(config, replay.plan)
    name = "delta.setTransactionRetentionDuration"
    Table.open(config.stream_table("app.ranks")).delta.alter.set_table_properties(
        {name: "interval 1 days"}
    )
    with pytest.raises(TableError, match='table "app.ranks" drops transaction ids'):
        prepared(config, replay.plan)
