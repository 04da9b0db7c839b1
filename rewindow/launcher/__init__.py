"""From a wish to a running attempt: plan, take the next epoch, submit the job, read what came of it. No JVM."""

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
from rewindow.launcher.planner import create_replay, draft_plan
from rewindow.launcher.request import Draft, ReplayRequest

__all__ = [
    "Draft",
    "Outcome",
    "ReplayRequest",
    "Submission",
    "begin_attempt",
    "create_replay",
    "draft_plan",
    "failure",
    "known_replay",
    "note_kill",
    "plain_submission",
    "read_outcome",
    "run",
    "run_attempts",
    "run_plain",
]
