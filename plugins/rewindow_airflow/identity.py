"""Derives the id of a replay from its DAG run, so that a retry or a clear finds the replay again.

For readers, the id contains the day that the replay computes: `replay_daily-2013-01-05-eab92e3f10`.
Lookups use the other parts, the DAG and the digest. They depend on the run only, and do not change
with the plan.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from airflow.sdk import Context

    from rewindow.ledger import Ledger, Replay
    from rewindow.planning import ReplayRequest
    from rewindow.settings.config import Config


_LENGTH_MAX = 40
"""Number of characters of a DAG's or a stream's name in an id, which must be short enough for a
file name.
"""
_DIGITS = 10


@dataclass(frozen=True)
class RunName:
    """The common part of the ids of all replays in one DAG run.

    Attributes:
        prefix: name of the DAG, and of the part if there is one.
        digest: digest of the run.
    """

    prefix: str
    digest: str

    def replay_id(self, day: str = "", number: int = 1) -> str:
        """Returns the id of one of the run's replays.

        >>> name = run_name("replay_daily", "scheduled__2013-01-06T00:00:00+00:00")
        >>> name.replay_id("2013-01-05", 2)
        'replay_daily-2013-01-05-0ec9db78d6-2'
        """
        return "-".join(
            filter(None, (self.prefix, day, self.digest, str(number) if number > 1 else ""))
        )

    def number_of(self, replay_id: str) -> int | None:
        """Returns the number of a replay in the run; None if the id belongs to another run."""
        found = re.fullmatch(
            rf"{re.escape(self.prefix)}(?:-\d+-\d\d-\d\d)?-{self.digest}(?:-(\d+))?",
            replay_id,
        )
        return None if found is None else int(found[1] or 1)


def run_name(dag_id: str, run_id: str, part: str = "") -> RunName:
    """Returns the name of a DAG run.

    Args:
        dag_id: id of the DAG.
        run_id: id of its run.
        part: distinguishes replays of one run, for example by stream.
    """
    digest = hashlib.sha256(f"{dag_id}\n{run_id}\n{part}".encode()).hexdigest()
    words = (re.sub(r"[^A-Za-z0-9_]", "_", word)[:_LENGTH_MAX] for word in (dag_id, part))
    return RunName("-".join(filter(None, words)), digest[:_DIGITS])


def replays_of_run(
    ledger: Ledger,
    dag_id: str,
    run_id: str,
    parts: Iterable[str] = (),
) -> list[str]:
    """Returns the ids of all replays of a DAG run, in the order of their numbers.

    Steps of a backfill have the id of the run, followed by their windows.

    Args:
        ledger: the ledger.
        dag_id: id of the DAG.
        run_id: id of its run.
        parts: names of parts that the run may have.
    """
    names = [run_name(dag_id, run_id, part) for part in ("", *parts)]
    found = []
    for replay_id in ledger.replays.ids(f"{names[0].prefix}-"):
        for name in names:
            # The id of a step of a backfill also contains its windows.
            whole = re.sub(rf"(?<=-{name.digest})-\d+-\d+", "", replay_id)
            if number := name.number_of(whole):
                found.append((name.prefix, number, replay_id))
    return [replay_id for *_, replay_id in sorted(found)]


def newest_of(ledger: Ledger, run: RunName) -> tuple[int, Replay | None]:
    """Returns the number of the newest replay in a DAG run, and the replay; None if it is not
    planned yet.

    A closed replay (published, undone, abandoned) is never computed again. The next replay of the
    run has the next number.
    """
    from rewindow.launcher.attempts import CLOSED_STATES

    numbers = {
        number: name
        for name in ledger.replays.ids(f"{run.prefix}-")
        if (number := run.number_of(name))
    }
    if not numbers:
        return 1, None
    newest = max(numbers)
    known = ledger.replays.get(numbers[newest])
    return (newest + 1, None) if known.state in CLOSED_STATES else (newest, known)


def day_of(config: Config, request: ReplayRequest, context: Context) -> str:
    """Returns the day on which the range of a request starts; empty if the request has no start.

    The day is that of the time zone in which the data interval of the run starts, otherwise UTC.
    """
    from rewindow.loading.catalog import load_application
    from rewindow.windows import format_time, parse_time

    if request.from_time is not None:
        start_us = parse_time(request.from_time)
    elif request.first is not None:
        grid = load_application(config, request.application, request.parameters).app.grid
        start_us = grid.start_us(request.first)
    else:
        return ""
    day = format_time(start_us + _offset_us(context)).partition("T")[0]
    return day.lstrip("+")  # A late year has a sign, which an id cannot have.


def _offset_us(context: Context) -> int:
    """Returns the offset from UTC at the start of a run's data interval, in the time zone of the
    DAG's schedule.
    """
    interval_start = context.get("data_interval_start")
    if interval_start is None:
        return 0
    dag = context["dag"]
    zone = getattr(dag.timetable, "timezone", dag.timezone)
    local = interval_start.astimezone(ZoneInfo(zone) if isinstance(zone, str) else zone)
    return (local.utcoffset() or timedelta()) // timedelta(microseconds=1)
