"""Logs of staged tables that have lost commits: publish and resume name what is gone and what to
do. No JVM.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rewindow.application import Mode
from rewindow.errors import TableError
from rewindow.launcher import begin_attempt
from rewindow.ledger import Ledger
from rewindow.publication.publish import check_publishable
from rewindow.settings.config import Config
from rewindow.storage import Table
from tests.publication.staging import StagedReplay, rows_of, state_of


def staged(config: Config, mode: Mode) -> StagedReplay:
    """Returns an ended and checked replay of three groups."""
    replay = StagedReplay(config, "r", 100, 111, mode=mode)
    for first in (100, 104, 108):
        replay.group(first, first + 3, rows_of(range(first, first + 4)), state=state_of(first))
    return replay.end()


def publishing(config: Config, replay: StagedReplay) -> None:
    ledger = Ledger.open(config.ledger_url)
    check_publishable(config, ledger, ledger.replays.get("r"), replay.plan)


def resuming(config: Config, replay: StagedReplay) -> None:
    begin_attempt(config, "r")


Act = Callable[[Config, StagedReplay], None]


@pytest.mark.parametrize("act", [publishing, resuming])
def test_rows_lost_after_sealing_are_not_counted_as_at_most_once_losses(
    config: Config,
    act: Act,
) -> None:
    replay = staged(config, Mode.AT_MOST_ONCE)
    max((replay.root / "ranks" / "_delta_log").glob("*.json")).unlink()
    with pytest.raises(TableError) as error:
        act(config, replay)
    assert error.value.primary.startswith(
        'table "ranks" of replay "r" has lost its newest commits: windows [108, 111]'
    )
    assert "from a backup" in error.value.hint
    assert "rewindow abandon r" in error.value.hint
    assert Ledger.open(config.ledger_url).replays.get("r").state == "checked"


def test_windows_that_at_most_once_recorded_as_lost_are_published_as_lost(config: Config) -> None:
    replay = StagedReplay(config, "r", 100, 107, mode=Mode.AT_MOST_ONCE)
    replay.group(100, 103, rows_of(range(100, 104)), state=state_of(1))
    replay.lose(104, 107, ("delays", "ranks"), 2)
    replay.save(107, 2, state_of(2))
    replay.end()
    publishing(config, replay)


@pytest.mark.parametrize("act", [publishing, resuming])
@pytest.mark.parametrize("table", ["ranks", "checkpoints"])
@pytest.mark.parametrize("mode", [Mode.EXACTLY_ONCE, Mode.AT_MOST_ONCE])
def test_missing_commit_in_the_middle_of_the_log_is_reported_and_not_recomputed(
    config: Config,
    mode: Mode,
    table: str,
    act: Act,
) -> None:
    replay = staged(config, mode)
    file = replay.root / table / "_delta_log" / f"{2:020}.json"
    file.unlink()
    with pytest.raises(TableError) as error:
        act(config, replay)
    assert error.value.primary == f'log of table "{table}" lacks version 2, but has later ones'
    assert file.name in error.value.detail
    assert "rewindow abandon r" in error.value.hint


@pytest.mark.parametrize("act", [publishing, resuming])
def test_commit_covered_by_a_delta_checkpoint_is_not_missing(config: Config, act: Act) -> None:
    replay = staged(config, Mode.EXACTLY_ONCE)
    Table.open(replay.root / "ranks").delta.create_checkpoint()
    (replay.root / "ranks" / "_delta_log" / f"{2:020}.json").unlink()
    act(config, replay)


def test_every_table_with_a_gap_in_its_log_is_reported(config: Config) -> None:
    replay = staged(config, Mode.EXACTLY_ONCE)
    (replay.root / "ranks" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(
        TableError,
        match='log of table "ranks" lacks version 1, but has later ones',
    ):
        Table.open(replay.root / "ranks")
