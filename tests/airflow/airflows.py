"""A real Airflow of a test's own: started by `rewindow up` for a project folder, asked over its
API.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from rewindow import embedded as supervisor
from rewindow.embedded import api
from rewindow.embedded.processes import wait_until
from rewindow.settings.config import Config
from tests.airflow.conftest import in_force


@dataclass(frozen=True)
class LiveAirflow:
    address: str
    token: str

    def ask(self, path: str, body: object = None, method: str = "") -> Any:
        """Returns the answer to a call that has to succeed."""
        status, answer = api.call(
            self.address,
            f"/api/v2/{path}",
            body=body,
            token=self.token,
            method=method,
            seconds_max=60,
        )
        assert status in (200, 201, 204), (path, status, answer)
        return answer

    def runs(self, dag: str) -> dict[str, str]:
        """Returns the state of each run of a DAG, in the order of logical dates."""
        answer = self.ask(f"dags/{dag}/dagRuns?limit=100&order_by=logical_date")
        return {run["dag_run_id"]: run["state"] for run in answer["dag_runs"]}

    def until(self, condition: Callable[[], bool], what: str, seconds_max: float = 300) -> None:
        assert wait_until(condition, seconds_max, every_seconds=0.5), (
            f"waited {seconds_max} s until {what}"
        )


@contextmanager
def live_airflow(config: Config, **variables: str) -> Iterator[LiveAirflow]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with in_force(config), pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            running = supervisor.up(config, port=port)
            password = json.loads(running.password_file.read_text())["admin"]
            yield LiveAirflow(running.address, api.login(running.address, "admin", password))
        finally:
            supervisor.down(config)
