"""The publishing job: one publication or undo in a separate process, with its result in the outcome
file.

Spark is started only if a table needs it, or if the job was submitted to Spark.
"""

from __future__ import annotations

from typing import Any

from rewindow.publication.actions import PublicationAction, run_action
from rewindow.publication.spark_needed import SparkNeeded
from rewindow.settings.config import Config
from rewindow.spark.job import say, tell
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
    wished = PublicationAction(act)
    try:
        result = run_action(
            wished,
            config,
            replay_id,
            say=say,
            accept=accept,
            who=who,
            leave_out_damaged=leave_out_damaged,
        )
    except SparkNeeded:
        spark = spark_session(config, f"rewindow {act} {replay_id}", quick=True)
        result = run_action(
            wished,
            config,
            replay_id,
            say=say,
            spark=spark,
            accept=accept,
            who=who,
            leave_out_damaged=leave_out_damaged,
        )
    tell("publication", **result.to_json())
    return {"publication": result.to_json()}
