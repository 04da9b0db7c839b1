"""The task that finds what is published from inputs that have changed since, and repairs it where
it may.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRescheduleException

from rewindow_airflow.attempts import settings_for
from rewindow_airflow.failures import DONE, GO_ON_WAIT, cause, failure, is_retryable, mapped_errors
from rewindow_airflow.operators import CONNECTION, POOL
from rewindow_airflow.progress import TaskLog
from rewindow_airflow.spark_process import SparkProcess

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.repairs.find import Repairs
    from rewindow.settings.config import Config

_COMMAND = ("repair", "--run")
_ENDING = "What was published stays; a retry or a clear of this task goes on with what is left."


class RepairOperator(BaseOperator):
    """Shows what late tuples and other changed inputs make wrong, and repairs it with `[airflow]
    repairs = true`.

    Without it nothing is changed: the log says which windows are to be replayed, why, and by which
    command. The repair is `rewindow repair --run` in a process of its own, which is given none of
    Airflow's variables.

    Args:
        conn_id: Airflow connection of the Spark to use; without one rewindow.toml says.
    """

    def __init__(self, *, conn_id: str = CONNECTION, pool: str = POOL, **kwargs: Any) -> None:
        super().__init__(pool=pool, **kwargs)
        self.conn_id = conn_id
        self._process: SparkProcess | None = None
        self._told_to_end = False

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns what was to be repaired, and whether it was.

        Raises:
            AirflowFailException: a gate did not pass, or another attempt cannot help.
            AirflowException: a job failed, or another replay holds a range; Airflow tries again.
            AirflowRescheduleException: Airflow itself is about to end; this uses up no try.
        """
        from rewindow.repairs.find import find_repairs

        with mapped_errors():
            config = settings_for(self.conn_id)
            found = find_repairs(config)
        self._show(found)
        is_needed = bool(found.late or found.steps)
        if is_needed and config.airflow.repairs:
            self._repair(config, context)
        elif is_needed:
            self.log.warning("Nothing was changed. To repair all of it: rewindow repair --run")
            self.log.warning(
                "With repairs = true in the section [airflow] of rewindow.toml this task does it"
            )
        return found.to_dict() | {"repaired": is_needed and config.airflow.repairs}

    def on_kill(self) -> None:
        """Ends the repair with the job that it has started; Airflow calls this for a task that is
        not to go on here.
        """
        self._told_to_end = True
        if self._process is not None:
            self._process.on_kill()
        self.log.info(_ENDING)

    def _show(self, found: Repairs) -> None:
        for text in found.unknown:
            self.log.warning("not known: %s", text)
        for late in found.late:
            self.log.warning(
                "late tuples of %s for windows %s: %s",
                late.stream,
                late.windows,
                f"{late.tuples:,}",
            )
        for step in found.steps:
            self.log.warning("to be replayed: %s", step.command)
            for reason in step.reasons:
                self.log.warning("    %s", reason)
        if not found.late and not found.steps:
            self.log.info("Nothing to repair")

    def _repair(self, config: Config, context: Context) -> None:
        from rewindow.launcher.attempts import job_environment

        environment = job_environment(config)
        environment |= {
            f"REWINDOW_SPARK__CONF__{name}": value for name, value in config.spark.conf.items()
        }
        command = [sys.executable, "-m", "rewindow.cli", *_COMMAND]
        self._process = process = SparkProcess(
            command,
            environment,
            TaskLog(self.log, context["task_state_store"]),
        )
        if self._told_to_end:
            process.on_kill()
        exit_code = process.run()
        if exit_code != DONE and self._told_to_end:
            self.log.info(
                "Airflow has told this task to end; it goes on when Airflow does, in the same try"
            )
            raise AirflowRescheduleException(datetime.now(UTC) + GO_ON_WAIT)
        if exit_code != DONE:
            said = "\n".join(f"    {line}" for line in process.last_lines)
            message = f"The repair ended: {cause(exit_code)}\n{said}\n{_ENDING}"
            raise failure(message, is_retryable(exit_code, exit_code < 0 or exit_code > 128))
