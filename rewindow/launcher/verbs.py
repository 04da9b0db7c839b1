"""The functions that plan, run and end jobs. `rewindow.Project` and the command line call them.

A job runs in a separate Spark process and is started again if it was killed. The function returns
when the job has ended, or raises its error. The job receives the path of the settings file, the
state folder and the Spark master; it reads all other settings from the file.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import Any, Unpack

from rewindow.launcher.attempts import known_replay
from rewindow.launcher.loop import run_attempts, run_plain
from rewindow.launcher.processes import end_process_group
from rewindow.ledger import Ledger, Replay
from rewindow.ledger.replays import ReplayState
from rewindow.names import check_whole, whole_replay
from rewindow.planning import PlanPreview, ReplayRequest, create_replay, draft_plan
from rewindow.planning.request import ReplayOptions
from rewindow.progress.listener import Listener, Silent
from rewindow.progress.steps import watched
from rewindow.publication.actions import PublicationAction
from rewindow.publication.result import PublicationResult
from rewindow.recording.form import check_form
from rewindow.recording.inventory import check_unneeded
from rewindow.recording.result import RecordResult
from rewindow.recording.sources.size import bytes_to_read
from rewindow.recovery import Plan
from rewindow.sequences import quantity
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.stream_settings import check_recorded_settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplayResult:
    """The result of running a replay.

    Attributes:
        plan: the plan, with the id of the replay, its closed range of windows and its mode.
        state: state of the replay; `ended` if all its windows are staged.
        epoch: number of the attempt that ended it; None if it had ended before, so that nothing was
            computed.
    """

    plan: Plan
    state: ReplayState
    epoch: int | None

    @property
    def replay_id(self) -> str:
        """The id of the replay, for all other functions."""
        return self.plan.replay_id

    def to_json(self) -> dict[str, Any]:
        """Returns the result for programs. Window ids are numbers."""
        windows = self.plan.range
        return {
            "replay": self.replay_id,
            "state": self.state.value,
            "epoch": self.epoch,
            "windows": len(windows),
            "first": windows.first,
            "last": windows.last,
        }


QUICK_BYTES = 128 * 10**6
"""Recordings of fewer bytes are short jobs. For larger ones the JVM's first compiler alone would
need 1.6 times the processor time."""


def plan(config: Config, application: str, **replay_options: Unpack[ReplayOptions]) -> PlanPreview:
    """Returns the plan of a replay, without creating anything. Starts no JVM.

    Args:
        config: current settings.
        application: its name.
        replay_options: range, mode and the other fields of ReplayRequest; without a range, all
            windows that all inputs have sealed.

    Raises:
        InputError: the application or a stream is unknown, or an option is invalid.
        RangeError: windows of the range are not sealed, and `allow_missing` is not given.
    """
    return draft_plan(config, ReplayRequest(application, **replay_options))


def replay(
    config: Config,
    application: str,
    *,
    listener: Listener | None = None,
    crash: str | None = None,
    **replay_options: Unpack[ReplayOptions],
) -> ReplayResult:
    """Plans a range and runs it to its end, attempt after attempt, into staged tables, which
    readers do not see.

    Args:
        config: current settings.
        application: its name.
        listener: receives the progress; none by default.
        crash: for a drill: kill the job at STEP:GROUP@ATTEMPT.
        replay_options: see plan.

    Raises:
        RewindowError: see plan; another replay has locked the range; an attempt failed permanently,
            or all allowed ones have failed: committed windows are kept, and `resume` continues
            after them.
    """
    planned = create_replay(config, ReplayRequest(application, **replay_options))
    return _run(config, planned, listener or Silent(), again=False, crash=crash)


def resume(
    config: Config,
    replay_id: str,
    *,
    again: bool = False,
    listener: Listener | None = None,
    crash: str | None = None,
) -> ReplayResult:
    """Continues a replay as it was planned, from its last checkpoint.

    Args:
        config: current settings.
        replay_id: a planned or failed replay; the id of a container means its replay.
        again: whether to start an attempt even if all allowed ones have failed.
        listener, crash: see replay.

    Raises:
        RewindowError: the replay does not exist, is abandoned, or failed, see replay.
    """
    ledger = Ledger.open(config.ledger_url)
    planned = known_replay(config, ledger, whole_replay(replay_id)).read_plan()
    return _run(config, planned, listener or Silent(), again=again, crash=crash)


def _run(
    config: Config,
    planned: Plan,
    listener: Listener,
    *,
    again: bool,
    crash: str | None,
) -> ReplayResult:
    windows = f"{quantity(len(planned.range), 'window')} {planned.grid.describe(planned.range)}"
    logger.info(f"replay {planned.replay_id}: {windows}, {planned.mode_words}")
    for text in planned.warnings:
        logger.warning(text)
    outcome = run_attempts(config, planned.replay_id, listener, again=again, crash=crash)
    row = Ledger.open(config.ledger_url).replays.get(planned.replay_id)
    if outcome is None:
        logger.info(
            f"it was computed before and is {row.state}: nothing is left to do; for a new one use "
            "another --id"
        )
    return ReplayResult(planned, row.state, row.epoch if outcome else None)


def record(  # noqa: PLR0913 - each is an option of the verb
    config: Config,
    stream: str,
    *,
    sealed_to: str | None = None,
    end: bool = False,
    seal_again: bool = False,
    reopen: bool = False,
    replace: bool = False,
    start_over: bool = False,
    listener: Listener | None = None,
) -> RecordResult:
    """Records new tuples from a stream's source and seals its windows. A second run over the same
    source changes nothing.

    Args:
        config: current settings, including the stream.
        stream: its name.
        sealed_to: seal windows up to this time in ISO 8601 (exclusive); by default up to the newest
            tuple's window.
        end: whether the stream has ended, so that the window of the newest tuple is sealed, too.
        seal_again: whether to create a lost table of seals again from the recorded tuples.
        reopen: whether to move late tuples from quarantine to their windows, which get a new seal;
            without confirmation.
        replace: with `reopen`: read the whole source, and replace the tuples of sealed windows that
            differ from it.
        start_over: whether to remove the recording and record again with the current settings, if
            nothing depends on the recording.
        listener: receives the progress; none by default.

    Raises:
        RewindowError: the stream is unknown, its source cannot be read or has too many malformed
            rows, or the job failed permanently.
    """
    config.stream(stream)
    if start_over:
        check_unneeded(config, stream)
    elif not seal_again:
        _check_settings(config, stream)
    if check_form(config, stream, start_over=start_over):
        from rewindow.recording.in_place import record_in_place

        return record_in_place(
            config,
            stream,
            sealed_to=sealed_to,
            end=end,
            start_over=start_over,
            listener=listener,
            seal_again=seal_again,
            reopen=reopen,
            replace=replace,
        )
    flags = {
        "--end": end,
        "--seal-again": seal_again,
        "--reopen": reopen,
        "--replace": replace,
        "--start-over": start_over,
    }
    arguments = [
        "--stream",
        stream,
        *(["--sealed-to", sealed_to] if sealed_to else []),
        *_given(flags),
    ]
    quick = bytes_to_read(config, stream) < QUICK_BYTES
    return RecordResult.from_json(
        run_plain(
            config,
            "record.py",
            arguments,
            subject=stream,
            listener=listener,
            quick=quick,
        ).result
    )


def _check_settings(config: Config, stream: str) -> None:
    """Checks, before Spark starts, that the settings of a recorded stream have not changed.

    A stream without a sealed window may still change them.
    """
    path = config.windows_table(stream)
    if Table.exists(path) and (seals := Table.open(path)).files():
        check_recorded_settings(config, stream, seals)


def publish(
    config: Config,
    replay_id: str,
    *,
    accept: str | None = None,
    leave_out_damaged: bool = False,
    listener: Listener | None = None,
    crash: str | None = None,
) -> PublicationResult:
    """Replaces the replay's range in the published tables.

    Each table is replaced in one commit.

    Args:
        config: current settings.
        replay_id: a replay that has ended and passed the gate.
        accept: reason for publishing although the gate has not passed, or although newer or better
            windows are replaced; it is stored together with the objections.
        leave_out_damaged: whether to continue without the windows of damaged files, which are then
            missing.
        listener: receives the progress; none by default.
        crash: for a drill: kill the job at STEP:NUMBER.

    Raises:
        RewindowError: the replay has not ended or not passed the gate; a later publication
            overlaps; or the job failed permanently.
    """
    return _publication(
        PublicationAction.PUBLISH,
        config,
        replay_id,
        accept=accept,
        leave_out_damaged=leave_out_damaged,
        listener=listener,
        crash=crash,
    )


def withdraw(
    config: Config,
    replay_id: str,
    *,
    leave_out_damaged: bool = False,
    listener: Listener | None = None,
    crash: str | None = None,
) -> PublicationResult:
    """Withdraws an unfinished publication or undo: the tables then show their previous content.

    Args and errors: see publish.
    """
    return _publication(
        PublicationAction.WITHDRAW,
        config,
        replay_id,
        accept=None,
        leave_out_damaged=leave_out_damaged,
        listener=listener,
        crash=crash,
    )


def undo(
    config: Config,
    replay_id: str,
    *,
    leave_out_damaged: bool = False,
    listener: Listener | None = None,
    crash: str | None = None,
) -> PublicationResult:
    """Restores the content that was published before this replay. Raises an error that names a
    later overlapping publication, if there is one.

    Args and errors: see publish.
    """
    return _publication(
        PublicationAction.UNDO,
        config,
        replay_id,
        accept=None,
        leave_out_damaged=leave_out_damaged,
        listener=listener,
        crash=crash,
    )


def _publication(
    act: PublicationAction,
    config: Config,
    replay_id: str,
    accept: str | None,
    leave_out_damaged: bool,
    listener: Listener | None,
    crash: str | None,
) -> PublicationResult:
    """Runs the action in this process, which starts no JVM.

    If a table needs Spark or a drill kills the action, it runs in a job.
    """
    from rewindow.publication.actions import run_action
    from rewindow.publication.spark_needed import SparkNeeded

    receiver = listener or Silent()
    if crash is None:
        try:
            with receiver.job(), watched(receiver.line):
                return run_action(
                    act,
                    config,
                    replay_id,
                    accept=accept,
                    leave_out_damaged=leave_out_damaged,
                )
        except SparkNeeded as needed:
            logger.info(f"{needed}: starting Spark")
    flags = {
        "--undo": act is PublicationAction.UNDO,
        "--withdraw": act is PublicationAction.WITHDRAW,
        "--leave-out-damaged": leave_out_damaged,
    }
    arguments = ["--replay", replay_id, *([f"--accept={accept}"] if accept else []), *_given(flags)]
    outcome = run_plain(
        config,
        "publish.py",
        arguments,
        subject=replay_id,
        listener=listener,
        crash=crash,
    )
    return PublicationResult.from_json(outcome.result["publication"])


def abandon(config: Config, replay_id: str, *, reason: str = "") -> Replay:
    """Ends a replay permanently, with its process and its leases. Returns its entry in the ledger.

    Published windows are not affected.

    Args:
        config: current settings.
        replay_id: a replay.
        reason: the reason; stored with the replay.

    Raises:
        InputError: the replay does not exist, is a container, or is published: undo it instead.
        OverlapError: a publication or an undo of it is open.
    """
    ledger = Ledger.open(config.ledger_url)
    check_whole(replay_id)
    row = ledger.replays.abandon(replay_id, reason)
    for entry in [row, *ledger.replays.containers(replay_id)]:
        _end(ledger, entry, reason)
    return row


def _end(ledger: Ledger, row: Replay, reason: str) -> None:
    """Ends the process of an abandoned replay, or of one of its containers."""
    last = ledger.attempts.last(row.replay_id)
    if row.state is not ReplayState.ABANDONED:
        ledger.replays.abandon(row.replay_id, reason)
    is_here = last is not None and last.outcome is None and last.host == socket.gethostname()
    if last is not None and is_here and last.process_group and last.process_identity:
        end_process_group(last.process_group, last.process_identity)


def _given(flags: dict[str, bool]) -> list[str]:
    return [flag for flag, is_given in flags.items() if is_given]
