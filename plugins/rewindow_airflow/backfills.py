"""The tasks of a backfill: one divides the range of the form into steps, and a mapped task replays
each step.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from rewindow_airflow.assets import emit_publications
from rewindow_airflow.attempts import settings_for
from rewindow_airflow.command_task import CommandOperator
from rewindow_airflow.containers import OVER, states_of_instances
from rewindow_airflow.failures import HELD_WAIT, NotYet, mapped_errors, waiting
from rewindow_airflow.forms import AT_ONCE
from rewindow_airflow.identity import run_name
from rewindow_airflow.replay_requests import form_request
from rewindow_airflow.replay_task import ReplayTask, was_cleared
from rewindow_airflow.steps import give_up

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.backfill.steps import Steps
    from rewindow.ledger import Replay
    from rewindow.settings.config import Config


class PlanStepsOperator(BaseOperator):
    """Divides the range of a form into steps. Replays nothing.

    After a clear, it finds the same steps again. Steps that have ended are not computed again. It
    abandons the replays of other steps whose code has changed, so that these steps are planned
    again.
    """

    plans_replays = True

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Returns the steps, in the order in which they run.

        A step has the id of its replay, its command, and whether it needs the step before it.

        Raises:
            AirflowFailException: the form or the step is rejected.
            AirflowSkipException: there is nothing to replay.
        """
        from rewindow.backfill.steps import plan_steps
        from rewindow.settings.config import Config

        params = context["params"]
        run = context["dag_run"]
        prefix = run_name(run.dag_id, run.run_id).replay_id()
        publish = params["publish"] == AT_ONCE
        with mapped_errors():
            config = Config.load()
            request = replace(form_request(config, context), replay_id=prefix)
            # The plans of the steps name this run: users who may read its DAG may read them.
            of_run = ["--run", f"{run.dag_id}/{run.run_id}"]
            plan_range = partial(
                plan_steps,
                config,
                request,
                params["step"],
                newest_first=params["newest_first"],
                publish=publish,
            )
            steps = plan_range()
            if was_cleared(context["ti"], self.retries) and (old := _outdated(config, steps)):
                for row in old:
                    give_up(config, row, run.run_id)
                steps = plan_range()
        return [
            {
                "replay": one.replay_id,
                "needs_previous": steps.has_state and number > 0,
                "command": [
                    *("replay", one.application, "--id", prefix, "--step", params["step"]),
                    *("--first", str(one.first), "--last", str(one.last), *of_run, *one.options()),
                    *(["--publish"] if publish else []),
                ],
            }
            for number, one in enumerate(steps.requests)
        ]


def _outdated(config: Config, steps: Steps) -> list[Replay]:
    """Returns the replays of steps that have not ended, and were planned with other code."""
    from rewindow.errors import CodeChangedError
    from rewindow.ledger import Ledger
    from rewindow.ledger.replays import RUNNABLE
    from rewindow.loading.catalog import check_code, load_application

    find = Ledger.open(config.ledger_url).replays.find
    found = []
    for row in filter(None, (find(one.replay_id or "") for one in steps.requests)):
        if row.state not in RUNNABLE:
            continue
        plan = row.read_plan()
        try:
            check_code(
                plan,
                load_application(config, plan.application, plan.parameters, given=plan.given),
            )
        except CodeChangedError:
            found.append(row)
    return found


class ReplayStepOperator(ReplayTask, CommandOperator):
    """Replays a step of a backfill, and publishes it if the form requests this.

    Args:
        step: an item of the list that `PlanStepsOperator` returns.
    """

    what = "step"
    ending = "A retry or a clear of this task resumes the same replay."

    def __init__(self, *, step: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.replay = step["replay"]

    def execute(self, context: Context) -> str:
        """Returns the id of the step's replay.

        Raises:
            AirflowFailException: the gate did not pass, or another attempt cannot help; or the
                previous step, whose state this step needs, has failed.
            AirflowException: the job failed; Airflow retries.
            AirflowRescheduleException: the previous step has not ended; this uses up no try.
        """
        if self.step["needs_previous"]:
            before = context["ti"].map_index - 1
            state = states_of_instances(context).get(f"{self.task_id}_{before}")
            text = (
                f"step {before} of this run, whose state this step needs, is {state or 'waiting'}"
            )
            if state != "success" and state in OVER:
                raise AirflowFailException(
                    f"{text}\n  Hint: Correct the cause of its failure, then clear this run."
                )
            if state != "success":
                raise waiting(NotYet(text), context.get("task_reschedule_count", 0), HELD_WAIT)
        with mapped_errors():
            config = settings_for(self.conn_id)
        self.run_command(config, context, self.step["command"])
        with mapped_errors():
            emit_publications(context, config)
        return self.replay
