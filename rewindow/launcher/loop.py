"""Jobs run to their end: an attempt that dies is followed by the next one, any other job is begun
again.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

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
from rewindow.recovery import Plan
from rewindow.settings.config import Config

TRIES = 3


def run_attempts(
    config: Config,
    replay_id: str,
    listener: Listener | None = None,
    *,
    again: bool = False,
    crash: str | None = None,
) -> Outcome | None:
    """Runs attempts until the replay has ended; None when it had ended before.

    Args:
        config: settings.
        replay_id: a planned replay.
        listener: is told what happens.
        again: try although the replay has used up its attempts.
        crash: drill: kill the job at STEP:GROUP@ATTEMPT.

    Raises:
        Interrupted: the user has stopped it.
        RewindowError: an attempt failed for good, or all allowed ones were used up.
    """
    told = listener or Silent()
    ledger = Ledger.open(config.ledger_url)
    row = known_replay(config, ledger, replay_id)
    if config.replay.containers_at_once > 1 and row.state in RUNNABLE:
        _run_together(config, row.read_plan(), told, again=again, crash=crash)
    return _run_to_end(config, replay_id, told, again=again, crash=crash)


def _run_to_end(
    config: Config,
    replay_id: str,
    told: Listener,
    *,
    again: bool,
    crash: str | None,
) -> Outcome | None:
    while True:
        submission = begin_attempt(config, replay_id, crash, again=again)
        if submission is None:
            return None
        if submission.replay_id != replay_id:
            told.note(f"container {submission.replay_id.partition('@')[2]}")
        with told.job():
            outcome = run(submission, told.line)
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
        told.warn(f"attempt {submission.epoch} ended: {first_line}; resuming")


def _check_interrupt(replay_id: str) -> None:
    """Ends the replay after Ctrl-C, which a job in its last commit group ignores.

    Raises:
        Interrupted: it was pressed while the last job ran.
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
    told: Listener,
    *,
    again: bool,
    crash: str | None,
) -> None:
    """Runs the containers of a replay, several at the same time, until all have ended.

    Those that run when another one fails are run to their end.
    """
    at_once = config.replay.containers_at_once
    running: dict[str, Future[Outcome | None]] = {}
    with INTERRUPTS.passed_on(), ThreadPoolExecutor(at_once) as pool:
        while True:
            still = unfinished(config, plan)
            names = {container.name for container in still}
            for container in still:
                is_ready = container.name not in running and names.isdisjoint(container.after)
                if is_ready and len(running) < at_once:
                    running[container.name] = pool.submit(
                        _run_to_end,
                        config,
                        container_id(plan.replay_id, container.name),
                        Labelled(container.name, told),
                        again=again,
                        crash=crash,
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
    """Runs a job that is no attempt of a replay to its end; a killed one is begun again, as it is
    safe to repeat.

    Args:
        quick: it is a short job, see `spark_settings`.

    Raises:
        RewindowError: the job failed for good.
    """
    told = listener or Silent()
    for attempt in range(1, TRIES + 1):
        with told.job():
            outcome = run(
                plain_submission(
                    config,
                    job,
                    arguments,
                    subject=subject,
                    crash=crash,
                    quick=quick,
                ),
                told.line,
            )
        if outcome.exit_code == 0:
            return outcome
        if not outcome.retryable or attempt == TRIES:
            break
        crash = None
    raise failure(outcome)


def failure(outcome: Outcome) -> RewindowError:
    """Returns a job's failure as an error with the job's own exit code."""
    text = (
        outcome.message.strip()
        or f"the job ended without a message (exit code {outcome.exit_code})"
    )
    error = RewindowError(**outcome.error) if outcome.error else RewindowError(text)
    error.exit_code = outcome.exit_code  # type: ignore[misc]
    return error
