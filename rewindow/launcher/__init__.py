"""Starts the attempts of a replay, monitors them, and starts the next ones. No JVM."""

from rewindow.launcher.attempts import (
    Outcome,
    Submission,
    begin_attempt,
    known_replay,
    note_kill,
    plain_submission,
    read_outcome,
    run,
)
from rewindow.launcher.loop import failure, run_attempts, run_plain

__all__ = [
    "Outcome",
    "Submission",
    "begin_attempt",
    "failure",
    "known_replay",
    "note_kill",
    "plain_submission",
    "read_outcome",
    "run",
    "run_attempts",
    "run_plain",
]
