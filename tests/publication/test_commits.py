"""Commits of a publication: whose number a table holds. No JVM."""

from __future__ import annotations

import shutil

import pytest

from rewindow.errors import FencedError
from rewindow.ledger import Ledger, Publication
from rewindow.publication.commits import commit_once, held, write_arrow
from rewindow.settings.config import Config
from rewindow.state import checkpoints as stored
from rewindow.storage import Table, create_table
from tests.publication.staging import StagedReplay, rows_of, state_of

NAME = "app.checkpoints"


def begin(config: Config, replay_id: str) -> Publication:
    """Returns an open publication of a replay of windows 100 to 109."""
    replay = StagedReplay(config, replay_id, 100, 109, outputs=("ranks",))
    replay.group(100, 109, rows_of(range(100, 110)), state=state_of(1)).end()
    version = create_table(config.stream_table(NAME), stored.SCHEMA).version
    return Ledger.open(config.ledger_url).publications.open(replay_id, {NAME: version}, 100, 109)


def test_publication_number_of_another_ledger_is_rejected(config: Config) -> None:
    # A new ledger counts from 1 again.
    one = begin(config, "one")
    rows = stored.encode(109, 10, {}, {}, stored.Provenance({}, 1))
    version = commit_once(config, NAME, one, lambda: write_arrow(config, NAME, one, rows))
    assert commit_once(config, NAME, one, lambda: pytest.fail("it already exists")) == version

    for path in config.state.glob("ledger.sqlite*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    other = begin(config, "other")
    assert other.number == one.number == held(config, NAME)
    with pytest.raises(FencedError, match='already has publication 1 of replay "one"') as error:
        commit_once(config, NAME, other, lambda: pytest.fail("nothing is written"))
    assert "rewindow ledger rebuild" in error.value.hint
    assert Table.open(config.stream_table(NAME)).version == version
