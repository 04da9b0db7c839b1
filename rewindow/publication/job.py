"""The publishing job: runs one publication or undo in a separate process, and writes its result to
the outcome file.

Spark is started only if a table needs it, or if the job was submitted to Spark.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rewindow.progress.steps import watched
from rewindow.publication.actions import PublicationAction, run_action
from rewindow.publication.spark_needed import SparkNeeded
from rewindow.settings.config import Config
from rewindow.spark.job import print_line
from rewindow.spark.session import spark_session


def run_publication(
    replay_id: str,
    act: str = PublicationAction.PUBLISH,
    *,
    accept: str | None = None,
    who: str | None = None,
    leave_out_damaged: bool = False,
) -> dict[str, Any]:
    """Publishes a replay, undoes its publication, or withdraws an unfinished one; returns the
    content of the outcome file.

    Args:
        replay_id: the replay.
        act: publish, undo or withdraw.
        accept, who, leave_out_damaged: see publish and undo.

    Raises:
        RewindowError: see publish, undo and withdraw.
    """
    config = Config.load()
    action = partial(
        run_action,
        PublicationAction(act),
        config,
        replay_id,
        accept=accept,
        who=who,
        leave_out_damaged=leave_out_damaged,
    )
    with watched(print_line):
        try:
            result = action()
        except SparkNeeded:
            spark = spark_session(config, f"rewindow {act} {replay_id}", quick=True)
            result = action(spark=spark)
    return {"publication": result.to_json()}
