"""The tasks of a replay in their order; a DAG picks its chain."""

from __future__ import annotations

from functools import partial

from rewindow.config import Config
from rewindow_airflow import requests
from rewindow_airflow.forms import applications
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.steps import (
    ApprovePublicationOperator,
    ReportGapsOperator,
    RewindowCheckOperator,
    RewindowPlanOperator,
    chain_of,
)


def application_names() -> list[str]:
    """Returns the names of the applications of the settings in force; reads folders, imports none."""
    return applications(Config.load())


def incident_tasks() -> None:
    """Adds the tasks of replay_windows to the DAG that is being made."""
    plan = RewindowPlanOperator(task_id="plan_replay", request_of=requests.form_request)
    replay = plan.output["replay_id"]
    crash = {"crash": "{{ params.crash or '' }}"}
    chain_of(
        plan,
        RewindowSubmitOperator(task_id="replay_windows", job="replay", replay=replay, arguments=crash),
        RewindowCheckOperator(task_id="check_windows", replay=replay),
        ApprovePublicationOperator(
            task_id="approve_publication",
            replay=replay,
            subject="Publish the replayed windows of {{ params.application }}?",
            body="Reason: {{ params.reason }}\n\nThe gate has passed; the task check_windows links to its report.",
        ),
        RewindowSubmitOperator(task_id="publish_windows", job="publish", replay=replay),
    )


def ordered_tasks() -> None:
    """Adds the tasks of replay_daily: a day begins when every task of the day before has succeeded."""
    plan = RewindowPlanOperator(
        task_id="plan_replay",
        request_of=requests.interval_request,
        depends_on_past=True,
        wait_for_downstream=True,
    )
    replay = plan.output["replay_id"]
    chain_of(
        plan,
        RewindowSubmitOperator(task_id="replay_windows", job="replay", replay=replay),
        RewindowCheckOperator(task_id="check_windows", replay=replay),
        RewindowSubmitOperator(task_id="publish_windows", job="publish", replay=replay),
    )


def gap_tasks(stream: str) -> None:
    """Adds the tasks that report a stream's gaps and fill them with heartbeats."""
    plan = RewindowPlanOperator(task_id="plan_filling", request_of=partial(requests.gap_request, stream), part=stream)
    replay = plan.output["replay_id"]
    chain_of(
        ReportGapsOperator(task_id="report_gaps", stream=stream),
        plan,
        RewindowSubmitOperator(task_id="fill_gaps", job="replay", replay=replay),
        RewindowCheckOperator(task_id="check_filling", replay=replay),
        RewindowSubmitOperator(task_id="publish_filling", job="publish", replay=replay),
    )
