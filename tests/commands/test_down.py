"""`rewindow down` without a running Airflow."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rewindow.cli import app


def test_down_reports_that_airflow_was_not_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rewindow.toml").touch()
    monkeypatch.setenv("REWINDOW_CONFIG", str(tmp_path / "rewindow.toml"))
    monkeypatch.setenv("REWINDOW_STATE", str(tmp_path / "state"))
    result = CliRunner().invoke(app, ["down"])
    assert (result.exit_code, result.output) == (0, "Airflow was not running\n")
