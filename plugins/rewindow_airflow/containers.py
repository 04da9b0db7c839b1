"""The mapped task of a replay. It has one instance per container, and one instance that assembles
the replay.

The instances are in the order of `Plan.jobs`. Each one waits for the instances of the containers
that its job reads, as long as Airflow will still run those instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

from rewindow_airflow.failures import GO_ON_WAIT, HELD_WAIT

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.settings.config import Config

OVER = ("success", "failed", "upstream_failed", "skipped", "removed")
"""States in which Airflow does not run an instance unless a person clears it."""
_QUICK_WAITS = 8
"""Number of short waits at the start, since most containers end soon."""
NAME_TEMPLATE = "{{ task.replay.partition('@')[2] or task.replay }}"
"""Label of an instance in the grid."""


def wait_for_upstream(config: Config, replay_id: str, context: Context, log: Any) -> None:
    """Waits until every container that a job reads has ended.

    The job that assembles a replay reads all of its containers.

    Raises:
        AirflowRescheduleException: a container has not ended, and its instance runs or will run.
        AirflowFailException: a container has not ended, and Airflow will not run its instance.
    """
    from rewindow.ledger import Ledger
    from rewindow.ledger.replays import RUNNABLE
    from rewindow.planning.containers import unfinished

    whole, _, name = replay_id.partition("@")
    row = Ledger.open(config.ledger_url).replays.find(whole)
    if row is None or row.state not in RUNNABLE:
        return
    plan = row.read_plan()
    needed = plan.container_named(name).after if name else [one.name for one in plan.containers]
    missing = [one.name for one in unfinished(config, plan) if one.name in needed]
    if not missing:
        return
    task = context["ti"].task_id
    states = states_of_instances(context)
    for number, one in enumerate(plan.containers):
        state = states.get(f"{task}_{number}", "removed")
        if one.name in missing and state in OVER:
            raise AirflowFailException(
                f'container "{one.name}" of replay "{whole}" has not ended, and its instance '
                f"{number} of task {task} is {state}\n"
                f"  Hint: Correct the cause, then clear task {task} with all its instances: "
                "completed ones end immediately."
            )
    log.info("Waiting for the containers: %s", ", ".join(missing))
    is_quick = context.get("task_reschedule_count", 0) < _QUICK_WAITS
    raise AirflowRescheduleException(datetime.now(UTC) + (GO_ON_WAIT if is_quick else HELD_WAIT))


def states_of_instances(context: Context) -> Mapping[str, str | None]:
    """Returns the states of the instances of a mapped task in its run, by task id and number."""
    instance = context["ti"]
    found = instance.get_task_states(
        dag_id=instance.dag_id,
        task_ids=[instance.task_id],
        run_ids=[instance.run_id],
    )
    return found.get(instance.run_id, {})  # type: ignore[no-any-return]
