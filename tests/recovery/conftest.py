"""One project for all recovery tests, with one undisturbed replay to hold the others against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rewindow.recovery import Plan
from tests.recovery import project as projects
from tests.recovery.here import jobs_here
from tests.recovery.project import Project, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("recovery"))


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts run in the process of the test, and die there by an exception."""
    monkeypatch.setattr(projects, "run", jobs_here(spark))


@pytest.fixture(scope="session")
def baseline(project: Project, spark: SparkSession) -> Plan:
    """An undisturbed replay in one group."""
    plan = project.plan("baseline", "exactly_once", group_windows=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects, "run", jobs_here(spark))
        project.attempts("baseline", [])
    return plan
