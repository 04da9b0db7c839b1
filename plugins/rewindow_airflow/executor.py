"""Airflow's LocalExecutor for a scheduler that may die: tasks that go on without it are adopted, not killed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow.configuration import conf
from airflow.executors.local_executor import LocalExecutor
from airflow.utils.state import TaskInstanceState

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance


class AdoptingExecutor(LocalExecutor):
    """Runs tasks as LocalExecutor does, and leaves those of a dead scheduler alone as long as they give signs of life.

    A task outlives its scheduler: its worker goes on, and tells the API server how it ends. LocalExecutor gives all
    such tasks up some minutes later, and Airflow then kills them and begins them again. All that an adopted task needs
    is a scheduler that looks whether it still lives; that is what adopting it means.
    """

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """Returns the tasks that are to begin again: those that never began, and those that have fallen silent."""
        seconds_max = conf.getfloat("scheduler", "task_instance_heartbeat_timeout")
        since = datetime.now(UTC) - timedelta(seconds=seconds_max)
        lost = [instance for instance in tis if not _lives(instance, since)]
        for instance in tis:
            if instance not in lost:
                self.log.info("Adopted %s: it goes on", instance)
        return lost


def _lives(instance: TaskInstance, since: datetime) -> bool:
    beat = instance.last_heartbeat_at
    return instance.state == TaskInstanceState.RUNNING and beat is not None and beat >= since
