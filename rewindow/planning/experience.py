"""The durations of earlier replays of an application, from which the duration of a new one is
predicted.

Rules: L30, R47
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay
from rewindow.names import container_id
from rewindow.sequences import quantity
from rewindow.windows import describe_seconds

REPLAYS_MAX = 5
GROUPS_MAX = 100
START_SECONDS = 10.0
"""Assumed seconds for starting a job if no attempt was measured."""


@dataclass(frozen=True)
class Experience:
    """Measurements of an application's newest replays, from their recorded commit groups.

    Attributes:
        replays: ids, newest first.
        windows, tuples: totals of the groups, with tuples of all inputs.
        seconds: time for computing and committing them.
        start_seconds: the shortest time from the start of an attempt to the start of its first
            group.
        last_at: when the newest of the groups was committed.
        cores_max: the limit of the newest replay's cores; None without a limit in its request.
        containers: name and operators of a container to the seconds of a window in it, from the
            newest replay that has computed it.
    """

    replays: tuple[str, ...]
    windows: int
    tuples: int
    seconds: float
    start_seconds: float
    last_at: datetime
    cores_max: int | None = None
    containers: Mapping[tuple[str, ...], float] = field(default_factory=dict)

    def predict(self, windows: int, tuples: int | None = None) -> float:
        """Returns the expected duration of a replay in seconds.

        It is computed from the windows and from the tuples, and the longer duration is used.
        """
        shares = [windows / self.windows]
        if tuples is not None and self.tuples:
            shares.append(tuples / self.tuples)
        return max(*shares, 0) * self.seconds + self.start_seconds

    def __str__(self) -> str:
        several = quantity(len(self.replays), "replay")
        return (
            f"from {several}: {quantity(self.windows, 'window')} and "
            f"{quantity(self.tuples, 'tuple')} in {describe_seconds(round(self.seconds))}, and "
            f"{describe_seconds(round(self.start_seconds))} to start; the last {self.replays[0]}, "
            f"{self.last_at:%Y-%m-%d %H:%M}"
        )


@dataclass(frozen=True)
class _Measured:
    """Measurements of one replay, from its recorded commit groups.

    `starts` has the start time of each measured attempt.
    """

    replay_id: str
    windows: int
    tuples: int
    seconds: float
    starts: list[float]
    last_at: datetime


def experience_of(ledger: Ledger, application: str) -> Experience | None:
    """Returns measurements of the newest replays of an application that have committed groups; None
    if there are no such replays.
    """
    replays: list[_Measured] = []
    starts: list[float] = []
    containers: dict[tuple[str, ...], float] = {}
    for row in ledger.replays.newest(application, limit=REPLAYS_MAX):
        if row.plan.get("candidate"):
            continue
        parts = _measured_containers(ledger, row)
        for key, part in parts.items():
            if part is not None:
                containers.setdefault(key, part.seconds / part.windows)
        measured = _measured_replay(ledger, row, list(parts.values()))
        if measured and measured.windows:
            replays.append(measured)
            starts += measured.starts
    if not replays:
        return None
    return Experience(
        replays=tuple(replay.replay_id for replay in replays),
        windows=sum(replay.windows for replay in replays),
        tuples=sum(replay.tuples for replay in replays),
        seconds=sum(replay.seconds for replay in replays),
        start_seconds=min(starts, default=START_SECONDS),
        last_at=replays[0].last_at,
        cores_max=ledger.replays.get(replays[0].replay_id).plan.get("cores_max"),
        containers=containers,
    )


def _measured_containers(
    ledger: Ledger,
    row: Replay,
) -> dict[tuple[str, ...], _Measured | None]:
    """Returns the measurements of a replay's containers, by name and operators.

    A container without measured windows has None, for example because it was reused.
    """
    containers = row.plan.get("containers", [])
    parts = {}
    for container in containers if len(containers) > 1 else []:
        measured = _measured(ledger, container_id(row.replay_id, container["name"]))
        is_known = measured and measured.windows and measured.seconds
        parts[(container["name"], *container["operators"])] = measured if is_known else None
    return parts


def _measured_replay(
    ledger: Ledger,
    row: Replay,
    containers: Sequence[_Measured | None],
) -> _Measured | None:
    """Returns the measurements of a replay, which may have several containers; None if they are
    incomplete.
    """
    if not containers:
        return _measured(ledger, row.replay_id)
    parts = list(filter(None, containers))
    if len(parts) < len(containers):
        return None
    # Containers run one after the other, and the known groups of each may be another share of the
    # range. So their times are added for the same number of windows.
    windows = min(part.windows for part in parts)
    seconds = 0.0
    starts = []
    for part in parts:
        seconds += part.seconds * windows / part.windows
        starts += part.starts
    return _Measured(
        row.replay_id,
        windows,
        _tuples(ledger, row.replay_id, windows),
        seconds=seconds,
        starts=starts,
        last_at=max(part.last_at for part in parts),
    )


def _measured(ledger: Ledger, replay_id: str) -> _Measured | None:
    """Returns the measurements of a replay.

    The first recorded group of an attempt only shows how long the attempt took to start.
    """
    groups = sorted(
        ledger.attempts.timings(replay_id, GROUPS_MAX),
        key=lambda group: (group.epoch, group.mark),
    )
    if not groups:
        return None
    # The start of Spark is the time from the start of an attempt to the report of its first group,
    # minus the steps of that group.
    began_at = {attempt.epoch: attempt.began_at for attempt in ledger.attempts.of(replay_id)}
    is_whole = len(groups) < GROUPS_MAX
    windows = 0
    seconds = 0.0
    starts = []
    for number, group in enumerate(groups):
        took = sum(group.timings.values())
        goes_on = number > 0 and groups[number - 1].epoch == group.epoch
        if not goes_on and group.epoch in began_at and (number or is_whole):
            starts.append(
                max(0.0, (group.reported_at - began_at[group.epoch]).total_seconds() - took)
            )
        if goes_on or (number == 0 and is_whole):
            windows += group.mark - (groups[number - 1].mark if goes_on else 0)
            seconds += took
    return _Measured(
        replay_id,
        windows,
        _tuples(ledger, replay_id, windows),
        seconds=seconds,
        starts=starts,
        last_at=groups[-1].reported_at,
    )


def _tuples(ledger: Ledger, replay_id: str, windows: int) -> int:
    """Returns the estimated number of input tuples in the given windows of a replay, in proportion
    to its counted windows.
    """
    inputs = [total for total in ledger.counts.totals(replay_id) if total.direction == "in"]
    counted = max((total.windows for total in inputs), default=0)
    return sum(total.tuples for total in inputs) * windows // counted if counted else 0
