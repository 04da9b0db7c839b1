"""One project for all recovery tests, with one undisturbed replay to hold the others against."""

from __future__ import annotations

import pytest

from rewindow.recovery import Plan
from tests.recovery.project import Project, make_project


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A recorded stream and an application."""
    return make_project(tmp_path_factory.mktemp("recovery"))


@pytest.fixture(scope="session")
def baseline(project: Project) -> Plan:
    """An undisturbed replay in one group."""
    plan = project.plan("baseline", "exactly_once", group_windows=100)
    project.attempts("baseline", [])
    return plan
