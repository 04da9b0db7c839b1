"""Functions that create DAGs and their tasks, for custom DAG files. Such a file shows the tasks and
their order.

    from rewindow_airflow import check, interval_dag, plan_interval, publish, replay

    with interval_dag("replay_clicks", application="clicks_by_page", schedule="@hourly"):
        plan = plan_interval()
        plan >> replay(plan) >> check(plan) >> publish(plan)

Other tasks can be added between them, for example a sensor before the plan, or a notification after
the publication. Each function accepts all arguments of Airflow's DAG or operator, such as `task_id`
or `max_active_runs`, and they replace the defaults. Parameters, default arguments and tags of a DAG
are added to those of Rewindow.

Each function that creates a DAG also accepts `notifiers`, a list of Airflow's notifiers or
functions that are called about conditions such as a failed gate, and `notify_on`, the conditions
(docs/notifications.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from airflow.sdk import (
    DAG,
    AssetAny,
    BaseOperator,
    CronDataIntervalTimetable,
    EventsTimetable,
    Param,
)
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.definitions.timetables.assets import AssetTriggeredTimetable
from airflow.sdk.definitions.timetables.simple import OnceTimetable

from rewindow.errors import InputError
from rewindow.settings.conditions import CONDITIONS
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
from rewindow_airflow.backfills import PlanStepsOperator, ReplayStepOperator
from rewindow_airflow.containers import NAME_TEMPLATE
from rewindow_airflow.deliveries import DeliverOperator
from rewindow_airflow.drills import DrillOperator
from rewindow_airflow.forms import (
    CRASH,
    TEXT_LENGTH_MAX,
    act_params,
    applications,
    backfill_params,
    daily_params,
    default_application,
    drill_params,
    replay_id_param,
    replay_params,
)
from rewindow_airflow.notices import NotifyOperator, RunNotices
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
from rewindow_airflow.unstarted import CloseUnstartedOperator


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
    return _dag(dag_id, arguments, schedule=schedule, start_date=start_date, max_active_runs=1)


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
    return _dag(
        dag_id,
        arguments,
        schedule=schedule,
        start_date=start_date,
        max_active_runs=1,
        params=params,
    )


def stream_dag(dag_id: str, *streams: str, application: str | None = None, **arguments: Any) -> DAG:
    """Returns a DAG that runs when a stream has grown, for tasks that start with
    `plan_unpublished`.

    Other tasks can read the events that have started the run, for example
    `triggering_asset_events[stream_asset("clicks_by_page.totals")]`. An iteration over
    `triggering_asset_events` yields events of publications twice, see `rewindow_airflow.assets`.

    Args:
        dag_id: name of the DAG, and prefix of its replays.
        streams: recorded or published streams; each new event of any of them starts a run, one
            after the other.
        application: the application that every run replays; without it, `[airflow] application`.
        arguments: further arguments of Airflow's DAG.
    """
    schedule = AssetAny(*map(stream_asset, streams))
    return interval_dag(dag_id, application=application, **{"schedule": schedule, **arguments})


def form_dag(
    dag_id: str,
    *,
    application: str | None = None,
    steps: bool = False,
    **arguments: Any,
) -> DAG:
    """Returns a DAG that a user starts with a form, for tasks that start with `plan_form`.

    Args:
        dag_id: name of the DAG, and prefix of its replays.
        application: the application that the form offers; without it, all existing ones.
        steps: whether the form divides the range into steps, for tasks that start with
            `plan_steps`.
        arguments: further arguments of Airflow's DAG.
    """
    config = Config.load()
    params_of = backfill_params if steps else partial(replay_params, drills=config.replay.drills)
    names = [application] if application else applications(config)
    return _dag(
        dag_id,
        arguments,
        params=params_of(names, application or default_application(config)),
        is_paused_upon_creation=False,
        render_template_as_native_obj=True,
    )


def record(stream: str, **arguments: Any) -> BaseOperator:
    """Returns the task that records new tuples of a stream, seals its windows and emits its
    asset.
    """
    return _task(
        RewindowSubmitOperator,
        arguments,
        task_id=f"record_{stream}",
        job="record",
        arguments={"stream": stream, "sealed_to": "{{ data_interval_end | default('', true) }}"},
        outlets=[stream_asset(stream)],
    )


def plan_interval(**arguments: Any) -> BaseOperator:
    """Returns the task that plans a run's data interval, after the previous run has succeeded.

    Raises:
        InputError: the runs of the DAG have no data interval, or an empty one.
    """
    task = _task(
        RewindowPlanOperator,
        arguments,
        task_id="plan_replay",
        request_of=replay_requests.interval_request,
        in_order=True,
    )
    if task.has_dag() and not _has_intervals(task.dag.timetable):
        raise InputError(
            f'schedule of DAG "{task.dag_id}" has no data intervals, but plan_interval needs them',
            detail=f"The schedule is {type(task.dag.timetable).__name__}.",
            hint="Use a cron expression in interval_dag, CronDataIntervalTimetable, or a timetable "
            "with interval=; or plan with plan_unpublished or plan_form.",
        )
    return task


def plan_unpublished(**arguments: Any) -> BaseOperator:
    """Returns the task that plans all windows that are sealed and not yet published.

    If there are none, the run is skipped.
    """
    request_of = replay_requests.unpublished_request
    return _task(RewindowPlanOperator, arguments, task_id="plan_replay", request_of=request_of)


def plan_form(**arguments: Any) -> BaseOperator:
    """Returns the task that plans the replay requested in the form."""
    request_of = replay_requests.form_request
    return _task(RewindowPlanOperator, arguments, task_id="plan_replay", request_of=request_of)


def plan_filling(stream: str, **arguments: Any) -> BaseOperator:
    """Returns the task that plans to fill the recorded windows of a stream that are not yet
    filled.
    """
    request_of = partial(replay_requests.gap_request, stream)
    return _task(
        RewindowPlanOperator,
        arguments,
        task_id="plan_filling",
        request_of=request_of,
        part=stream,
    )


def replay(plan: BaseOperator, **arguments: Any) -> MappedOperator:
    """Returns the mapped task that computes the planned replay.

    It has one instance per container, each in a Spark job, and one instance that assembles the
    replay if it has several containers. At most `[replay] containers_at_once` instances run at the
    same time.
    """
    ours: dict[str, Any] = {
        "task_id": "replay_windows",
        "job": "replay",
        "arguments": {CRASH: f"{{{{ params.get('{CRASH}') or '' }}}}"},
        "map_index_template": NAME_TEMPLATE,
        "max_active_tis_per_dagrun": Config.load().replay.containers_at_once,
    }
    return RewindowSubmitOperator.partial(**ours | arguments).expand(replay=plan.output)


def plan_steps(**arguments: Any) -> BaseOperator:
    """Returns the task that divides the range of a form into steps, see `form_dag`."""
    return _task(PlanStepsOperator, arguments, task_id="plan_steps")


def replay_steps(plan: BaseOperator, **arguments: Any) -> MappedOperator:
    """Returns the mapped task that replays the steps, each in one instance, and publishes them.

    At most `[replay] containers_at_once` instances run at the same time, or
    `max_active_tis_per_dagrun`. If the application has state, a step waits for the one before it.
    """
    ours: dict[str, Any] = {
        "task_id": "replay_steps",
        "map_index_template": NAME_TEMPLATE,
        "max_active_tis_per_dagrun": Config.load().replay.containers_at_once,
    }
    return ReplayStepOperator.partial(**_emitting(ours | arguments)).expand(step=plan.output)


def check(plan: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that checks the output against its expectations."""
    replay_id = _replay_of(plan)
    return _task(RewindowCheckOperator, arguments, task_id="check_windows", replay=replay_id)


def approve(plan: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that asks for an approval, unless the form requests otherwise."""
    return _task(
        ApprovePublicationOperator,
        arguments,
        task_id="approve_publication",
        replay=_replay_of(plan),
    )


def publish(plan: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that makes the output visible to readers, and emits the assets of the
    published streams.
    """
    return _task(
        RewindowSubmitOperator,
        _emitting(arguments),
        task_id="publish_windows",
        job="publish",
        replay=_replay_of(plan),
    )


def close_replay(plan: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that records the decision about a replay that was not published.

    Put it after `publish`: it also runs if the publication was skipped.
    """
    return _task(
        CloseReplayOperator,
        arguments,
        task_id="close_replay",
        replay=_replay_of(plan),
        trigger_rule="none_failed",
    )


def deliver(output: str, target: str, **arguments: Any) -> BaseOperator:
    """Returns the task that delivers the published windows of an output to a target."""
    return _task(
        DeliverOperator, arguments, task_id="deliver_windows", output=output, target=target
    )


def report_gaps(stream: str, **arguments: Any) -> BaseOperator:
    """Returns the task that lists empty and missing windows, and the silent periods of each key."""
    return _task(ReportGapsOperator, arguments, task_id="report_gaps", stream=stream)


def drill_dag(dag_id: str, **arguments: Any) -> DAG:
    """Returns a DAG that a user starts with a form, for the task `drill`."""
    config = Config.load()
    params = drill_params(applications(config), default_application(config))
    return _dag(dag_id, arguments, params=params)


def drill(**arguments: Any) -> BaseOperator:
    """Returns the task that kills jobs of candidate replays on purpose, and shows the cost."""
    return _task(DrillOperator, arguments, task_id="drill_application")


def act_dag(dag_id: str, *, on: str, **arguments: Any) -> DAG:
    """Returns a DAG that a user starts with a form, for `preview_act`, `approve_act` and `run_act`.

    Args:
        dag_id: name of the DAG.
        on: "replay" for actions on a replay, "stream" for actions on a recorded stream and the
            windows that were published from it, "purge" to delete old data.
        arguments: further arguments of Airflow's DAG.
    """
    optional = {"type": ["null", "string"]}
    accept = Param(
        None,
        **optional,
        maxLength=TEXT_LENGTH_MAX,
        title="Accept",
        description="For publish: the reason to publish in spite of objections.",
    )
    stream = Param(
        None,
        **optional,
        enum=[None, *Config.load().streams],
        title="Stream",
        description="Required for reopen and replace. A repair includes all streams.",
    )
    age = Param(
        30,
        type="integer",
        minimum=0,
        maximum=36_500,
        title="Older than (days)",
        description="Deletes the tables of replays that were never published and are at least this "
        "old.",
    )
    forms = {
        "replay": act_params(REPLAY_ACTS, replay=replay_id_param(), accept=accept),
        "stream": act_params(STREAM_ACTS, stream=stream),
        "purge": act_params(PURGE, older_than_days=age),
    }
    return _dag(dag_id, arguments, params=forms[on], is_paused_upon_creation=False)


def preview_act(**arguments: Any) -> BaseOperator:
    """Returns the task that shows the effect of an action in its log, and changes nothing."""
    return _task(PreviewActOperator, arguments, task_id="preview_act")


def approve_act(preview: BaseOperator, **arguments: Any) -> BaseOperator:
    """Returns the task that asks a user to approve an action that removes or replaces rows."""
    return _task(ApproveActOperator, arguments, task_id="approve_act", preview=preview.output)


def run_act(**arguments: Any) -> BaseOperator:
    """Returns the task that runs an action, and emits the assets of publications and undos.

    Actions that start Spark need the pool `spark`, which is the default.
    """
    return _task(ActOperator, _emitting(arguments), task_id="run_act")


def repair(**arguments: Any) -> BaseOperator:
    """Returns the task that shows published windows that are wrong because their inputs have
    changed.

    With `[airflow] repairs = true`, the task also repairs these windows; with `"approve"`, it asks
    a person first. Arguments of Airflow's ApprovalOperator set the deadline and the persons.
    """
    return _task(RepairOperator, _emitting(arguments), task_id="repair_windows")


def emit_publications(**arguments: Any) -> BaseOperator:
    """Returns the task that emits the assets of publications and undos that no task of Airflow has
    made.
    """
    return _task(EmitPublicationsOperator, _emitting(arguments), task_id="emit_publications")


def close_unstarted(**arguments: Any) -> BaseOperator:
    """Returns the task that abandons plans of runs that ended before their replay started."""
    return _task(CloseUnstartedOperator, arguments, task_id="close_unstarted")


def notify_conditions(**arguments: Any) -> BaseOperator:
    """Returns the task that calls the notifiers in rewindow.toml about all conditions."""
    return _task(NotifyOperator, arguments, task_id="notify_conditions")


def build_report_site(**arguments: Any) -> BaseOperator:
    """Returns the task that rebuilds the pages about all checks."""
    return _task(BuildReportSiteOperator, arguments, task_id="build_report_site")


def _dag(dag_id: str, given: Mapping[str, Any], **ours: Any) -> DAG:
    """Returns a DAG. The given arguments replace the others; parameters, default arguments, tags
    and callbacks are merged.
    """
    given = dict(given)
    notices = RunNotices(dag_id, given.pop("notifiers", ()), given.pop("notify_on", CONDITIONS))
    values = {"schedule": None, "start_date": SINCE, "catchup": False, **ours, **given}
    # The items of Airflow's ParamsDict are Params, but its values are their defaults.
    added = dict((given.get("params") or {}).items())
    values["params"] = ours.get("params", {}) | added
    values["default_args"] = DEFAULT_ARGS | (given.get("default_args") or {})
    values["tags"] = sorted({"rewindow", *(given.get("tags") or ())})
    notices.add_to(values, Config.load())
    return DAG(dag_id, **values)


def _task(operator: type[BaseOperator], given: Mapping[str, Any], **ours: Any) -> BaseOperator:
    return operator(**{**ours, **given})


def _has_intervals(timetable: Any) -> bool:
    """Returns whether the runs of a timetable have a data interval that is not empty."""
    timed = getattr(timetable, "timetable", timetable)  # That of AssetOrTimeSchedule.
    return (
        timed.can_be_scheduled
        and not isinstance(timed, AssetTriggeredTimetable | EventsTimetable | OnceTimetable)
        and all(getattr(one, "interval", True) for one in getattr(timed, "timetables", [timed]))
    )


def _emitting(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a task that also emits the events of publications."""
    return {**arguments, "outlets": [PUBLICATIONS, *(arguments.get("outlets") or ())]}


def _params_of_settings() -> dict[str, Any]:
    """Returns the parameters for the current settings.

    It reads folders but imports no application.
    """
    config = Config.load()
    return daily_params(applications(config), default_application(config))


def _replay_of(plan: BaseOperator) -> Any:
    return plan.output["replay_id"]
