"""The replay job: runs one attempt of a planned replay in its own process."""

from __future__ import annotations

import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from rewindow.application import Application
from rewindow.application.port_recording import record_every_port
from rewindow.crash import Step, crash_point
from rewindow.engine.assembly import assemble
from rewindow.engine.computation import PlannedAttempt
from rewindow.engine.progress import Progress
from rewindow.engine.spark_engine import spark_attempt
from rewindow.engine.watchdog import Watchdog
from rewindow.errors import (
    FencedError,
    Interrupted,
    ResourceError,
    RestartRequested,
    RewindowError,
)
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.ledger.facts_index import segments_of
from rewindow.loading.catalog import check_code, load_planned
from rewindow.loading.suites import replay_measures
from rewindow.location import Location
from rewindow.names import whole_replay
from rewindow.operators import TupleOperator
from rewindow.processes.identity import Launcher, process_identity
from rewindow.progress.job_lines import ReplayProgress
from rewindow.progress.messages import MessageHandler
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.spark.executors import check_executors, check_shared, send_code
from rewindow.spark.job import StopRequest, as_rewindow_error, end_group, print_line
from rewindow.spark.session import spark_session
from rewindow.spark.transient_errors import has_lost_jvm
from rewindow.storage import Table
from rewindow.storage.layout import FACTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


def replay(replay_id: str, epoch: int) -> dict[str, Any]:
    """Runs one attempt of a planned replay and returns the content of its outcome file.

    Raises:
        RewindowError: see Attempt.run.
    """
    config = Config.load()
    ledger = Ledger.open(config.ledger_url)
    launcher = Launcher.of_this_job()
    ledger.attempts.begin(replay_id, epoch, **own_process())
    try:
        outcome = _run(config, ledger, replay_id, epoch)
    except FencedError:
        raise
    except (Interrupted, KeyboardInterrupt) as error:
        ledger.attempts.end(
            replay_id,
            epoch,
            AttemptEnd.INTERRUPTED,
            str(error).split("\n")[0] or "stopped by the user",
        )
        if isinstance(error, Interrupted) and _is_outdated(ledger, replay_id, epoch):
            raise RestartRequested(f"{error.primary} for a new attempt") from error
        raise
    except Exception as error:
        ledger.attempts.end(replay_id, epoch, *how_it_ended(error, launcher))
        raise
    ledger.attempts.end(replay_id, epoch, AttemptEnd.DONE)
    _close_index(ledger, replay_id, config.replay_root(replay_id) / FACTS)
    return outcome


def _close_index(ledger: Ledger, replay_id: str, facts: Location) -> None:
    """Rebuilds the index of window facts if an attempt died between a commit and its report, unless
    the facts were purged.
    """
    if not ledger.counts.is_whole(replay_id) and Table.exists(facts):
        ledger.counts.rebuild(replay_id, segments_of(facts))


def how_it_ended(error: Exception, launcher: Launcher) -> tuple[AttemptEnd, str]:
    """Returns how an attempt that raised an exception has ended, and the reason as text.

    If the launcher was killed, the JVM ends too, and Spark's exception would look like a bug in
    Spark.
    """
    if launcher.is_gone():
        return (
            AttemptEnd.KILLED,
            "the process that had started this attempt ended, and the attempt ended with it",
        )
    ours = as_rewindow_error(error)
    if has_lost_jvm(error) and not isinstance(ours, ResourceError):
        return AttemptEnd.KILLED, "the JVM of the job has ended"
    return AttemptEnd.FAILED, str(ours)


def _stuck(ledger: Ledger, plan: Plan, epoch: int, words: str) -> None:
    """Ends the process of an attempt that is stuck.

    In the mode at most once it only warns, because ending the attempt would lose windows. If the
    previous attempt was stuck as well and no window was committed since, the error is not retried.
    """
    words = f"attempt {epoch} of replay {plan.replay_id} is stuck: {words}"
    if plan.mode.may_lose:
        logger.warning(f"{words}; it is not ended, because that would lose windows")
        return
    *before, own = ledger.attempts.of(plan.replay_id)
    furthest = max((attempt.mark or 0 for attempt in before), default=0)
    is_again = bool(before) and before[-1].outcome == AttemptEnd.STUCK
    is_again &= (own.mark or 0) <= furthest
    kind = RewindowError if is_again else ResourceError  # The latter is retried.
    try:
        ledger.attempts.end(plan.replay_id, epoch, AttemptEnd.STUCK, words)
    except FencedError as error:  # A newer attempt runs on another host.
        end_group(error)
    end_group(
        kind(
            words,
            detail="Committed windows are kept.",
            hint="Look for a call without a timeout in the operators, then: "
            f"rewindow replay --resume {whole_replay(plan.replay_id)} --again",
        )
    )


def own_process() -> dict[str, Any]:
    """Returns the ids of this process for the ledger, so that the next attempt can end exactly this
    process.
    """
    group = os.getpgid(0)
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_group": group,
        "process_identity": process_identity(group),
    }


def _assemble(
    ledger: Ledger,
    plan: Plan,
    app: Application,
    root: Location,
    epoch: int,
) -> dict[str, Any]:
    """Assembles a replay from its containers, and returns the content of the outcome file."""

    def crash(step: Step) -> None:
        crash_point(step, attempt=epoch)

    assemble(PlannedAttempt(plan, app, root, epoch=epoch), crash)
    windows = len(plan.range)
    ledger.attempts.report_progress(plan.replay_id, epoch, windows, windows)
    return {"replay": plan.replay_id, "epoch": epoch, "windows": windows, "pid": os.getpid()}


def _is_outdated(ledger: Ledger, replay_id: str, epoch: int) -> bool:
    """Returns whether a user has changed settings of the replay and asked for a new attempt."""
    return ledger.replays.get(replay_id).read_plan().restart_epoch == epoch


def _run(config: Config, ledger: Ledger, replay_id: str, epoch: int) -> dict[str, Any]:
    plan = ledger.replays.get(replay_id).read_plan()
    loaded = load_planned(config, plan)
    check_code(plan, loaded)
    if plan.sample_seed is not None:
        record_every_port(loaded.app)
    if plan.is_linked:
        return _assemble(ledger, plan, loaded.app, config.replay_root(replay_id), epoch)
    stop = StopRequest()

    def session() -> SparkSession:
        """Starts Spark in another thread.

        In the main thread, pyspark would install a handler for SIGINT, which interrupts calls.
        """
        with ThreadPoolExecutor(1) as pool:
            spark = pool.submit(
                spark_session,
                config,
                f"rewindow {replay_id}",
                extra_conf=plan.mode.spark_settings,
                cores_max=plan.cores_max or config.replay.cores_max,
            ).result()
        send_code(spark, config, loaded.files)
        if any(isinstance(node.operator, TupleOperator) for node in loaded.app.nodes.values()):
            check_executors(spark)
        check_shared(spark, config.replay_root(replay_id) / "scratch/shared")
        watchdog.printed("Spark has started")
        return spark

    def on_stuck(words: str) -> None:
        _stuck(ledger, plan, epoch, words)

    settings = config.replay
    watchdog = Watchdog(settings.stuck_seconds, settings.stuck_factor, plan.group_seconds, on_stuck)

    def report(progress: Progress) -> None:
        print_line(ReplayProgress(replay_id, epoch, **vars(progress)).line())
        watchdog.committed(progress.seconds)
        if progress.mark == progress.of:
            watchdog.stop()

    messages = MessageHandler(watchdog.printed)
    # The watchdog's own warning is not progress.
    messages.addFilter(lambda record: record.name != __name__)
    logging.getLogger("rewindow").addHandler(messages)
    stop.listen()
    watchdog.start()
    measures = replay_measures(config.expectations, plan, loaded.app)
    attempt = spark_attempt(
        PlannedAttempt(plan, loaded.app, config.replay_root(replay_id), epoch=epoch),
        ledger,
        session=session,
        inline_state_bytes=config.replay.inline_state_bytes,
        measures=measures,
        file_bytes=config.replay.file_bytes,
        tell=report,
        stop=lambda: stop() or _is_outdated(ledger, replay_id, epoch),
    )
    try:
        attempt.run()
    finally:
        watchdog.stop()
    return {
        "replay": replay_id,
        "epoch": epoch,
        "windows": len(plan.range),
        "pid": os.getpid(),
    }
