"""How long earlier replays of an application took: what a new one's time is predicted from (R47,
L30).
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
"""What a start takes where no attempt has shown it."""


@dataclass(frozen=True)
class Experience:
    """What the newest replays of an application did, as far as their commit groups are known.

    Attributes:
        replays: ids, newest first.
        windows, tuples: those of the groups, tuples of all inputs.
        seconds: computing and committing them.
        start_seconds: the shortest time from an attempt's beginning to its first group's.
        last_at: when the newest of the groups was committed.
        containers: seconds of a window in each container, from the newest replay that has computed
            it, by its name and the names of its operators.
    """

    replays: tuple[str, ...]
    windows: int
    tuples: int
    seconds: float
    start_seconds: float
    last_at: datetime
    containers: Mapping[tuple[str, ...], float] = field(default_factory=dict)

    def predict(self, windows: int, tuples: int | None = None) -> float:
        """Returns the expected seconds of a replay, by its windows or by its tuples, whichever
        takes longer.
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
    """What one replay took, as far as its groups are known; `starts` has a time for each attempt
    that began one.
    """

    replay_id: str
    windows: int
    tuples: int
    seconds: float
    starts: list[float]
    last_at: datetime


def experience_of(ledger: Ledger, application: str) -> Experience | None:
    """Returns what the newest replays of an application that committed groups took; None without
    any.
    """
    found: list[_Measured] = []
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
            found.append(measured)
            starts += measured.starts
    if not found:
        return None
    return Experience(
        replays=tuple(one.replay_id for one in found),
        windows=sum(one.windows for one in found),
        tuples=sum(one.tuples for one in found),
        seconds=sum(one.seconds for one in found),
        start_seconds=min(starts, default=START_SECONDS),
        last_at=found[0].last_at,
        containers=containers,
    )


def _measured_containers(
    ledger: Ledger,
    row: Replay,
) -> dict[tuple[str, ...], _Measured | None]:
    """Returns the measured times of the containers of a replay of several, by name and operators;
    None for one without measured windows, also because it was reused and has taken no time.
    """
    containers = row.plan.get("containers", [])
    parts = {}
    for one in containers if len(containers) > 1 else []:
        measured = _measured(ledger, container_id(row.replay_id, one["name"]))
        is_known = measured and measured.windows and measured.seconds
        parts[(one["name"], *one["operators"])] = measured if is_known else None
    return parts


def _measured_replay(
    ledger: Ledger,
    row: Replay,
    containers: Sequence[_Measured | None],
) -> _Measured | None:
    """Returns the measured times of a replay, also of one with several containers."""
    if not containers:
        return _measured(ledger, row.replay_id)
    parts = list(filter(None, containers))
    if len(parts) < len(containers):
        return None
    # Containers run one after the other, and the known groups of each may be another share of the
    # range. So their times are added for the same number of windows.
    windows = min(one.windows for one in parts)
    seconds = 0.0
    starts = []
    for one in parts:
        seconds += one.seconds * windows / one.windows
        starts += one.starts
    return _Measured(
        row.replay_id,
        windows,
        _tuples(ledger, row.replay_id, windows),
        seconds=seconds,
        starts=starts,
        last_at=max(one.last_at for one in parts),
    )


def _measured(ledger: Ledger, replay_id: str) -> _Measured | None:
    """Returns what a replay took; where an attempt went on in the middle, its first group shows
    only its start.
    """
    groups = sorted(
        ledger.attempts.timings(replay_id, GROUPS_MAX),
        key=lambda group: (group.epoch, group.mark),
    )
    if not groups:
        return None
    # The time from the start of an attempt to the report of its first group, without the steps of
    # that group, is what the start of Spark took.
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
    """Returns the input tuples of some windows of a replay, in proportion to those that it has
    counted.
    """
    inputs = [total for total in ledger.counts.totals(replay_id) if total.direction == "in"]
    counted = max((total.windows for total in inputs), default=0)
    return sum(total.tuples for total in inputs) * windows // counted if counted else 0
