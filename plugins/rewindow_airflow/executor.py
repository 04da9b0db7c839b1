"""Airflow's LocalExecutor where scheduler or API server may die and come back: neither costs a task
its try.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow.configuration import conf
from airflow.executors.base_executor import get_execution_api_server_url
from airflow.executors.local_executor import LocalExecutor
from airflow.utils.state import TaskInstanceState

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

_ANSWER_SECONDS_MAX = 1.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AdoptingExecutor(LocalExecutor):
    """Runs tasks as LocalExecutor does, and leaves those of a dead scheduler alone as long as they
    give signs of life.

    A task outlives its scheduler: its worker goes on, and tells the API server how it ends.
    LocalExecutor gives all such tasks up some minutes later, and Airflow then kills them and begins
    them again. All that an adopted task needs is a scheduler that looks whether it still lives;
    that is what adopting it means.

    A task that begins while the API server does not answer fails at once, without a log. So it
    waits in the queue: after a start the scheduler is often there half a minute before the API
    server.
    """

    def trigger_tasks(self, open_slots: int) -> None:
        """Gives tasks to workers, unless they could not tell the API server that they begin."""
        if not self.queued_tasks or api_answers(get_execution_api_server_url(self.conf)):
            super().trigger_tasks(open_slots)

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """Returns the tasks that are to begin again: those that never began, and those that have
        fallen silent.
        """
        seconds_max = conf.getfloat("scheduler", "task_instance_heartbeat_timeout")
        since = datetime.now(UTC) - timedelta(seconds=seconds_max)
        lost = [instance for instance in tis if not _lives(instance, since)]
        for instance in tis:
            if instance not in lost:
                self.log.info("Adopted %s: it goes on", instance)
        return lost


def api_answers(address: str) -> bool:
    """Returns whether the API that tasks speak with answers."""
    try:
        with _DIRECT.open(f"{address.rstrip('/')}/health", timeout=_ANSWER_SECONDS_MAX) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _lives(instance: TaskInstance, since: datetime) -> bool:
    beat = instance.last_heartbeat_at
    return instance.state == TaskInstanceState.RUNNING and beat is not None and beat >= since
