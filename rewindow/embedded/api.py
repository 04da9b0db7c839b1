"""Speaks with Airflow's API on loopback: health, warm-up, login, the pool of Spark tasks."""

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
    """Returns HTTP status and decoded answer of one call; status 0 when nobody answers.

    Proxies of the environment are passed by: Airflow listens on loopback.
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
    """Returns the state of each component as Airflow reports it; empty while the API does not
    answer.

    Args:
        address: of Airflow.
        since: seconds since the epoch. A component without a heartbeat after it is "silent":
            Airflow itself calls a dead one healthy for half a minute.
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
    """Returns a token for the API, empty when the login is refused."""
    status, answer = call(address, "/auth/token", body={"username": user, "password": password})
    return str(answer["access_token"]) if status == 201 else ""


def warm_up(address: str) -> bool:
    """Returns whether the API that tasks speak with has been built.

    Its first call takes 4 to 11 s, which the first task would wait for otherwise.
    """
    return call(address, "/execution/health", seconds_max=30)[0] == 200


def make_pool(address: str, token: str) -> bool:
    """Returns whether the pool of Spark tasks is there; its slots are left as they are once it
    exists.
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
