"""Cost of a second container, compared with its parts.

    python -m bench.containers [TUPLES_IN_MILLIONS]

An application of two operators, of which the first emits every tuple that it reads, is replayed in
one container and in two, in the same warm session. The second container should cost one write and
one read of the stream between them, which are also measured here with Spark alone, and its start:
what it costs for a tuple per window. The start of its process comes on top, which `python -m bench`
measures as a cold replay of one window.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.replay import APPLICATION, ROOT, WINDOWS, _best, _say, make_project, record
from rewindow.engine.assembly import assemble
from rewindow.engine.computation import PlannedAttempt
from rewindow.engine.spark_engine import spark_attempt
from rewindow.ledger import Ledger
from rewindow.loading.catalog import load_planned
from rewindow.planning import ReplayRequest, create_replay
from rewindow.planning.containers import container_to_run, plan_container
from rewindow.settings.config import Config
from rewindow.spark.session import spark_session
from rewindow.storage import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHAIN = (
    APPLICATION
    + """
app = Application("chain", window="1 hour")
copied = app.add("copied", Copied(), events=app.input("events"))
app.output("highest", app.add("highest", Highest(), events=copied), key=["key"])
"""
)
CUT = {"copied.container": "first"}


def main(millions: float) -> None:
    """Prints the seconds of one container, of two containers, and of a plain write and read."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        config = make_project(Path(folder), {"chain": CHAIN})
        spark = spark_session(config, "bench containers")
        record(spark, config, "events", int(millions * 1_000_000), WINDOWS)
        files = [file.path for file in Table.open(config.stream_table("events")).files()]
        target = str(config.state / "plain")

        def write() -> None:
            rows = spark.read.parquet(*files).select("window_id", "key", "value")
            rows.write.mode("overwrite").parquet(target)

        def read() -> None:
            spark.read.parquet(target).write.format("noop").mode("overwrite").save()

        _replay(spark, config, {})
        _replay(spark, config, CUT)
        one = _best(lambda: _replay(spark, config, {}))
        parts: list[dict[str, float]] = []
        two = _best(lambda: parts.append(_replay(spark, config, CUT)))
        start = _start(spark, Path(folder) / "small")
        found = {
            "one": one,
            "two": two,
            "plain write": _best(write),
            "plain read": _best(read),
            "start": start,
        }
        _say(found)
        _say(min(parts, key=lambda part: sum(part.values())))
        allowed = found["plain write"] + found["plain read"] + start
        print(
            f"two cost {two - one:.2f} s more; one write, one read and the start of an attempt in "
            f"this session take {allowed:.2f} s"
        )
        spark.stop()


def _start(spark: SparkSession, folder: Path) -> float:
    """Returns what a second container costs where it has next to nothing to do."""
    folder.mkdir()
    config = make_project(folder, {"chain": CHAIN})
    record(spark, config, "events", WINDOWS, WINDOWS)
    one = _best(lambda: _replay(spark, config, {}))
    return _best(lambda: _replay(spark, config, CUT)) - one


def _replay(spark: SparkSession, config: Config, properties: dict[str, str]) -> dict[str, float]:
    """Runs a replay in this session; returns the seconds of each job."""
    plan = create_replay(config, ReplayRequest("chain", properties=properties))
    seconds: dict[str, float] = {}
    while (container := container_to_run(config, plan)) is not None:
        replay_id = plan_container(config, plan, container)
        seconds[container.name] = _timed(partial(_attempt, spark, config, replay_id))
    seconds["assembly" if plan.is_divided else "all"] = _timed(
        partial(_attempt, spark, config, plan.replay_id)
    )
    return seconds


def _attempt(spark: SparkSession, config: Config, replay_id: str) -> None:
    ledger = Ledger.open(config.ledger_url)
    plan = ledger.replays.get(replay_id).read_plan()
    epoch = ledger.attempts.next_epoch(replay_id)
    ledger.attempts.begin(replay_id, epoch, "bench", os.getpid(), os.getpid(), "boot/0")
    planned = PlannedAttempt(
        plan, load_planned(config, plan).app, config.replay_root(replay_id), epoch
    )
    if plan.is_divided:
        assemble(planned, lambda step: None)
    else:
        spark_attempt(planned, ledger, lambda: spark, config.replay.inline_state_bytes).run()
    ledger.attempts.end(replay_id, epoch, "done")


def _timed(work: Callable[[], object]) -> float:
    return _best(work, 1)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10)
