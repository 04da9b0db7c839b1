"""Published states that lie in files: where no VACUUM takes them, kept for an undo, purged when
nothing names them.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from rewindow.errors import CheckpointError, TableError
from rewindow.ledger import Ledger
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.retention.purge import purge, purgeable
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.state.files import OperatorState, StateFiles, folder_of, read_rows, write_rows
from rewindow.storage import Table
from tests.publication.staging import StagedReplay, rows_of, state_of

AT_ONCE = timedelta(0)
KEY = ("carrier",)


def stage(config: Config, replay_id: str, first: int, last: int, plus: int = 0) -> Path:
    """Stages a replay whose state at its end lies in files, and returns their folder."""
    replay = StagedReplay(config, replay_id, first, last, outputs=("ranks",))
    folder = folder_of(replay.root / "checkpoints")
    state = write_rows(state_of(last + plus), folder, f"1-{last}/ranks_operator/state", KEY, 2)
    replay.group(first, last, rows_of(range(first, last + 1), plus), state=state)  # type: ignore[arg-type]
    replay.digest().end()
    return folder


def minutes(config: Config, window: int) -> int:
    """Returns a number that tells published states apart, once the files are held against their
    digests.
    """
    (row,) = stored.rows_at(Table.open(config.checkpoints_table("app")), window).to_pylist()
    state: OperatorState = stored.decode(row, config.checkpoints_table("app"))
    assert isinstance(state, StateFiles)
    return min(read_rows(state)["minutes"].to_pylist())


def vacuum(config: Config) -> None:
    """Deletes what the table of published checkpoints no longer names."""
    table = Table.open(config.checkpoints_table("app"))
    table.delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def test_published_state_is_kept_by_purge_vacuum_and_undo(config: Config) -> None:
    stage(config, "one", 100, 103)
    publish(config, "one")
    purge(config, AT_ONCE, delete=True)
    vacuum(config)
    assert not (config.replay_root("one") / "checkpoints.state").exists()
    assert minutes(config, 103) == 103

    stage(config, "two", 100, 103, plus=7)
    publish(config, "two")
    assert minutes(config, 103) == 110
    purge(config, AT_ONCE, delete=True)
    undo(config, "two")
    assert minutes(config, 103) == 103, "the state before is there again, from its own files"
    purge(config, AT_ONCE, delete=True)
    assert minutes(config, 103) == 103


def test_published_state_is_purged_once_no_undo_can_restore_it(config: Config) -> None:
    for name, plus in (("one", 0), ("two", 7)):
        stage(config, name, 100, 103, plus)
        publish(config, name)
    folder = folder_of(config.checkpoints_table("app"))
    purge(config, AT_ONCE, delete=True)
    assert len(list(folder.rglob("*.parquet"))) == 4, "an undo of the second may need the first"
    vacuum(config)
    assert {entry.replay_id for entry in purgeable(config, AT_ONCE)} == {"app"}
    assert [entry.replay_id for entry in purge(config, AT_ONCE, delete=True).deleted] == ["app"]
    assert len(list(folder.rglob("*.parquet"))) == 2 and minutes(config, 103) == 110
    assert purgeable(config, AT_ONCE) == []


def test_undo_is_rejected_when_its_state_was_deleted(config: Config) -> None:
    for name, plus in (("one", 0), ("two", 7)):
        stage(config, name, 100, 103, plus)
        publish(config, name)
    number = Ledger.open(config.ledger_url).publications.newest("one")[0].number
    shutil.rmtree(folder_of(config.checkpoints_table("app")) / str(number))
    with pytest.raises(TableError, match="no longer exists, so it cannot be restored"):
        undo(config, "two")
    assert minutes(config, 103) == 110


def test_damaged_state_is_not_published(config: Config) -> None:
    folder = stage(config, "one", 100, 103)
    next(folder.rglob("*.parquet")).unlink()
    with pytest.raises(
        CheckpointError,
        match='operator "ranks_operator" at window 103 is damaged: bucket',
    ):
        publish(config, "one")
    assert Ledger.open(config.ledger_url).publications.newest("one") == []


def test_files_that_cannot_be_hard_linked_are_copied(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("rewindow.location.local.os.link", refuse)
    stage(config, "one", 100, 103)
    publish(config, "one")
    assert minutes(config, 103) == 103
