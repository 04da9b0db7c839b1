"""The tasks of a replay that need no Spark: plan, check, reports. Each calls the library and logs
the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperator

from rewindow_airflow.assets import emit_publications
from rewindow_airflow.failures import WAIT, NotYet, failure, mapped_errors, waiting
from rewindow_airflow.identity import RunName, day_of, newest_of, run_name
from rewindow_airflow.links import ReportsLink, TimeLink, address, push_links
from rewindow_airflow.order import make_way, turn_of
from rewindow_airflow.replay_requests import describe, reject_other_options
from rewindow_airflow.replay_task import ReplayTask, was_cleared

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.inspection.gaps import GapReport
    from rewindow.ledger import Replay
    from rewindow.planning import ReplayRequest
    from rewindow.recovery import Plan
    from rewindow.settings.config import Config


logger = logging.getLogger(__name__)

PLAN_AGAIN = "plan_again"
REFUSE = "refuse"
_SHOWN_ROWS = 100


def give_up(config: Config, known: Replay, run_id: str) -> None:
    """Abandons a replay whose code has changed. The ledger and the log have the reason, and the
    number of windows whose results are discarded.

    Args:
        config: current settings.
        known: the replay.
        run_id: id of the run that a user has cleared.
    """
    from rewindow.launcher.verbs import abandon
    from rewindow.ledger import Ledger

    ledger = Ledger.open(config.ledger_url)
    marks = [entry.mark for entry in ledger.replays.containers(known.replay_id)]
    discarded = sum(marks) if marks else known.mark
    reason = (
        f"its code or configuration changed, and run {run_id} was cleared; results of "
        f"{discarded:,} committed windows are discarded"
    )
    abandon(config, known.replay_id, reason=reason)
    logger.warning('Replay "%s" is abandoned: %s', known.replay_id, reason)


class RewindowPlanOperator(ReplayTask, BaseOperator):
    """Plans a replay. All errors that can be found before a job runs are found here.

    After a retry or a clear, planning again continues with the run's replay as planned while that
    is open, and plans a new one after it is published, undone or abandoned. Later tasks read the id
    from XCom `replay_id`; the task of the jobs is mapped over the return value of this one.

    If the application's code or configuration has changed, the open replay cannot continue. If a
    user cleared this task, it abandons the replay and plans again: containers that have ended and
    did not change are reused. A retry never does this, so that a deployment discards no work.

    Args:
        request_of: creates the request from settings and Airflow's context.
        part: distinguishes replays of one run.
        in_order: plan only after the previous run, in the order of logical dates, has succeeded.
        on_other_code: "plan_again", or "refuse" to keep an open replay of other code also after a
            clear; the task then fails.
    """

    plans_replays = True

    def __init__(
        self,
        *,
        request_of: Callable[[Config, Context], ReplayRequest],
        part: str = "",
        in_order: bool = False,
        on_other_code: str = PLAN_AGAIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if on_other_code not in (PLAN_AGAIN, REFUSE):
            raise ValueError(
                f'on_other_code must be "{PLAN_AGAIN}" or "{REFUSE}", not "{on_other_code}"'
            )
        self.request_of = request_of
        self.part = part
        self.in_order = in_order
        self.on_other_code = on_other_code
        self.replay = ""

    def execute(self, context: Context, event: Any = None) -> list[str]:
        """Returns the ids of the replay's jobs, see `Plan.jobs`.

        The id and the range of the replay are in separate XComs.

        Args:
            context: Airflow's context.
            event: the event that ended the wait for the previous run, if any; another wait may be
                necessary.

        Raises:
            AirflowFailException: the range, the application or the settings are rejected; the
                application differs from the one in the plan of the run's open replay, and this
                task was not cleared.
            AirflowRescheduleException: windows to replay are not recorded yet.
            AirflowSkipException: there is nothing to replay, or this run gives up its slot to an
                earlier one.
            TaskDeferred: the previous run has not succeeded yet.

        Rules: W65
        """
        from rewindow.ledger import Ledger
        from rewindow.settings.config import Config

        run = context["dag_run"]
        if self.in_order and (change := turn_of(context)) is not None:
            self.log.info("Waiting for the previous run, %s (%s)", change.run_id, change.state)
            self.defer(trigger=change, method_name="execute")
        name = run_name(run.dag_id, run.run_id, self.part)
        with mapped_errors():
            config = Config.load()
            number, known = newest_of(Ledger.open(config.ledger_url), name)
            plan = self._continued(config, context, known) if known is not None else None
            if plan is None:
                number += known is not None
                plan = self._planned(config, context, name, number, before=known)
            self.replay = plan.replay_id
            push_links(self, context)
        for line in describe(plan):
            self.log.info("%s", line)
        values = {"replay_id": self.replay, "first": plan.first, "last": plan.last}
        for key, value in values.items():
            context["ti"].xcom_push(key, value)
        return plan.jobs

    def _continued(self, config: Config, context: Context, known: Replay) -> Plan | None:
        """Returns the plan of the run's open replay; None if it must be planned again.

        Raises:
            InputError: the run requests other options than the replay has.
            CodeChangedError: the code has changed, and this task was not cleared, or
                `on_other_code` is "refuse".
        """
        from rewindow.errors import CodeChangedError
        from rewindow.loading.catalog import check_code, load_application

        plan = known.read_plan()
        self.replay = plan.replay_id
        reject_other_options(plan, context["dag_run"].conf or {})
        try:
            check_code(
                plan,
                load_application(config, plan.application, plan.parameters, given=plan.given),
            )
        except CodeChangedError as error:
            if self.on_other_code == REFUSE:
                # A clear does not help here, so the hint is that of the library.
                raise failure(str(error), retryable=False) from error
            if not was_cleared(context["ti"], self.retries):
                raise
            self.log.warning("%s", error.primary)
            return None
        self.log.info("The replay of this run is %s: continuing it", known.state)
        return plan

    def _planned(
        self,
        config: Config,
        context: Context,
        name: RunName,
        number: int,
        before: Replay | None,
    ) -> Plan:
        """Plans a replay, and abandons the previous replay of the same run, if it exists.

        It is abandoned only after the new request has been checked.
        """
        from rewindow.planning import create_replay, draft_plan

        try:
            request = self.request_of(config, context)
        except NotYet as lack:
            if self.in_order:
                make_way(context)
            self.log.info("%s\nLooking again in %s", lack, WAIT)
            raise waiting(lack, context.get("task_reschedule_count", 0)) from lack
        run = context["dag_run"]
        replay_id = name.replay_id(day_of(config, request, context), number)
        request = replace(request, replay_id=replay_id, dag=run.dag_id, run=run.run_id)
        if before is not None:
            # A request that cannot be planned must not discard the work of the previous replay.
            draft_plan(config, request)
            give_up(config, before, run.run_id)
            if before.read_plan().is_divided and request.reuse is None:
                request = replace(request, reuse=before.replay_id, reuse_optional=True)
        return create_replay(config, request)


class RewindowCheckOperator(ReplayTask, BaseOperator):
    """Runs the gate on a replay's staged output. If the gate does not pass, the task fails without
    a retry.
    """

    template_fields = ("replay",)

    def __init__(self, *, replay: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.replay = replay

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns the gate's verdict.

        Raises:
            AirflowFailException: the gate did not pass; the range remains staged.
        """
        from rewindow.errors import GateError
        from rewindow.pages.gate_pages import write_gate_pages
        from rewindow.progress.listener import Lines
        from rewindow.quality import check
        from rewindow.settings.config import Config

        push_links(self, context)
        ending = (
            f'Replay "{self.replay}" stays staged; nothing is published. See the links of this '
            "task. If you correct a suite, clear this task. If you correct the application, clear "
            "the plan task of this run with its downstream tasks."
        )
        with mapped_errors(ending):
            config = Config.load()
            result = check(config, self.replay, Lines(self.log.info))
            write_gate_pages(config, result)
            if result.verdict != "passed":
                failed = []
                for output in result.outputs:
                    failed += [f"{output.output}: {check.check}" for check in output.failed]
                raise GateError(
                    f'gate of replay "{self.replay}" did not pass',
                    detail=f"Failed: {', '.join(failed)}.",
                )
        return dict(result.summary())


class ReportGapsOperator(BaseOperator):
    """Reports gaps of a stream in arrival time and in event time.

    The report is written as a page and as CSV, and silent keys are logged.
    """

    operator_extra_links = (TimeLink(),)

    def __init__(self, *, stream: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stream = stream

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns the number of gaps, and the number of keys that are silent at the end."""
        from rewindow.inspection.gaps import gaps
        from rewindow.pages.time_page import write_time_page
        from rewindow.settings.config import Config

        with mapped_errors():
            config = Config.load()
            report = gaps(config, self.stream)
            write_time_page(config, self.stream, report)
        files = address(f"files/time/{quote(self.stream)}")
        self._log_gaps(report, f"{files}.csv")
        silent = self._warn(report)
        self.log.info("page: %s.html; table: %s.csv", files, files)
        return {"stream": self.stream, "rows": len(report.gaps), "silent": silent, **report.counts}

    def _log_gaps(self, report: GapReport, table: str) -> None:
        """Logs the longest gaps, and how many further gaps the table has."""
        columns, rows = report.table()
        for row in (columns, *rows[:_SHOWN_ROWS]):
            self.log.info("%s", " | ".join(row))
        if len(rows) > _SHOWN_ROWS:
            left = f"{len(rows) - _SHOWN_ROWS:,} of {len(rows):,} rows"
            self.log.info("%s, none of them longer, are not shown; all of them: %s", left, table)

    def _warn(self, report: GapReport) -> int:
        """Warns about unusable timestamps and silent keys, and returns the number of silent
        keys.
        """
        from rewindow.inspection.unusable import describe_unusable
        from rewindow.windows import format_time

        if report.unusable:
            self.log.warning("%s", describe_unusable(report.unusable, _SHOWN_ROWS))
        event = report.event
        if event is None:
            return 0
        if event.all_end_by_us is not None:
            end = format_time(event.all_end_by_us)
            self.log.warning("all keys end by %s, before the end of what is sealed", end)
        for gap in event.silent_now[:_SHOWN_ROWS]:
            self.log.warning("silent at the end of what is sealed: %s", gap.keys or self.stream)
        return len(event.silent_now)


class BuildReportSiteOperator(BaseOperator):
    """Rebuilds the pages with the results of all gates over time. A replay's pages are kept for 90
    days.
    """

    operator_extra_links = (ReportsLink(),)

    def execute(self, context: Context) -> str:
        """Returns the path of the site's first page."""
        from rewindow.pages.expectation_index import write_index
        from rewindow.retention import prune_results
        from rewindow.settings.config import Config

        with mapped_errors():
            config = Config.load()
            for replay_id in prune_results(config):
                self.log.info(
                    "Pages of %s are old and were deleted; its findings are kept",
                    replay_id,
                )
            return str(write_index(config))


class EmitPublicationsOperator(BaseOperator):
    """Emits the asset events of publications that no task of Airflow has made, or whose task has
    failed.
    """

    def execute(self, context: Context) -> None:
        """Emits the events of the publications in the ledger's outbox."""
        from rewindow.settings.config import Config

        with mapped_errors():
            emit_publications(context, Config.load())
