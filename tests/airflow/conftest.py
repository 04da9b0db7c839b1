"""A fresh Airflow home for these tests; the variables are set before Airflow is imported for the
first time.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rewindow.settings.config import Config
from tests.airflow.small_project import FIRST_DAY, make_project

ROOT = Path(__file__).parents[2]
HOME = Path(tempfile.mkdtemp(prefix="rewindow-airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

os.environ |= {
    "AIRFLOW_CONN_REWINDOW_SPARK": '{"conn_type": "spark", "host": "local[2]"}',
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__API_AUTH__JWT_SECRET": "not-a-secret-but-long-enough-for-sha-512-" + 40 * "x",
    "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
    "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
}
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
for folder in (str(ROOT / "plugins"), str(ROOT)):
    if folder not in sys.path:
        sys.path.insert(0, folder)


@pytest.fixture(scope="session")
def airflow_database() -> None:
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The settings of a small project; `in_force` makes them those of DAGs and jobs."""
    return Config.load(make_project(tmp_path_factory.mktemp("project"), ROOT))


@contextmanager
def in_force(project: Config) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("REWINDOW_STATE", "REWINDOW_LEDGER"):
            patch.delenv(name, raising=False)
        patch.setenv("REWINDOW_CONFIG", str(project.file))
        yield


@pytest.fixture(scope="session")
def dags(airflow_database: None, project: Config) -> Mapping[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    with in_force(project):
        bag = DagBag(dag_folder=str(ROOT / "dags"), collect_dags=True)
    assert not bag.import_errors
    for task in (task for dag in bag.dags.values() for task in dag.tasks):
        task.retries = 0  # A failure is to be seen at once.
    return bag.dags


@pytest.fixture(scope="session")
def recorded(dags: Mapping[str, Any], project: Config) -> Config:
    with in_force(project):
        assert_success(dags["record_streams"].test(logical_date=FIRST_DAY))
    return project


def assert_success(run: Any) -> None:
    states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()}
    assert run.state == "success", states
