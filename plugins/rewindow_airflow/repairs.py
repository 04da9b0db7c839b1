"""The task that finds what is published from inputs that have changed since, and repairs it where
it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewindow_airflow.attempts import settings_for
from rewindow_airflow.command_task import CommandOperator
from rewindow_airflow.failures import mapped_errors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.repairs.find import Repairs


_COMMAND = ("repair", "--run")


class RepairOperator(CommandOperator):
    """Shows what late tuples and other changed inputs make wrong, and repairs it with `[airflow]
    repairs = true`.

    Without it nothing is changed: the log says which windows are to be replayed, why, and by which
    command. The repair is `rewindow repair --run` in a process of its own, which is given none of
    Airflow's variables.

    Args:
        conn_id: Airflow connection of the Spark to use; without one rewindow.toml says.
    """

    what = "repair"
    ending = "What was published stays; a retry or a clear of this task resumes with the rest."

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
            self.run_command(config, context, _COMMAND)
        elif is_needed:
            self.log.warning("Nothing was changed. To repair all of it: rewindow repair --run")
            self.log.warning(
                "With repairs = true in the section [airflow] of rewindow.toml this task does it"
            )
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
