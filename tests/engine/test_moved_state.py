"""A state folder that is moved: everything in it goes on, since nothing in it names the place where
it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from rewindow.certificate.certificate import certify
from rewindow.crash import Step
from rewindow.launcher import begin_attempt
from rewindow.ledger import Ledger, ReplayState
from rewindow.pages.layers import read_layers
from rewindow.planning import ReplayRequest, create_replay
from rewindow.publication.publish import publish
from rewindow.publication.undo import undo
from rewindow.quality import check
from rewindow.retention.purge import purge
from rewindow.settings.config import Config
from tests.commands.conftest import Command, run
from tests.engine.conftest import Crash
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, WINDOWS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rewindow.engine.attempt import Attempt

__all__ = ["run"]
HALF = FIRST + WINDOWS // 2
_CREATED_AT = re.compile(rb'"location":"[^"]*"')
"""What delta-rs notes in the log of a new table, and nothing reads."""


@pytest.fixture
def before(attempt: Callable[..., Attempt], spark: SparkSession) -> Config:
    """A project with a published half, a replay of the other half that was killed, and two that
    were only planned.
    """
    config: Config = attempt.config  # type: ignore[attr-defined]
    finish(config, spark, attempt, "first", last=HALF - 1)
    with pytest.raises(Crash):
        attempt("totals", "killed", (Step.AFTER_FACTS, 2), first=HALF).run()
    starts = {
        "from_other": {"first": HALF, "state_from": "first"},
        "warmed_up": {"first": HALF + 6},
    }
    plans = {
        name: create_replay(config, ReplayRequest("totals", replay_id=name, **replay_options))  # type: ignore[arg-type]
        for name, replay_options in starts.items()
    }
    assert {name: plan.start.source for name, plan in plans.items()} == {
        "from_other": "replay",
        "warmed_up": "warm_up",
    }
    return config


def finish(
    config: Config,
    spark: SparkSession,
    attempt: Callable[..., Attempt],
    name: str,
    **replay_options: int,
) -> None:
    made = attempt("totals", name, **replay_options)
    made.run()
    made.ledger.attempts.end(name, made.epoch, "done")
    check(config, name)
    publish(config, name, accept="a test")


def moved(config: Config) -> Config:
    there = config.root.with_name("moved")
    config.root.rename(there)
    return Config.load(there / "rewindow.toml")


def naming(config: Config, place: Path) -> list[Path]:
    """Returns the files of a state folder that name a place; scratch of processes does not
    count.
    """
    parts = [part for part in config.state.iterdir() if part.name not in ("tmp", "scratch")]
    files = [path for part in parts for path in (part, *part.rglob("*")) if path.is_file()]
    assert len(files) > 50
    return [
        path for path in files if str(place).encode() in _CREATED_AT.sub(b"", path.read_bytes())
    ]


@pytest.mark.long
def test_replay_continues_in_a_moved_state_folder(
    before: Config,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    run: Command,
) -> None:
    config = moved(before)
    job = jobs_here(spark)
    for name in ("killed", "from_other", "warmed_up"):
        submission = begin_attempt(config, name, again=True)
        assert submission is not None
        assert job(submission, lambda line: None).facts["windows"] > 0
    ledger = Ledger.open(config.ledger_url)
    assert certify(config, "killed", "from_other").verdict == "equal"
    assert all(
        len(layer.values) for layer in read_layers(config, ledger.replays.get("killed").read_plan())
    )
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    for words in (("list", "totals"), ("status", "killed"), ("why", "totals", HALF), ("streams",)):
        assert run(*words)[0] == 0, words

    check(config, "killed")
    publish(config, "killed", accept="a test")
    assert certify(config, "published", "from_other").verdict == "equal"
    undo(config, "killed")
    assert ledger.replays.get("killed").state is ReplayState.UNDONE
    assert {entry.replay_id for entry in purge(config, timedelta(0), delete=True).deleted} >= {
        "first",
        "killed",
    }
    new = create_replay(config, ReplayRequest("totals", first=HALF))
    assert new.start.source == "published"


def test_files_of_a_state_folder_do_not_contain_its_path(before: Config) -> None:
    # Scratch files of a process and Delta's note of a creation do not count.
    assert naming(before, before.state) == []
