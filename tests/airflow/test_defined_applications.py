"""The form and the range of a run of an application that a section of rewindow.toml defines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rewindow.loading.catalog import application_names
from rewindow.settings.config import ApplicationConfig
from rewindow_airflow.failures import NotYet
from rewindow_airflow.forms import applications
from rewindow_airflow.replay_requests import sealed_range
from tests.recovery.project import FIRST, WINDOWS, make_project


def top(stream: str) -> ApplicationConfig:
    operator: dict[str, Any] = {"operator": "TopN", "top": 1, "by": ["x"]}
    return ApplicationConfig.model_validate(
        {
            "window": "1 h",
            "operators": {"top": {**operator, "inputs": {"rows": stream}}},
            "outputs": {"top": {"source": "top", "key": ["x"]}},
        }
    )


def test_form_lists_applications_without_code_and_finds_their_range(tmp_path: Path) -> None:
    config = make_project(tmp_path).config
    config.application_settings.update(best=top("events"), later=top("elsewhere"))
    assert sorted(applications(config)) == application_names(config)
    assert applications(config)[-2:] == ["best", "later"]
    _, windows, final = sealed_range(config, "best")
    assert (windows.first, windows.last, final) == (FIRST, FIRST + WINDOWS - 1, False)
    with pytest.raises(NotYet, match="elsewhere"):
        sealed_range(config, "later")
