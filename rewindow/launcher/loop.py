"""Runs jobs until they end.

If an attempt dies, the next one is started. Any other job is started again.
"""

from __future__ import annotations

import logging
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial

from rewindow.errors import Interrupted, RewindowError
from rewindow.launcher.attempts import (
    INTERRUPTS,
    Outcome,
    begin_attempt,
    known_replay,
    note_kill,
    plain_submission,
    run,
)
from rewindow.ledger import Ledger
from rewindow.ledger.replays import RUNNABLE
from rewindow.names import container_id
from rewindow.planning.containers import unfinished
from rewindow.progress.listener import Labelled, Listener, Silent
from rewindow.progress.messages import pass_on
from rewindow.recovery import Plan
from rewindow.settings.config import Config

logger = logging.getLogger(__name__)

TRIES = 3


def run_attempts(
    config: Config,
    replay_id: str,
    listener: Listener | None = None,
    *,
    again: bool = False,
    crash: str | None = None,
) -> Outcome | None:
    """Runs attempts until the replay has ended.

    Returns None if it had already ended.

    Args:
        config: current settings.
        replay_id: a planned replay.
        listener: receives the progress.
        again: whether to start an attempt even if all allowed ones have failed.
        crash: for a drill: kill the job at STEP:GROUP@ATTEMPT.

    Raises:
        Interrupted: the user has stopped it.
        RewindowError: an attempt failed permanently, or all allowed ones have failed.
    """
    receiver = listener or Silent()
    ledger = Ledger.open(config.ledger_url)
    row = known_replay(config, ledger, replay_id)
    if config.replay.containers_at_once > 1 and row.state in RUNNABLE:
        _run_together(config, row.read_plan(), receiver, again=again, crash=crash)
    return _run_to_end(config, replay_id, receiver, again=again, crash=crash)


def _run_to_end(
    config: Config,
    replay_id: str,
    listener: Listener,
    *,
    again: bool,
    crash: str | None,
    label: str = "",
) -> Outcome | None:
    """Runs the attempts of a replay or of one container, whose messages then have a label."""
    read_line = partial(pass_on, listener=listener, label=label)
    while True:
        submission = begin_attempt(config, replay_id, crash, again=again)
        if submission is None:
            return None
        if submission.replay_id != replay_id:
            logger.info(f"container {submission.replay_id.partition('@')[2]}")
        with listener.job():
            outcome = run(submission, read_line)
        note_kill(config, submission, outcome)
        if outcome.exit_code == 0 and submission.replay_id == replay_id:
            return outcome
        if outcome.exit_code == 0:
            _check_interrupt(replay_id)
            continue
        if not outcome.retryable:
            raise failure(outcome)
        again = False
        first_line = (outcome.message.splitlines() or ["without a message"])[0]
        logger.warning(f"{label}attempt {submission.epoch} ended: {first_line}; resuming")


def _check_interrupt(replay_id: str) -> None:
    """Raises an error after Ctrl-C, because a job ignores Ctrl-C in its last commit group.

    Raises:
        Interrupted: Ctrl-C was pressed while the last job ran.
    """
    if INTERRUPTS.asked:
        raise Interrupted(
            "stopped by the user",
            detail="Committed windows are kept.",
            hint=f"Resume it: rewindow replay --resume {replay_id}",
        )


def _run_together(
    config: Config,
    plan: Plan,
    listener: Listener,
    *,
    again: bool,
    crash: str | None,
) -> None:
    """Runs the containers of a replay, several at the same time, until all have ended.

    If one fails, the other running containers are still run to their end.
    """
    at_once = config.replay.containers_at_once
    running: dict[str, Future[Outcome | None]] = {}
    with INTERRUPTS.passed_on(), ThreadPoolExecutor(at_once) as pool:
        while True:
            remaining = unfinished(config, plan)
            names = {container.name for container in remaining}
            for container in remaining:
                is_ready = container.name not in running and names.isdisjoint(container.after)
                if is_ready and len(running) < at_once:
                    running[container.name] = pool.submit(
                        _run_to_end,
                        config,
                        container_id(plan.replay_id, container.name),
                        Labelled(container.name, listener),
                        again=again,
                        crash=crash,
                        label=f"{container.name}: ",
                    )
            if not running:
                return
            wait(running.values(), return_when=FIRST_COMPLETED)
            for name in [name for name, future in running.items() if future.done()]:
                running.pop(name).result()
            _check_interrupt(plan.replay_id)


def run_plain(
    config: Config,
    job: str,
    arguments: list[str],
    subject: str,
    listener: Listener | None = None,
    *,
    crash: str | None = None,
    quick: bool = True,
) -> Outcome:
    """Runs a job that is not an attempt of a replay to its end.

    If the job is killed, it is started again, because it is safe to repeat.

    Args:
        config: current settings.
        job: file name of the entry point.
        arguments: arguments of the job.
        subject: the stream or replay that it processes.
        listener: receives the progress.
        crash: crash points of the first try, for a drill.
        quick: whether it is a short job, see `spark_settings`.

    Raises:
        RewindowError: the job failed permanently.
    """
    receiver = listener or Silent()
    for attempt in range(1, TRIES + 1):
        with receiver.job():
            outcome = run(
                plain_submission(
                    config,
                    job,
                    arguments,
                    subject=subject,
                    crash=crash,
                    quick=quick,
                ),
                partial(pass_on, listener=receiver),
            )
        if outcome.exit_code == 0:
            return outcome
        if not outcome.retryable or attempt == TRIES:
            break
        crash = None
    raise failure(outcome)


def failure(outcome: Outcome) -> RewindowError:
    """Returns a job's failure as an error with the exit code of the job."""
    text = (
        outcome.message.strip()
        or f"the job ended without a message (exit code {outcome.exit_code})"
    )
    error = RewindowError(**outcome.error) if outcome.error else RewindowError(text)
    error.exit_code = outcome.exit_code  # type: ignore[misc]
    return error
