"""The gate of 1,000 windows beside the bare aggregate that it rests on, in one process.

    python bench/gate.py [ROWS]

The bare aggregate is the SQL that a careful person would write instead: counts and measures per window, and the search
for repeated keys. The gate adds facts, seals, Great Expectations, the page, the results and the findings. The import of
Great Expectations runs beside the aggregate; it is shown apart, since a process pays it once.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from rewindow.config import Config
from rewindow.loading.suites import canonical, suite_for
from rewindow.quality import judge
from rewindow.quality.evaluation import preload
from rewindow.quality.window_table import aggregate_sql, repeated_keys_sql
from rewindow.recovery import Plan
from rewindow.storage import Table, query
from rewindow.storage.layout import FACTS_SCHEMA

WINDOWS = 1_000
RUNS = 3
KEY = ["sensor", "sequence"]
ROOT = Path(__file__).parents[1]


def main(rows: int) -> None:
    """Prints seconds and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        config = Config(state=Path(folder) / "state", expectations=_expectations(Path(folder)))
        plan = _stage(config, rows)
        staged = Table.open(config.replay_root(plan.replay_id) / "readings")
        measures = suite_for(config.expectations, "readings").measures

        def bare() -> None:
            query(aggregate_sql(staged.schema, KEY, list(measures)), t=staged)
            query(repeated_keys_sql(KEY), t=staged)

        imported = _measure(lambda: preload().join())
        judge(config, plan)
        pairs = [(_measure(bare), _measure(lambda: judge(config, plan))) for _ in range(RUNS)]
    print(f"{rows:,} rows, {WINDOWS:,} windows, one output, {len(measures)} measures; the best of {RUNS} runs")
    print(f"{'':24}{'wall s':>8}{'CPU s':>8}")
    best = [[min(pair[which][clock] for pair in pairs) for clock in (0, 1)] for which in (0, 1)]
    for name, (wall, cpu) in (("bare aggregate", best[0]), ("gate", best[1]), ("import, once a process", imported)):
        print(f"{name:24}{wall:8.2f}{cpu:8.2f}")
    print(f"{'gate / bare aggregate':24}{best[1][0] / best[0][0]:8.2f}{best[1][1] / best[0][1]:8.2f}")


def _measure(work: Callable[[], object]) -> tuple[float, float]:
    """Returns wall and CPU seconds of all threads; CPU is the fairer of the two on a shared machine."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _expectations(folder: Path) -> Path:
    """Returns a copy of the project's expectations with a suite for the bench."""
    import shutil

    made = folder / "expectations"
    shutil.copytree(ROOT / "expectations", made)
    check = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "highest", "max_value": 1000},
        "meta": {"check": "not-too-high"},
        "description": "No reading is above 1000.",
        "severity": "critical",
    }
    measures = {"lowest": "min(reading)", "highest": "max(reading)", "total": "sum(reading)"}
    suite = {"name": "readings", "expectations": [check], "meta": {"measures": measures}}
    (made / "suites" / "readings.json").write_text(canonical(suite))
    return made


def _stage(config: Config, rows: int) -> Plan:
    """Writes a replay of one input and one output, every window sealed by one attempt."""
    random = np.random.default_rng(1)
    windows = np.repeat(np.arange(WINDOWS), rows // WINDOWS)
    count = len(windows) // WINDOWS
    table = pa.table(
        {
            "window_id": windows,
            "attempt": np.ones(len(windows), dtype=np.int64),
            "sensor": pa.array(random.integers(0, 500, len(windows))).cast(pa.string()),
            "sequence": np.arange(len(windows)),
            "reading": random.integers(0, 1000, len(windows)),
        }
    )
    root = config.replay_root("bench")
    write_deltalake(str(root / "readings"), table)
    facts = [
        {"window_id": w, "direction": way, "port": port, "tuples": count, "attempt": 1, "lost": False}
        for w in range(WINDOWS)
        for way, port in (("in", "sensors"), ("out", "readings"))
    ]
    write_deltalake(str(root / "facts"), pa.Table.from_pylist(facts, schema=FACTS_SCHEMA))
    write_deltalake(
        str(config.windows_table("sensors")), pa.table({"window_id": range(WINDOWS), "tuples": [count] * WINDOWS})
    )
    columns = [(field.name, str(field.type)) for field in table.schema][2:]
    stream = {"stream": "sensors", "path": str(config.stream_table("sensors")), "version": 0, "windows_version": 0}
    output = {
        "name": "readings",
        "operator": "made",
        "port": "out",
        "key": KEY,
        "suite": "readings",
        "columns": columns,
    }
    return Plan.model_validate(
        {
            "replay_id": "bench", "application": "bench", "code_version": "1", "configuration_digest": "1", "first": 0,
            "last": WINDOWS - 1, "width_ms": 1000, "origin_ms": 0, "mode": "exactly_once", "checkpoint_windows": 60,
            "inputs": [{**stream, "tuples": 0, "bytes": 0}], "start": {"source": "none"},
            "outputs": [{**output, "stateful": False, "guarantee": ""}],
        }
    )  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
