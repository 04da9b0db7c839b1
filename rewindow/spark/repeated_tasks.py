"""Detects tasks that Spark runs again although it counted no failure.

`spark.task.maxFailures = 1` ends a job when one of its tasks fails. If an executor is lost,
however, Spark repeats tasks without counting a failure: finished tasks of a stage whose output
other stages still need, and running tasks if the application did not cause the loss. The mode at
most once must not commit their results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rewindow.errors import ResourceError

if TYPE_CHECKING:
    from pyspark import SparkContext

JOB_GROUP = "spark.jobGroup.id"
"""Name of the thread property with the group of the jobs that the thread starts."""
_EVENTS_WITHIN_MS = 60_000


@contextmanager
def each_task_once(context: SparkContext, work: str) -> Iterator[None]:
    """Raises an error at the end of the context if Spark may have run one of its tasks again.

    Args:
        context: the session that does the work.
        work: name of the work in the error. It also becomes the job group of this thread; other
            threads that do the work must set it too.

    Raises:
        ResourceError: a stage of the work has repeated tasks, or an executor was lost.
    """
    lost_before = _lost_executors(context)
    group_before = context.getLocalProperty(JOB_GROUP)
    context.setLocalProperty(JOB_GROUP, work)
    try:
        yield
    finally:
        context.setLocalProperty(JOB_GROUP, group_before)
    # Spark counts tasks in a separate thread, which may lag behind the ends of the jobs.
    context._jsc.sc().listenerBus().waitUntilEmpty(_EVENTS_WITHIN_MS)
    reasons = list(_repetitions(context, work))
    # If an executor is lost after a stage is complete, the stage is repeated as another stage,
    # which has fewer tasks and looks like any other.
    lost = _lost_executors(context) - lost_before
    reasons += [f"executor {name} was lost" for name in sorted(lost)]
    if reasons:
        raise ResourceError(
            f"Spark may have run tasks of {work} twice: {', '.join(reasons)}",
            detail="At most once commits nothing that may have been started twice.",
            hint="The next attempt lists these windows as lost, and continues after them.",
        )


def refuse_repeated_task(operator: str) -> None:
    """Raises an error in a task of an operator if Spark has already started the task before.

    Raises:
        ResourceError: Spark has started this task before.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is not None and task.attemptNumber():
        raise ResourceError(
            f'Spark started a task of operator "{operator}" again, and at most once starts no '
            "window twice"
        )


def _repetitions(context: SparkContext, group: str) -> Iterator[str]:
    tracker = context.statusTracker()
    stages: set[int] = set()
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        stages.update(found.stageIds if found else ())
    for number in sorted(stages):
        stage = tracker.getStageInfo(number)
        if stage is None:
            continue
        repeated = max(stage.numFailedTasks, stage.numCompletedTasks - stage.numTasks)
        if repeated > 0 or stage.currentAttemptId > 0:
            yield f"stage {number} repeated {max(repeated, 1)} of {stage.numTasks} tasks"


def _lost_executors(context: SparkContext) -> set[str]:
    """Returns the ids of the executors that have ended."""
    executors = context._jsc.sc().statusStore().executorList(False)
    lost = set()
    for number in range(executors.size()):
        executor = executors.apply(number)
        if not executor.isActive():
            lost.add(executor.id())
    return lost
