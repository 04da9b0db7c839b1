"""What measures cost a replay, and what the gate costs after it: CPU seconds, in one process.

    python -m bench.gate [TUPLES]

Two applications, by turns with a suite of measures and without: one passes every tuple on, which is
the most that a pass can read back, the other groups by key. Then the gate of the same replay with
what is stored, and without it, when it must read the rows for them. CPU of this process and of its
JVM together; it is the fairer clock on a shared machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from bench.replay import APPLICATION, FIRST, ROOT, WINDOWS, make_project, record
from rewindow.engine.computation import PlannedAttempt
from rewindow.engine.spark_engine import spark_attempt
from rewindow.ledger import Ledger
from rewindow.loading.catalog import load_application
from rewindow.loading.measures import Measure
from rewindow.loading.suites import canonical, replay_measures
from rewindow.planning import ReplayRequest, create_replay
from rewindow.progress.listener import Silent
from rewindow.quality import judge
from rewindow.quality.evaluation import preload
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.spark.session import spark_session

RUNS = 3
AGGREGATES = {
    "lowest": "min(value)",
    "highest": "max(value)",
    "total": "sum(value)",
    "mean": "avg(value)",
    "negative": "count(*) filter (where value < 0)",
    "odd": "sum(value % 2)",
}
DISTINCT = {"keys": "count(distinct key)"}
GROUPED = """
app = Application("grouped", window="1 hour")
highest = app.add("highest", Highest(), events=app.input("events"))
app.output("highest", highest, key=["key"], suite="grouped")
"""
PASSED = """
app = Application("passed", window="1 hour")
app.output("rows", app.add("copied", Copied(), events=app.input("events")), key=[], suite="passed")
"""


def main(tuples: int) -> None:
    """Prints CPU seconds and their ratios."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        config = make_project(
            Path(folder),
            {"grouped": APPLICATION + GROUPED, "passed": APPLICATION + PASSED},
        )
        _suite(
            config,
            "grouped",
            {name: sql.replace("value", "highest") for name, sql in AGGREGATES.items()},
        )
        _suite(config, "passed", AGGREGATES)
        spark = spark_session(config, "bench")
        record(spark, config, "events", tuples, WINDOWS)
        preload().join()
        print(
            f"{tuples:,} tuples, {WINDOWS:,} windows; CPU seconds, the best of {RUNS} runs",
            flush=True,
        )
        for name in ("grouped", "passed"):
            _compare(config, spark, name)
        _suite(config, "passed", AGGREGATES | DISTINCT)
        _compare(config, spark, "passed")
        spark.stop()


def _compare(config: Config, spark: object, name: str) -> None:
    """Prints a replay without and with measures, and its gate without and with what is stored."""
    _replay(config, spark, name, measured=True)
    seconds: dict[str, list[float]] = {}
    for _ in range(RUNS):
        for kind, measured in (("without", False), ("with", True)):
            plan, cpu = _replay(config, spark, name, measured=measured)
            seconds.setdefault(f"replay {kind}", []).append(cpu)
            seconds.setdefault(f"gate {kind}", []).append(
                _cpu(partial(judge, config, plan, Silent()))
            )
    best = {what: min(found) for what, found in seconds.items()}
    measures = len(load_application(config, name).app.outputs)
    print(
        f"{name} ({measures} output)",
        *(f"{what} {cpu:.2f}" for what, cpu in best.items()),
        sep="  ",
        end="  ",
    )
    cost = best["replay with"] / best["replay without"] - 1
    print(
        f"measures cost {100 * cost:.1f} % of the replay; the gate "
        f"{best['gate with'] / best['gate without']:.2f} x",
        flush=True,
    )


def _replay(config: Config, spark: object, name: str, *, measured: bool) -> tuple[Plan, float]:
    plan = create_replay(config, ReplayRequest(name, first=FIRST, last=FIRST + WINDOWS - 1))
    ledger = Ledger.open(config.ledger_url)
    epoch = ledger.attempts.next_epoch(plan.replay_id)
    ledger.attempts.begin(plan.replay_id, epoch, "bench", os.getpid(), os.getpid(), "boot/0")
    app = load_application(config, name).app
    inline = config.replay.inline_state_bytes
    measures: dict[str, tuple[Measure, ...]] = {}
    if measured:
        measures = replay_measures(config.expectations, plan, app)
    root = config.replay_root(plan.replay_id)
    planned = PlannedAttempt(plan, app, root, epoch)
    attempt = spark_attempt(planned, ledger, lambda: spark, inline, measures)  # type: ignore[arg-type,return-value]
    cpu = _cpu(attempt.run)
    ledger.attempts.end(plan.replay_id, epoch, "done")
    return plan, cpu


def _cpu(work: Callable[[], object]) -> float:
    before = _spent()
    work()
    time.sleep(0.1)  # What the JVM still does for it counts too.
    return _spent() - before


def _spent() -> float:
    """Returns CPU seconds of this process and of those that it has started."""
    own = psutil.Process()
    found = 0.0
    for process in (own, *own.children(recursive=True)):
        times = process.cpu_times()
        found += times.user + times.system
    return found


def _suite(config: Config, name: str, measures: dict[str, str]) -> None:
    check = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "highest", "max_value": 100_000},
        "meta": {"check": "not-too-high"},
        "description": "No value is above 100,000.",
        "severity": "critical",
    }
    folder = config.expectations / "suites"
    folder.mkdir(parents=True, exist_ok=True)
    suite = {"name": name, "expectations": [check], "meta": {"measures": measures}}
    (folder / f"{name}.json").write_text(canonical(suite))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
