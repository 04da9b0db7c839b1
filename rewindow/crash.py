"""The steps of the commit protocol, and a way to crash a job at one of them, for tests and drills.

With `REWINDOW_CRASH=after_outputs:3@1`, attempt 1 kills its own process group with SIGKILL when it
reaches step `after_outputs` for the third time. Without `@1` every attempt crashes there. Several
crash points are separated by commas. `totals/after_outputs:3@1` crashes only the job of container
`totals`; `assembly/` as a prefix means the job that assembles a replay from its containers.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from enum import StrEnum

from rewindow.errors import InputError

VARIABLE = "REWINDOW_CRASH"
ASSEMBLY = "assembly"
CONTAINER = r"[A-Za-z0-9_.-]+"
_PLACE = re.compile(rf"({CONTAINER}/)?[a-z_]+(:[1-9][0-9]*)?(@[1-9][0-9]*)?")


class Step(StrEnum):
    """Steps of an attempt, in order.

    `fenced`, `resumed` and `joined` happen once (number 1), `warmed_up` in every group of a
    warm-up, the others in every commit group.
    """

    FENCED = "fenced"
    WARMED_UP = "warmed_up"
    RESUMED = "resumed"
    STARTED = "started"
    MATERIALISED = "materialised"
    AFTER_FIRST_OUTPUT = "after_first_output"
    AFTER_OUTPUTS = "after_outputs"
    AFTER_FACTS = "after_facts"
    AFTER_CHECKPOINT = "after_checkpoint"
    JOINED = "joined"


def check_crash(text: str) -> str:
    """Checks that crash points are valid and returns them unchanged.

    Raises:
        InputError: a crash point has an unknown step, or is not in the form STEP:GROUP@ATTEMPT.
    """
    for wanted in filter(None, text.split(",")):
        place = wanted.rpartition("/")[2]
        step = place.partition(":")[0].partition("@")[0]
        if step not in set(Step) or not _PLACE.fullmatch(wanted):
            raise InputError(
                f'crash point "{wanted}" is invalid',
                hint="Write STEP:GROUP@ATTEMPT, or CONTAINER/STEP:GROUP@ATTEMPT; the steps are "
                f"{', '.join(Step)}.",
            )
    return text


def crashes_in(text: str, container: str) -> str:
    """Returns the crash points of one container. These are the ones with its name, and the ones
    without a name.

    >>> crashes_in("totals/fenced@1,clean/joined,resumed", "totals")
    'fenced@1,resumed'
    """
    points = []
    for wanted in text.split(","):
        named, _, point = wanted.rpartition("/")
        if named in ("", container):
            points.append(point)
    return ",".join(points)


def crash_point(step: str, number: int = 1, attempt: int | None = None) -> None:
    """Kills the current process group if the environment asks for a crash at this step.

    Args:
        step: name of the step.
        number: count of times that the step has been reached, starting at 1.
        attempt: the attempt's epoch; crash points of other attempts are ignored.
    """
    for wanted in filter(None, os.environ.get(VARIABLE, "").split(",")):
        place, _, named = wanted.partition("@")
        name, _, count = place.partition(":")
        here = name == str(step) and int(count or 1) == number
        if here and (not named or attempt is None or int(named) == attempt):
            print(
                f"crash requested at {wanted}: killing the process group",
                file=sys.stderr,
                flush=True,
            )
            os.killpg(os.getpgid(0), signal.SIGKILL)
