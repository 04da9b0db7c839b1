"""Client of Airflow's API on loopback: health, warm-up, login, the pool of Spark tasks."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import datetime
from typing import Any

from rewindow.embedded.environment import POOL

COMPONENTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(
    address: str,
    path: str,
    *,
    body: object = None,
    token: str = "",
    method: str = "",
    seconds_max: float = 10,
) -> tuple[int, Any]:
    """Returns the HTTP status and the decoded body of one call. If there is no response, the status
    is 0.

    Proxy settings of the environment are ignored, because Airflow listens on loopback.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    request = urllib.request.Request(
        f"{address}{path}",
        data=data,
        headers=headers,
        method=method or None,
    )
    try:
        with _DIRECT.open(request, timeout=seconds_max) as answer:
            return answer.status, _decoded(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, _decoded(error.read())
    except OSError:
        return 0, None


def health(address: str, since: float = 0.0) -> dict[str, str]:
    """Returns the state of each component as Airflow reports it.

    If the API does not respond, the result is empty.

    Args:
        address: address of Airflow.
        since: seconds since the epoch. A component without a heartbeat after this time is "silent";
            Airflow reports a dead one as healthy for another half a minute.
    """
    status, answer = call(address, "/api/v2/monitor/health", seconds_max=3)
    if status != 200:
        return {}
    return {
        name: _state(answer.get(name) or {}, f"latest_{name}_heartbeat", since)
        for name in COMPONENTS
    }


def unwell(address: str, since: float = 0.0) -> list[str]:
    """Returns the names of the components that are not healthy, see `health`."""
    found = health(address, since)
    return (
        [name.replace("_", "-") for name, state in found.items() if state != "healthy"]
        if found
        else ["api-server"]
    )


def login(address: str, user: str, password: str) -> str:
    """Returns a token for the API; empty if the login is rejected."""
    status, answer = call(address, "/auth/token", body={"username": user, "password": password})
    return str(answer["access_token"]) if status == 201 else ""


def warm_up(address: str) -> bool:
    """Calls the API for tasks to initialize it, and returns whether it is initialized.

    Its first call takes 4 to 11 s, which would otherwise delay the first task.
    """
    return call(address, "/execution/health", seconds_max=30)[0] == 200


def make_pool(address: str, token: str) -> bool:
    """Creates the pool of Spark tasks if it does not exist. Returns whether it exists.

    The slots of an existing pool are not changed.
    """
    body = {
        "name": POOL,
        "slots": 1,
        "description": "Spark jobs that may run at once",
        "include_deferred": False,
    }
    return call(address, "/api/v2/pools", body=body, token=token)[0] in (201, 409)


def _state(found: dict[str, Any], heartbeat: str, since: float) -> str:
    beat = found.get(heartbeat)
    silent = beat is not None and datetime.fromisoformat(beat).timestamp() < since
    return "silent" if silent else str(found.get("status"))


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
