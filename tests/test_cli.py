"""The command line as a whole: version, help, what was probably meant, completion, and where there
is no project.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rewindow.cli import VERBS, app
from rewindow.settings.config import Config
from rewindow.version import VERSION
from tests.commands.conftest import Command, command, config, run
from tests.publication.staging import simple

__all__ = ["command", "config", "run"]
FREE_OF_PROJECTS = {"init", "jars", "operators"}
ARGUMENTS = {
    "abandon": ["x"], "certify": ["x", "y"], "check": ["x"], "check-determinism": ["x"],
    "deliver": ["x", "y"], "drill": ["x"], "errors": ["x"], "gaps": ["x"],
    "latency": ["x"], "ledger": ["rebuild"],
    "plan": ["x"], "play": ["x"], "publish": ["x"], "record": ["x"], "replay": ["x"], "set": ["x"],
    "state": ["x"], "status": ["x"],
    "undo": ["x"], "validate": ["x"], "compare": ["x"], "why": ["x", "1"],
}  # fmt: skip


def test_version_option_prints_the_package_version(run: Command) -> None:
    assert run("--version") == (0, f"rewindow {VERSION}\n", "")


@pytest.mark.parametrize(
    "words",
    [(), *[(verb,) for verb in VERBS], ("streams", "show"), ("ledger", "rebuild")],
)
def test_h_option_prints_the_help_of_every_command(run: Command, words: tuple[str, ...]) -> None:
    code, text, errors = run(*words, "-h")
    assert (code, errors) == (0, "") and "Usage:" in text
    assert run(*words, "--help")[1] == text


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in FREE_OF_PROJECTS])
def test_command_outside_a_project_fails_and_creates_nothing(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    monkeypatch.delenv("REWINDOW_CONFIG", raising=False)
    folder = tmp_path / "somewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code, text, errors = run(verb, *ARGUMENTS.get(verb, []))
    assert (code, text) == (2, "")
    assert "file rewindow.toml not found" in errors and "rewindow init" in errors
    assert f"{folder}, {tmp_path}, " in errors
    assert list(tmp_path.rglob("*")) == [folder]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("replai", "x"), "replay"),
        (("plan", "heartbeat_clikcs"), "heartbeat_clicks"),
        (("record", "clikcs"), "clicks"),
        (("gaps", "clikcs"), "clicks"),
        (("streams", "show", "app.delay"), "app.delays"),
        (("status", "frist-replay"), "first-replay"),
        (("status", "first"), "first-replay"),
        (("plan", "x", "--mode", "at_least_one"), "at_least_once"),
        (("why", "appp", "1"), "app"),
        (("list", "--state", "endet"), "ended"),
        (("streams", "shows", "x"), "show"),
        (("plan", "x", "--mod", "y"), "--mode"),
    ],
)
def test_misspelt_name_error_contains_a_suggestion(
    command: Command,
    config: Config,
    words: tuple[str, ...],
    meant: str,
) -> None:
    assert config.file is not None
    with config.file.open("a") as file:
        file.write('[streams.clicks]\nsource = "c.csv"\narrived_at = "at"\ninterval = "1 s"\n')
    simple(config, "first-replay", 100, 104)
    if "app.delay" in words:
        for name in ("app.delays", "app.delays.windows"):
            make_stream(config, name)
    code, _, errors = command(*words)
    assert code == 2
    answers = (f'Did you mean "{meant}"', f"Did you mean '{meant}'", f"Possible options: {meant}")
    assert any(answer in " ".join(errors.split()) for answer in answers), errors


def make_stream(config: Config, name: str) -> None:
    from rewindow.storage import create_table
    from rewindow.storage.streams import WINDOWS_SCHEMA, stream_properties

    create_table(
        config.stream_table(name),
        WINDOWS_SCHEMA,
        stream_properties({"width_ms": 1000, "origin_ms": 0}),
    )


def completed(shell: str, words: str) -> list[str]:
    """Returns what the shell is offered behind words, asked as its script asks."""
    environment = {
        "_REWINDOW_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": words,
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return CliRunner().invoke(app, [], env=environment, prog_name="rewindow").stdout.split()


@pytest.mark.parametrize(
    ("shell", "words", "offered"),
    [
        ("zsh", "rewindow rep", "replay"),
        ("fish", "rewindow status fir", "first-replay"),
        ("bash", "rewindow rep", "replay"),
        ("bash", "rewindow plan x --mo", "--mode"),
        ("bash", "rewindow plan x --mode at_m", "at_most_once"),
        ("bash", "rewindow streams sh", "show"),
        ("bash", "rewindow record cl", "clicks"),
        ("bash", "rewindow gaps cl", "clicks"),
        ("bash", "rewindow replay heart", "heartbeat_clicks"),
        ("bash", "rewindow status fir", "first-replay"),
        ("bash", "rewindow certify pub", "published"),
        ("bash", "rewindow replay --resume fir", "first-replay"),
    ],
)
def test_shell_completion_suggests_commands_options_and_names(
    config: Config,
    shell: str,
    words: str,
    offered: str,
) -> None:
    assert config.file is not None
    with config.file.open("a") as file:
        file.write('[streams.clicks]\nsource = "c.csv"\narrived_at = "at"\ninterval = "1 s"\n')
    simple(config, "first-replay", 100, 104)
    assert offered in " ".join(completed(shell, words))


def test_completion_without_a_project_suggests_and_creates_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("REWINDOW_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert [
        completed("bash", f"rewindow {words} ") for words in ("status", "record", "gaps", "plan")
    ] == [[]] * 4
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys
from rewindow.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*{"pyarrow", "pyspark", "sqlalchemy", "deltalake"} & set(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_commands_are_completed_and_listed_without_importing_their_modules(
    tmp_path: Path,
    words: list[str],
) -> None:
    asked = {"_REWINDOW_COMPLETE": "complete_bash", "COMP_WORDS": "rewindow ", "COMP_CWORD": "1"}
    file = tmp_path / "rewindow"
    file.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(file), *words],
        env={**os.environ, **({} if words else asked)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "replay" in done.stdout and done.stderr.strip() == ""
