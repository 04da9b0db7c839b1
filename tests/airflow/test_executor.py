"""The executor of `rewindow up`: a task begins only when the API that it speaks with answers."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from airflow.executors.local_executor import LocalExecutor

from rewindow_airflow import executor
from rewindow_airflow.executor import AdoptingExecutor, api_answers


class Health(BaseHTTPRequestHandler):
    """An API of which only the health is asked."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/execution/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_tasks_stay_queued_while_the_api_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(LocalExecutor, "trigger_tasks", lambda self, slots: given.append(slots))
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        address = f"http://127.0.0.1:{server.server_port}/execution/"
        monkeypatch.setattr(executor, "get_execution_api_server_url", lambda conf: address)
        there = AdoptingExecutor(parallelism=2)
        there.queued_tasks = {"key": "workload"}  # type: ignore[dict-item]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        there.trigger_tasks(2)
        assert not api_answers(address.replace("execution", "elsewhere"))
        server.shutdown()
        thread.join()
    there.trigger_tasks(1)
    assert given == [2]
    there.queued_tasks = {}
    there.trigger_tasks(0)
    assert given == [2, 0]
