"""Divides a range into steps and replays them, one after the other.

The id of a step contains its windows, so a repeated call finds the steps that are done, and
continues with the next one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewindow.errors import GateError, InputError, RangeError
from rewindow.launcher import verbs
from rewindow.launcher.verbs import ReplayResult
from rewindow.ledger import Ledger
from rewindow.ledger.replays import ReplayState
from rewindow.planning import ReplayRequest, create_replay, draft_plan
from rewindow.progress.listener import Listener, Silent
from rewindow.publication.result import PublicationResult
from rewindow.settings.config import Config
from rewindow.windows import format_duration, parse_duration

logger = logging.getLogger(__name__)

_NEVER_RESUMED = (ReplayState.ABANDONED, ReplayState.UNDONE)


@dataclass(frozen=True)
class Steps:
    """The steps of a range.

    Attributes:
        requests: the replays, in the order in which they run.
        has_state: whether the application has state, so that each step starts with the state
            after the step before it.
    """

    requests: Sequence[ReplayRequest]
    has_state: bool


def plan_steps(
    config: Config,
    request: ReplayRequest,
    step: str,
    *,
    newest_first: bool = False,
    publish: bool = False,
) -> Steps:
    """Divides the range of a request into steps. Creates nothing.

    The first step starts at the start of the range, and the last one can be shorter. In an
    application with state, a step starts with the published state if the step before it is
    published, otherwise with the last state of that step's replay.

    Args:
        config: current settings.
        request: the whole range, and the options of every step. Its id, by default the
            application, is the prefix of all ids.
        step: the duration of a step, such as "36h", "1 day" or "1w".
        newest_first: whether the newest step runs first.
        publish: whether each step is published before the next one starts.

    Raises:
        InputError: the application has state, so its steps cannot run newest first.
        RangeError: the step is not a multiple of the application's window.
        RewindowError: see `draft_plan`.
    """
    plan = draft_plan(config, request).plan
    weeks = re.fullmatch(r"\s*(\d+)\s*w(eeks?)?\s*", step.lower())
    step_us = parse_duration(f"{7 * int(weeks[1])} d" if weeks else step)
    size, rest = divmod(step_us, plan.width_ms * 1000)
    if size < 1 or rest:
        width = format_duration(plan.width_ms * 1000)
        raise RangeError(
            f'step "{step}" is not a multiple of the window of "{plan.application}", {width}'
        )
    has_state = plan.start.source != "none"
    if newest_first and has_state:
        raise InputError(
            f'application "{plan.application}" has state, so its steps cannot run newest first',
            detail="Each step starts with the state after the step before it.",
        )
    ledger = Ledger.open(config.ledger_url)
    requests: list[ReplayRequest] = []
    for first in range(plan.first, plan.last + 1, size):
        last = min(first + size - 1, plan.last)
        one = replace(
            request,
            from_time=None,
            to_time=None,
            first=first,
            last=last,
            replay_id=_step_id(ledger, f"{request.replay_id or plan.application}-{first}-{last}"),
        )
        if has_state and requests:
            before = None if publish else requests[-1].replay_id
            one = replace(one, initial_state=False, state_from=before)
        requests.append(one)
    return Steps(requests[::-1] if newest_first else requests, has_state)


def run_steps(
    config: Config,
    steps: Steps,
    *,
    publish: bool = False,
    listener: Listener | None = None,
) -> list[ReplayResult]:
    """Runs the steps of a range in their order, and returns their results.

    A repeated call does not compute the steps again that have ended, even if the code has changed
    since. It resumes the step that failed.

    Args:
        config: current settings.
        steps: see `plan_steps`.
        publish: whether each step is checked and published before the next one starts.
        listener: receives the progress; none by default.

    Raises:
        GateError: a step did not pass the gate; the steps before it are published.
        InputError: a step was planned with other options under the same id.
        RewindowError: a replay or a publication failed, see these verbs.
    """
    ledger = Ledger.open(config.ledger_url)
    results = []
    for number, request in enumerate(steps.requests, 1):
        plan = create_replay(config, request)
        state = ledger.replays.get(plan.replay_id).state
        logger.info(f"step {number} of {len(steps.requests)}: {plan.replay_id} is {state}")
        result = ReplayResult(plan, state, None)
        if state is not ReplayState.PUBLISHED:
            result = verbs.resume(config, plan.replay_id, listener=listener)
            if publish:
                check_and_publish(config, plan.replay_id, listener or Silent())
                result = replace(result, state=ReplayState.PUBLISHED)
        results.append(result)
    return results


def check_and_publish(config: Config, replay_id: str, listener: Listener) -> PublicationResult:
    """Checks a replay and publishes it.

    Raises:
        GateError: the replay did not pass; it remains staged.
    """
    from rewindow.quality import check

    if check(config, replay_id, listener).verdict != "passed":
        raise GateError(
            f"replay {replay_id} did not pass the gate, so it was not published",
            hint=f"To see why: rewindow check {replay_id}. Then publish or abandon the replay, and "
            "run the command again.",
        )
    return verbs.publish(config, replay_id, listener=listener)


def _step_id(ledger: Ledger, name: str) -> str:
    """Returns the id of a step's replay. After a replay that was abandoned or undone, a new one
    with the next number is planned.
    """
    replay_id, number = name, 1
    while (row := ledger.replays.find(replay_id)) and row.state in _NEVER_RESUMED:
        number += 1
        replay_id = f"{name}-{number}"
    return replay_id
