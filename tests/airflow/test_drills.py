"""The task that kills jobs on purpose, with the command in a real process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from rewindow_airflow.drills import DrillOperator
from rewindow_airflow.forms import drill_params
from tests.airflow.conftest import ROOT, in_force
from tests.airflow.small_project import make_project, record
from tests.airflow.test_operators import Store


def execute(config: Config, **form: Any) -> None:
    """Executes the task with the values of a form."""
    fields = {name: field.value for name, field in drill_params(["clicks_by_page"]).items()}
    context = {
        "params": fields | {"application": "clicks_by_page"} | form,
        "task_state_store": Store(),
    }
    with in_force(config):
        DrillOperator(task_id="drill_application").execute(context)  # type: ignore[arg-type]


def test_drill_fails_permanently_if_drills_are_not_allowed(tmp_path: Path) -> None:
    settings = make_project(tmp_path, ROOT)
    settings.write_text(settings.read_text().replace("drills = true", "drills = false"))
    with pytest.raises(AirflowFailException, match="drills are not enabled in this project"):
        execute(Config.load(settings))


@pytest.mark.recovery_matrix
def test_drill_kills_the_jobs_selected_in_the_form(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    config = Config.load(make_project(tmp_path, ROOT))
    record(config)
    execute(config, windows=72, kills=1, seed=3, modes=["at_least_once", "at_most_once"])
    assert Ledger.open(config.ledger_url).replays.newest(without_samples=True) == []
    lines = caplog.messages
    rows = [line.split() for line in lines if line.startswith(("at_least_once ", "at_most_once "))]
    assert [row[0] for row in rows] == ["at_least_once", "at_most_once"]
    assert all("kept" in row for row in rows), lines
