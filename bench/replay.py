"""Replays beside a plain Spark write, Structured Streaming and DuckDB; cost of groups and windows;
cold commands.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from bench.report import Row
from rewindow.certificate import certify
from rewindow.engine.computation import PlannedAttempt
from rewindow.engine.spark_engine import spark_attempt
from rewindow.facts.seals import columns_text, seal_rows
from rewindow.ledger import Ledger
from rewindow.loading.catalog import load_application
from rewindow.location import Location
from rewindow.planning import ReplayRequest, create_replay
from rewindow.settings.config import Config
from rewindow.spark.session import spark_session
from rewindow.storage import Table, data_files
from rewindow.storage.files import note_files
from rewindow.storage.streams import create_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[1]
WINDOWS = 1_000
KEYS = 1_000
FILES = 8
FIRST = 400_000
APPLICATION = """
from typing import ClassVar
import pyarrow as pa
from pyspark.sql import functions as F
from rewindow.application import Application, FrameOperator, InputPort, OutputPort

IN = pa.schema([("key", pa.int64()), ("value", pa.int64())])
OUT = pa.schema([("key", pa.int64()), ("highest", pa.int64()), ("count", pa.int64())])
SUM = pa.schema([("key", pa.int64()), ("count", pa.int64())])

class Highest(FrameOperator):
    inputs: ClassVar = {"events": InputPort(IN)}
    outputs: ClassVar = {"out": OutputPort(OUT)}
    def transform(self, inputs, state, windows):
        return inputs["events"].groupBy("window_id", "key").agg(
            F.max("value").alias("highest"), F.count("*").alias("count"))

class Copied(FrameOperator):
    inputs: ClassVar = {"events": InputPort(IN)}
    outputs: ClassVar = {"out": OutputPort(IN)}
    def transform(self, inputs, state, windows):
        return inputs["events"].select("window_id", "key", "value")

class Counting(FrameOperator):
    inputs: ClassVar = {"events": InputPort(IN)}
    outputs: ClassVar = {"out": OutputPort(pa.schema([("count", pa.int64())]))}
    state_schema: ClassVar = pa.schema([("count", pa.int64())])
    def transform(self, inputs, state, windows):
        return inputs["events"].groupBy("window_id").agg(F.count("*").alias("count"))
    def next_state(self, inputs, outputs, state, windows):
        return outputs["out"].select("count").union(state).agg(F.sum("count").alias("count"))
"""
ONE = (
    APPLICATION
    + """
app = Application("one", window="1 hour")
app.output("highest", app.add("highest", Highest(), events=app.input("events")), key=["key"])
"""
)
AS_LARGE = (
    APPLICATION
    + """
app = Application("as_large", window="1 hour")
app.output("copied", app.add("copied", Copied(), events=app.input("events")), key=["key"])
"""
)
THREE = (
    APPLICATION
    + """
app = Application("three", window="1 hour")
events = app.input("small")
app.output("highest", app.add("highest", Highest(), events=events), key=["key"])
app.output("again", app.add("again", Highest(), events=events), key=["key"])
app.output("counting", app.add("counting", Counting(), events=events), key=[])
"""
)


def measure_engine(tuples: int) -> list[Row]:
    """Returns the rows that are measured in one warm session."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        config = make_project(Path(folder), {"one": ONE, "three": THREE, "as_large": AS_LARGE})
        spark = spark_session(config, "bench")
        record(spark, config, "events", tuples, WINDOWS)
        record(spark, config, "small", 100_000, WINDOWS)
        rows = [*_throughput(spark, config, tuples), *_groups(spark, config)]
        spark.stop()
    return rows


def _throughput(spark: SparkSession, config: Config, tuples: int) -> list[Row]:
    source = config.stream_table("events")
    files = [file.path for file in Table.open(source).files()]
    plain_target = config.state / "plain"
    stream_target = config.state / "streamed"

    def plain() -> None:
        _aggregate(spark.read.parquet(*files)).write.format("delta").mode("overwrite").save(
            str(plain_target)
        )

    def replay() -> None:
        run_replay(spark, config, "one", None)

    def plain_copy() -> None:
        copied = spark.read.parquet(*files).select("window_id", "key", "value")
        copied.write.format("delta").mode("overwrite").save(
            str(plain_target.with_name("plain_copy"))
        )

    def replay_copy() -> None:
        run_replay(spark, config, "as_large", None)

    def streaming() -> None:
        for target in (stream_target, config.state / "streaming_checkpoint"):
            shutil.rmtree(target.local(), ignore_errors=True)
        _stream(spark, source, stream_target, config.state / "streaming_checkpoint")

    def duck() -> None:
        listed = ", ".join(f"'{path}'" for path in files)
        columns = "window_id, key, max(value) as highest, count(*) as count"
        sql = f"select {columns} from read_parquet([{listed}]) group by all"
        duckdb.sql(f"copy ({sql}) to '{config.state / 'duck.parquet'}' (format parquet)")

    run_replay(spark, config, "three", 100, "small")
    found = _best_of_rounds(plain, replay, plain_copy, replay_copy, streaming, duck)
    _say(found)
    ratio = found["replay"] / found["plain"]
    faster = found["streaming"] / found["replay"]
    as_large = found["replay_copy"] / found["plain_copy"]
    size = f"{tuples / 1e6:.0f} M tuples, {WINDOWS:,} windows, grouped aggregate"
    return [
        Row(
            f"{size}, whole product",
            f"{found['replay']:.2f} s",
            f"one plain Spark write to Delta {found['plain']:.2f} s",
            f"at most 1.15 x: {ratio:.2f} x",
            ratio <= 1.15,
        ),
        Row(
            f"{tuples / 1e6:.0f} M tuples, an output as large as its input, whole product",
            f"{found['replay_copy']:.2f} s",
            f"one plain Spark write to Delta {found['plain_copy']:.2f} s",
            f"at most 1.4 x: {as_large:.2f} x",
            as_large <= 1.4,
        ),
        Row(
            f"{size}, whole product",
            f"{found['replay']:.2f} s",
            f"Structured Streaming availableNow with foreachBatch {found['streaming']:.2f} s",
            f"faster: {faster:.1f} x",
            faster > 1,
        ),
        Row(
            "the same",
            f"{found['replay']:.2f} s",
            f"DuckDB {found['duck']:.2f} s",
            "the limit of the hardware",
            None,
        ),
    ]


def _groups(spark: SparkSession, config: Config) -> list[Row]:
    """The same windows in one group and in many; fewer windows and more."""
    one = _best(lambda: run_replay(spark, config, "three", WINDOWS, "small"))
    many = _best(lambda: run_replay(spark, config, "three", WINDOWS // 10, "small"))
    few = _best(lambda: run_replay(spark, config, "three", WINDOWS, "small", windows=100))
    group_ms = (many - one) / 9 * 1000
    window_ms = (one - few) / (WINDOWS - 100) * 1000
    ids = [run_replay(spark, config, "three", WINDOWS, "small") for _ in range(2)]
    certify(config, *ids)
    certify_s = min(_time(lambda: certify(config, *ids)) for _ in range(3))
    _say({"one group": one, "ten groups": many, "100 windows": few, "certify": certify_s})
    return [
        Row(
            "one more commit group, three outputs and state",
            f"{group_ms:.0f} ms",
            "",
            "under 400 ms",
            group_ms < 400,
        ),
        Row(
            "one more window in a group, three outputs",
            f"{window_ms:.2f} ms",
            "",
            "under 5 ms",
            window_ms < 5,
        ),
        Row(
            f"certify of equal ranges, {WINDOWS:,} windows, three outputs",
            f"{certify_s:.2f} s",
            "",
            "under 1 s",
            certify_s < 1,
        ),
    ]


def measure_commands() -> list[Row]:
    """Returns the rows that are measured on whole cold commands."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".rewindow") as folder:
        config = make_project(Path(folder), {"one": ONE, "three": THREE})
        spark = spark_session(config, "bench")
        record(spark, config, "small", 100_000, WINDOWS)
        spark.stop()
        windows = [str(FIRST + number) for number in range(3)]
        cold = [
            _time(partial(_command, config, "replay", "three", "--first", window, "--last", window))
            for window in windows
        ]
        planned = min(_time(lambda: _command(config, "plan", "three")) for _ in range(3))
        recovery = _recover(config)
    _say({"cold replay": statistics.median(cold), "plan": planned, "recovery": recovery})
    return [
        Row(
            "cold `rewindow replay` of one window, three outputs",
            f"{statistics.median(cold):.1f} s",
            "",
            "under 12 s",
            statistics.median(cold) < 12,
        ),
        Row("`rewindow plan`, whole process", f"{planned:.2f} s", "no JVM", "", None),
        Row(
            "next attempt's start to its first commit, exactly once after SIGKILL",
            f"{recovery:.1f} s",
            "",
            "within 15 s",
            recovery < 15,
        ),
    ]


def _recover(config: Config) -> float:
    """Returns seconds from the second attempt's epoch to its first committed group."""
    crash = ("--crash", "after_outputs:3@1")
    _command(config, "replay", "three", "--id", "killed", "--group-windows", "100", *crash)
    ledger = Ledger.open(config.ledger_url)
    second = next(attempt for attempt in ledger.attempts.of("killed") if attempt.epoch == 2)
    first_group = min(
        timing.reported_at for timing in ledger.attempts.timings("killed") if timing.epoch == 2
    )
    return (first_group - second.began_at).total_seconds()


def _command(config: Config, *arguments: str) -> None:
    environment = {**os.environ, "REWINDOW_CONFIG": str(config.file)}
    command = [sys.executable, "-m", "rewindow.cli", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def run_replay(
    spark: SparkSession,
    config: Config,
    application: str,
    group: int | None,
    stream: str = "events",
    windows: int = WINDOWS,
) -> str:
    """Runs a replay in this session, from its plan to its end; returns its id."""
    request = ReplayRequest(application, first=FIRST, last=FIRST + windows - 1, group_windows=group)
    plan = create_replay(config, request)
    ledger = Ledger.open(config.ledger_url)
    epoch = ledger.attempts.next_epoch(plan.replay_id)
    ledger.attempts.begin(plan.replay_id, epoch, "bench", os.getpid(), os.getpid(), "boot/0")
    app = load_application(config, application).app
    inline = config.replay.inline_state_bytes
    spark_attempt(
        PlannedAttempt(plan, app, config.replay_root(plan.replay_id), epoch),
        ledger,
        lambda: spark,
        inline,
    ).run()
    ledger.attempts.end(plan.replay_id, epoch, "done")
    return plan.replay_id


def _aggregate(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.groupBy("window_id", "key").agg(
        F.max("value").alias("highest"),
        F.count("*").alias("count"),
    )


def _stream(spark: SparkSession, source: Location, target: Location, checkpoint: Location) -> None:
    def write(batch: DataFrame, number: int) -> None:
        rows = _aggregate(batch).write.format("delta").mode("append")
        rows.option("txnAppId", "bench").option("txnVersion", number).save(str(target))

    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(source))
    query = reader.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


def make_project(folder: Path, applications: dict[str, str], driver_memory: str = "4g") -> Config:
    """Returns the settings of a project with some applications, by name."""
    (folder / "applications").mkdir()
    for name, text in applications.items():
        (folder / "applications" / f"{name}.py").write_text(text)
    jars = ROOT / ".rewindow" / "jars"
    settings = f'state = "state"\n[spark]\njars = "{jars}"\ndriver_memory = "{driver_memory}"\n'
    (folder / "rewindow.toml").write_text('applications = ["applications"]\n' + settings)
    return Config.load(folder / "rewindow.toml")


def record(
    spark: SparkSession,
    config: Config,
    name: str,
    tuples: int,
    windows: int,
    keys: int = KEYS,
) -> None:
    """Makes a recorded stream: files ordered by window, each with a stretch of windows, and its
    seals.
    """
    from pyspark.sql import functions as F

    per_window = tuples // windows
    window = F.col("id").cast("bigint") % windows + FIRST
    rows = spark.range(per_window * windows).select(
        window.alias("window_id"),
        (F.col("id") / windows).cast("bigint").alias("offset"),
        F.timestamp_micros(window * 3_600_000_000).alias("arrived_at"),
        F.abs(F.xxhash64("id") % keys).alias("key"),
        F.abs(F.xxhash64("id", F.lit(1)) % 100_000).alias("value"),
    )
    path = config.stream_table(name)
    schema = pa.schema([
        ("window_id", pa.int64()), ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", tz="UTC")),
        ("key", pa.int64()), ("value", pa.int64()),
    ])  # fmt: skip
    create_stream(path, schema, {"width_ms": 3_600_000, "origin_ms": 0})
    table = Table.open(path)
    spread = rows.repartitionByRange(FILES, "window_id").sortWithinPartitions("window_id", "offset")
    spread.write.parquet(str(path / "run"))
    table.commit_files(data_files(path / "run"), app_id="bench", version=1)
    note_files(table, Table.open(config.files_table(name)))
    seals = pa.table(
        {"window_id": list(range(FIRST, FIRST + windows)), "tuples": [per_window] * windows}
    )
    seals = seal_rows(seals, table, columns_text(schema))
    Table.open(config.windows_table(name)).commit_arrow(seals, app_id="bench", version=1)


def _best_of_rounds(*works: Callable[[], object], rounds: int = 3) -> dict[str, float]:
    """Returns the shortest seconds of each, by name; taken in turns, so that a machine that slows
    down slows all.
    """
    times = [{work.__name__: _time(work) for work in works} for _ in range(rounds)]
    return {work.__name__: min(one[work.__name__] for one in times) for work in works}


def _best(work: Callable[[], object], runs: int = 3) -> float:
    return min(_time(work) for _ in range(runs))


def _time(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _say(found: dict[str, float]) -> None:
    print("  ".join(f"{name} {seconds:.2f} s" for name, seconds in found.items()), flush=True)
