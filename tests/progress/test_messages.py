"""Messages that the library logs: where each process shows them, and how often.

tests/airflow/test_supervisor.py has the log of a task.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rewindow.launcher.attempts import job_file
from rewindow.progress.listener import Lines
from rewindow.progress.messages import messages_shown, pass_on
from rewindow.settings.config import Config
from rewindow.version import PACKAGE
from tests.publication.kills import settings
from tests.publication.staging import simple

LOGGER = logging.getLogger("rewindow.room.module")
PUBLISHED = (
    "windows [100, 103] (1970-01-05T04:00:00Z to 1970-01-05T08:00:00Z) of app published as "
    "publication 1"
)
MISSING = "1 of 5 windows are not sealed and are skipped"
PROGRAM = """
import logging, sys
import rewindow

if "--shows-all" in sys.argv:
    logging.basicConfig(level=logging.INFO)
project = rewindow.Project()
project.publish("one")
project.play("app.ranks", lambda data: None, speed=None, first=100, last=104)
"""
"""A program that uses the library."""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = settings(tmp_path)
    simple(config, "one", 100, 103, publishable=True, outputs=("ranks",))
    return config


def run(config: Config, *command: object) -> tuple[str, list[str]]:
    """Runs a Python process in a project; returns its output, and its lines on standard error."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "REWINDOW_CONFIG": str(config.file), "PYTHONPATH": str(PACKAGE.parent)},
    )
    return done.stdout, done.stderr.splitlines()


def test_message_is_shown_once_even_if_other_code_has_configured_logging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shown: list[str] = []
    with messages_shown(shown.append):
        LOGGER.info("100 % done")
        LOGGER.warning("a file is damaged")
        LOGGER.debug("a detail")
    LOGGER.info("after it")
    assert shown == ["100 % done", "warning: a file is damaged"]
    assert caplog.messages == ["after it"]


def test_job_log_line_keeps_its_level_and_has_its_container_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[str] = []
    lines = ["resumed", "warning: a file is damaged", "", '{"rewindow": "recording"}']
    for line in [*lines, "WARNING: Using incubator modules: jdk.incubator.vector"]:
        pass_on(line, Lines(events.append), "sums: ")
    assert [(entry.levelname, entry.getMessage()) for entry in caplog.records] == [
        ("INFO", "sums: resumed"),
        ("WARNING", "sums: a file is damaged"),
    ]
    assert events == ['{"rewindow": "recording"}']


def test_command_line_shows_each_message_once_on_standard_error(config: Config) -> None:
    output, errors = run(config, "-m", "rewindow.cli", "publish", "one", "--json")
    assert json.loads(output)["publication"]["number"] == 1
    assert errors.count(PUBLISHED) == 1
    play = ("play", "app.ranks", "--first", 100, "--last", 104, "--speed", "max")
    output, errors = run(config, "-m", "rewindow.cli", *play)
    assert all(map(json.loads, output.splitlines()))
    assert errors.count(f"warning: {MISSING}") == 1 and PUBLISHED not in errors


def test_job_prints_each_message_once_for_its_launcher(config: Config) -> None:
    output, errors = run(config, job_file("publish.py"), "--replay", "one")
    assert output.splitlines().count(PUBLISHED) == 1 and PUBLISHED not in errors


def test_program_shows_only_warnings_until_logging_is_configured(config: Config) -> None:
    output, errors = run(config, "-c", PROGRAM, "--shows-all")
    room = "rewindow.publication.actions"
    assert output == "" and errors.count(f"INFO:{room}:{PUBLISHED}") == 1
    assert errors.count(f"WARNING:rewindow.playback.player:{MISSING}") == 1
    assert run(config, "-c", PROGRAM) == ("", [MISSING])
