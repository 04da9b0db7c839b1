"""Airflow's settings as environment variables, and its secrets in files with mode 0600."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from rewindow.errors import InputError, ResourceError
from rewindow.json_files import reading_json
from rewindow.settings.config import Config
from rewindow.version import PACKAGE

HOST = "127.0.0.1"
PORT_DEFAULT = 8080
POOL = "spark"
_DATABASE = "airflow.db"


def airflow_home(config: Config) -> Path:
    """Returns the folder in which Airflow stores its state."""
    return (config.state / "airflow").local()


def password_file(config: Config) -> Path:
    """Returns the file with the passwords of Airflow's users. It is JSON with users as keys."""
    return airflow_home(config) / "passwords.json"


def port_of(config: Config) -> int:
    """Returns the port of the last start. Before the first start, returns the default port."""
    kept = airflow_home(config) / "port"
    return int(kept.read_text()) if kept.is_file() else PORT_DEFAULT


def airflow_version() -> str:
    """Returns the version of the installed Airflow.

    Raises:
        ResourceError: Airflow is not installed in this Python environment.
    """
    try:
        return version("apache-airflow")
    except PackageNotFoundError as error:
        raise ResourceError(
            "Airflow is not installed",
            hint='Install it with Rewindow: pip install "CHECKOUT[airflow]", or for a wheel '
            '"rewindow[airflow] @ file:///FOLDER/WHEEL".',
        ) from error


def dags_folder(config: Config) -> Path:
    """Returns the folder of DAGs.

    It is next to the settings file. If there is none, the examples of Rewindow are used.

    Raises:
        InputError: neither exists.
    """
    examples = [PACKAGE / "example_dags", PACKAGE.parent / "dags"]
    for folder in (config.root / "dags", *examples):
        if any(folder.glob("*.py")):
            return folder
    raise InputError(
        f'folder "{config.root / "dags"}" contains no DAG, and Rewindow is installed without its '
        "examples",
        hint="Install the package by pip, or a checkout in place: pip install -e CHECKOUT",
    )


def airflow_environment(config: Config, port: int | None = None) -> dict[str, str]:
    """Returns the complete environment for Airflow's commands and tasks. Creates secrets on first
    use.

    Settings that the supervisor relies on replace those of the caller's environment; others are
    kept. Some settings were tuned by measurement: with a short idle sleep and a short heartbeat, a
    chain of five tasks takes 2 s instead of 7.
    """
    home = airflow_home(config)
    port = port or port_of(config)
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    users = environment.setdefault("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", "admin:admin")
    environment |= _places(config) | _network(port) | _secrets(home) | _tuning()
    environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"] = str(
        _passwords(config, users)
    )
    environment["AIRFLOW_CONN_REWINDOW_SPARK"] = json.dumps(
        {"conn_type": "spark", "host": config.spark.master}
    )
    for name in ("NO_PROXY", "no_proxy"):
        environment[name] = ",".join(filter(None, (os.environ.get(name), HOST, "localhost")))
    return environment


def _places(config: Config) -> dict[str, str]:
    home = airflow_home(config)
    dags = dags_folder(config)
    bundle = {
        "name": "rewindow",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(dags), "refresh_interval": 10},
    }
    own = () if _is_installed() else (str(PACKAGE.parent), str(PACKAGE.parent / "plugins"))
    places = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(config.root / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / _DATABASE}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "PATH": os.pathsep.join(
            (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        ),
        "PYTHONPATH": os.pathsep.join(filter(None, (*own, os.environ.get("PYTHONPATH")))),
        "REWINDOW_STATE": str(config.state),
    }
    settings = config.root / "rewindow.toml"
    given = os.environ.get("REWINDOW_CONFIG")
    if given or settings.is_file():
        places["REWINDOW_CONFIG"] = str(Path(given).resolve()) if given else str(settings)
    return places


def _is_installed() -> bool:
    """Returns whether Python finds Rewindow without the folder of the package on its path.

    A checkout also has the metadata of the package. If both are on the path, Airflow finds the
    plugin twice, and its first page shows an error.
    """
    found = distributions(name="rewindow")
    return any(Path(str(one.locate_file(""))).resolve() != PACKAGE.parent for one in found)


def _network(port: int) -> dict[str, str]:
    return {
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__ENABLE_SWAGGER_UI": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address(port)}/execution/",
        "AIRFLOW__CORE__AUTH_MANAGER": (
            "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
        ),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def _tuning() -> dict[str, str]:
    return {
        # A replay outlives the scheduler, see plugins/rewindow_airflow/executor.py.
        "AIRFLOW__CORE__EXECUTOR": "rewindow_airflow.executor.AdoptingExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    }


def address(port: int) -> str:
    """Returns the address of Airflow for a port on this machine."""
    return f"http://{HOST}:{port}"


def _secrets(home: Path) -> dict[str, str]:
    """Returns the three secrets. They are kept across restarts; otherwise sessions and stored
    values would be lost.
    """
    fresh = {
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(64),
        "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
    }
    return _kept(home / "secrets.json", fresh)


def _passwords(config: Config, users: str) -> Path:
    names = [user.partition(":")[0].strip() for user in users.split(",")]
    _kept(password_file(config), {name: secrets.token_urlsafe(12) for name in names})
    return password_file(config)


def _kept(path: Path, fresh: dict[str, str]) -> dict[str, str]:
    """Returns the values in a file with mode 0600. New values are added for missing names."""
    kept: dict[str, str] = {}
    if path.is_file():
        with reading_json(
            path,
            "file of secrets",
            "Delete it; the next rewindow up makes new ones, so log in again.",
        ):
            kept = dict(json.loads(path.read_text()).items())
    values = fresh | kept
    if values != kept:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(values, file, indent=2)
        draft.replace(path)
    return values
