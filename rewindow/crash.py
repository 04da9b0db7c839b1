"""The steps of the commit protocol, and a way to die exactly there.

`REWINDOW_CRASH=after_outputs:3@1` makes attempt 1 kill its own process group with SIGKILL at the
third group's step; `@1` may be left out, then every attempt dies there. Several places are
separated by commas. `totals/after_outputs:3@1` is a point in container `totals` only. With the
prefix `assembly/` it is a point in the job that assembles a replay from its containers. Tests and
drills use it; nothing sleeps.
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
    """Returns crash points as they were given; refuses one that would never come.

    Raises:
        InputError: a step is unknown, or a number is no number.
    """
    for wanted in filter(None, text.split(",")):
        place = wanted.rpartition("/")[2]
        step = place.partition(":")[0].partition("@")[0]
        if step not in set(Step) or not _PLACE.fullmatch(wanted):
            raise InputError(
                f'crash point "{wanted}" is none',
                hint="Write STEP:GROUP@ATTEMPT, or CONTAINER/STEP:GROUP@ATTEMPT; the steps are "
                f"{', '.join(Step)}.",
            )
    return text


def crashes_in(text: str, container: str) -> str:
    """Returns the crash points of one container: those with its name, and those without a name.

    >>> crashes_in("totals/fenced@1,clean/joined,resumed", "totals")
    'fenced@1,resumed'
    """
    found = []
    for wanted in text.split(","):
        named, _, place = wanted.rpartition("/")
        if named in ("", container):
            found.append(place)
    return ",".join(found)


def crash_point(step: str, number: int = 1, attempt: int | None = None) -> None:
    """Kills the own process group if the environment asks for it at this step.

    Args:
        step: name of the step.
        number: which time the step is reached, from 1.
        attempt: the attempt's epoch; a crash that names another one does not happen.
    """
    for wanted in filter(None, os.environ.get(VARIABLE, "").split(",")):
        place, _, named = wanted.partition("@")
        name, _, count = place.partition(":")
        here = name == str(step) and int(count or 1) == number
        if here and (not named or attempt is None or int(named) == attempt):
            print(
                f"crash asked for at {wanted}: killing the process group",
                file=sys.stderr,
                flush=True,
            )
            os.killpg(os.getpgid(0), signal.SIGKILL)
