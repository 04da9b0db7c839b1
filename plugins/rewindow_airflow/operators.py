"""The operator that submits Rewindow's jobs to Spark.

It does not use the operator of the Spark provider. That one requires `pyspark-client`, whose files
overwrite those of pyspark, while only a process needs to be started here. Connections of the
provider's type `spark` are supported, and the provider may be installed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSkipException

from rewindow.errors import LedgerError, OverlapError
from rewindow_airflow.approval import accepted_in
from rewindow_airflow.assets import (
    emit_publications,
    input_assets,
    stream_asset,
    tell_recorded,
)
from rewindow_airflow.attempts import BEGINNINGS, settings_for
from rewindow_airflow.containers import wait_for_upstream
from rewindow_airflow.failures import (
    DONE,
    GO_ON_WAIT,
    HELD_WAIT,
    NotYet,
    cause,
    failure,
    is_retryable,
    mapped_errors,
    waiting,
)
from rewindow_airflow.hints import in_airflow
from rewindow_airflow.links import push_links
from rewindow_airflow.progress import TaskLog
from rewindow_airflow.replay_task import ReplayTask, was_cleared
from rewindow_airflow.spark_process import SparkProcess

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.launcher import Outcome, Submission
    from rewindow.settings.config import Config

logger = logging.getLogger(__name__)

CONNECTION = "rewindow_spark"
POOL = "spark"


class RewindowSubmitOperator(ReplayTask, BaseOperator):
    """Runs one attempt of a job on Spark. The outcome of the job becomes the outcome of the task.

    The epoch is incremented before the submit, so that an older attempt that is still running can
    no longer commit. A retry or a clear starts the next attempt of the same replay, which resumes
    after the last window that the recovery mode keeps.

    Args:
        job: the job to submit: replay, publish or record.
        replay: id of the replay or container of the job (templated); empty for record.
        arguments: further arguments of the job (templated).
        conn_id: Airflow connection of the Spark to use; without it the settings in rewindow.toml.
    """

    template_fields: Sequence[str] = ("job", "replay", "arguments")

    def __init__(
        self,
        *,
        job: str,
        replay: str = "",
        arguments: dict[str, Any] | None = None,
        conn_id: str = CONNECTION,
        pool: str = POOL,  # Explicit, so that Airflow reads it from default_args.
        **kwargs: Any,
    ) -> None:
        super().__init__(pool=pool, **kwargs)
        self.conn_id = conn_id
        self.job = job
        self.replay = replay
        self.arguments = arguments or {}
        self._subject = job
        self._process: SparkProcess | None = None
        self._last_lines: list[str] = []
        self._told: TaskLog | None = None
        self._told_to_end = False

    def execute(self, context: Context) -> dict[str, Any]:
        """Runs the attempt and returns the content of its outcome file.

        Raises:
            AirflowFailException: another attempt cannot help.
            AirflowException: the job failed or was killed; Airflow retries.
            AirflowRescheduleException: an upstream container has not ended, another replay has
                leased the range, or Airflow is about to end; none of them uses up a try.
            AirflowSkipException: there was nothing new to record.
        """
        push_links(self, context)
        name = self.replay or self.arguments["stream"]
        self._subject = f'{self.job} of "{name}"'
        with mapped_errors(self._ending()):
            config = settings_for(self.conn_id)
            if self.job == "record":
                _store_schedule(config, name, context)
            submission = self._begin(config, name, context)
        if submission is None:
            self.log.info(
                "All windows of the %s are committed already: nothing to do",
                self._subject,
            )
            return {"name": name, "message": "all windows were committed already"}
        outcome = self._run(config, submission, context)
        if self.job == "record":
            self._check_recorded(name, outcome.facts, context)
        with mapped_errors():
            self._tell_assets(config, name, outcome.facts, context=context)
        return {"name": name, "epoch": submission.epoch, **outcome.facts}

    def _check_recorded(self, name: str, facts: Mapping[str, Any], context: Context) -> None:
        """Warns of tuples that this run has put into the quarantine, and skips the task if it has
        changed nothing.
        """
        late = facts.get("late", 0)
        malformed = facts.get("malformed", 0)
        if late or malformed:
            message = (
                f"put into the quarantine of {name}: {late:,} late and {malformed:,} malformed "
                "tuples\n"
                f"  Hint: To add the late ones to their windows: rewindow record {name} --reopen. "
                f"To list all of them: rewindow streams quarantine {name}."
            )
            self.log.warning("%s", in_airflow(message))
        # An earlier try may have sealed windows and died before their asset was emitted.
        elif not facts.get("windows_sealed") and context["ti"].try_number == 1:
            raise AirflowSkipException("No window was sealed, so the stream's asset is not emitted")

    def _run(self, config: Config, submission: Submission, context: Context) -> Outcome:
        """Runs a job to its end and returns its outcome. If the job fails, the task fails."""
        from rewindow.launcher import note_kill

        subject = self._subject
        outcome = self._submit(submission, subject, context)
        with mapped_errors():
            note_kill(config, submission, outcome)
        if outcome.exit_code != DONE and self._told_to_end:
            self.log.info(
                "Airflow has stopped this task; the same try resumes when Airflow is running again"
            )
            raise AirflowRescheduleException(datetime.now(UTC) + GO_ON_WAIT)
        if outcome.facts.get("kind") == "RestartRequested":
            self.log.info("%s: starting the next attempt", outcome.message)
            raise AirflowRescheduleException(datetime.now(UTC) + GO_ON_WAIT)
        if outcome.exit_code != DONE:
            if not outcome.error:
                self.log.error(
                    "The job's last lines:\n%s",
                    "\n".join(f"    {line}" for line in self._last_lines),
                )
            message = (
                f"The {subject} ended: "
                f"{cause(outcome.exit_code)}\n{outcome.message}\n{self._ending()}"
            )
            raise failure(message, is_retryable(outcome.exit_code, outcome.retryable))
        self.log.info("The %s is done", subject)
        return outcome

    def _begin(self, config: Config, name: str, context: Context) -> Submission | None:
        """Returns the job to run. Waits for upstream containers, and for a range that another
        replay has leased.
        """
        if self.job == "replay":
            wait_for_upstream(config, name, context, self.log)
        try:
            accepted = accepted_in(context) if self.job == "publish" else {}
            return BEGINNINGS[self.job](
                config,
                name,
                {**self.arguments, **accepted},
                was_cleared(context["ti"], self.retries),
            )
        except OverlapError as held:
            self.log.info("%s\nLooking again in %s", held, HELD_WAIT)
            raise waiting(
                NotYet(str(held)),
                context.get("task_reschedule_count", 0),
                HELD_WAIT,
            ) from held

    def _tell_assets(
        self,
        config: Config,
        name: str,
        facts: Mapping[str, Any],
        context: Context,
    ) -> None:
        if self.job == "record" and stream_asset(name) in self.outlets:
            tell_recorded(context, name, facts)
        if self.job == "publish":
            emit_publications(context, config)
            # OpenLineage reads the inlets when the task ends.
            self.inlets.extend(input_assets(config, name))

    def on_kill(self) -> None:
        """Ends the job and everything that it has started.

        Airflow calls this when a task must stop.
        """
        self._told_to_end = True
        if self._process is not None:
            self._process.on_kill()
        self.log.info(self._ending())

    def _submit(self, submission: Submission, subject: str, context: Context) -> Outcome:
        """Submits the job and returns its outcome from its outcome file.

        A job without such a file was killed.
        """
        from rewindow.launcher import read_outcome

        attempt = f"Attempt {submission.epoch} of the " if submission.epoch else "The "
        self.log.info("%s%s started", attempt, subject)
        if submission.expected:
            self.log.info("%s", submission.expected)
        self._told = listener = TaskLog(self.log, context["task_state_store"])
        self._process = process = SparkProcess(submission.command, submission.environment, listener)
        submission.outcome.delete()
        if self._told_to_end:
            process.on_kill()
        exit_code = process.run()
        self._last_lines = process.last_lines
        return read_outcome(submission.outcome, exit_code)

    def _ending(self) -> str:
        """Returns the last line of the log, which describes the effect of a retry or a clear."""
        last = self._told.last if self._told else None
        reached = f": {last.mark:,} of {last.of:,} windows are committed" if last else ""
        return f"A retry or a clear of this task resumes the same {self._subject}{reached}."


def _store_schedule(config: Config, stream: str, context: Context) -> None:
    """Stores which DAG records a stream at which interval, so that its standstill is noticed."""
    from rewindow.ledger import Ledger

    run = context["dag_run"]
    start, end = run.data_interval_start, run.data_interval_end
    # The runs of some schedules have an empty interval, or none.
    if run.run_type == "scheduled" and start and end and end > start:
        interval_us = (end - start) // timedelta(microseconds=1)
        try:
            Ledger.open(config.ledger_url).notices.schedule(stream, run.dag_id, interval_us)
        except LedgerError as error:
            # A recording does not depend on the ledger otherwise.
            logger.warning("The schedule of %s is not stored: %s", stream, error)
