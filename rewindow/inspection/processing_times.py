"""The processing time of a replay by container and commit group, and the throughput by port.

Rules: L50 to L52
"""

from __future__ import annotations

from typing import Any

from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replay
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.layout import FACTS

NO_LATENCY = (
    "A replay has no operator latency and no critical path: the end times of windows within one "
    "pass over a commit group depend on the batch, not on the operators."
)
_GROUPS_MAX = 1_000_000


def processing_times(config: Config, replay_id: str) -> dict[str, Any]:
    """Returns the times of commit groups and the throughput of ports of a replay, as plain values,
    see docs/json.md.

    Raises:
        InputError: no replay has this id.
        TableError: its facts were deleted, for example by a purge.
    """
    ledger = Ledger.open(config.ledger_url)
    whole = ledger.replays.get(replay_id)
    found: dict[str, Any] = {
        "replay": replay_id,
        "application": whole.application,
        "latency": None,
        "note": NO_LATENCY,
        "groups": [],
        "ports": [],
        "totals": [],
    }
    for row in ledger.replays.containers(replay_id) or [whole]:
        _add_container(found, config, ledger, row)
    return found


def _add_container(found: dict[str, Any], config: Config, ledger: Ledger, row: Replay) -> None:
    """Adds the groups of a container whose time is known, and the tuple counts of its ports in
    these groups.

    `totals` has the sum over all ports of a direction. A rate is in tuples per second of computing
    time; None if no time is known.
    """
    container = row.replay_id.partition("@")[2] or "all operators"
    facts = Table.open(config.replay_root(row.replay_id) / FACTS)
    sql = """select direction, port, attempt, group_last, min(group_first) as group_first,
        sum(tuples) as tuples from f
        where direction in ('in', 'out', 'error', 'dropped') and not lost
        group by direction, port, attempt, group_last order by direction, port"""
    counts = query(sql, f=facts).to_pylist()
    begins = {}
    for count in counts:
        begins[count["attempt"], count["group_last"]] = count["group_first"]
    timed = set()
    seconds = 0.0
    timings = ledger.attempts.timings(row.replay_id, limit=_GROUPS_MAX)
    for timing in sorted(timings, key=lambda timing: (timing.epoch, timing.mark)):
        last = row.read_plan().window_of(timing.mark)
        compute = timing.timings.get("compute", 0.0)
        found["groups"].append(
            {
                "container": container,
                "attempt": timing.epoch,
                "first": begins.get((timing.epoch, last), last),
                "last": last,
                "compute_seconds": compute,
                "commit_seconds": timing.timings.get("commit", 0.0),
            }
        )
        timed.add((timing.epoch, last))
        seconds += compute
    tuples: dict[tuple[str, str], int] = {}
    totals: dict[tuple[str, str], int] = {}
    for count in counts:
        if (count["attempt"], count["group_last"]) in timed:
            direction = count["direction"]
            own = (direction, count["port"])
            total = (direction, "all")
            tuples[own] = tuples.get(own, 0) + int(count["tuples"])
            totals[total] = totals.get(total, 0) + int(count["tuples"])
    for kind, summed in (("ports", tuples), ("totals", totals)):
        for (direction, port), number in summed.items():
            found[kind].append(
                {
                    "container": container,
                    "direction": direction,
                    "port": port,
                    "tuples": number,
                    "seconds": seconds,
                    "tuplesPerSecond": number / seconds if seconds else None,
                }
            )
