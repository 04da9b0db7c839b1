"""Recovery as arithmetic: marks in; first window, lost windows, commit groups and guarantees out. No I/O."""

from rewindow.recovery.groups import GroupSizer, Marks, next_end
from rewindow.recovery.guarantee import guarantee
from rewindow.recovery.plan import InputPlan, OutputPlan, Plan, StartState, path_in
from rewindow.recovery.resume import Resume, affected_from, resume

__all__ = [
    "GroupSizer",
    "InputPlan",
    "Marks",
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
