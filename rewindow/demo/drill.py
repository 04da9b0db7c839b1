"""Chooses where jobs are killed in each mode.

It is a step of the commit protocol that the mode is sensitive to, selected by a seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from rewindow.application import Mode
from rewindow.crash import Step
from rewindow.errors import RangeError
from rewindow.recovery import CheckpointSchedule
from rewindow.windows import WindowRange

GROUPS = 6
SENSITIVE: dict[Mode, dict[Step, str]] = {
    Mode.EXACTLY_ONCE: {
        Step.AFTER_FIRST_OUTPUT: "one output has the group, the others do not: no output may get "
        "it twice",
        Step.AFTER_OUTPUTS: "outputs have the group, facts and checkpoint do not: no rows may be "
        "written again",
        Step.AFTER_FACTS: "only the checkpoint is missing: the state must be computed again, the "
        "rows must not",
    },
    Mode.AT_LEAST_ONCE: {
        Step.AFTER_FIRST_OUTPUT: "one output will have the group twice, and readers must see it "
        "once",
        Step.AFTER_OUTPUTS: "all outputs will have the group twice, and readers must see it once",
        Step.AFTER_FACTS: "rows and seals of the group will exist twice, and readers must see it "
        "once",
    },
    Mode.AT_MOST_ONCE: {
        Step.STARTED: "the group has started and is lost: each of its windows must be listed",
        Step.MATERIALISED: "files are written but not committed: they must not become visible, "
        "and the loss must be listed",
        Step.AFTER_FIRST_OUTPUT: "one output keeps the group, the others lose it: each must list "
        "its own loss",
    },
}
"""Mode to its steps, with the consequence if the job dies there."""


@dataclass(frozen=True)
class Drill:
    """One replay of the demo, with a mode and the step at which its job is killed.

    Without a step, the job is not killed.
    """

    mode: Mode
    step: Step | None = None
    group: int = 0
    stake: str = ""

    @property
    def title(self) -> str:
        """The title of the replay."""
        return self.mode.words if self.step else "undisturbed"

    @property
    def crash(self) -> str | None:
        """The crash point in the format of the job, at which the first attempt dies."""
        return f"{self.step.value}:{self.group}@1" if self.step else None


def draw_drills(seed: int) -> list[Drill]:
    """Returns the undisturbed replay and one drill for each mode; the same seed selects the same
    drills.

    The group is neither the first nor the last, so that earlier groups are kept and later ones
    remain to be computed.

    >>> draw_drills(7) == draw_drills(7)
    True
    """
    source = random.Random(seed)
    drills = [Drill(Mode.EXACTLY_ONCE)]
    for mode, steps in SENSITIVE.items():
        step = source.choice(sorted(steps))
        drills.append(Drill(mode, step, source.randint(2, GROUPS - 1), stake=steps[step]))
    return drills


def group_distance(windows: WindowRange) -> int:
    """Returns D, the number of windows between due checkpoints, so that a range is divided into
    GROUPS groups that end at them.

    Checkpoints are due at multiples of D of a window's global number, so the first group has the
    remaining windows before one. If possible, a checkpoint is also due at the range's end. The
    example's 8,756 windows are divided into 1,281 and five times 1,495.

    >>> group_distance(WindowRange(376_954, 385_709))
    1495

    Raises:
        RangeError: the range has too few windows.
    """
    fitting = [
        distance
        for distance in range(1, len(windows) + 1)
        if len(group_ends(windows, distance)) == GROUPS
    ]
    if not fitting:
        raise RangeError(f"window range {windows} is too short for {GROUPS} commit groups")
    whole = [distance for distance in fitting if (windows.last + 1) % distance == 0]
    return min(whole or fitting)


def group_ends(windows: WindowRange, distance: int) -> list[int]:
    """Returns the last windows of the groups in a range, with checkpoints at a given distance.

    >>> group_ends(WindowRange(8, 24), 10)
    [9, 19, 24]
    """
    ends: list[int] = []
    schedule = CheckpointSchedule(distance)
    first = windows.first
    while first <= windows.last:
        ends.append(min(schedule.next_due(first), windows.last))
        first = ends[-1] + 1
    return ends
