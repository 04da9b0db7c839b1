"""Reads of a ledger that holds a million windows, as `plan`, `status` and the pages make them; no
JVM.

    python bench/ledger.py [LEDGER_URL]

One replay of 1,000,000 windows with three ports, reported in commit groups of 60 windows with a
checkpoint every 240 (a stretch of the index cannot grow over a checkpoint in at least once), among
300 smaller ones with publications and stale ranges. The ledger is a new SQLite file unless a URL is
given. Milliseconds, median and worst of 20.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rewindow.ledger import Ledger, PortCount, PortStretch
from rewindow.ledger.stretches import Direction

WINDOWS = 1_000_000
GROUP = 60
CHECKPOINT = 240
PORTS = 3
OTHERS = 300
REPORTED = 600
REACH_MS = 200


def main(url: str) -> None:
    """Fills the ledger and prints one line a read."""
    ledger = Ledger.open(url)
    report_ms = _fill(ledger)
    tables = ["bench.out0", "bench.out1"]
    reads: dict[str, Callable[[], object]] = {
        "open": lambda: Ledger.open(url).close(),
        "replay": lambda: ledger.replays.get("million"),
        "totals per port": lambda: ledger.counts.totals("million"),
        "index of one port": lambda: ledger.counts.index("million", "out0"),
        "index is whole": lambda: ledger.counts.is_whole("million"),
        "newest timings": lambda: ledger.attempts.timings("million"),
        "newest 100 replays": lambda: ledger.replays.newest("bench"),
        "running replays": lambda: ledger.replays.newest(state=["running", "planned"], limit=1000),
        "attempts": lambda: ledger.attempts.of("million"),
        "publications of a table": lambda: ledger.publications.newest(table_name=tables[0]),
        "ranges that stand in a table": lambda: ledger.publications.standing(tables[:1]),
        "open publications": lambda: ledger.publications.unfinished(tables),
        "stale ranges": lambda: ledger.stale.ranges("bench"),
        "lease on a range": lambda: ledger.leases.acquire("million", tables, 0, WINDOWS - 1),
        "next epoch": lambda: ledger.attempts.next_epoch("million"),
    }
    name = ledger.database.place.name
    stretches = len(ledger.counts.index("million"))
    print(
        f"{WINDOWS:,} windows, {PORTS} ports, {stretches:,} stretches, {OTHERS} other replays, "
        f"{name}"
    )
    print(
        f"{'report of a commit group':28} median {statistics.median(report_ms):7.1f} ms  worst "
        f"{max(report_ms):7.1f} ms"
    )
    for name, read in reads.items():
        took = [_ms(read) for _ in range(20)]
        verdict = "" if statistics.median(took) < REACH_MS else f"  over {REACH_MS} ms"
        print(
            f"{name:28} median {statistics.median(took):7.1f} ms  worst {max(took):7.1f} "
            f"ms{verdict}"
        )


def _fill(ledger: Ledger) -> list[float]:
    """Fills the ledger; the last groups are reported one by one, the others stand in the index as
    they would then.
    """
    for number in range(OTHERS):
        _publish(ledger, number)
    ledger.replays.create(
        "million",
        "bench",
        0,
        WINDOWS - 1,
        "at_least_once",
        {"replay_id": "million"},
        "v1",
    )
    epoch = ledger.attempts.next_epoch("million")
    ledger.attempts.begin("million", epoch, "host", 1, 1, "boot/0")
    reported_from = WINDOWS - REPORTED * GROUP
    reported_from -= reported_from % CHECKPOINT
    now = datetime.now(UTC)
    parts = [
        PortStretch(
            direction,
            port,
            first,
            min(first + CHECKPOINT, reported_from) - 1,
            5000,
            False,
            epoch,
            now,
            now,
        )
        for direction, port in _ports()
        for first in range(0, reported_from, CHECKPOINT)
    ]
    with ledger.database.serialised() as connection:
        ledger.counts.replace(connection, "million", parts)
    return [
        _ms(lambda f=first: _report(ledger, epoch, f))  # type: ignore[misc]
        for first in range(reported_from, WINDOWS, GROUP)
    ]


def _report(ledger: Ledger, epoch: int, first: int) -> None:
    mark = min(first + GROUP, WINDOWS)
    counts = [PortCount(direction, port, first, mark - 1, 1250) for direction, port in _ports()]
    saved = mark if mark % CHECKPOINT == 0 or mark == WINDOWS else None
    ledger.attempts.report_progress(
        "million",
        epoch,
        mark,
        saved,
        {"compute": 1.0, "commit": 0.2},
        counts,
    )


def _ports() -> list[tuple[Direction, str]]:
    return [("in", "stream"), *(("out", f"out{number}") for number in range(PORTS - 1))]


def _publish(ledger: Ledger, number: int) -> None:
    name = f"r{number}"
    first = number * 1000
    plan = {"replay_id": name, "inputs": [{"stream": "stream", "version": number}] * 3}
    ledger.replays.create(name, "bench", first, first + 999, "exactly_once", plan, "v1")
    epoch = ledger.attempts.next_epoch(name)
    ledger.attempts.begin(name, epoch, "host", 1, 1, "boot/0")
    ledger.attempts.end(name, epoch, "done")
    ledger.checks.record(name, "passed")
    publication = ledger.publications.open(
        name,
        {"bench.out0": 1, "bench.out1": 1},
        first,
        first + 999,
    )
    for table in publication.tables:
        ledger.publications.mark_done(publication.number, table.name, number)
    ledger.stale.add("bench", "bench.out0", first, first + 499, publication.number)
    ledger.publications.close(publication.number)


def _often(read: Callable[[], object]) -> list[float]:
    return [_ms(read) for _ in range(20)]


def _ms(read: Callable[[], object]) -> float:
    began = time.perf_counter()
    read()
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'ledger.sqlite'}")
