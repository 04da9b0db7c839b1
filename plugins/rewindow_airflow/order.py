"""Keeps the runs of a DAG in the order of their days, so that a waiting run does not block an
earlier one.

Airflow's `depends_on_past` waits inside the slot of `max_active_runs`. If an earlier run is
cleared, or started manually, it queues for that slot, and both wait forever. Here a run waits only
as long as no other run needs its slot. If an earlier run is queued, the waiting run ends, and is
started again when it is the earlier one's turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import DagRunState
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError
from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol

MADE_WAY = "made_way_for"
"""XCom of the task of a run that has given up its slot. Its value is the run's clear count at that
time, so that it is valid only once.
"""
_QUEUED = "queued"
_RUNNING = "running"
_SUCCESS = "success"
_FAILED = "failed"
_EVER = datetime(9999, 12, 31, tzinfo=UTC)
_LOOK_SECONDS = 2.0
_LOOKS = 150
_LOOKS_WHILE_NEEDED = 10
"""Number of polls after which a trigger fires in any case. If two changes happen at the same time,
the trigger may miss both.
"""
_END_SECONDS_MAX = 60.0


def turn_of(context: Context) -> ChangeTrigger | None:
    """Returns None if it is a run's turn, because the previous run has succeeded; otherwise the
    trigger to wait for.

    If it is the run's turn, this also restarts any later run that gave up its slot. While the run
    waits and no slot is needed, it restarts earlier runs that gave up their slots. Of the runs with
    slots only the latest gives up its slot, so slots only move to earlier runs.

    Raises:
        AirflowFailException: an earlier run is queued for the slot, and this run gives it up.
    """
    run = context["dag_run"]
    before = _run_before(run)
    queued = _count_of_queued(run.dag_id)
    if before is None or before.state == _SUCCESS:
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
        AirflowFailException: this run gives up its slot.
    """
    run = context["dag_run"]
    earlier = _queued_before(run)
    if earlier is None or not _is_latest(run):
        return earlier is not None
    context["ti"].xcom_push(key=MADE_WAY, value=run.clear_number)
    if _queued_before(run) is None:
        context["ti"].xcom_push(key=MADE_WAY, value=None)
        return False
    raise AirflowFailException(
        f"The run {earlier.run_id} is earlier, and queued for the slot of this one, which makes "
        "way.\n"
        "It is started again, from the beginning, as soon as the earlier one has its turn."
    )


def _start_again_after(context: Context, run: DagRunProtocol) -> None:
    """Restarts the later runs that gave up their slots.

    If one of them is about to end, waits for it first.
    """
    for ending in _runs_back(run, _RUNNING, _EVER):
        deadline = time.monotonic() + _END_SECONDS_MAX
        while (
            _has_made_way(context, ending)
            and run_state(ending.dag_id, ending.run_id) == _RUNNING
            and time.monotonic() < deadline
        ):
            time.sleep(_LOOK_SECONDS / 4)
    for later in reversed(list(_runs_back(run, _FAILED, _EVER))):
        if _has_made_way(context, later):
            _start_again(later)


def _start_again_before(context: Context, run: DagRunProtocol) -> None:
    """Restarts the earlier runs that gave up their slots, back to the last success.

    The slots are no longer needed.
    """
    before = _run_before(run)
    while before is not None and before.state != _SUCCESS:
        if before.state == _FAILED and _has_made_way(context, before):
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


def _previous(dag_id: str, date: datetime, state: str | None = None) -> DagRunProtocol | None:
    from airflow.sdk.execution_time.comms import GetPreviousDagRun

    return _ask(GetPreviousDagRun(dag_id=dag_id, logical_date=date, state=state)).dag_run  # type: ignore[no-any-return]


def _start_again(run: DagRunProtocol) -> None:
    """Clears a run, with all its tasks, so that it is queued again."""
    from airflow.sdk.execution_time.comms import TriggerDagRun

    _ask(TriggerDagRun(dag_id=run.dag_id, run_id=run.run_id, reset_dag_run=True))


def _has_made_way(context: Context, run: DagRunProtocol) -> bool:
    instance = context["ti"]
    return bool(
        instance.xcom_pull(task_ids=instance.task_id, run_id=run.run_id, key=MADE_WAY)
        == run.clear_number
    )


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
