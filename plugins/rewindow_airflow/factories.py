"""Functions that create DAGs and their tasks, for custom DAG files. Such a file shows the tasks and
their order.

    from rewindow_airflow import check, interval_dag, plan_interval, publish, replay

    with interval_dag("replay_clicks", application="clicks_by_page", schedule="@hourly"):
        plan = plan_interval()
        plan >> replay(plan) >> check(plan) >> publish(plan)

Other tasks can be added between them, for example a sensor before the plan, or a notification after
the publication. Additional arguments of a function are passed to Airflow's DAG or operator, such as
`task_id`.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from airflow.sdk import DAG, AssetAny, BaseOperator, CronDataIntervalTimetable, Param
from airflow.sdk.definitions.mappedoperator import MappedOperator

from rewindow.settings.config import Config
from rewindow_airflow import replay_requests
from rewindow_airflow.acts import (
    PURGE,
    REPLAY_ACTS,
    STREAM_ACTS,
    ActOperator,
    ApproveActOperator,
    PreviewActOperator,
)
from rewindow_airflow.approval import ApprovePublicationOperator, CloseReplayOperator
from rewindow_airflow.assets import PUBLICATIONS, stream_asset
from rewindow_airflow.containers import NAME_TEMPLATE
from rewindow_airflow.deliveries import DeliverOperator
from rewindow_airflow.drills import DrillOperator
from rewindow_airflow.forms import (
    CRASH,
    act_params,
    applications,
    daily_params,
    default_application,
    drill_params,
    replay_id_param,
    replay_params,
)
from rewindow_airflow.operators import RewindowSubmitOperator
from rewindow_airflow.policy import DEFAULT_ARGS, SINCE
from rewindow_airflow.repairs import RepairOperator
from rewindow_airflow.steps import (
    BuildReportSiteOperator,
    EmitPublicationsOperator,
    ReportGapsOperator,
    RewindowCheckOperator,
    RewindowPlanOperator,
)


def scheduled_dag(
    dag_id: str,
    *,
    schedule: Any = "@daily",
    start_date: datetime = SINCE,
    **arguments: Any,
) -> DAG:
    """Returns a DAG with a schedule and without parameters, for tasks such as `record` and
    `report_gaps`.
    """
    return _dag(dag_id, schedule=schedule, start_date=start_date, max_active_runs=1, **arguments)


def interval_dag(
    dag_id: str,
    *,
    application: str | None = None,
    schedule: Any = "@daily",
    start_date: datetime = SINCE,
    **arguments: Any,
) -> DAG:
    """Returns a DAG that replays one data interval after the other, for tasks that start with
    `plan_interval`.

    Args:
        dag_id: name of the DAG, and prefix of its replays.
        application: the application that every run replays; without it, the application in a run's
            parameters, or `[airflow] application`.
        schedule: a cron expression, whose intervals are in UTC, or a timetable that has intervals.
        start_date: the first day that may be replayed.
        arguments: further arguments of Airflow's DAG.
    """
    params = daily_params([application]) if application else _params_of_settings()
    if isinstance(schedule, str):
        schedule = CronDataIntervalTimetable(schedule, timezone="UTC")
    return scheduled_dag(
        dag_id,
        schedule=schedule,
        start_date=start_date,
        **{"params": params, **arguments},
    )


def stream_dag(dag_id: str, *streams: str, application: str | None = None, **arguments: Any) -> DAG:
    """Returns a DAG that runs when a stream has grown, for tasks that start with
    `plan_unpublished`.

    Args:
        dag_id: name of the DAG, and prefix of its replays.
        streams: recorded or published streams; each new event of any of them starts a run, one
            after the other.
        application: the application that every run replays; without it, `[airflow] application`.
        arguments: further arguments of Airflow's DAG.
    """
    schedule = AssetAny(*map(stream_asset, streams))
    return interval_dag(dag_id, application=application, schedule=schedule, **arguments)


def form_dag(dag_id: str, *, application: str | None = None, **arguments: Any) -> DAG:
    """Returns a DAG that a user starts with a form, for tasks that start with `plan_form`.

    Args:
        dag_id: name of the DAG, and prefix of its replays.
        application: the application that the form offers; without it, all existing ones.
        arguments: further arguments of Airflow's DAG.
    """
    config = Config.load()
    names = [application] if application else applications(config)
    params = replay_params(
        names,
        application or default_application(config),
        drills=config.replay.drills,
    )
    return _dag(
        dag_id,
        schedule=None,
        **{
            "start_date": SINCE,
            "params": params,
            "is_paused_upon_creation": False,
            "render_template_as_native_obj": True,
            **arguments,
        },
    )


def record(stream: str, **arguments: Any) -> BaseOperator:
    """Returns the task that records new tuples of a stream, seals its windows and emits its
    asset.
    """
    return RewindowSubmitOperator(
        job="record",
        arguments={"stream": stream, "sealed_to": "{{ data_interval_end | default('', true) }}"},
        **{
            "task_id": f"record_{stream}",
            "outlets": [stream_asset(stream)],
            **arguments,
        },
    )


def plan_interval(**arguments: Any) -> BaseOperator:
    """Returns the task that plans a run's data interval, after the previous run has succeeded."""
    return RewindowPlanOperator(
        request_of=replay_requests.interval_request,
        in_order=True,
        **{"task_id": "plan_replay", **arguments},
    )


def plan_unpublished(**arguments: Any) -> BaseOperator:
    """Returns the task that plans all windows that are sealed and not yet published.

    If there are none, the run is skipped.
    """
    return RewindowPlanOperator(
        request_of=replay_requests.unpublished_request,
        **{"task_id": "plan_replay", **arguments},
    )


def plan_form(**arguments: Any) -> BaseOperator:
    """Returns the task that plans the replay requested in the form."""
    return RewindowPlanOperator(
        request_of=replay_requests.form_request,
        **{"task_id": "plan_replay", **arguments},
    )


def plan_filling(stream: str, **arguments: Any) -> BaseOperator:
    """Returns the task that plans to fill the recorded windows of a stream that are not yet
    filled.
    """
    request_of = partial(replay_requests.gap_request, stream)
    return RewindowPlanOperator(
        request_of=request_of,
        part=stream,
        **{"task_id": "plan_filling", **arguments},
    )


def replay(plan: BaseOperator, **arguments: Any) -> MappedOperator:
    """Returns the mapped task that computes the planned replay.

    It has one instance per container, each in a Spark job, and one instance that assembles the
    replay if it has several containers. At most `[replay] containers_at_once` instances run at the
    same time.
    """
    mapped = RewindowSubmitOperator.partial(
        job="replay",
        arguments={CRASH: f"{{{{ params.get('{CRASH}') or '' }}}}"},
        **{
            "task_id": "replay_windows",
            "map_index_template": NAME_TEMPLATE,
            "max_active_tis_per_dagrun": Config.load().replay.containers_at_once,
            **arguments,
        },
    )
    return mapped.expand(replay=plan.output)


def check(plan: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that checks the output against its expectations."""
    return RewindowCheckOperator(
        replay=_replay_of(plan),
        **{"task_id": "check_windows", **arguments},
    )


def approve(plan: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that waits for an approval, if the form requests one."""
    return ApprovePublicationOperator(
        replay=_replay_of(plan),
        **{"task_id": "approve_publication", **arguments},
    )


def publish(plan: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that makes the output visible to readers, and emits the assets of the
    published streams.
    """
    return RewindowSubmitOperator(
        job="publish",
        replay=_replay_of(plan),
        **_emitting({"task_id": "publish_windows", **arguments}),
    )


def close_replay(plan: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that records what was decided about a replay that was not published.

    It belongs after `publish`, and also runs if the publication was skipped.
    """
    return CloseReplayOperator(
        replay=_replay_of(plan),
        **{"task_id": "close_replay", "trigger_rule": "none_failed", **arguments},
    )


def deliver(output: str, target: str, **arguments: Any) -> BaseOperator:
    """Returns the task that delivers the published windows of an output to a target."""
    return DeliverOperator(
        output=output,
        target=target,
        **{"task_id": "deliver_windows", **arguments},
    )


def report_gaps(stream: str, **arguments: Any) -> BaseOperator:
    """Returns the task that lists empty and missing windows, and the silent periods of each key."""
    return ReportGapsOperator(stream=stream, **{"task_id": "report_gaps", **arguments})


def drill_dag(dag_id: str, **arguments: Any) -> DAG:
    """Returns a DAG that a user starts with a form, for the task `drill`."""
    config = Config.load()
    params = drill_params(applications(config), default_application(config))
    return _dag(dag_id, schedule=None, start_date=SINCE, params=params, **arguments)


def drill(**arguments: Any) -> BaseOperator:
    """Returns the task that kills jobs of candidate replays on purpose, and shows the cost."""
    return DrillOperator(**{"task_id": "drill_application", **arguments})


def act_dag(dag_id: str, *, on: str, **arguments: Any) -> DAG:
    """Returns a DAG that a user starts with a form, for `preview_act`, `approve_act` and `run_act`.

    Args:
        dag_id: name of the DAG.
        on: "replay" for acts on a replay, "stream" for acts on a recorded stream and what was
            published from it, "purge" to delete old data.
        arguments: further arguments of Airflow's DAG.
    """
    optional = {"type": ["null", "string"]}
    accept = Param(
        None,
        **optional,
        title="Accept",
        description="For publish: the reason for publishing in spite of objections.",
    )
    stream = Param(
        None,
        **optional,
        enum=[None, *Config.load().streams],
        title="Stream",
        description="For reopen and replace. A repair finds the streams itself.",
    )
    age = Param(
        30,
        type="integer",
        minimum=0,
        maximum=36_500,
        title="Older than, in days",
        description="Age from which the tables of a replay that was never published are deleted.",
    )
    forms = {
        "replay": act_params(REPLAY_ACTS, replay=replay_id_param(), accept=accept),
        "stream": act_params(STREAM_ACTS, stream=stream),
        "purge": act_params(PURGE, older_than_days=age),
    }
    return _dag(
        dag_id,
        schedule=None,
        **{
            "start_date": SINCE,
            "params": forms[on],
            "is_paused_upon_creation": False,
            **arguments,
        },
    )


def preview_act(**arguments: Any) -> BaseOperator:
    """Returns the task that shows the effect of an act in its log, and changes nothing."""
    return PreviewActOperator(**{"task_id": "preview_act", **arguments})


def approve_act(preview: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that asks a user to approve an act that removes or replaces rows."""
    return ApproveActOperator(
        preview=preview.output,
        **{"task_id": "approve_act", **arguments},
    )


def run_act(**arguments: Any) -> BaseOperator:
    """Returns the task that runs an act.

    Acts that start Spark belong into the pool `spark`, which is the default.
    """
    return ActOperator(**{"task_id": "run_act", **arguments})


def repair(**arguments: Any) -> BaseOperator:
    """Returns the task that shows published windows that are wrong because their inputs have
    changed.

    If the settings allow it, the task also repairs these windows.
    """
    return RepairOperator(**_emitting({"task_id": "repair_windows", **arguments}))


def emit_publications(**arguments: Any) -> BaseOperator:
    """Returns the task that emits the assets of publications and undos that no task of Airflow has
    made.
    """
    return EmitPublicationsOperator(**_emitting({"task_id": "emit_publications", **arguments}))


def build_report_site(**arguments: Any) -> BaseOperator:
    """Returns the task that rebuilds the pages about all checks."""
    return BuildReportSiteOperator(**{"task_id": "build_report_site", **arguments})


def _dag(dag_id: str, **arguments: Any) -> DAG:
    default_args = DEFAULT_ARGS | arguments.pop("default_args", {})
    tags = {"rewindow", *arguments.pop("tags", ())}
    return DAG(
        dag_id=dag_id,
        catchup=False,
        default_args=default_args,
        tags=sorted(tags),
        **arguments,
    )


def _emitting(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a task that also emits the events of publications."""
    return {**arguments, "outlets": [PUBLICATIONS, *arguments.get("outlets", ())]}


def _params_of_settings() -> dict[str, Any]:
    """Returns the parameters for the current settings.

    It reads folders but imports no application.
    """
    config = Config.load()
    return daily_params(applications(config), default_application(config))


def _replay_of(plan: BaseOperator) -> Any:
    return plan.output["replay_id"]
