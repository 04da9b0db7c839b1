"""The verbs that plan, run and end jobs. `rewindow.Project` and the command line call them.

A job is a separate Spark process, which is started again if it was killed. A function returns when
its job has ended, or raises the job's error. The job gets the path of the settings file, the state
folder and the master, and reads all other settings in the file.
"""

from __future__ import annotations

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
from rewindow.publication.actions import PublicationAction
from rewindow.publication.result import PublicationResult
from rewindow.recording.inventory import check_unneeded
from rewindow.recording.result import RecordResult
from rewindow.recording.sources.size import bytes_to_read
from rewindow.recovery import Plan
from rewindow.sequences import quantity
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.stream_settings import check_recorded_settings


@dataclass(frozen=True)
class ReplayResult:
    """What running a replay has come to.

    Attributes:
        plan: what was planned, with the id of the replay, its closed range of windows and its mode.
        state: where the replay is in its life; `ended` when all its windows are staged.
        epoch: number of the attempt that ended it; None when it had ended before, and nothing was
            computed.
    """

    plan: Plan
    state: ReplayState
    epoch: int | None

    @property
    def replay_id(self) -> str:
        """Id of the replay, for all other verbs."""
        return self.plan.replay_id

    def to_json(self) -> dict[str, Any]:
        """Returns it for programs; window ids are numbers."""
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
"""Below this a recording is a short job; above it the JVM's first compiler alone takes 1.6 times
the processor time."""


def plan(config: Config, application: str, **replay_options: Unpack[ReplayOptions]) -> PlanPreview:
    """Returns what a replay would do, without creating anything. Starts no JVM.

    Args:
        config: settings in force.
        application: its name.
        replay_options: range, mode and the other fields of ReplayRequest; without a range, every
            window that all inputs have sealed.

    Raises:
        InputError: the application or a stream is unknown, or a wish cannot be.
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
    """Plans a range and runs it to its end, attempt after attempt, into staged tables that no
    reader sees.

    Args:
        config: settings in force.
        application: its name.
        listener: is told what happens; nobody by default.
        crash: drill: kill the job at STEP:GROUP@ATTEMPT.
        replay_options: see plan.

    Raises:
        RewindowError: see plan; the range is held by another replay; an attempt failed for good, or
            all allowed ones were used up: what was committed is kept, and `resume` goes on from it.
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
    """Goes on with a replay as it was planned, from its last checkpoint.

    Args:
        config: settings in force.
        replay_id: a planned or failed replay; the id of a container means its replay.
        again: try although it has used up its attempts.
        listener, crash: see replay.

    Raises:
        RewindowError: there is no such replay, it is abandoned, or it failed, see replay.
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
    windows = f"{quantity(len(planned.range), 'window')} {planned.range}"
    listener.note(f"replay {planned.replay_id}: {windows}, {planned.mode_words}")
    for text in planned.warnings:
        listener.warn(f"warning: {text}")
    outcome = run_attempts(config, planned.replay_id, listener, again=again, crash=crash)
    row = Ledger.open(config.ledger_url).replays.get(planned.replay_id)
    if outcome is None:
        listener.note(
            f"it was computed before and is {row.state}: nothing is left to do; for a new one give "
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
    """Takes what is new of a stream's source and seals its windows. A second run over the same
    source changes nothing.

    Args:
        config: settings in force, with the stream in them.
        stream: its name.
        sealed_to: seal windows up to this time in ISO 8601 (exclusive); by default up to the newest
            tuple's window.
        end: nothing more will come: seal the window of the newest tuple too.
        seal_again: the table of seals is lost: make it anew from the tuples there.
        reopen: take late tuples from quarantine into their windows, which get a new seal; without a
            question.
        replace: with `reopen`: read the whole source, and give sealed windows that differ from it
            what it has now.
        start_over: remove what was recorded and record it anew with the settings in force, while
            nobody needs it.
        listener: is told what happens; nobody by default.

    Raises:
        RewindowError: the stream is unknown, its source cannot be read or has too many malformed
            rows, or the job failed for good.
    """
    config.stream(stream)
    if start_over:
        check_unneeded(config, stream)
    elif not seal_again:
        _check_settings(config, stream)
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
    """Refuses settings that have changed since a stream was recorded, before Spark starts.

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
    """Replaces the replay's range in the published tables: each in one commit.

    Args:
        config: settings in force.
        replay_id: a replay that has ended and passed the gate.
        accept: publish although it has not passed, or would replace newer or better windows; the
            reason is kept with what it overrides.
        leave_out_damaged: go on without the windows of damaged files; these are then missing.
        listener: is told what happens; nobody by default.
        crash: drill: kill the job at STEP:NUMBER.

    Raises:
        RewindowError: it has not ended or not passed; a later publication overlaps; or the job
            failed for good.
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
    """Gives up a publication or an undo that was begun and cannot be finished: tables show what
    they showed before.

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
    """Puts back what was published before this replay. Refused when a later publication overlaps,
    which it names.

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
    """Acts in this process, which starts no JVM; by a job where a table needs Spark, or to be
    killed in a drill.
    """
    from rewindow.publication.actions import run_action
    from rewindow.publication.spark_needed import SparkNeeded

    told = listener or Silent()
    if crash is None:
        try:
            with told.job():
                return run_action(
                    act,
                    config,
                    replay_id,
                    say=told.line,
                    accept=accept,
                    leave_out_damaged=leave_out_damaged,
                )
        except SparkNeeded as needed:
            told.note(f"{needed}: starting Spark")
    flags = {
        "--undo": act is PublicationAction.UNDO,
        "--withdraw": act is PublicationAction.WITHDRAW,
        "--leave-out-damaged": leave_out_damaged,
    }
    arguments = ["--replay", replay_id, *(["--accept", accept] if accept else []), *_given(flags)]
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
    """Ends a replay for good, its process and its leases, and returns its row. What is published
    stays.

    Args:
        config: settings in force.
        replay_id: a replay.
        reason: why; kept with the replay.

    Raises:
        InputError: there is no such replay, it is a container of one, or it is published: undo it
            instead.
        OverlapError: a publication or an undo of it is open.
    """
    ledger = Ledger.open(config.ledger_url)
    check_whole(replay_id)
    row = ledger.replays.abandon(replay_id, reason)
    for one in [row, *ledger.replays.containers(replay_id)]:
        _end(ledger, one, reason)
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
