"""A small simulation of a live run: operators in containers whose clocks differ, and heartbeats,
some of which get lost. Its statistics can be written as a recorded stream.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from rewindow.settings.config import Config
from rewindow.storage import create_table
from rewindow.storage.streams import WINDOWS_SCHEMA, stream_properties
from tests.latency.reference import Row

START_MS = 1_700_000_000_000
WIDTH_MS = 500
FIRST = START_MS // WIDTH_MS + 1
GRAPH: dict[str, Any] = {
    "width_ms": WIDTH_MS,
    "operators": [
        {"name": "clicks", "container": "one"},
        {"name": "parse", "container": "one", "inputs": [["in", "clicks"]]},
        {"name": "users", "container": "two"},
        {
            "name": "join",
            "container": "two",
            "inputs": [["clicks", "parse"], ["users", "users"], ["back", "later"]],
        },
        {"name": "later", "container": "two", "delay": True, "inputs": [["in", "join"]]},
        {"name": "count", "container": "three", "inputs": [["in", "join"]]},
        {"name": "totals", "container": "three", "inputs": [["in", "count"]]},
        {"name": "alerts", "container": "two", "inputs": [["in", "join"]]},
    ],
}
OFFSETS_MS = {"one": 0, "two": 4_000, "three": -1_500}
"""How much each container's clock is ahead of the planner's."""
TIMES_MS = {"parse": 20, "join": 60, "later": 1, "count": 110, "totals": 15, "alerts": 35}
SENDING_MS = 4
SCHEMA = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", "UTC")),
        ("operator", pa.string()),
        ("partition", pa.int32()),
        ("window", pa.int64()),
        ("ended_at_ms", pa.int64()),
        ("container", pa.string()),
        ("sent_at_ms", pa.int64()),
        ("received_at_ms", pa.int64()),
        ("cpu", pa.float64()),
        ("queue", pa.int64()),
    ]
)


@dataclass(frozen=True)
class LiveRun:
    """The statistics of a run.

    Attributes:
        rows: those that were received.
        truth: end time by operator and window on one clock, also of rows that were lost.
        lost: heartbeats that were not received.
    """

    rows: list[Row]
    truth: dict[tuple[str, int], int]
    lost: int


@cache
def simulate(
    windows: int,
    loss: float = 0.03,
    seed: int = 7,
    slow: range = range(0),
) -> LiveRun:
    """Returns the statistics of a run.

    Args:
        windows: how many.
        loss: share of heartbeats that get lost.
        seed: of all random numbers.
        slow: windows in which the operator `alerts` needs ten times as long.
    """
    random = Random(seed)
    truth: dict[tuple[str, int], int] = {}
    for number in range(windows):
        window = FIRST + number
        for operator in GRAPH["operators"]:
            name = operator["name"]
            before = []
            for _, source in operator.get("inputs", []):
                if source != "later":
                    before.append(truth[source, window])
            took = TIMES_MS.get(name, 0) * (10 if name == "alerts" and number in slow else 1)
            took += random.randint(0, took // 5)
            truth[name, window] = max(before, default=window * WIDTH_MS) + took
    rows: list[Row] = []
    lost = 0
    container_of = {one["name"]: one["container"] for one in GRAPH["operators"]}
    for container, ahead in OFFSETS_MS.items():
        waiting: dict[int, list[tuple[str, int, int]]] = {}
        for (name, window), end in truth.items():
            if container_of[name] == container:
                # A container sends a heartbeat every second, each at a different moment.
                beat = -(-(end - START_MS - ahead % 1_000) // 1_000)
                waiting.setdefault(beat, []).append((name, window, end))
        for beat in sorted(waiting):
            at = START_MS + ahead % 1_000 + beat * 1_000
            if random.random() < loss:
                lost += 1
                continue
            received = at + SENDING_MS
            for name, window, end in waiting[beat]:
                rows.append((name, 0, window, end + ahead, container, at + ahead, received))
    rows.sort(key=lambda row: (row[6], row[4], row[2]))
    return LiveRun(rows, truth, lost)


def write_statistics(
    root: Path,
    rows: list[Row],
    *,
    statistics_of: str = "graph.json",
    leave_out: str = "",
) -> Config:
    """Writes statistics as the recorded stream `live`, with the settings and the graph of the
    project.
    """
    (root / "graph.json").write_text(json.dumps(GRAPH))
    (root / "rewindow.toml").write_text(
        f"""state = "state"
[streams.live]
source = "stats.csv"
arrived_at = "received"
width = "1 min"
statistics_of = "{statistics_of}"
"""
    )
    config = Config.load(root / "rewindow.toml")
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for n, (name, partition, window, ended, container, sent, received) in enumerate(rows):
        values = (received // 60_000, n, received * 1_000, name, partition, window, ended)
        further = (0.2 + (n % 40) / 100, n % 90)
        for column, value in zip(
            SCHEMA.names, (*values, container, sent, received, *further), strict=True
        ):
            columns[column].append(value)
    tuples = pa.table(columns, schema=SCHEMA)
    if leave_out:
        tuples = tuples.drop_columns(leave_out)
    stream = create_table(config.stream_table("live"), tuples.schema)
    write_deltalake(stream.delta, tuples, mode="append")
    settings = stream_properties({"width_ms": 60_000, "origin_ms": 0})
    seals = create_table(config.windows_table("live"), WINDOWS_SCHEMA, settings)
    # The last minute is not sealed, so that its rows do not count.
    ids = sorted(set(columns["window_id"]))[:-1]
    sealed: dict[str, Any] = {}
    for field in WINDOWS_SCHEMA:
        sealed[field.name] = pa.nulls(len(ids), field.type)
    sealed["window_id"] = pa.array(ids, pa.int64())
    seals.commit_arrow(pa.table(sealed, schema=WINDOWS_SCHEMA), app_id="test", version=1)
    return config
