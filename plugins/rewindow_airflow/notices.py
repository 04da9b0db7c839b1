"""Calls notifiers about conditions, such as a failed gate: when one starts, worsens and ends.

`notify_changes` does this for a task that runs every few minutes, for the ends of DAG runs and for
questions. The ledger makes sure that each change is sent once, although several of them notice it.

The notifiers in rewindow.toml are called about all conditions of the project, those of a DAG file
about the conditions of its DAG. Tasks of other DAGs cannot load the latter, so only the ends of
its runs, and its questions, call them.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from rewindow.errors import InputError, RewindowError
from rewindow.names import did_you_mean
from rewindow.settings.conditions import (
    APPROVAL_WAITING,
    CONDITIONS,
    GATE_FAILED,
    REPLAY_FAILED,
)
from rewindow_airflow import order
from rewindow_airflow.failures import mapped_errors
from rewindow_airflow.hints import acts_for
from rewindow_airflow.links import absolute_link

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

    from rewindow.inspection.conditions import Scope
    from rewindow.ledger import ClaimedChange, Condition
    from rewindow.settings.config import Config

logger = logging.getLogger(__name__)

Notifier = Callable[[Any], object]
_MAY_WAIT = ("running", "awaiting_input", "deferred", "scheduled", "queued")
"""States of a task with a question that was not answered yet."""
_MISSED_MAX = timedelta(days=1)
_REPLAYS_MAX = 100
_SUCCEEDED = {"success", "skipped", "removed"}
"""States of the tasks of a run that has succeeded."""
_CHANGES = {"started": "", "worsened": "worse: ", "ended": "resolved: "}


class RunNotices:
    """The callbacks of a DAG that notify at the end of each run.

    Args:
        dag_id: id of the DAG.
        notifiers: the notifiers of its DAG file.
        notify_on: the conditions about which they are called.

    Raises:
        InputError: a notifier cannot be called, or a condition is unknown.
    """

    def __init__(
        self,
        dag_id: str,
        notifiers: Iterable[Notifier] = (),
        notify_on: Iterable[str] = CONDITIONS,
    ) -> None:
        self._kinds = frozenset(notify_on)
        for kind in sorted(self._kinds.difference(CONDITIONS)):
            hint = f"{did_you_mean(kind, CONDITIONS)}Conditions: {', '.join(CONDITIONS)}."
            raise InputError(f'condition "{kind}" in notify_on is unknown', hint=hint)
        self._notifiers = {}
        for number, notifier in enumerate(notifiers):
            name = f"{dag_id}/{number}"
            self._notifiers[name] = _checked(notifier, name)

    @classmethod
    def of(cls, dag: DAG) -> RunNotices:
        """Returns the callbacks that a factory has added to a DAG."""
        for callback in _listed(dag.on_failure_callback):
            owner = getattr(callback, "__self__", None)
            if isinstance(owner, RunNotices):
                return owner
        return cls(dag.dag_id)

    def add_to(self, arguments: dict[str, Any], config: Config) -> None:
        """Adds the callbacks to the arguments of a DAG.

        A DAG without notifiers needs none, and each callback costs a process.
        """
        if self._notifiers or config.airflow.notifiers:
            callbacks = {"on_failure_callback": self.failed, "on_success_callback": self.succeeded}
            for name, callback in callbacks.items():
                arguments[name] = [*_listed(arguments.get(name)), callback]

    def failed(self, context: Context) -> None:
        """Notifies after a run has failed for good.

        Airflow calls this some seconds later. If the run was cleared since, a later call reports
        its end.
        """
        run = context.get("dag_run")
        if run is not None and run.logical_date is not None and not order.is_unchanged(run):
            return
        dag = context["dag"]
        failure = []
        if plans := _plan_tasks(dag):
            failure = [_failed_run(dag.dag_id, context["run_id"], plans[0])]
        self._run_ended(context, failure)

    def succeeded(self, context: Context) -> None:
        """Notifies after a run has succeeded, unless it has only given up its slot.

        Airflow may call this without the run, so the states of its tasks decide.
        """
        dag_id, run_id = context["dag"].dag_id, context["run_id"]
        marks = [order.gave_up_slot(dag_id, run_id, plan) for plan in _plan_tasks(context["dag"])]
        # Another run may restart it at any time, which removes its mark. So the states are read
        # after the mark.
        has_succeeded = set(order.task_states(dag_id, run_id).values()) <= _SUCCEEDED
        if has_succeeded and not any(marks):
            self._run_ended(context, [])

    def _run_ended(self, context: Context, failure: Sequence[Condition]) -> None:
        def is_still_true(condition: Condition) -> bool:
            return bool(failure) and condition.kind == REPLAY_FAILED

        self.notify(context, CONDITIONS, failure, is_still_true)

    def notify(
        self,
        context: Context,
        kinds: Collection[str],
        found: Sequence[Condition],
        is_still_true: Callable[[Condition], bool],
    ) -> None:
        """Notifies about the conditions that the run of a context may have changed.

        Args: see notify_changes.
        """
        from rewindow.settings.config import Config

        config = Config.load()
        scope = _scope(config, context)
        ours = self._kinds.intersection(kinds)
        theirs = set(config.airflow.notify_on).intersection(kinds)
        for notifiers, about in (
            (self._notifiers, ours),
            (notifiers_of_settings(config), theirs),
        ):
            notify_changes(context, notifiers, about, scope, found, is_still_true)


class NotifyOperator(BaseOperator):
    """Calls the notifiers in the settings about all conditions of the project.

    It also sends what could not be sent before.
    """

    def execute(self, context: Context) -> None:
        """Notifies.

        Raises:
            AirflowFailException: a notifier in the settings cannot be imported.
        """
        from rewindow.inspection.conditions import Scope
        from rewindow.settings.config import Config

        with mapped_errors():
            config = Config.load()
            notifiers = notifiers_of_settings(config)
            kinds = config.airflow.notify_on
            found = _failed_runs(config) if notifiers else []
            notify_changes(context, notifiers, kinds, Scope(), found, _is_still_true)


def notifiers_of_settings(config: Config) -> dict[str, Notifier]:
    """Returns the notifiers in the settings by name.

    Raises:
        InputError: a name cannot be imported, or is not a notifier.
    """
    found = {}
    for name in config.airflow.notifiers:
        module, _, path = name.partition(":")
        try:
            notifier = attrgetter(path)(import_module(module))
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(
                f'notifier "{name}" in [airflow] notifiers cannot be imported: {error}',
                hint="Write MODULE:NAME, for a module that Airflow's processes can import, such "
                "as a file in the folder plugins.",
            ) from error
        found[name] = _checked(notifier, name)
    return found


def notify_asked(context: Context, what: str, where: str) -> None:
    """Notifies that a question of the task waits for an answer.

    Args:
        context: Airflow's context.
        what: the question as a sentence without a full stop.
        where: application, windows and times.
    """
    from rewindow.ledger import Condition

    run = context["dag_run"]
    task_id = context["ti"].task_id
    condition = Condition(
        APPROVAL_WAITING,
        f"{run.dag_id}/{run.run_id}/{task_id}",
        measure=1,
        what=what,
        where=where,
        next_step=f"Open the run, and answer the question of its task {task_id}",
        dag=run.dag_id,
        run=run.run_id,
        task=task_id,
    )
    _notify_of_question(context, [condition])


def notify_answered(context: Context) -> None:
    """Notifies that the question of the task no longer waits."""
    _notify_of_question(context, [])


def _notify_of_question(context: Context, found: Sequence[Condition]) -> None:
    task_id = context["ti"].task_id
    try:
        RunNotices.of(context["dag"]).notify(
            context,
            {APPROVAL_WAITING},
            found,
            lambda condition: condition.task != task_id,
        )
    except RewindowError:
        # A question must not fail because of its notifiers.
        logger.exception("Notifiers were not called; the next evaluation calls them")


def notify_changes(
    context: Context,
    notifiers: dict[str, Notifier],
    kinds: Collection[str],
    scope: Scope,
    found: Sequence[Condition],
    is_still_true: Callable[[Condition], bool],
) -> None:
    """Finds the conditions in a scope, and calls notifiers about those that have changed.

    A notifier that fails is logged, and called again by the next evaluation.

    Args:
        context: Airflow's context.
        notifiers: the notifiers by name.
        kinds: the conditions about which they are called.
        scope: where to look.
        found: conditions that neither the ledger nor the tables show.
        is_still_true: decides about a condition of a DAG run or a question that was sent before
            and is not in `found`.
    """
    from rewindow.inspection.conditions import find_conditions
    from rewindow.ledger import Ledger
    from rewindow.settings.config import Config

    if not notifiers:
        return
    config = Config.load()
    ledger = Ledger.open(config.ledger_url)
    seen_at = ledger.notices.clock()
    # The gates are needed in any case: a failed gate is not reported again as a failed run.
    known, unreadable = find_conditions(config, {GATE_FAILED, *kinds}, scope)
    gates = {condition.subject for condition in known if condition.kind == GATE_FAILED}
    true = {}
    for condition in [*known, *found]:
        is_gate = condition.kind == REPLAY_FAILED and condition.subject in gates
        if condition.kind in kinds and not is_gate:
            true[condition.kind, condition.subject] = condition
    for name, notifier in notifiers.items():
        its = dict(true)
        over = []
        for condition in ledger.notices.open(name):
            key = (condition.kind, condition.subject)
            if key in its or condition.kind not in kinds or not scope.covers(condition):
                continue
            is_of_run = condition.kind in (REPLAY_FAILED, APPROVAL_WAITING) and condition.run
            if condition.subject in unreadable or (is_of_run and is_still_true(condition)):
                its[key] = condition
            else:
                over.append(condition)
        for change in ledger.notices.claim(name, its.values(), over, seen_at):
            is_sent = _send(name, notifier, context, change)
            ledger.notices.confirm(change, is_sent=is_sent)


def _send(name: str, notifier: Notifier, context: Context, change: ClaimedChange) -> bool:
    """Calls a notifier about a change. Returns whether it succeeded."""
    facts = _facts(change)
    logger.info('Calling notifier "%s": %s', name, facts["subject"])
    try:
        # A notifier of Airflow replaces its templates by their values, and adds to the context.
        copy.copy(notifier)({**context, "rewindow": facts})
    except Exception:
        logger.exception('Notifier "%s" failed; the next evaluation calls it again', name)
        return False
    return True


def _facts(change: ClaimedChange) -> dict[str, Any]:
    """Returns what a notifier finds in its context under `rewindow`."""
    condition = change.condition
    name = condition.kind.replace("_", " ")
    what = condition.what
    next_step = condition.next_step
    if change.change == "ended":
        what, next_step = f"Resolved: {what}", ""
    if acts := acts_for(next_step):
        next_step += f". In Airflow: {acts}"
    link = absolute_link(condition.dag, condition.run, condition.replay)
    lines = [("", what), ("Where: ", condition.where), ("Next: ", next_step)]
    shown = [f"{topic}{text}." for topic, text in lines if text]
    return {
        "condition": condition.kind,
        "change": str(change.change),
        "measure": condition.measure,
        "subject": f"Rewindow: {_CHANGES[change.change]}{name}: {condition.subject}",
        "message": "\n".join([*shown, f"Link: {link}"]),
        "what": what,
        "where": condition.where,
        "next_step": next_step,
        "link": link,
    }


def _checked(notifier: Any, name: str) -> Notifier:
    """Returns a notifier if it can be called with a context."""
    if isinstance(notifier, type) or not callable(notifier):
        raise InputError(
            f'notifier "{name}" is not a function or an object that can be called',
            hint='Use an object, such as SmtpNotifier(to="on-duty@example.org"), or a function '
            "with the context as its argument.",
        )
    return notifier  # type: ignore[no-any-return]


def _listed(callbacks: Any) -> list[Any]:
    """Returns the callbacks of a DAG, which may be a list, one function or None."""
    if isinstance(callbacks, list):
        return callbacks
    return [] if callbacks is None else [callbacks]


def _plan_tasks(dag: DAG) -> list[str]:
    """Returns the tasks that plan replays. Without one, a failed run is not a failed replay."""
    return [task.task_id for task in dag.tasks if getattr(task, "plans_replays", False)]


def _scope(config: Config, context: Context) -> Scope:
    """Returns the conditions that a run may change: those of the run, of the streams that its DAG
    records, and stale windows.
    """
    from rewindow.inspection.conditions import Scope

    streams = set()
    for task in context["dag"].tasks:
        if getattr(task, "job", "") == "record":
            streams.add(task.arguments["stream"])  # type: ignore[attr-defined]
    return Scope(context["dag"].dag_id, context["run_id"], frozenset(streams))


def _failed_runs(config: Config) -> list[Condition]:
    """Returns the runs that have failed for good with a replay in the last day.

    Airflow loses the callback of such a run if the DAG processor ends while it runs the callback.
    Older failures are left out, so that new notifiers are not called about all of them.
    """
    from rewindow.ledger import Ledger, ReplayState

    ledger = Ledger.open(config.ledger_url)
    since = ledger.notices.clock() - _MISSED_MAX
    found = []
    for row in ledger.replays.newest(state=ReplayState.FAILED, limit=_REPLAYS_MAX):
        dag_id, run_id = (row.plan.get(name, "") for name in ("dag", "run"))
        if not run_id or row.changed_at < since or order.run_state(dag_id, run_id) != "failed":
            continue
        plans = [task for task in order.task_states(dag_id, run_id) if task.startswith("plan_")]
        found.append(_failed_run(dag_id, run_id, next(iter(plans), "")))
    return found


def _failed_run(dag_id: str, run_id: str, plan: str) -> Condition:
    """Returns the condition of a run that has failed for good."""
    from rewindow.inspection.conditions import describe_replay
    from rewindow.inspection.next_steps import cause
    from rewindow.ledger import Condition, Ledger
    from rewindow.settings.config import Config
    from rewindow_airflow.identity import replays_of_run

    config = Config.load()
    states = order.task_states(dag_id, run_id)
    failed = sorted(task for task, state in states.items() if state == "failed")
    what = f"run {run_id} of the DAG {dag_id} failed in {', '.join(failed) or 'no task'}"
    where = ""
    ledger = Ledger.open(config.ledger_url)
    replays = replays_of_run(ledger, dag_id, run_id, config.streams)
    if replays:
        row = ledger.replays.get(replays[-1])
        where = describe_replay(row)
        what += f": {cause(row.message)}" if row.message else ""
    return Condition(
        REPLAY_FAILED,
        f"{dag_id}/{run_id}",
        measure=1,
        what=what,
        where=where,
        next_step="Read the log of the failed task, correct the cause, and clear the failed tasks "
        "of the run",
        dag=dag_id,
        run=run_id,
        task=plan,
        replay=replays[-1] if replays else "",
    )


def _is_still_true(condition: Condition) -> bool:
    """Returns whether a condition of a run or a question is still true, from their states.

    A run that was cleared is neither failed nor done until it has ended.
    """
    dag_id, run_id, task_id = condition.dag, condition.run, condition.task
    if condition.kind == APPROVAL_WAITING:
        return order.task_states(dag_id, run_id).get(task_id) in _MAY_WAIT
    state = order.run_state(dag_id, run_id)
    if state != "success" or order.gave_up_slot(dag_id, run_id, task_id):
        return state != ""
    # Another run may have restarted it since, which removes the mark of its slot.
    return order.run_state(dag_id, run_id) != "success"
