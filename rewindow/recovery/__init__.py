"""Recovery as arithmetic: from what tables hold, to the first window, losses, commit groups and
guarantees. No I/O.
"""

from rewindow.recovery.groups import CheckpointSchedule, GroupSizer, next_end
from rewindow.recovery.guarantee import guarantee
from rewindow.recovery.plan import (
    TUPLE_ORDER,
    Candidate,
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
    "Candidate",
    "CheckpointSchedule",
    "GroupSizer",
    "InputPlan",
    "OperatorVersion",
    "OutputPlan",
    "Plan",
    "Resume",
    "StartState",
    "affected_from",
    "guarantee",
    "next_end",
    "path_in",
    "resume",
]
