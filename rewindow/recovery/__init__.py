"""Pure functions for recovery, without I/O.

They compute the first window to compute, losses, commit groups and guarantees from the marks of
tables.
"""

from rewindow.recovery.containers import (
    AfterCrash,
    Guarantee,
    OpenWindows,
    RecoveryTimes,
    after_crash,
    guarantees,
    open_windows,
    recovery_times,
)
from rewindow.recovery.groups import CheckpointSchedule, GroupSizer, next_end
from rewindow.recovery.guarantee import guarantee
from rewindow.recovery.plan import (
    TUPLE_ORDER,
    Candidate,
    ContainerPlan,
    InputPlan,
    OperatorVersion,
    OutputPlan,
    Plan,
    StartState,
    path_in,
)
from rewindow.recovery.resume import Resume, affected_from, resume

__all__ = [
    "TUPLE_ORDER",
    "AfterCrash",
    "Candidate",
    "CheckpointSchedule",
    "ContainerPlan",
    "GroupSizer",
    "Guarantee",
    "InputPlan",
    "OpenWindows",
    "OperatorVersion",
    "OutputPlan",
    "Plan",
    "RecoveryTimes",
    "Resume",
    "StartState",
    "affected_from",
    "after_crash",
    "guarantee",
    "guarantees",
    "next_end",
    "open_windows",
    "path_in",
    "recovery_times",
    "resume",
]
