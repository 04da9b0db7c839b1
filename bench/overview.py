"""The overview of a large state folder, as the plugin renders it, and one read of its tables.

    python -m bench.overview                  prints the figures
    python -m bench.overview --make FOLDER    only writes the state folder, to look at it

A recorded stream and an output of a million windows of a minute each, and a thousand replays, each
of which has published its part of the output. Windows are empty, missing, late, stale and lost here
and there, and the newest replays run, wait or have failed. The tables are written in as many
commits as there are replays, as daily recordings and publications leave them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.report import Row
from bench.windows import APPLICATION, ARRIVED_AT
from rewindow.facts.seals import columns_text, seal_rows
from rewindow.inspection.coverage import read_coverage
from rewindow.ledger import AttemptEnd, Ledger, PortCount
from rewindow.ledger.replays import ReplayState
from rewindow.pages.drawing import draw
from rewindow.pages.overview import overview_lines, overview_strips
from rewindow.planning import ReplayRequest, draft_plan
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.streams import LATE, QUARANTINE_SCHEMA, create_quarantine, create_stream
from rewindow.windows import Grid, parse_time

GRID = Grid(60_000)
FIRST = GRID.window(parse_time("2012-02-01"))
STREAM = "events"
OUTPUT = "copy.copied"
REACH_MS = 200
RUNS = 20
EVENTS = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", ARRIVED_AT),
        ("key", pa.int64()),
    ]
)


def make_state(folder: Path, windows: int, replays: int) -> Config:
    """Writes a project with a stream, an output and replays, and returns its settings."""
    (folder / "applications").mkdir(parents=True)
    (folder / "applications" / "copy.py").write_text(APPLICATION.replace('"1 s"', '"1 min"'))
    (folder / "rewindow.toml").write_text('applications = ["applications"]\nstate = "state"\n')
    config = Config.load(folder / "rewindow.toml")
    part = windows // replays
    for name in (STREAM, OUTPUT):
        _write_seals(config, name, part, replays)
    _write_late(config, part, replays)
    _write_ledger(config, part, replays)
    return config


def _write_seals(config: Config, name: str, part: int, parts: int) -> None:
    path = config.stream_table(name)
    create_stream(path, EVENTS, {"width_ms": GRID.width_ms, "origin_ms": 0})
    data = Table.open(path)
    seals = Table.open(config.windows_table(name))
    draw = np.random.default_rng(7)
    for number in range(parts):
        ids = np.arange(FIRST + number * part, FIRST + (number + 1) * part)
        tuples = draw.integers(1, 90, part)
        # At night and in the first week there are no tuples; a few minutes are not recorded.
        tuples[ids % 1440 < 120] = 0
        if name == STREAM and number % 90 == 40:
            kept = (ids % 1440 < 600) | (ids % 1440 > 640)
            ids, tuples = ids[kept], tuples[kept]
        found = {"window_id": ids, "tuples": tuples, "digest": [f"{i:032x}" for i in ids.tolist()]}
        rows = seal_rows(pa.table(found), data, columns_text(EVENTS))
        seals.commit_arrow(rows, app_id="bench", version=number)


def _write_late(config: Config, part: int, parts: int) -> None:
    ids = FIRST + np.arange(0, parts * part, 77_777)
    columns: dict[str, Any] = {"window_id": ids, "reason": pa.repeat(LATE, len(ids))}
    columns["source"] = pa.repeat(STREAM, len(ids))
    nothing = pa.nulls(len(ids))
    late = pa.table({name: columns.get(name, nothing) for name in QUARANTINE_SCHEMA.names})
    create_quarantine(config.quarantine_table).append(late.cast(QUARANTINE_SCHEMA))


def _write_ledger(config: Config, part: int, parts: int) -> None:
    request = ReplayRequest("copy", replay_id="template", first=FIRST, last=FIRST + part - 1)
    plan = draft_plan(config, request).plan.model_dump(mode="json")
    ledger = Ledger.open(config.ledger_url)
    others = {parts - 1: "running", parts - 2: "failed", parts - 3: "checked", parts - 4: "planned"}
    for number in range(parts):
        first, last = FIRST + number * part, FIRST + (number + 1) * part - 1
        name = f"replay_daily-{number:04d}"
        values = {**plan, "replay_id": name, "first": first, "last": last, "mode": "at_most_once"}
        values |= {"dag": "replay_windows", "run": f"scheduled__{number}"}
        ledger.replays.create(name, "copy", first, last, "at_most_once", values, "1")
        state = others.get(number, "published")
        if state == "planned":
            continue
        epoch = ledger.attempts.next_epoch(name)
        ledger.attempts.begin(name, epoch, "other-host", 1, 1, "boot/0")
        half = part // 2
        lost = number % 200 == 100
        counts = [PortCount("out", "copied", first, last, 9, lost=lost)]
        for mark in (half // 2, half):
            ledger.attempts.report_progress(name, epoch, mark, mark, {"compute": 1.0}, [])
        if state == "running":
            continue
        if state == "failed":
            ledger.attempts.end(name, epoch, AttemptEnd.FAILED, "division by zero in copied")
            continue
        ledger.attempts.report_progress(name, epoch, part, part, {"compute": 1.0}, counts)
        ledger.attempts.end(name, epoch, AttemptEnd.DONE)
        ledger.checks.record(name, "passed")
        if state == "published":
            tables = {OUTPUT: number, f"{OUTPUT}.windows": number, "copy.checkpoints": number}
            act = ledger.publications.open(name, tables, first, last)
            for table in act.tables:
                ledger.publications.mark_done(act.number, table.name, number + 1)
            ledger.publications.close(act.number)
        if number % 150 == 70:
            ledger.stale.add("copy", OUTPUT, first, first + part // 3, number)
    assert ledger.replays.get("replay_daily-0000").state is ReplayState.PUBLISHED
    ledger.close()


def measure_overview() -> Row:
    """Returns the time of the page in a warm process, compared with one read of both tables."""
    with tempfile.TemporaryDirectory() as folder:
        config = make_state(Path(folder), 1_000_000, 1_000)
        _page(config)
        page_ms = statistics.median(_ms(lambda: _page(config)) for _ in range(RUNS))
        read_ms = statistics.median(_ms(lambda: _read(config)) for _ in range(5))
    return Row(
        "overview of two streams of 1 M windows and 1,000 replays, in a warm process",
        f"{page_ms:.0f} ms",
        f"reading the seals of both streams once: {read_ms:.0f} ms",
        f"{REACH_MS} ms",
        page_ms <= REACH_MS,
    )


def _page(config: Config) -> str:
    """Returns the page that the plugin shows, without Airflow's checks of rights."""
    ledger = Ledger.open(config.ledger_url, make=False)
    coverages = read_coverage(config, ledger)
    names = {part.replay_id for coverage in coverages for part in coverage.parts}
    readable = frozenset(ledger.replays.dags(sorted(names)))
    rows = ledger.replays.newest(limit=50, without_samples=True)
    values = overview_strips(coverages, readable)
    values |= {"lines": overview_lines(config, ledger, rows), "pages": {}, "steps": {}}
    page = draw("overview.html", **values, notice="", airflow="")
    ledger.close()
    return page


def _read(config: Config) -> None:
    for name in (STREAM, OUTPUT):
        query("select window_id, tuples from w", w=Table.open(config.windows_table(name)))


def _ms(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def main() -> None:
    """Prints the figures, or writes a state folder for a browser."""
    if sys.argv[1:2] == ["--make"]:
        make_state(Path(sys.argv[2]), 1_000_000, 1_000)
    else:
        print(measure_overview())


if __name__ == "__main__":
    main()
