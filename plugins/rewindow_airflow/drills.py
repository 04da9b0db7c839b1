"""The task that kills jobs on purpose, to show the cost of a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow_airflow.attempts import settings_for
from rewindow_airflow.command_task import CommandOperator
from rewindow_airflow.failures import mapped_errors

if TYPE_CHECKING:
    from airflow.sdk import Context


class DrillOperator(CommandOperator):
    """Runs `rewindow drill` with the values of the form. The task's log has the table of all kills.

    If a guarantee is violated, the task fails without a retry.
    """

    what = "drill"
    ending = "If the form has a seed, clearing this task kills jobs at the same steps again."

    def execute(self, context: Context) -> None:
        """Runs the drill.

        Raises:
            AirflowFailException: drills are not allowed, or a promise was broken.
        """
        params = context["params"]
        arguments = ["drill", params["application"]]
        for mode in params["modes"]:
            arguments += ["--modes", mode]
        for name in ("windows", "kills", "seed"):
            if params[name] is not None:
                arguments += [f"--{name}", str(params[name])]
        if params["every_step"]:
            arguments.append("--every-step")
        with mapped_errors():
            config = settings_for(self.conn_id)
        self.run_command(config, context, arguments)
