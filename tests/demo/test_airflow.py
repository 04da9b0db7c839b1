"""The demo as a client of Airflow's API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rewindow.demo.airflow import Airflow, Task
from rewindow.errors import ResourceError, RewindowError
from tests.demo.fake_airflow import FakeAirflow

RUN = "/api/v2/dags/replay_windows/dagRuns/run%201"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAirflow]:
    served = FakeAirflow(tmp_path)
    yield served
    served.close()


def test_trigger_sends_the_form_under_the_requested_run_id(fake: FakeAirflow) -> None:
    fake.answers["POST", "/api/v2/dags/replay_windows/dagRuns"] = {"dag_run_id": "run 1"}
    assert Airflow(fake.running).trigger("run 1", {"mode": "exactly_once"}, "note") == "run 1"
    body = {
        "dag_run_id": "run 1",
        "logical_date": None,
        "conf": {"mode": "exactly_once"},
        "note": "note",
    }
    assert fake.calls == [("POST", "/api/v2/dags/replay_windows/dagRuns", body)]


def test_login_is_repeated_when_the_token_has_expired(fake: FakeAirflow) -> None:
    fake.answers["GET", RUN] = {"state": "running"}
    airflow = Airflow(fake.running)
    assert airflow.state("run 1") == "running"
    fake.expire()
    assert airflow.state("run 1") == "running"


def test_replay_id_is_empty_until_the_plan_task_has_ended(fake: FakeAirflow) -> None:
    airflow = Airflow(fake.running)
    assert airflow.replay_id("run 1") == ""
    fake.answers["GET", f"{RUN}/taskInstances/plan_replay/xcomEntries/replay_id"] = {"value": "r"}
    assert airflow.replay_id("run 1") == "r"


def test_tasks_without_a_state_are_not_started(fake: FakeAirflow) -> None:
    found = [
        {"task_id": "a", "state": None, "try_number": 0, "map_index": -1},
        {"task_id": "b", "state": "running", "try_number": 2, "map_index": 1},
        {"task_id": "b", "state": "success", "try_number": 1, "map_index": 0},
    ]
    fake.answers["GET", f"{RUN}/taskInstances"] = {"task_instances": found}
    expected = {"a": Task("", 0), "b": Task("running", 2, 1)}
    assert Airflow(fake.running).tasks("run 1") == expected


def test_rejected_request_raises_an_error_with_the_reason_of_airflow(fake: FakeAirflow) -> None:
    fake.answers["POST", "/api/v2/dags/replay_windows/dagRuns"] = (
        400,
        {"detail": "reason is too short"},
    )
    with pytest.raises(RewindowError, match="status 400") as caught:
        Airflow(fake.running).trigger("run 1", {}, "")
    assert "reason is too short" in str(caught.value)


def test_unreachable_airflow_raises_a_separate_error_with_a_hint(fake: FakeAirflow) -> None:
    airflow = Airflow(fake.running)
    fake.close()
    with pytest.raises(ResourceError, match="does not answer"):
        airflow.state("run 1")
