"""The publishing job: one publication or undo in a Spark process of its own, its result in the outcome file."""

from __future__ import annotations

from typing import Any

from rewindow.config import Config
from rewindow.engine.job import say, tell
from rewindow.engine.session import spark_session
from rewindow.publication.publish import publish, undo


def run_publication(
    replay_id: str, *, take_back: bool = False, accept: str | None = None, who: str | None = None
) -> dict[str, Any]:
    """Publishes a replay, or takes its publication back, and returns what the outcome file says.

    Raises:
        RewindowError: see publish and undo.
    """
    config = Config.load()
    spark = spark_session(config, f"rewindow {'undo' if take_back else 'publish'} {replay_id}", quick=True)
    if take_back:
        result = undo(spark, config, replay_id, say=say)
    else:
        result = publish(spark, config, replay_id, accept=accept, who=who, say=say)
    tell("publication", **result.to_json())
    return {"publication": result.to_json()}
