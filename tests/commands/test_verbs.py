"""The command line, verb after verb, on one real replay: what it prints for people and programs,
and exit codes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rewindow import launcher
from rewindow.cli import VERBS
from rewindow.launcher import loop
from rewindow.planning import ReplayRequest, create_replay
from tests.commands.conftest import Command
from tests.recovery import project as projects
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST, WINDOWS, Project, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = FIRST + WINDOWS - 1


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Project:
    project = make_project(tmp_path_factory.mktemp("verbs"))
    project.plan("one", "exactly_once", group_windows=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects, "run", jobs_here(spark))
        project.attempts("one", [])
    return project


@pytest.fixture(autouse=True)
def in_force(project: Project, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """The commands find the project's settings; publications are jobs in this process, unless a
    test says otherwise.
    """
    monkeypatch.setenv("REWINDOW_CONFIG", str(project.config.file))
    monkeypatch.setattr(loop, "run", jobs_here(spark))


def test_every_read_command_has_a_table_and_json_with_the_same_content(run: Command) -> None:
    for verb, words, key in [
        (("list", "totals"), "exactly once", None),
        (("status", "one"), f"{WINDOWS} of {WINDOWS} committed", "mark"),
        (("why", "totals", FIRST + 1), "checkpoint at or before this window", "window"),
        (("plan", "totals"), "start state", "windows"),
        (("purge",), "would be freed", "bytes"),
        (("certify", "one", "one"), "equal", "verdict"),
    ]:
        code, text, _ = run(*verb)
        assert code == 0 and words in text, (verb, text)
        code, text, _ = run(*verb, "--json")
        found = json.loads(text)
        assert code == 0 and (key is None or key in found), (verb, text)
    assert run("why", "one", "1970-02-11T17:30Z")[1].startswith(f"window {FIRST + 1}, ")


def test_status_page_prints_the_path_of_the_replay_page(run: Command) -> None:
    code, text, _ = run("status", "one", "--page")
    assert code == 0
    assert "totals" in Path(text.strip()).read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("status", "nosuch"), 2, 'replay "nosuch" is unknown'),
        (("why", "nosuch", 1), 2, 'no replay or application is named "nosuch"'),
        (("why", "one", LAST + 1), 2, "is not in any replay of one"),
        (("list", "--state", "nosuch"), 2, 'state "nosuch" is unknown'),
        (("certify", "one", "nosuch"), 2, 'replay "nosuch" is unknown'),
        (("certify", "one", "one", "--first", FIRST), 2, "both --first and --last"),
        (("plan", "nosuch"), 2, 'application "nosuch" is unknown'),
        (("gaps", "nosuch"), 2, 'stream "nosuch"'),
        (("replay",), 2, "cannot replay: neither"),
        (("replay", "--resume", "nosuch"), 2, 'replay "nosuch" is unknown'),
        (("abandon", "nosuch"), 2, 'replay "nosuch" is unknown'),
        (("publish", "nosuch"), 2, 'replay "nosuch" is unknown'),
        (("record", "nosuch"), 2, 'stream "nosuch"'),
    ],
)
def test_bad_input_is_an_error_with_its_exit_code_and_no_traceback(
    run: Command,
    arguments: tuple[object, ...],
    code: int,
    words: str,
) -> None:
    found, _, errors = run(*arguments)
    assert (found, "Traceback" in errors) == (code, False)
    assert words in errors


def test_replay_is_checked_published_undone_purged_and_survives_a_lost_ledger(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = make_project(tmp_path)
    monkeypatch.setenv("REWINDOW_CONFIG", str(project.config.file))
    assert (
        json.loads(run("replay", "totals", "--id", "one", "--group-windows", 12, "--json")[1])[
            "replay"
        ]
        == "one"
    )
    create_replay(project.config, ReplayRequest("totals", replay_id="dead"))
    assert run("publish", "one")[0] != 0
    assert json.loads(run("replay", "--resume", "one", "--json")[1])["replay"] == "one"
    assert json.loads(run("check", "one", "--json")[1])["verdict"] == "passed"
    assert "gate passed" in run("check", "one")[1]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "run", launcher.run)
        assert json.loads(run("publish", "one", "--json")[1])["publication"]["kind"] == "publish"
    assert run("certify", "one", "published")[0] == 0
    assert "is abandoned" in run("abandon", "dead", "--reason", "a test")[1]
    assert run("replay", "--resume", "dead")[0] == 2
    folders = json.loads(run("purge", "--yes", "--json")[1])["folders"]
    assert {Path(folder).parent.name for folder in folders} == {"one", "dead"}
    assert not any(Path(folder).exists() for folder in folders)
    assert json.loads(run("undo", "one", "--json")[1])["publication"]["kind"] == "undo"
    assert "took publication" in run("certify", "one", "published")[2]
    code, _, errors = run("status", "one", "--page")
    assert code != 0 and "its staged tables are gone" in errors
    assert "purged: checkpoints" in run("why", "one", FIRST + 1)[1]
    (project.config.state / "ledger.sqlite").unlink()
    assert run("ledger", "rebuild")[0] == 0
    assert '"one"' in run("list", "--json")[1]


def test_every_command_has_help_with_an_example(run: Command) -> None:
    for verb in VERBS:
        code, text, _ = run(verb, "--help")
        assert code == 0
        assert verb == "ledger" or f"rewindow {verb}" in text, verb


def test_help_truncates_no_option_on_a_narrow_terminal(
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    for verb in VERBS:
        assert "\u2026" not in run(verb, "--help")[1], verb
