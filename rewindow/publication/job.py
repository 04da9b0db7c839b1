"""The publishing job: one publication or undo in a Spark process of its own, its result in the outcome file."""

from __future__ import annotations

from typing import Any

from rewindow.config import Config
from rewindow.publication.publish import publish
from rewindow.publication.result import PublicationResult
from rewindow.publication.take_back import undo, withdraw
from rewindow.spark.job import say, tell
from rewindow.spark.session import spark_session


def run_publication(
    replay_id: str,
    act: str = "publish",
    *,
    accept: str | None = None,
    who: str | None = None,
    leave_out_damaged: bool = False,
) -> dict[str, Any]:
    """Publishes a replay, takes its publication back, or withdraws what was begun; returns what the outcome file says.

    Args:
        act: publish, undo or withdraw.
        accept, who, leave_out_damaged: see publish and undo.

    Raises:
        RewindowError: see publish, undo and withdraw.
    """
    config = Config.load()
    spark = spark_session(config, f"rewindow {act} {replay_id}", quick=True)
    if act == "publish":
        result = publish(spark, config, replay_id, accept=accept, who=who, leave_out_damaged=leave_out_damaged, say=say)
    else:
        take_back = undo if act == "undo" else withdraw
        result = take_back(spark, config, replay_id, leave_out_damaged=leave_out_damaged, say=say)
    for line in _for_people(result):
        say(line)
    tell("publication", **result.to_json())
    return {"publication": result.to_json()}


_DONE = {"publish": "published", "undo": "undone", "withdraw": "withdrawn"}


def _for_people(result: PublicationResult) -> list[str]:
    """Returns what somebody should know of a publication: losses, what is stale now, what to do next."""
    windows = f"windows {result.first} to {result.last}"
    done = _DONE["withdraw" if result.withdrawn else result.kind]
    lines = [
        f"{windows} of {result.application} {'were ' if result.already else ''}{done} as publication {result.number}"
    ]
    lines += [f"{output}: {count} windows were lost and are now missing" for output, count in result.lost.items()]
    lines += [f"the state never saw windows {first} to {last}" for first, last in result.state_lacks]
    lines += [f"stale: {table} windows {first} to {last}" for table, first, last in result.stale]
    if result.replay_next:
        first, last = result.replay_next
        lines.append(f"replay next: rewindow replay {result.application} --first {first} --last {last}")
    return [*lines, result.horizon]
