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
from rewindow.launcher.planner import Draft, ReplayRequest, create_replay, draft_plan

__all__ = [
    "Draft",
    "Outcome",
    "ReplayRequest",
    "Submission",
    "begin_attempt",
    "create_replay",
    "draft_plan",
    "known_replay",
    "note_kill",
    "plain_submission",
    "read_outcome",
    "run",
]
