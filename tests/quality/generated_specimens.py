"""Outputs of generated applications, to be damaged: of small streams with late and early tuples,
silences and gaps, computed by the applications themselves in the session of the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

from rewindow.application import Application
from rewindow.facts.seals import WINDOWS_SCHEMA, with_checksums
from rewindow.loading.catalog import load_application
from rewindow.loading.stream_applications import stream_application
from rewindow.loading.suites import suite_for
from rewindow.new_project.files import new_files, write_files
from rewindow.new_project.sample import read_sample
from rewindow.new_project.stream import propose_stream
from rewindow.quality.planting import Specimen
from rewindow.quality.window_table import Sources
from rewindow.recovery import Plan
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.testing import run_application
from rewindow.windows import WindowRange
from tests.quality.staging import MADE_AT, PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = dict[int, list[dict[str, Any]]]
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TIME = pa.timestamp("us", tz="UTC")
_PLACE = [("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", TIME)]
CLICKS = pa.schema([
    *_PLACE, ("at", TIME), ("page", pa.string()), ("n", pa.int64()),
    ("price", pa.decimal128(9, 2)), ("order", pa.float64()), ("Note", pa.string()),
])  # fmt: skip
READINGS = pa.schema([
    *_PLACE, ("at", TIME), ("key", pa.string()), ("n", pa.int64()), ("temp", pa.float64()),
    ("price", pa.decimal128(9, 2)), ("sky", pa.string()), ("wind", pa.int32()),
    ("end", pa.int64()), ("unfilled", pa.string()),
])  # fmt: skip
FILL = {
    "from": "2026-03-01T00:10:00Z",
    "to": "2026-03-01T02:30:00Z",
    "columns": {
        "n": "linear",
        "temp": {"method": "linear", "max_gap": "6 min", "extrapolate": True},
        "price": {"method": "nearest"},
        "sky": {"method": "forward", "max_carry": "4 min"},
        "wind": {"method": "backward", "min_value": 0, "max_value": 40},
        "end": {"method": "constant", "value": 7},
    },
}
WINDOWS = {
    "length": "6 min",
    "slide": "3 min",
    "lag": "1 min",
    "watermark_interval": "30 s",
    "aggregates": {
        "tuples": "count(*)",
        "n_sum": "sum(n)",
        "price_sum": "sum(price)",
        "order_mean": "avg(order)",
        "note_max": "max(Note)",
    },
}
STREAMS: dict[str, dict[str, Any]] = {
    "clicks": {"keys": ["page"], "width": "1 minute"},
    "readings": {"keys": ["key"], "width": "5 minutes", "cadence": "1 minute"},
}
SCHEMAS = {"clicks": CLICKS, "readings": READINGS}


@dataclass(frozen=True)
class Case:
    """An output of a generated application.

    Attributes:
        stream, more: whose settings make it, and what else they have.
    """

    application: str
    output: str
    stream: str
    more: Mapping[str, Any]


CASES = {
    "windows": Case("windows_clicks", "fired", "clicks", {"windows": WINDOWS}),
    "windows (sessions)": Case(
        "windows_clicks",
        "fired",
        "clicks",
        {"windows": {**WINDOWS, "length": None, "slide": None, "gap": "2 min"}},
    ),
    "late_tuples": Case("windows_clicks", "late", "clicks", {"windows": WINDOWS}),
    "filled": Case(
        "filled_readings",
        "filled",
        "readings",
        {"fill": FILL, "expected_keys": ["a", "b", "c", "never"]},
    ),
    "heartbeat": Case(
        "heartbeat_readings",
        "filled",
        "readings",
        {"interval": "2 min", "slack": "20 s"},
    ),
}


def clicks(random: Random, windows: int = 90) -> Rows:
    """Returns tuples a little after their events, some of them late, ahead or without a time."""
    found: Rows = {}
    for window in range(windows):
        rows = []
        for _ in range(random.randint(0, 9)):
            arrived_at = BEGIN + window * MINUTE + random.random() * MINUTE
            delay = random.expovariate(1 / 25) - 8
            delay += random.choice([0] * 12 + [200, 500])
            at: datetime | None = arrived_at - timedelta(seconds=round(delay, 3))
            if random.random() < 0.04:
                at = random.choice([None, arrived_at + timedelta(days=3)])
            rows.append(
                {
                    "arrived_at": arrived_at,
                    "at": at,
                    "page": random.choice(["home", "cart", "pay", None]),
                    "n": random.choice([None, *range(-5, 50)]),
                    "price": Decimal(random.randint(0, 99_999)) / 100,
                    "order": random.choice([None, random.uniform(-3, 9)]),
                    "Note": random.choice(["x", "Y", None]),
                }
            )
        found[BEGIN_WINDOWS["clicks"] + window] = sorted(rows, key=lambda row: row["arrived_at"])
    return found


def readings(random: Random, windows: int = 36) -> Rows:
    """Returns readings of three keys about every minute, with holes and with some out of order."""
    first = BEGIN_WINDOWS["readings"]
    found: Rows = {first + window: [] for window in range(windows)}
    for key in "abc":
        minute = random.randint(0, 20)
        while minute < 5 * windows:
            at = BEGIN + (minute + random.random() * 0.9) * MINUTE
            arrived_at = at + random.choice([0.02, 0.3, 0.3, 3]) * random.random() * MINUTE
            row = {
                "arrived_at": arrived_at,
                "at": None if random.random() < 0.01 else at,
                "key": None if random.random() < 0.01 else key,
                "n": random.randint(-1000, 1000),
                "temp": random.choice([None, *[random.uniform(-20, 40)] * 9]),
                "price": Decimal(random.randint(0, 99_999)) / 100,
                "sky": random.choice(["clear", "rain", None]),
                "wind": random.choice([random.randint(0, 40)] * 9 + [99]),
                "end": random.randint(0, 9),
                "unfilled": random.choice(["p", "q"]),
            }
            window = first + math.floor((arrived_at - BEGIN) / (5 * MINUTE))
            if window in found:
                found[window].append(row)
            minute += random.choice([1, 1, 1, 1, 2, 3, 5, 9])
    for rows in found.values():
        rows.sort(key=lambda row: row["arrived_at"])
    return found


def flights(random: Random, windows: int = 60) -> Rows:
    """Returns flights that departed some time after their schedule, some a little before."""
    first = int(BEGIN.timestamp()) // 3600
    found: Rows = {}
    for window in range(windows):
        rows = []
        for _ in range(random.randint(0, 14)):
            arrived_at = BEGIN + (60 * window + random.randint(0, 59)) * MINUTE
            delay = random.choice([-8, -3, 0, 0, 1, 5, 20, 45, 90, 240])
            rows.append(
                {
                    "arrived_at": arrived_at,
                    "scheduled_at": arrived_at - delay * MINUTE,
                    "carrier": random.choice(["UA", "AA", "B6"]),
                    "flight": random.randint(1, 999),
                    "origin": random.choice(["EWR", "JFK", "LGA"]),
                    "dest": random.choice(["BOS", "ORD", None]),
                    "dep_delay": delay,
                }
            )
        found[first + window] = sorted(rows, key=lambda row: row["arrived_at"])
    return found


BEGIN_WINDOWS = {
    "clicks": int(BEGIN.timestamp()) // 60,
    "readings": int(BEGIN.timestamp()) // 300,
}
MAKERS: dict[str, Callable[[Random], Rows]] = {"clicks": clicks, "readings": readings}


def generated(folder: Path, name: str, spark: SparkSession, seed: int = 1) -> Specimen:
    """Returns an output of a generated application as a replay would have staged it."""
    case = CASES[name]
    given = {"source": "x.csv", "arrived_at": "at", "event_at": "at"}
    settings = StreamConfig(**{**given, **STREAMS[case.stream], **case.more})
    schema = SCHEMAS[case.stream]
    app = stream_application(case.application, case.stream, settings, schema)
    tuples = MAKERS[case.stream](Random(seed))
    return staged(folder, app, case.output, {case.stream: (schema, tuples)}, PROJECT, spark)


def example(folder: Path, output: str, spark: SparkSession, seed: int = 1) -> Specimen:
    """Returns an output of the example's late flights, of flights that were made up."""
    config = Config.load(PROJECT.parent / "rewindow.toml")
    app = load_application(config, "flight_lateness").app
    named = [("carrier", pa.string()), ("flight", pa.int32()), ("origin", pa.string())]
    rest = [("dest", pa.string()), ("dep_delay", pa.int32()), ("scheduled_at", TIME)]
    inputs = {"flights": (pa.schema([*_PLACE, *named, *rest]), flights(Random(seed)))}
    return staged(folder, app, output, inputs, PROJECT, spark)


def counted(folder: Path, spark: SparkSession, seed: int = 1) -> Specimen:
    """Returns the output of the application that `rewindow init` writes for a file."""
    random = Random(seed)
    lines = ["received_at,station,n,price"]
    tuples: Rows = {}
    for minute in range(60):
        for _ in range(12):
            seconds = 60 * minute + random.randint(0, 59)
            key = random.choice(["a", "b", "c"])
            n = random.randint(-9, 99)
            price = Decimal(random.randint(0, 9999)) / 100
            at = BEGIN + timedelta(seconds=seconds)
            lines.append(f"{at:%Y-%m-%d %H:%M:%S},{key},{n},{price:.2f}")
            row = {"arrived_at": at, "received_at": at, "station": key, "n": n, "price": price}
            tuples.setdefault(int(at.timestamp()), []).append(row)
    source = folder / "stations.csv"
    source.write_text("\n".join(lines) + "\n")
    stream = propose_stream(read_sample(source), source)
    write_files(new_files(stream, folder))
    config = Config.load(folder / "rewindow.toml")
    app = load_application(config, stream.application).app
    width = config.stream(stream.name).width_us // 1_000_000
    by_window: Rows = {}
    for second, rows in sorted(tuples.items()):
        by_window.setdefault(second // width, []).extend(rows)
    columns = [("received_at", TIME), ("station", pa.string()), ("n", pa.int64())]
    schema = pa.schema([*_PLACE, *columns, ("price", pa.decimal128(4, 2))])
    inputs = {stream.name: (schema, by_window)}
    return staged(folder, app, "counts", inputs, config.expectations, spark)


def staged(
    folder: Path,
    app: Application,
    output: str,
    inputs: Mapping[str, tuple[pa.Schema, Rows]],
    project: Path,
    spark: SparkSession,
) -> Specimen:
    """Returns an output of an application over whole streams, as its replay would have staged
    it.
    """
    ids = [window for _, tuples in inputs.values() for window in tuples]
    windows = WindowRange(min(ids), max(ids))
    run = run_application(
        app,
        {stream: tuples for stream, (_, tuples) in inputs.items()},
        windows=(windows.first, windows.last),
        group_windows=len(windows),
        spark=spark,
    )
    config = Config(state=folder / "state", expectations=project)
    plan = _plan(app, output, list(inputs), windows)
    facts = []
    for stream, (schema, tuples) in inputs.items():
        facts += _record(config, plan, stream, schema, tuples)
    columns = app.columns(app.outputs[output])
    rows = _table(columns, run.outputs[output])
    facts += _facts(plan, "out", output, _counts(rows["window_id"].to_pylist()))
    for error in plan.errors:
        refused = run.outputs.get(error.name, [])
        facts += _facts(plan, "error", error.name, _counts([row[0] for row in refused]))
    sealed = pa.Table.from_pylist(facts, schema=FACTS_SCHEMA)
    root = config.replay_root(plan.replay_id)
    write_deltalake(str(root / output), rows)
    write_deltalake(str(root / "facts"), sealed)
    sources = Sources.open(root, output, config.quarantine_table)
    suite = suite_for(project, plan.outputs[0].suite)
    return Specimen(plan, plan.outputs[0], suite, project, sources, rows, sealed)


def _plan(app: Application, output: str, streams: list[str], windows: WindowRange) -> Plan:
    declared = app.outputs[output]
    columns = [(field.name, str(field.type)) for field in app.columns(declared)]
    about = {
        "operator": str(declared.source.operator),
        "port": declared.source.port,
        "stateful": True,
        "guarantee": "",
        "upstream": list(app.nodes),
    }
    made = {
        **about,
        "name": output,
        "key": list(declared.key),
        "suite": declared.suite,
        "suite_parameters": dict(declared.suite_parameters),
        "columns": columns,
    }
    errors = []
    for error in app.errors():
        errors.append({**about, "name": error, "key": [], "suite": None, "columns": []})
    inputs = []
    for stream in streams:
        inputs.append(
            {
                "stream": stream,
                "path": f"streams/{stream}",
                "version": 0,
                "windows_version": 0,
                "tuples": 0,
                "bytes": 0,
            }
        )
    return Plan.model_validate(
        {
            "replay_id": "generated",
            "application": app.name,
            "code_version": "1",
            "configuration_digest": "1",
            "first": windows.first,
            "last": windows.last,
            "width_ms": app.grid.width_ms,
            "origin_ms": app.grid.origin_ms,
            "mode": "exactly_once",
            "checkpoint_windows": 5,
            "inputs": inputs,
            "outputs": [made],
            "errors": errors,
            "start": {"source": "initial"},
        }
    )


def _record(
    config: Config, plan: Plan, stream: str, schema: pa.Schema, tuples: Rows
) -> list[dict[str, Any]]:
    rows = []
    for window, of_window in tuples.items():
        for offset, row in enumerate(of_window):
            rows.append({**row, "window_id": window, "offset": offset})
    write_deltalake(str(config.stream_table(stream)), pa.Table.from_pylist(rows, schema=schema))
    counts = {window: len(of_window) for window, of_window in tuples.items()}
    seals = []
    for window in plan.range:
        seals.append({"window_id": window, "tuples": counts.get(window, 0), "stream": stream})
    sealed = with_checksums(pa.Table.from_pylist(seals, schema=WINDOWS_SCHEMA))
    write_deltalake(str(config.windows_table(stream)), sealed)
    return _facts(plan, "in", stream, counts)


def _facts(
    plan: Plan, direction: str, port: str, counts: Mapping[int, int]
) -> list[dict[str, Any]]:
    facts = []
    for window in plan.range:
        fact = {
            "window_id": window,
            "direction": direction,
            "port": port,
            "tuples": counts.get(window, 0),
            "attempt": 1,
            "lost": False,
            "group_first": window,
            "group_last": window,
            "began_at": MADE_AT,
            "ended_at": MADE_AT,
        }
        facts.append({column: fact.get(column) for column in FACTS_SCHEMA.names})
    return facts


def _counts(windows: list[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for window in windows:
        found[window] = found.get(window, 0) + 1
    return found


def _table(columns: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    names = ["window_id", *columns.names]
    schema = pa.schema([("window_id", pa.int64()), ("attempt", pa.int64()), *columns])
    made = [{"attempt": 1, **dict(zip(names, row, strict=True))} for row in rows]
    return pa.Table.from_pylist(made, schema=schema)
