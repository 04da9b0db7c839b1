"""A LocalExecutor whose scheduler or API server can crash and restart without costing a task one of
its tries.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.executors.base_executor import get_execution_api_server_url
from airflow.executors.local_executor import LocalExecutor
from airflow.utils.state import TaskInstanceState

from rewindow_airflow.outdated_questions import remove_outdated_questions

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

_ANSWER_SECONDS_MAX = 1.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AdoptingExecutor(LocalExecutor):
    """Runs tasks like LocalExecutor, but keeps the tasks of a dead scheduler as long as they send
    heartbeats.

    A task outlives its scheduler: its worker continues, and reports its end to the API server.
    LocalExecutor gives up all such tasks after some minutes, and Airflow then kills and restarts
    them. An adopted task only needs a scheduler that checks its heartbeats, which is the effect of
    adopting it.

    A task that starts while the API server does not respond fails immediately, without a log. So it
    waits in the queue: after a start, the scheduler is often ready half a minute before the API
    server.

    A question may be answered within a second. Then its task is queued again before the scheduler
    has read that the first part of the try has ended. LocalExecutor starts the second part at once,
    and the scheduler mistakes the end of the first part for a lost task. Here the second part waits
    in the queue until the scheduler has read the end of the first part.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        remove_outdated_questions()
        self._unreported: set[Any] = set()

    def trigger_tasks(self, open_slots: int) -> None:
        """Passes tasks to workers, unless the API server does not respond.

        Tasks must report their start to it.
        """
        if self.queued_tasks and not api_answers(get_execution_api_server_url(self.conf)):
            return
        early = [key for key in self.queued_tasks if self._may_be_reported(key)]
        waiting = {key: self.queued_tasks.pop(key) for key in early}
        super().trigger_tasks(open_slots)
        self.queued_tasks |= waiting

    def change_state(self, key: Any, *arguments: Any, **options: Any) -> None:
        """Records what a worker has reported about a task."""
        self._unreported.discard(key)
        super().change_state(key, *arguments, **options)

    def _process_workloads(self, workload_list: Sequence[Any]) -> None:
        self._unreported |= {workload.key for workload in workload_list}
        super()._process_workloads(workload_list)

    def _may_be_reported(self, key: Any) -> bool:
        """Returns whether an earlier part of a queued try has started, and its end was not read.

        A killed worker reports nothing, so the wait has a limit.
        """
        return key in self._unreported and self.attempts[key].can_try_again()

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """Returns the tasks to start again: tasks that never started, and tasks without recent
        heartbeats.
        """
        seconds_max = conf.getfloat("scheduler", "task_instance_heartbeat_timeout")
        since = datetime.now(UTC) - timedelta(seconds=seconds_max)
        lost = [instance for instance in tis if not _lives(instance, since)]
        for instance in tis:
            if instance not in lost:
                self.log.info("Adopted %s, which continues to run", instance)
        return lost


def api_answers(address: str) -> bool:
    """Returns whether the API for tasks responds."""
    try:
        with _DIRECT.open(f"{address.rstrip('/')}/health", timeout=_ANSWER_SECONDS_MAX) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _lives(instance: TaskInstance, since: datetime) -> bool:
    beat = instance.last_heartbeat_at
    return instance.state == TaskInstanceState.RUNNING and beat is not None and beat >= since
