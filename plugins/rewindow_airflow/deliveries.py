"""The task that delivers published windows to a target outside of Rewindow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from rewindow_airflow.attempts import settings_for
from rewindow_airflow.command_task import CommandOperator
from rewindow_airflow.failures import mapped_errors

if TYPE_CHECKING:
    from airflow.sdk import Context


class DeliverOperator(CommandOperator):
    """Runs `rewindow deliver`, which replaces the windows at the target whose rows differ.

    If it fails, the published output does not change.

    Args:
        output: a published output, as `application.output`.
        target: section [targets.NAME] of rewindow.toml.
    """

    what = "delivery"
    ending = "Clear this task to deliver the windows that the target does not have yet."

    def __init__(self, *, output: str, target: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = output
        self.target = target

    def execute(self, context: Context) -> None:
        """Delivers the windows.

        Raises:
            AirflowFailException: the settings or the target's table are wrong.
            AirflowException: the target has failed; Airflow retries the task.
            AirflowSkipException: the output is not published yet.
        """
        with mapped_errors():
            config = settings_for(self.conn_id)
            if not config.stream_table(self.stream).exists():
                raise AirflowSkipException(f"{self.stream} is not published yet")
        self.run_command(config, context, ["deliver", self.stream, self.target])
