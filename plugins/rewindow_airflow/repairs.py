"""The task that finds published windows whose inputs have changed since, and repairs them if
allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewindow_airflow.assets import emit_publications
from rewindow_airflow.attempts import settings_for
from rewindow_airflow.command_task import CommandOperator
from rewindow_airflow.failures import mapped_errors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.repairs.find import Repairs


_COMMAND = ("repair", "--run")


class RepairOperator(CommandOperator):
    """Shows published windows that are wrong because of late tuples or other changed inputs, and
    repairs them with `[airflow] repairs = true`.

    Without that setting nothing is changed: the log lists the windows to replay, the reasons and
    the commands. The repair runs `rewindow repair --run` in a separate process, without Airflow's
    environment variables.

    Args:
        conn_id: Airflow connection of the Spark to use; without it the settings in rewindow.toml.
    """

    what = "repair"
    ending = "Published windows stay published; a retry or a clear of this task repairs the rest."

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns the necessary repairs, and whether they were made.

        Raises:
            AirflowFailException: a gate did not pass, or another attempt cannot help.
            AirflowException: a job failed, or another replay has leased a range; Airflow retries.
            AirflowRescheduleException: Airflow is about to end; this uses up no try.
        """
        from rewindow.repairs.find import find_repairs

        with mapped_errors():
            config = settings_for(self.conn_id)
            found = find_repairs(config)
        self._show(found)
        is_needed = bool(found.late or found.steps)
        if is_needed and config.airflow.repairs:
            self.run_command(config, context, _COMMAND)
        elif is_needed:
            self.log.warning("Nothing was changed. To repair all of it: rewindow repair --run")
            self.log.warning(
                "With repairs = true in the section [airflow] of rewindow.toml this task does it"
            )
        with mapped_errors():
            emit_publications(context, config)
        return found.to_dict() | {"repaired": is_needed and config.airflow.repairs}

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
