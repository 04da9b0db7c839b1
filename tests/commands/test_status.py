"""`status` and `list`: the next command works, a cause is a few lines, losses stand beside what is
committed.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from rewindow.application import Mode
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.ledger.facts_index import segments_of
from rewindow.pages.replay_page import replay_facts
from rewindow.pages.report_data import read_report
from rewindow.planning import ReplayRequest, create_replay
from rewindow.settings.config import Config
from rewindow.storage.layout import FACTS
from tests.commands.conftest import Command
from tests.publication.staging import StagedReplay, rows_of, state_of
from tests.recovery.project import FIRST, WINDOWS, make_project

APPLICATIONS = Path(__file__).parents[1] / "recovery" / "applications"
JVM_STACK = "\n".join(
    [
        "Job aborted.",
        *(f"\tat org.apache.spark.A.b(A.scala:{n})" for n in range(140)),
        "Caused by: java.io.IOException: disk quota exceeded",
        "\tat java.base/B.c(B.java:1)",
    ]
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    config = make_project(tmp_path).config
    shutil.copytree(APPLICATIONS, tmp_path / "apps", ignore=shutil.ignore_patterns("__pycache__"))
    assert config.file is not None
    settings = config.file.read_text().replace(str(APPLICATIONS), str(tmp_path / "apps"))
    config.file.write_text(settings)
    monkeypatch.setenv("REWINDOW_CONFIG", str(config.file))
    return Config.load(config.file)


def fail(
    config: Config,
    replay_id: str,
    message: str,
    times: int = 1,
    **replay_options: object,
) -> None:
    """Plans a replay and lets attempts of it fail before they have committed anything."""
    create_replay(
        config,
        ReplayRequest("totals", replay_id=replay_id, group_windows=3, **replay_options),
    )  # type: ignore[arg-type]
    ledger = Ledger.open(config.ledger_url)
    for _ in range(times):
        epoch = ledger.attempts.next_epoch(replay_id)
        ledger.attempts.begin(
            replay_id,
            epoch,
            host="h",
            pid=1,
            process_group=1,
            process_identity="boot/0",
        )
        ledger.attempts.end(replay_id, epoch, AttemptEnd.FAILED, message)


def test_status_recommends_a_new_plan_after_a_code_change(
    run: Command,
    config: Config,
    tmp_path: Path,
) -> None:
    # The recommended commands are run as printed, because a resume would be rejected.
    fail(config, "one", "it failed", mode="at_least_once")
    text = run("status", "one")[1]
    assert "Next: rewindow replay --resume one" in text
    assert "container" not in text
    code = tmp_path / "apps" / "totals.py"
    code.write_text(code.read_text() + "\nNEW = 1\n")
    text = run("status", "one")[1]
    assert 'It cannot be resumed: code version of application "totals" has changed' in text
    assert "next attempt, expected" not in text
    [line] = [line for line in text.splitlines() if line.startswith("Next: ")]
    abandon, replay = (
        line.removeprefix("Next: Plan the range again: ").partition(";")[0].split(" && ")
    )
    assert shlex.split(replay)[1:] == [
        "replay",
        "totals",
        "--first",
        str(FIRST),
        "--last",
        str(FIRST + WINDOWS - 1),
        "--mode",
        "at_least_once",
        "--group-windows",
        "3",
    ]
    assert run(*shlex.split(abandon)[1:])[0] == 0
    assert run("plan", *shlex.split(replay)[2:])[0] == 0


def test_status_recommends_the_again_option_if_all_attempts_are_used_up(
    run: Command,
    config: Config,
) -> None:
    fail(config, "one", "it failed", times=5)
    text = run("status", "one")[1]
    assert "It cannot be resumed" in text and "rewindow replay --resume one --again" in text


def test_status_shows_the_hint_of_the_last_error_once(run: Command, config: Config) -> None:
    fail(
        config,
        "one",
        "it failed\n  Detail: Somewhere.\n  Hint: Turn it round: rewindow replay --resume one",
    )
    text = run("status", "one")[1]
    assert (
        text.count("Turn it round") == 1
        and "Next: Turn it round: rewindow replay --resume one" in text
    )


def test_status_shortens_a_jvm_stack_and_names_the_log_file(run: Command, config: Config) -> None:
    fail(config, "one", JVM_STACK)
    log = config.replay_root("one") / "outcome-1.log"
    log.write_text(JVM_STACK)
    text = run("status", "one")[1]
    assert "disk quota exceeded" in text and "Job aborted." in text and "A.scala" not in text
    assert str(log) in text and len(text.splitlines()) < 40
    found = json.loads(run("status", "one", "--json")[1])
    assert (found["message"], found["log"]) == (JVM_STACK, str(log)) and "--resume one" in found[
        "next"
    ]


def test_status_shows_lost_repeated_affected_and_committed_windows(
    run: Command,
    config: Config,
) -> None:
    replay = StagedReplay(config, "once", 100, 119, mode=Mode.AT_MOST_ONCE)
    replay.group(100, 109, rows_of(range(100, 110)), 1, state=state_of(1))
    replay.lose(110, 114, ["delays", "ranks"], 2)
    replay.group(115, 119, rows_of(range(115, 120)), 2, state=state_of(2))
    replay.end(epoch=2, ledger=False)
    ledger = Ledger.open(config.ledger_url)
    plan = replay.plan
    ledger.replays.create(
        "once",
        "app",
        100,
        119,
        plan.mode.name,
        plan.model_dump(mode="json"),
        "code-1",
    )
    for end in (AttemptEnd.KILLED, AttemptEnd.DONE):
        epoch = ledger.attempts.next_epoch("once")
        ledger.attempts.begin(
            "once",
            epoch,
            host="h",
            pid=1,
            process_group=1,
            process_identity="boot/0",
        )
        ledger.attempts.end("once", epoch, end, "")
    ledger.counts.rebuild("once", segments_of(replay.root / FACTS))
    assert (
        "20 of 20 committed, 5 lost, 0 repeated, 5 affected; [100, 119]" in run("status", "once")[1]
    )
    found = json.loads(run("status", "once", "--json")[1])
    assert (found["mark"], found["lost"], found["repeated"], found["affected"]) == (20, 5, 0, 5)
    assert json.loads(run("list", "--json")[1])[0]["lost"] == 5
    labels = [label for _, label in replay_facts(read_report(config, "once"))]
    assert "windows accounted for, 5 lost, 0 repeated, 5 affected" in labels
    shutil.rmtree(replay.root / "ranks")
    assert (
        "20 of 20 committed, 5 lost (repeated and affected are not known"
        in run("status", "once")[1]
    )


def test_status_of_a_stream_name_points_to_the_streams_command(
    config: Config,
    run: Command,
) -> None:
    code, text, errors = run("status", "events")
    assert (code, text) == (2, "") and 'replay "events" is unknown' in errors
    assert "rewindow streams show events" in errors
