"""Fixtures of the command tests: an empty project of its own for each test, and commands run on it
in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rewindow.cli import main
from rewindow.settings.config import Config

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    file = tmp_path / "rewindow.toml"
    file.write_text('state = "state"\n')
    monkeypatch.setenv("REWINDOW_CONFIG", str(file))
    return Config.load(file)


@pytest.fixture
def command(config: Config, run: Command) -> Command:
    return run


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process; returns exit code, output and errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        code = end.value.code
        return (code if isinstance(code, int) else 0, *capfd.readouterr())

    return call
