"""The functions that create DAGs and tasks: which arguments of Airflow they accept, and which
schedules they reject.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    BaseOperator,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    DeltaDataIntervalTimetable,
    EventsTimetable,
    MultipleCronTriggerTimetable,
    Param,
)
from airflow.sdk.definitions.param import ParamsDict

import rewindow_airflow
from rewindow.errors import InputError
from rewindow.settings.config import Config
from rewindow_airflow import (
    interval_dag,
    plan_form,
    plan_interval,
    plan_unpublished,
    stream_dag,
)
from rewindow_airflow.steps import RewindowPlanOperator
from tests.airflow.conftest import in_force

DAG_FACTORIES: dict[str, Callable[..., DAG]] = {
    "scheduled_dag": rewindow_airflow.scheduled_dag,
    "interval_dag": rewindow_airflow.interval_dag,
    "stream_dag": lambda dag_id, **given: stream_dag(dag_id, "clicks", **given),
    "form_dag": rewindow_airflow.form_dag,
    "drill_dag": rewindow_airflow.drill_dag,
}
TASK_FACTORIES: dict[str, Callable[..., BaseOperator]] = {
    "record": lambda **given: rewindow_airflow.record("clicks", **given),
    "plan_interval": plan_interval,
    "plan_unpublished": plan_unpublished,
    "plan_form": plan_form,
    "plan_filling": lambda **given: rewindow_airflow.plan_filling("clicks", **given),
    "replay": lambda **given: rewindow_airflow.replay(plan_form(task_id="plan"), **given),
    "check": lambda **given: rewindow_airflow.check(plan_form(task_id="plan"), **given),
    "approve": lambda **given: rewindow_airflow.approve(plan_form(task_id="plan"), **given),
    "publish": lambda **given: rewindow_airflow.publish(plan_form(task_id="plan"), **given),
    "deliver": lambda **given: rewindow_airflow.deliver("a.b", "files", **given),
    "report_gaps": lambda **given: rewindow_airflow.report_gaps("clicks", **given),
    "drill": rewindow_airflow.drill,
    "repair": rewindow_airflow.repair,
    "build_report_site": rewindow_airflow.build_report_site,
}
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
OF_DAGS: dict[str, Any] = {
    "start_date": SINCE,
    "end_date": SINCE + timedelta(days=9),
    "catchup": True,
    "max_active_runs": 3,
    "max_active_tasks": 3,
    "max_consecutive_failed_dag_runs": 3,
    "dagrun_timeout": timedelta(hours=1),
    "fail_fast": False,
    "description": "mine",
    "owner_links": {"mine": "https://example.org"},
    "params": {"mine": Param(1, type="integer")},
    "default_args": {"owner": "mine"},
    "tags": ["mine"],
    "schedule": CronDataIntervalTimetable("5 * * * *", timezone="UTC"),
}
"""Values of arguments. For any other argument, the test gives the default of Airflow."""
OF_TASKS: dict[str, Any] = {
    "task_id": "plan_mine",
    "retries": 2,
    "pool": "mine",
    "owner": "mine",
    "params": {"mine": 1},
    "default_args": {"owner": "mine"},
    "trigger_rule": "none_failed",
}


def arguments_of(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Returns all arguments of one of Airflow's classes, with a value of the test or the
    default.
    """
    parameters = inspect.signature(kind).parameters.values()
    keywords = [one for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert {one.name for one in keywords} >= set(values)
    return {one.name: values.get(one.name, one.default) for one in keywords}


@pytest.fixture(autouse=True)
def in_project(project: Config) -> Iterator[None]:
    with in_force(project):
        yield


@pytest.mark.parametrize("name", DAG_FACTORIES)
def test_dag_function_accepts_every_argument_of_an_airflow_dag(name: str) -> None:
    create = DAG_FACTORIES[name]
    for argument, value in arguments_of(DAG, OF_DAGS).items():
        given = {argument: value}
        if argument == "schedule":
            # The form has a required field, for which a scheduled run needs a value.
            given["params"] = {"reason": Param("every night", type="string")}
        dag = create("mine", **given)
        if argument in ("params", "default_args"):
            assert dict(getattr(dag, argument).items()).items() >= dict(value).items()
        elif argument == "tags":
            assert dag.tags == {"mine", "rewindow"}
        elif argument in OF_DAGS:
            assert getattr(dag, argument) == value, argument


@pytest.mark.parametrize("name", TASK_FACTORIES)
def test_task_function_accepts_every_argument_of_an_airflow_operator(name: str) -> None:
    for argument, value in arguments_of(BaseOperator, OF_TASKS).items():
        with interval_dag("mine"):
            task = TASK_FACTORIES[name](**{argument: value})
        if argument in OF_TASKS and argument not in ("params", "default_args"):
            assert getattr(task, argument) == value, argument


def test_arguments_of_a_task_replace_the_defaults() -> None:
    def no_request(config: Config, context: Any) -> Any:
        raise AssertionError

    with interval_dag("mine"):
        plan = plan_interval(in_order=False, request_of=no_request, part="a")
        record = rewindow_airflow.record("clicks", arguments={"stream": "clicks"})
        replay = rewindow_airflow.replay(plan, arguments={"crash": ""})
    assert isinstance(plan, RewindowPlanOperator)
    assert (plan.in_order, plan.request_of, plan.part) == (False, no_request, "a")
    assert record.arguments == {"stream": "clicks"}
    assert replay.partial_kwargs["arguments"] == {"crash": ""}


def test_parameters_of_a_user_are_added_and_replace_those_of_the_same_name() -> None:
    added = ParamsDict({"team": Param("a", enum=["a", "b"]), "mode": Param("at_least_once")})
    dag = interval_dag("mine", params=added)
    assert dag.params["mode"] == "at_least_once"
    assert dag.params.get_param("team").schema == {"enum": ["a", "b"]}
    assert set(dag.params) > {"application", "initial_state", "team"}


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        "@once",
        timedelta(days=1),
        CronTriggerTimetable("0 0 * * *", timezone="UTC"),
        MultipleCronTriggerTimetable("0 0 * * *", "0 9 * * *", timezone="UTC"),
        EventsTimetable([SINCE]),
        Asset("file://clicks"),
        AssetOrTimeSchedule(
            timetable=CronTriggerTimetable("0 0 * * *", timezone="UTC"),
            assets=Asset("file://clicks"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_dag_file_with_plan_interval_and_a_schedule_without_intervals_is_rejected(
    schedule: Any,
) -> None:
    with (
        pytest.raises(InputError, match='(?s)schedule of DAG "mine" has no data intervals.*Hint'),
        DAG("mine", schedule=schedule),
    ):
        plan_interval()
    with DAG("mine", schedule=schedule):
        plan_unpublished()


@pytest.mark.parametrize(
    "schedule",
    [
        "@daily",
        CronDataIntervalTimetable("0 0 * * *", timezone="Europe/Vienna"),
        CronTriggerTimetable("0 0 * * *", timezone="UTC", interval=timedelta(days=1)),
        DeltaDataIntervalTimetable(timedelta(days=1)),
        AssetOrTimeSchedule(
            timetable=CronDataIntervalTimetable("@daily", timezone="UTC"),
            assets=Asset("file://clicks"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_schedule_with_intervals_is_accepted_with_plan_interval(schedule: Any) -> None:
    with interval_dag("mine", schedule=schedule):
        assert plan_interval().task_id == "plan_replay"
