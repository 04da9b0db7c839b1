"""The tasks of a replay in their order; a DAG picks its chain."""

from __future__ import annotations

from functools import partial

from airflow.sdk import Param, chain

from rewindow.config import Config
from rewindow_airflow import requests
from rewindow_airflow.forms import CRASH, applications, daily_params, default_application, replay_params
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.steps import (
    ApprovePublicationOperator,
    ReportGapsOperator,
    RewindowCheckOperator,
    RewindowPlanOperator,
)


def daily_fields() -> dict[str, Param]:
    """Returns the parameters of replay_daily for the settings in force; reads folders, imports no application."""
    config = Config.load()
    return daily_params(applications(config), default_application(config))


def form_fields() -> dict[str, Param]:
    """Returns the form of replay_windows for the settings in force; reads folders, imports no application."""
    config = Config.load()
    return replay_params(applications(config), default_application(config), drills=config.airflow.drills)


def incident_tasks() -> None:
    """Adds the tasks of replay_windows to the DAG that is being made."""
    plan = RewindowPlanOperator(task_id="plan_replay", request_of=requests.form_request)
    replay = plan.output["replay_id"]
    crash = {CRASH: f"{{{{ params.get('{CRASH}') or '' }}}}"}
    chain(
        plan,
        RewindowSubmitOperator(task_id="replay_windows", job="replay", replay=replay, arguments=crash),
        RewindowCheckOperator(task_id="check_windows", replay=replay),
        ApprovePublicationOperator(task_id="approve_publication", replay=replay),
        RewindowSubmitOperator(task_id="publish_windows", job="publish", replay=replay),
    )


def ordered_tasks() -> None:
    """Adds the tasks of replay_daily: a day begins when the run of the day before has succeeded."""
    plan = RewindowPlanOperator(task_id="plan_replay", request_of=requests.interval_request, in_order=True)
    replay = plan.output["replay_id"]
    chain(
        plan,
        RewindowSubmitOperator(task_id="replay_windows", job="replay", replay=replay),
        RewindowCheckOperator(task_id="check_windows", replay=replay),
        RewindowSubmitOperator(task_id="publish_windows", job="publish", replay=replay),
    )


def gap_tasks(stream: str) -> None:
    """Adds the tasks that report a stream's gaps and fill them with heartbeats."""
    plan = RewindowPlanOperator(task_id="plan_filling", request_of=partial(requests.gap_request, stream), part=stream)
    replay = plan.output["replay_id"]
    chain(
        ReportGapsOperator(task_id="report_gaps", stream=stream),
        plan,
        RewindowSubmitOperator(task_id="fill_gaps", job="replay", replay=replay),
        RewindowCheckOperator(task_id="check_filling", replay=replay),
        RewindowSubmitOperator(task_id="publish_filling", job="publish", replay=replay),
    )
