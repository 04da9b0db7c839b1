"""Keeps the runs of a DAG in the order of their days, so that a waiting run does not block an
earlier one.

Airflow's `depends_on_past` waits inside the slot of `max_active_runs`. If an earlier run is
cleared, or started manually, it queues for that slot, and both wait forever. Here a run waits only
as long as no other run needs its slot. If an earlier run is queued, the waiting run ends, and is
started again when it is the earlier one's turn.

A run that gives up its slot is skipped: it has not failed, so no failure callback runs. Airflow
counts it as a success. A mark shows that its turn is still to come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowRuntimeError, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol

MADE_WAY = "made_way"
"""XCom of the task of a run that has given up its slot: the run, its date, and its clear count at
that time. Airflow deletes it when the task starts again.
"""
_QUEUED = "queued"
_RUNNING = "running"
_SUCCESS = "success"
_FAILED = "failed"
_SKIPPED = "skipped"
_EVER = datetime(9999, 12, 31, tzinfo=UTC)
_LOOK_SECONDS = 2.0
_LOOKS = 150
_LOOKS_WHILE_NEEDED = 10
"""Number of polls after which a trigger fires in any case. If two changes happen at the same time,
the trigger may miss both.
"""
_END_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class _Mark:
    """A run that has given up its slot, or is about to.

    Attributes:
        logical_date: date of the run.
        clear_number: how often the run had been cleared at that time.
    """

    run_id: str
    logical_date: datetime
    clear_number: int


def turn_of(context: Context) -> ChangeTrigger | None:
    """Returns None if it is a run's turn, because the previous run has succeeded; otherwise the
    trigger to wait for.

    If it is the run's turn, this also restarts any later run that gave up its slot. While the run
    waits and no slot is needed, it restarts earlier runs that gave up their slots. Of the runs with
    slots only the latest gives up its slot, so slots only move to earlier runs.

    Raises:
        AirflowSkipException: an earlier run is queued for the slot, and this run gives it up.
    """
    run = context["dag_run"]
    before = _run_before(run)
    queued = _count_of_queued(run.dag_id)
    if before is None or _is_done(context, before):
        _start_again_after(context, run)
        return None
    needed = make_way(context)
    if not needed:
        _start_again_before(context, run)
    looks = _LOOKS_WHILE_NEEDED if needed else _LOOKS
    return ChangeTrigger(
        run.dag_id, before.run_id, str(before.state.value), queued=queued, looks=looks
    )


def make_way(context: Context) -> bool:
    """Ends a waiting run if an earlier one is queued for its slot. Returns whether such a run is
    still queued.

    A run that is not the latest stays, because a later one gives up its slot or ends. A run also
    stays if it announces its end and then finds no queued run, because no run would restart it.

    Raises:
        AirflowSkipException: this run gives up its slot.
    """
    run = context["dag_run"]
    earlier = _queued_before(run)
    if earlier is None or not _is_latest(run):
        return earlier is not None
    assert run.logical_date is not None, "a run without a date has no earlier run"
    mark = {
        "run_id": run.run_id,
        "logical_date": run.logical_date.isoformat(),
        "clear_number": run.clear_number,
    }
    context["ti"].xcom_push(key=MADE_WAY, value=mark)
    if _queued_before(run) is None:
        context["ti"].xcom_push(key=MADE_WAY, value=None)
        return False
    raise AirflowSkipException(
        f"The run {earlier.run_id} is earlier, and queued for the slot of this one, which makes "
        "way.\n"
        "It is started again, from the beginning, as soon as the earlier one has its turn."
    )


def has_made_way(context: Context, run: DagRunProtocol) -> bool:
    """Returns whether a run has ended because it gave up its slot.

    A user leaves out such a run by marking its plan task as success, so the state of that task
    counts, too.
    """
    marks = [mark for mark in _marks(context, run) if mark.run_id == run.run_id]
    return bool(marks) and _is_made_way(context, run, marks[0])


def _is_done(context: Context, run: DagRunProtocol) -> bool:
    """Returns whether a run has succeeded, and not given up its slot.

    Another run may restart it at any time. Its mark then disappears, but its clear count changes
    before that, so the run is read again after its mark.
    """
    if run.state != _SUCCESS or has_made_way(context, run):
        return False
    return is_unchanged(run)


def is_unchanged(run: DagRunProtocol) -> bool:
    """Returns whether a run with a logical date still has its state, and was not cleared."""
    now = _run_at(run.dag_id, run.logical_date)
    return now is not None and (now.run_id, now.state, now.clear_number) == (
        run.run_id,
        run.state,
        run.clear_number,
    )


def gave_up_slot(dag_id: str, run_id: str, task_id: str) -> bool:
    """Returns whether a run of any DAG has ended because it gave up its slot.

    Unlike `has_made_way`, this also works in callbacks, which run in the DAG processor and may not
    know more about a run than its id.

    Args:
        dag_id: id of the DAG.
        run_id: id of a run that has ended.
        task_id: its plan task.
    """
    from airflow.sdk.execution_time.xcom import XCom

    states = task_states(dag_id, run_id)
    marks = XCom.get_all(key=MADE_WAY, dag_id=dag_id, task_id=task_id, run_id=run_id)
    return states.get(task_id) == _SKIPPED and any(marks or ())


def task_states(dag_id: str, run_id: str) -> dict[str, str | None]:
    """Returns the states of the tasks of a run; empty if it was deleted."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states: dict[str, dict[str, str | None]]
    states = RuntimeTaskInstance.get_task_states(dag_id=dag_id, run_ids=[run_id])
    return states.get(run_id, {})


def _start_again_after(context: Context, run: DagRunProtocol) -> None:
    """Restarts the later runs that gave up their slots.

    If one of them is about to end, waits for it first. The marks of all runs are read in one
    request, because hundreds of later runs may have succeeded.
    """
    newest = _previous(run.dag_id, _EVER)
    if newest is None:
        return
    deadline = time.monotonic() + _END_SECONDS_MAX
    while any(_is_ending(run.dag_id, mark) for mark in _marks(context, newest, after=run)):
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS / 4)
    for mark in _marks(context, newest, after=run):
        later = _run_at(run.dag_id, mark.logical_date)
        if later is not None and _is_made_way(context, later, mark):
            _start_again(later)


def _start_again_before(context: Context, run: DagRunProtocol) -> None:
    """Restarts the earlier runs that gave up their slots, back to the last one that is done.

    The slots are no longer needed.
    """
    before = _run_before(run)
    while before is not None and not _is_done(context, before):
        if has_made_way(context, before):
            _start_again(before)
        before = _run_before(before)


class ChangeTrigger(BaseTrigger):
    """Fires when the state of the previous run changes or another run is queued.

    The waiting run then decides again.

    Args:
        dag_id: id of the DAG.
        run_id: id of the previous run.
        state: state of that run when the wait started.
        queued: number of queued runs of the DAG at that time.
        looks: number of polls after which it fires in any case.
    """

    def __init__(
        self,
        dag_id: str,
        run_id: str,
        state: str,
        queued: int,
        looks: int = _LOOKS,
    ) -> None:
        super().__init__()
        self.dag_id = dag_id
        self.run_id = run_id
        self.state = state
        self.queued = queued
        self.looks = looks

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Returns the class path and arguments from which the triggerer creates this trigger."""
        names = ("dag_id", "run_id", "state", "queued", "looks")
        return f"{type(self).__module__}.{type(self).__name__}", {
            name: getattr(self, name) for name in names
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Polls the state of the runs every two seconds."""
        for _ in range(self.looks):
            await asyncio.sleep(_LOOK_SECONDS)
            if await asyncio.to_thread(self._has_changed):
                break
        yield TriggerEvent(self.run_id)

    def _has_changed(self) -> bool:
        before = self.queued
        self.queued = _count_of_queued(self.dag_id)
        return run_state(self.dag_id, self.run_id) != self.state or self.queued > before


def _runs_back(
    run: DagRunProtocol,
    state: str,
    until: datetime | None = None,
) -> Iterator[DagRunProtocol]:
    """Yields the runs before a run that have a state, the latest first.

    With `until`, yields the runs after it up to a time.
    """
    date = until or run.logical_date
    while date and (found := _previous(run.dag_id, date, state)) and found.logical_date:
        if until and run.logical_date and found.logical_date <= run.logical_date:
            return
        yield found
        date = found.logical_date


def _queued_before(run: DagRunProtocol) -> DagRunProtocol | None:
    """Returns an earlier run that is queued for the same kind of slot as this run."""
    return next((other for other in _runs_back(run, _QUEUED) if _same_slots(run, other)), None)


def _is_latest(run: DagRunProtocol) -> bool:
    """Returns whether no later run has the same kind of slot as this run."""
    return not any(_same_slots(run, other) for other in _runs_back(run, _RUNNING, _EVER))


def _run_before(run: DagRunProtocol) -> DagRunProtocol | None:
    """Returns the previous run in the order of logical dates; None for a run without a logical
    date.
    """
    return _previous(run.dag_id, run.logical_date) if run.logical_date else None


def _run_at(dag_id: str, date: datetime | None) -> DagRunProtocol | None:
    """Returns the run of a logical date."""
    return _previous(dag_id, date + timedelta(microseconds=1)) if date else None


def _previous(dag_id: str, date: datetime, state: str | None = None) -> DagRunProtocol | None:
    from airflow.sdk.execution_time.comms import GetPreviousDagRun

    return _ask(GetPreviousDagRun(dag_id=dag_id, logical_date=date, state=state)).dag_run  # type: ignore[no-any-return]


def _start_again(run: DagRunProtocol) -> None:
    """Clears a run, with all its tasks, so that it is queued again."""
    from airflow.sdk.execution_time.comms import TriggerDagRun

    _ask(TriggerDagRun(dag_id=run.dag_id, run_id=run.run_id, reset_dag_run=True))


def _marks(
    context: Context,
    newest: DagRunProtocol,
    after: DagRunProtocol | None = None,
) -> list[_Mark]:
    """Returns the marks of runs up to one run, the earliest first, in one request.

    Args:
        context: Airflow's context.
        newest: the last run whose mark is returned.
        after: only marks of runs after this one.
    """
    instance = context["ti"]
    values = instance.xcom_pull(
        task_ids=[instance.task_id],
        run_id=newest.run_id,
        key=MADE_WAY,
        include_prior_dates=True,
    )
    marks = []
    for value in filter(None, values):  # A run that stays has removed its mark.
        date = datetime.fromisoformat(value["logical_date"])
        if after is None or after.logical_date is None or date > after.logical_date:
            marks.append(_Mark(value["run_id"], date, value["clear_number"]))
    return sorted(marks, key=lambda mark: mark.logical_date)


def _is_made_way(context: Context, run: DagRunProtocol, mark: _Mark) -> bool:
    """Returns whether a run with a mark has ended because of it, and was not cleared since."""
    if run.state not in (_SUCCESS, _FAILED) or run.clear_number != mark.clear_number:
        return False
    instance = context["ti"]
    states = instance.get_task_states(
        dag_id=run.dag_id,
        task_ids=[instance.task_id],
        run_ids=[run.run_id],
    )
    return bool(states.get(run.run_id, {}).get(instance.task_id) == _SKIPPED)


def _is_ending(dag_id: str, mark: _Mark) -> bool:
    """Returns whether a run has announced that it gives up its slot, and has not ended yet."""
    run = _run_at(dag_id, mark.logical_date)
    return run is not None and (run.state, run.clear_number) == (_RUNNING, mark.clear_number)


def _same_slots(run: DagRunProtocol, other: DagRunProtocol) -> bool:
    """Returns whether two runs compete for the same slots. Backfills have separate slots."""
    return (run.run_type == "backfill") == (other.run_type == "backfill")


def run_state(dag_id: str, run_id: str) -> str:
    """Returns the state of a run; empty if it was deleted."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    try:
        return str(DagRunState(RuntimeTaskInstance.get_dagrun_state(dag_id, run_id)).value)
    except AirflowRuntimeError:
        return ""


def _count_of_queued(dag_id: str) -> int:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return RuntimeTaskInstance.get_dr_count(dag_id=dag_id, states=[_QUEUED])


def _ask(message: Any) -> Any:
    """Sends a request of a task to Airflow and returns the answer.

    Tasks have no other way to read and clear the runs of their DAG.
    """
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    return SUPERVISOR_COMMS.send(message)
