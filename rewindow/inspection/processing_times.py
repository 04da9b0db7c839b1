"""Time of a replay by container and commit group, and throughput by port (L50 to L52)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.layout import FACTS
from rewindow.windows import WindowRange

NO_LATENCY = (
    "A replay has no operator latency and no critical path: the end times of windows within one "
    "pass over a commit group depend on the batch, not on the operators."
)
_GROUPS_MAX = 1_000_000


@dataclass(frozen=True)
class GroupTime:
    """A commit group of a container: its windows, and the seconds of each step."""

    container: str
    attempt: int
    windows: WindowRange
    compute_seconds: float
    commit_seconds: float


@dataclass(frozen=True)
class Throughput:
    """Tuples of a port, and the time in which its container computed them.

    Attributes:
        direction: "in", "out", "error", or "dropped" for a port that nothing reads.
        port: its name; empty for all ports of the container in this direction.
        seconds: time of computing in the groups whose time is known.
    """

    container: str
    direction: str
    port: str
    tuples: int
    seconds: float

    @property
    def per_second(self) -> float | None:
        """Tuples in a second of computing, None where no time is known (L52)."""
        return self.tuples / self.seconds if self.seconds else None


@dataclass(frozen=True)
class ReplayTimes:
    """Where the time of a replay went: commit groups, ports, and sums of the ports."""

    replay_id: str
    application: str
    groups: list[GroupTime]
    ports: list[Throughput]
    totals: list[Throughput]

    def to_dict(self) -> dict[str, Any]:
        """Returns it for programs, see docs/json.md."""
        groups = []
        for group in self.groups:
            windows = {"first": group.windows.first, "last": group.windows.last}
            groups.append({key: vars(group)[key] for key in vars(group) if key != "windows"})
            groups[-1] |= windows
        return {
            "replay": self.replay_id,
            "application": self.application,
            "latency": None,
            "note": NO_LATENCY,
            "groups": groups,
            "ports": list(map(_row, self.ports)),
            "totals": list(map(_row, self.totals)),
        }


def _row(entry: Throughput) -> dict[str, Any]:
    return {**vars(entry), "tuplesPerSecond": entry.per_second}


def processing_times(config: Config, replay_id: str) -> ReplayTimes:
    """Returns the times and the throughput of a replay.

    Raises:
        InputError: no replay has this id.
        TableError: its facts are gone, as after a purge.
    """
    ledger = Ledger.open(config.ledger_url)
    whole = ledger.replays.get(replay_id)
    groups: list[GroupTime] = []
    ports: list[Throughput] = []
    totals: list[Throughput] = []
    for row in ledger.replays.containers(replay_id) or [whole]:
        name = row.replay_id.partition("@")[2] or "all operators"
        times, counted = _container(config, ledger, row, name)
        groups += times
        ports += counted
        for direction in ("in", "out", "error"):
            own = [port for port in counted if port.direction == direction]
            if own:
                tuples = sum(port.tuples for port in own)
                totals.append(Throughput(name, direction, "", tuples, own[0].seconds))
    return ReplayTimes(replay_id, whole.application, groups, ports, totals)


def _container(
    config: Config,
    ledger: Ledger,
    row: Replay,
    container: str,
) -> tuple[list[GroupTime], list[Throughput]]:
    """Returns the groups of a container whose time is known, and the tuples of its ports in
    them.
    """
    plan = row.read_plan()
    facts = Table.open(config.replay_root(row.replay_id) / FACTS)
    sql = """select direction, port, attempt, group_last, min(group_first) as group_first,
        sum(tuples) as tuples from f
        where direction in ('in', 'out', 'error', 'dropped') and not lost
        group by direction, port, attempt, group_last order by direction, port"""
    counted = query(sql, f=facts).to_pylist()
    begins = {}
    for entry in counted:
        begins[entry["attempt"], entry["group_last"]] = entry["group_first"]
    groups = []
    timed = set()
    seconds = 0.0
    listed = ledger.attempts.timings(row.replay_id, limit=_GROUPS_MAX)
    for timing in sorted(listed, key=lambda timing: (timing.epoch, timing.mark)):
        last = plan.window_of(timing.mark)
        windows = WindowRange(begins.get((timing.epoch, last), last), last)
        compute = timing.timings.get("compute", 0.0)
        commit = timing.timings.get("commit", 0.0)
        groups.append(GroupTime(container, timing.epoch, windows, compute, commit))
        timed.add((timing.epoch, last))
        seconds += compute
    tuples: dict[tuple[str, str], int] = {}
    for entry in counted:
        if (entry["attempt"], entry["group_last"]) in timed:
            port = (entry["direction"], entry["port"])
            tuples[port] = tuples.get(port, 0) + int(entry["tuples"])
    return groups, [Throughput(container, *port, tuples[port], seconds) for port in tuples]
