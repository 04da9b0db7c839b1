"""A fresh Airflow home for these tests; the variables are set before Airflow is imported for the first time."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

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
    """An empty migrated database."""
    from airflow.utils.db import initdb

    initdb()
