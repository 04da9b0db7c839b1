"""The base class of tasks that run a Rewindow command. The command itself starts Spark jobs."""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRescheduleException

from rewindow_airflow.failures import DONE, GO_ON_WAIT, cause, failure, is_retryable
from rewindow_airflow.operators import CONNECTION, POOL
from rewindow_airflow.progress import TaskLog
from rewindow_airflow.spark_process import SparkProcess

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.settings.config import Config


class CommandOperator(BaseOperator):
    """Runs a command in a separate process, without Airflow's environment variables.

    Args:
        conn_id: Airflow connection to Spark; by default the settings of rewindow.toml count.

    Attributes:
        what: name of the command in messages.
        ending: last line of the log if the task has not succeeded.
    """

    what: str
    ending: str

    def __init__(self, *, conn_id: str = CONNECTION, pool: str = POOL, **kwargs: Any) -> None:
        super().__init__(pool=pool, **kwargs)
        self.conn_id = conn_id
        self._process: SparkProcess | None = None
        self._told_to_end = False

    def on_kill(self) -> None:
        """Ends the command and the job that it has started. Airflow calls this when the task must
        stop.
        """
        self._told_to_end = True
        if self._process is not None:
            self._process.on_kill()
        self.log.info(self.ending)

    def run_command(
        self,
        config: Config,
        context: Context,
        arguments: Sequence[str],
        done: Container[int] = (DONE,),
    ) -> None:
        """Runs a command to its end.

        Args:
            config: current settings.
            context: Airflow context of the task.
            arguments: command line after `rewindow`.
            done: exit codes that mean success.

        Raises:
            AirflowFailException: the command failed, and another try cannot help.
            AirflowException: the command failed; Airflow retries.
            AirflowRescheduleException: Airflow asked the task to end; this uses up no try.
        """
        from rewindow.launcher.attempts import job_environment

        environment = job_environment(config)
        environment |= {
            f"REWINDOW_SPARK__CONF__{name}": value for name, value in config.spark.conf.items()
        }
        self._process = process = SparkProcess(
            [sys.executable, "-m", "rewindow.cli", *arguments],
            environment,
            TaskLog(self.log, context["task_state_store"]),
        )
        if self._told_to_end:
            process.on_kill()
        exit_code = process.run()
        if exit_code in done:
            return
        if self._told_to_end:
            self.log.info(
                "Airflow has stopped this task; the same try resumes when Airflow is running again"
            )
            raise AirflowRescheduleException(datetime.now(UTC) + GO_ON_WAIT)
        said = "\n".join(f"    {line}" for line in process.last_lines)
        message = f"The {self.what} ended: {cause(exit_code)}\n{said}\n{self.ending}"
        raise failure(message, is_retryable(exit_code, exit_code < 0 or exit_code > 128))
