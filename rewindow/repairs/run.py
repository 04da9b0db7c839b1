"""Runs repairs: adds late tuples to their windows, then replays, checks and publishes one step
after another.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rewindow.backfill.steps import check_and_publish
from rewindow.errors import GateError
from rewindow.launcher import verbs
from rewindow.launcher.processes import is_gone
from rewindow.ledger import AttemptRecord, Ledger
from rewindow.ledger.replays import RUNNABLE
from rewindow.planning.request import ReplayOptions
from rewindow.progress.listener import Listener, Silent
from rewindow.recovery import Plan
from rewindow.repairs.find import RepairStep, find_repairs
from rewindow.settings.config import Config
from rewindow.storage import Table

logger = logging.getLogger(__name__)

STARTED_WITHIN = timedelta(minutes=5)
"""An attempt without a process counts as ended after this time."""


@dataclass(frozen=True)
class Repaired:
    """The result of a repair.

    Attributes:
        streams: streams whose late tuples were added to their windows.
        steps: ranges that were replayed, checked and published.
        unknown: texts about windows for which changes can no longer be determined.
    """

    streams: Sequence[str]
    steps: Sequence[RepairStep]
    unknown: Sequence[str]


def repair(config: Config, listener: Listener | None = None) -> Repaired:
    """Adds late tuples to their windows, replays, checks and publishes the affected windows, and
    returns the result.

    A published window gets a new generation, in which a late row replaces a filled one.

    A repeated call repairs the remaining windows, and does nothing if there are none. It resumes a
    replay that a killed repair has left behind.

    Raises:
        GateError: a replay did not pass; it remains staged, and none of its windows are published.
        RewindowError: a recording, replay or publication failed, see these verbs.

    Rules: X29, G42
    """
    told = listener or Silent()
    done = list[RepairStep]()
    streams = sorted({one.stream for one in find_repairs(config).late})
    for stream in streams:
        logger.info(f"stream {stream}: adding late tuples to their windows")
        verbs.record(config, stream, reopen=True, listener=told)
    while (found := find_repairs(config)).steps:
        step = found.steps[0]
        if any(step.application == one.application and step.windows == one.windows for one in done):
            raise GateError(
                f"windows {step.grid.describe(step.windows)} of {step.application} were published "
                "again, but still need repair",
                detail=" ".join(step.reasons),
                hint="The inputs may have changed in the meantime. Run the repair again.",
            )
        for reason in step.reasons:
            logger.info(f"{step.application} {step.grid.describe(step.windows)}: {reason}")
        _put_right(config, step, told)
        done.append(step)
    return Repaired(streams, done, found.unknown)


def _put_right(config: Config, step: RepairStep, told: Listener) -> None:
    """Replays, checks and publishes a step."""
    asked: ReplayOptions = {
        **step.replay_options,
        "first": step.windows.first,
        "last": step.windows.last,
        "reason": step.reasons[0],
    }
    left = interrupted(config, step)
    if left:
        logger.info(f"resuming the interrupted replay {left}")
        result = verbs.resume(config, left, listener=told)
    else:
        result = verbs.replay(config, step.application, listener=told, **asked)
    published = check_and_publish(config, result.replay_id, told)
    if step.may_follow:
        stale = Ledger.open(config.ledger_url).publications.get(published.number).details.stale
        differs = any(step.may_follow[0].first in entry.windows for entry in stale)
        words = (
            "differs from the published one"
            if differs
            else "equals the published one: later windows stay as they are"
        )
        last = step.grid.describe(step.windows.last)
        logger.info(f"{step.application}: the state after window {last} {words}")


def interrupted(config: Config, step: RepairStep) -> str:
    """Returns the replay of the same step that a killed repair has left behind; empty if there is
    none.

    This replay has the lease of the range, so no other replay could start. Its inputs are still the
    newest.
    """
    ledger = Ledger.open(config.ledger_url)
    for row in ledger.replays.newest(step.application, RUNNABLE):
        last = ledger.attempts.last(row.replay_id)
        plan = row.read_plan()
        is_mine = row.range == step.windows and plan.reason == step.reasons[0]
        if is_mine and last is not None and _has_ended(last) and _reads_newest(config, plan):
            return row.replay_id
    return ""


def _has_ended(attempt: AttemptRecord) -> bool:
    """Returns whether an attempt has ended.

    If the attempt never had a process, it was killed before it started.
    """
    if attempt.host is None and attempt.outcome is None:
        return datetime.now(UTC) - attempt.heard_at > STARTED_WITHIN
    return is_gone(attempt)


def _reads_newest(config: Config, plan: Plan) -> bool:
    """Returns whether the windows of all inputs of a replay are unchanged since it pinned them."""
    return all(
        Table.open(config.windows_table(entry.stream)).version == entry.windows_version
        for entry in plan.inputs
    )
