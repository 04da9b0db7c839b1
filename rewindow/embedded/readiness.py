"""Prepares a started Airflow so that a task triggered by a user runs immediately."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from rewindow.embedded import api
from rewindow.embedded.environment import dags_folder, password_file
from rewindow.json_files import reading_json
from rewindow.settings.config import Config

_DAGS_SECONDS_MAX = 30.0
_QUIET_SECONDS = 8.0
"""If no further file has been parsed for this time, the remaining files contain no DAG."""
_EVERY_SECONDS = 0.25


def make_ready(
    config: Config,
    address: str,
    is_healthy: Callable[[], bool],
    say: Callable[[str], None],
    stopping: threading.Event,
) -> bool:
    """Waits until components are healthy, the API is warmed up, the pool exists and the DAGs are
    parsed.

    Returns False after a request to stop.
    """

    def until(condition: Callable[[], bool], seconds_max: float = 1e9) -> bool:
        waited = 0.0
        while not condition() and waited < seconds_max:
            if stopping.wait(_EVERY_SECONDS):
                return False
            waited += _EVERY_SECONDS
        return waited < seconds_max

    steps: dict[str, Callable[[], bool]] = {
        "API answers": lambda: api.call(address, "/api/v2/version", seconds_max=3)[0] == 200,
        "API is warm": lambda: api.warm_up(address),
        "all components are healthy": is_healthy,
    }
    for words, condition in steps.items():
        if not until(condition):
            return False
        say(words)
    with reading_json(
        password_file(config),
        "file of passwords",
        "Delete it, then: rewindow down, rewindow up.",
    ):
        users = json.loads(password_file(config).read_text())
        user = "admin" if "admin" in users else next(iter(users))
        password = users[user]
    token = api.login(address, user, password)
    if not api.make_pool(address, token):
        say(f'cannot create the pool of Spark tasks: user "{user}" may not, or cannot log in')
    wanted = {path.name for path in dags_folder(config).glob("*.py")}
    seen: dict[str, float] = {}
    if (
        not until(lambda: _is_parsed(wanted, seen, address, token), _DAGS_SECONDS_MAX)
        and not stopping.is_set()
    ):
        say("not every DAG of the dags folder is known yet; see logs/dag-processor.log")
    return not stopping.is_set()


def _is_parsed(wanted: set[str], seen: dict[str, float], address: str, token: str) -> bool:
    """Returns whether every file has been parsed or contains no DAG, or a file has an import error.

    Args:
        wanted: names of the files in the DAGs folder.
        seen: file to the time at which its DAG was first seen; this function adds files.
        address: address of Airflow.
        token: token for its API.
    """
    known, errors = (
        api.call(address, f"/api/v2/{what}?limit=100", token=token)[1] or {}
        for what in ("dags", "importErrors")
    )
    now = time.monotonic()
    for dag in known.get("dags", []):
        seen.setdefault(dag["relative_fileloc"], now)
    is_quiet = bool(seen) and now - max(seen.values()) > _QUIET_SECONDS
    return wanted <= set(seen) or is_quiet or bool(errors.get("total_entries"))
