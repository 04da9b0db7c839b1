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
    """An Airflow on loopback."""
    served = FakeAirflow(tmp_path)
    yield served
    served.close()


def test_trigger_sends_the_form(fake: FakeAirflow) -> None:
    """A run is triggered with its form, without a logical date, under the id that was asked for."""
    fake.answers["POST", "/api/v2/dags/replay_windows/dagRuns"] = {"dag_run_id": "run 1"}
    assert Airflow(fake.running).trigger("run 1", {"mode": "exactly_once"}, "note") == "run 1"
    body = {"dag_run_id": "run 1", "logical_date": None, "conf": {"mode": "exactly_once"}, "note": "note"}
    assert fake.calls == [("POST", "/api/v2/dags/replay_windows/dagRuns", body)]


def test_login_is_repeated_when_the_token_has_run_out(fake: FakeAirflow) -> None:
    """A token that Airflow no longer takes costs one more login, not the demo."""
    fake.answers["GET", RUN] = {"state": "running"}
    airflow = Airflow(fake.running)
    assert airflow.state("run 1") == "running"
    fake.expire()
    assert airflow.state("run 1") == "running"


def test_replay_id_is_empty_until_the_plan_is_there(fake: FakeAirflow) -> None:
    """The replay's id comes from the plan's task, and is empty as long as that has not ended."""
    airflow = Airflow(fake.running)
    assert airflow.replay_id("run 1") == ""
    fake.answers["GET", f"{RUN}/taskInstances/plan_replay/xcomEntries/return_value"] = {"value": {"replay_id": "r"}}
    assert airflow.replay_id("run 1") == "r"


def test_tasks_without_a_state_are_not_begun(fake: FakeAirflow) -> None:
    """A task that is not scheduled yet has an empty state."""
    found = [{"task_id": "a", "state": None, "try_number": 0}, {"task_id": "b", "state": "success", "try_number": 2}]
    fake.answers["GET", f"{RUN}/taskInstances"] = {"task_instances": found}
    assert Airflow(fake.running).tasks("run 1") == {"a": Task("", 0), "b": Task("success", 2)}


def test_refusal_is_said_in_airflows_words(fake: FakeAirflow) -> None:
    """What Airflow refuses ends in an error with its reason."""
    fake.answers["POST", "/api/v2/dags/replay_windows/dagRuns"] = (400, {"detail": "reason is too short"})
    with pytest.raises(RewindowError, match="status 400") as caught:
        Airflow(fake.running).trigger("run 1", {}, "")
    assert "reason is too short" in str(caught.value)


def test_airflow_that_is_gone_is_named(fake: FakeAirflow) -> None:
    """Nobody answering is another error than a refusal, and says how to start it."""
    airflow = Airflow(fake.running)
    fake.close()
    with pytest.raises(ResourceError, match="does not answer"):
        airflow.state("run 1")
