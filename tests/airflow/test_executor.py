"""The executor of `rewindow up`: a task begins only when the API that it speaks with answers."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from airflow.executors.base_executor import RunningRetryAttemptType
from airflow.executors.local_executor import LocalExecutor
from airflow.utils.state import TaskInstanceState

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


def test_answered_question_waits_until_the_end_of_its_first_part_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "api_answers", lambda address: True)
    started: list[str] = []

    def process(self: LocalExecutor, workloads: list[SimpleNamespace]) -> None:
        for workload in workloads:
            started.append(self.queued_tasks.pop(workload.key).key)

    monkeypatch.setattr(LocalExecutor, "_process_workloads", process)
    monkeypatch.setattr(
        AdoptingExecutor, "order_queued_tasks_by_priority", lambda self: self.queued_tasks.items()
    )
    there = AdoptingExecutor(parallelism=2)
    part = SimpleNamespace(key="question")
    there.queued_tasks = {"question": part}  # type: ignore[dict-item]
    there.trigger_tasks(2)
    there.queued_tasks = {"question": part, "other": SimpleNamespace(key="other")}  # type: ignore[dict-item]
    there.trigger_tasks(2)
    assert started == ["question", "other"] and list(there.queued_tasks) == ["question"]
    there.change_state("question", TaskInstanceState.SUCCESS)  # type: ignore[arg-type]
    there.trigger_tasks(2)
    assert started == ["question", "other", "question"]


def test_wait_for_a_killed_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    there = AdoptingExecutor(parallelism=2)
    there._unreported = {"killed"}
    monkeypatch.setattr(RunningRetryAttemptType, "MIN_SECONDS", -1)
    assert [there._may_be_reported("killed") for _ in range(2)] == [True, False]
