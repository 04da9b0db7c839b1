"""Runs a publication, undo or withdrawal for a user, and reports the result in lines of text.
Starts no JVM itself.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING

from rewindow.ledger import Ledger, Replay
from rewindow.publication.publish import publish
from rewindow.publication.result import PublicationResult
from rewindow.publication.undo import undo, withdraw
from rewindow.sequences import quantity
from rewindow.settings.config import Config
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


class PublicationAction(StrEnum):
    """An action on a replay: publish it, undo its publication, or withdraw an unfinished one."""

    PUBLISH = "publish"
    UNDO = "undo"
    WITHDRAW = "withdraw"


_DONE = {
    PublicationAction.PUBLISH: "published",
    PublicationAction.UNDO: "undone",
    PublicationAction.WITHDRAW: "withdrawn",
}


def run_action(
    act: PublicationAction,
    config: Config,
    replay_id: str,
    *,
    spark: SparkSession | None = None,
    accept: str | None = None,
    who: str | None = None,
    leave_out_damaged: bool = False,
) -> PublicationResult:
    """Publishes a replay, undoes its publication, or withdraws an unfinished one.

    Args:
        act: the action.
        config: current settings.
        replay_id: the replay.
        spark: session for tables that cannot be written without Spark; None: such a table raises
            SparkNeeded.
        accept, who, leave_out_damaged: see publish and undo.

    Raises:
        RewindowError: see publish, undo and withdraw.
        SparkNeeded: a table cannot be written without Spark.
    """
    if act is PublicationAction.PUBLISH:
        result = publish(
            config,
            replay_id,
            spark=spark,
            accept=accept,
            who=who,
            leave_out_damaged=leave_out_damaged,
        )
    else:
        take_back = undo if act is PublicationAction.UNDO else withdraw
        result = take_back(config, replay_id, spark=spark, leave_out_damaged=leave_out_damaged)
    row = Ledger.open(config.ledger_url).replays.get(replay_id)
    for line in _for_people(result, row):
        logger.info(line)
    return result


def _for_people(result: PublicationResult, row: Replay) -> list[str]:
    """Returns the result as lines of text, with losses, stale windows, and the next step."""
    windows = f"windows {row.describe(WindowRange(result.first, result.last))}"
    done = _DONE[PublicationAction.WITHDRAW if result.withdrawn else PublicationAction(result.kind)]
    lines = [
        f"{windows} of {result.application} {'were ' if result.already else ''}{done} as "
        f"publication {result.number}"
    ]
    lines += [
        f"{output}: {quantity(count, 'window')} lost and now missing"
        for output, count in result.lost.items()
    ]
    for first, last in result.state_lacks:
        lines.append(f"the state lacks windows {row.describe(WindowRange(first, last))}")
    lines += [f"accepted: {line}" for line in result.overrides]
    for table, first, last in result.stale:
        lines.append(f"stale: {table} windows {row.describe(WindowRange(first, last))}")
    if result.replay_next:
        first, last = result.replay_next
        lines.append(
            f"replay next: rewindow replay {result.application} --first {first} --last {last}"
        )
    return [*lines, result.horizon] if done == _DONE[PublicationAction.PUBLISH] else lines
