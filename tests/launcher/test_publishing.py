"""Publishing as a verb: in the caller's process, without a JVM; a job only where a table needs
Spark, or in a drill.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rewindow.errors import InputError, RewindowError
from rewindow.launcher import Outcome, Submission, loop, verbs
from rewindow.launcher.attempts import plain_submission
from rewindow.ledger import Ledger, ReplayState
from rewindow.settings.config import Config
from rewindow.storage import Table
from tests.publication.kills import settings
from tests.publication.staging import simple


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A project of its own, which a process can load."""
    return settings(tmp_path)


def stage(config: Config) -> None:
    simple(config, "one", 100, 103, publishable=True, outputs=("ranks",))


def test_publish_and_undo_log_the_result_without_starting_a_process(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def never(*given: object, **named: object) -> Outcome:
        raise AssertionError("a job was begun")

    monkeypatch.setattr(loop, "run", never)
    stage(config)
    children = psutil.Process().children(recursive=True)
    result = verbs.publish(config, "one")
    assert result.versions.keys() == {"app.ranks", "app.ranks.windows", "app.checkpoints"}
    published = "windows [100, 103] (1970-01-05T04:00:00Z to 1970-01-05T08:00:00Z) of app published"
    assert f"{published} as publication 1" in caplog.messages
    assert verbs.undo(config, "one").kind == "undo"
    assert psutil.Process().children(recursive=True) == children
    with pytest.raises(InputError, match='replay "nosuch" is unknown'):
        verbs.publish(config, "nosuch")


def test_table_that_requires_spark_is_published_by_a_job_with_all_settings(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage(config)
    verbs.publish(config, "one")
    Table.open(config.stream_table("app.ranks")).delta.alter.add_constraint(
        {"known": "window_id > 0"}
    )
    begun: list[Submission] = []

    def run(submission: Submission, on_line: Callable[[str], None]) -> Outcome:
        begun.append(submission)
        return Outcome(1, "no Spark here", retryable=False, facts={})

    monkeypatch.setattr(loop, "run", run)
    with pytest.raises(RewindowError, match="no Spark here"):
        verbs.undo(config, "one")
    assert 'table "app.ranks" has a constraint: starting Spark' in caplog.messages
    assert begun[0].command[0] == sys.executable and begun[0].command[2:] == [
        "--replay",
        "one",
        "--undo",
    ]
    ledger = Ledger.open(config.ledger_url)
    assert (
        ledger.publications.unfinished() == []
        and ledger.replays.get("one").state is ReplayState.PUBLISHED
    )


def test_job_receives_caller_settings_that_are_not_in_a_file(
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conf = {"spark.yarn.queue": "nightly", "spark.sql.partitionBy": "x"}
    spark = config.spark.model_copy(update={"conf": conf, "master": "yarn"})
    changed = config.model_copy(update={"spark": spark})
    changed._root = config.root
    for name, value in plain_submission(changed, "publish.py", [], "one").environment.items():
        monkeypatch.setenv(name, value)
    there = Config.load()
    assert conf.items() <= there.spark.conf.items() and there.spark.master == "yarn"


def test_drill_kills_a_publication_job_and_the_next_job_rolls_it_forward(config: Config) -> None:
    stage(config)
    result = verbs.publish(config, "one", crash="opened")
    assert (result.number, result.rolled_forward, result.already) == (1, [1], True)
