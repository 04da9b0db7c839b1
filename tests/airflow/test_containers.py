"""Instances of the mapped task: which of them waits for another one, and which of them fails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

from rewindow.errors import InputError
from rewindow.launcher import begin_attempt
from rewindow.planning import ReplayRequest, create_replay
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow_airflow import containers
from rewindow_airflow.failures import GO_ON_WAIT, HELD_WAIT
from tests.airflow.conftest import ROOT, in_force
from tests.airflow.small_project import CONTAINERS, make_project, record

TASK = "group.replay_windows"
INSTANCES = ("r@totals", "r@doubled", "r@negated", "r")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plan]:
    """A planned replay of three containers, of which two read the first one."""
    folder = tmp_path_factory.mktemp("containers")
    config = Config.load(make_project(folder, ROOT))
    (folder / "applications" / "containers.py").write_text(CONTAINERS)
    record(config)
    with in_force(config):
        yield create_replay(config, ReplayRequest("containers", replay_id="r"))


def execute(replay_id: str, states: dict[str, str | None], waits: int = 0) -> None:
    """Executes an instance up to its job, with the states of the others as Airflow returns them."""
    named = {f"{TASK}_{INSTANCES.index(name)}": state for name, state in states.items()}
    instance = SimpleNamespace(
        dag_id="d",
        run_id="run",
        task_id=TASK,
        get_task_states=lambda **given: {"run": named},
    )
    log = SimpleNamespace(info=lambda *words: None)
    context: Any = {"ti": instance, "task_reschedule_count": waits}
    containers.wait_for_upstream(Config.load(), replay_id, context, log)


def waiting_time(replay_id: str, states: dict[str, str | None], waits: int = 0) -> timedelta:
    before = datetime.now(UTC)
    with pytest.raises(AirflowRescheduleException) as caught:
        execute(replay_id, states, waits)
    return caught.value.reschedule_date - before


def test_replay_runs_one_job_per_container_and_an_assembly_job(plan: Plan) -> None:
    # Rules: X53
    assert tuple(plan.jobs) == INSTANCES


@pytest.mark.parametrize(
    "state",
    [None, "scheduled", "queued", "running", "up_for_retry", "up_for_reschedule", "restarting"],
)
def test_instance_waits_while_the_instance_of_an_upstream_container_may_run(
    state: str | None,
    plan: Plan,
) -> None:
    # Rules: X53
    states = dict.fromkeys(INSTANCES[:-1], state)
    execute("r@totals", states)
    for replay_id in INSTANCES[:0:-1]:  # The one that was started first is the last one.
        assert waiting_time(replay_id, states) >= GO_ON_WAIT
    assert waiting_time("r", states, waits=100) >= HELD_WAIT


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped", "removed", "success"])
def test_instance_fails_if_airflow_does_not_run_an_upstream_container_again(
    state: str,
    plan: Plan,
) -> None:
    # Rules: X53
    # A success of an unfinished container was set by a person.
    words = f'"totals" of replay "r" has not ended, and its instance 0 of task {TASK} is {state}'
    for replay_id in INSTANCES[1:]:
        with pytest.raises(AirflowFailException, match=words):
            execute(replay_id, {"r@totals": state, "r@doubled": None, "r@negated": None})


def test_instance_fails_if_an_upstream_container_has_no_instance(plan: Plan) -> None:
    with pytest.raises(AirflowFailException, match="is removed"):
        execute("r@doubled", {})


def test_container_starts_only_after_its_upstream_containers(plan: Plan) -> None:
    # Rules: X53
    config = Config.load()
    with pytest.raises(InputError, match='"doubled" of replay "r" reads container "totals"'):
        begin_attempt(config, "r@doubled")
    with pytest.raises(InputError, match='replay "r" has no container "tripled"') as caught:
        begin_attempt(config, "r@tripled")
    assert "totals, doubled, negated" in str(caught.value)
    submission = begin_attempt(config, "r@totals")
    assert submission is not None and submission.replay_id == "r@totals"
