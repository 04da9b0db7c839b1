"""Outputs of generated applications, to be damaged: of small streams with late and early tuples,
silences and gaps.

The rows of the first seed are stored in `planted_data/generated`, as the applications computed
them, by

    python -m tests.quality.generated_specimens

Those of other seeds are computed in the session of the tests.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
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
from rewindow.testing import local_spark, run_application
from rewindow.windows import WindowRange
from tests.quality.staging import MADE_AT, PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = dict[int, list[dict[str, Any]]]
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TIME = pa.timestamp("us", tz="UTC")
_PLACE = [("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", TIME)]
CLICKS = pa.schema(
    [
        *_PLACE,
        ("at", TIME),
        ("page", pa.string()),
        ("n", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("order", pa.float64()),
        ("Note", pa.string()),
    ]
)
READINGS = pa.schema(
    [
        *_PLACE,
        ("at", TIME),
        ("key", pa.string()),
        ("n", pa.int64()),
        ("temp", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("sky", pa.string()),
        ("wind", pa.int32()),
        ("end", pa.int64()),
        ("unfilled", pa.string()),
    ]
)
FILL = {
    "from": "2026-03-01T00:10:00Z",
    "to": "2026-03-01T02:30:00Z",
    "columns": {
        "n": "linear",
        "temp": {"method": "linear", "max_gap": "6 min"},
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
    "sessions": Case(
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
        "ticks",
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


FLIGHTS = pa.schema(
    [
        *_PLACE,
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.int32()),
        ("scheduled_at", TIME),
    ]
)
EXAMPLE = ("late_flights", "lateness")
"""Outputs of the example, of flights that were made up."""
NAMES = (*CASES, *EXAMPLE, "init")
STORED = Path(__file__).parent / "planted_data" / "generated"
BEGIN_WINDOWS = {
    "clicks": int(BEGIN.timestamp()) // 60,
    "readings": int(BEGIN.timestamp()) // 300,
}
MAKERS: dict[str, Callable[[Random], Rows]] = {"clicks": clicks, "readings": readings}


def specimen_of(
    folder: Path,
    name: str,
    spark: SparkSession | None,
    seed: int = 1,
    change: Callable[[Rows], object] = len,
) -> Specimen:
    """Returns an output of a generated application, or of the example, as a replay would have
    staged it.

    Args:
        spark: computes the rows; None for those that are stored.
        change: may change the tuples before.
    """
    given = _given(folder, name, seed)
    change(given.tuples)
    found = _stored(name) if spark is None else _computed(given, spark)
    return _staged(folder, given, found)


@dataclass(frozen=True)
class _Given:
    """An application with the tuples that it gets."""

    app: Application
    output: str
    stream: str
    schema: pa.Schema
    tuples: Rows
    project: Path

    @property
    def windows(self) -> WindowRange:
        """All windows that have tuples."""
        return WindowRange(min(self.tuples), max(self.tuples))


def _given(folder: Path, name: str, seed: int) -> _Given:
    if name == "init":
        return _counted(folder, Random(seed))
    if name in EXAMPLE:
        app = load_application(Config.load(PROJECT.parent / "rewindow.toml"), "flight_lateness").app
        return _Given(app, name, "flights", FLIGHTS, flights(Random(seed)), PROJECT)
    case = CASES[name]
    given = {"source": "x.csv", "arrived_at": "at", "event_at": "at"}
    settings = StreamConfig(**{**given, **STREAMS[case.stream], **case.more})
    schema = SCHEMAS[case.stream]
    app = stream_application(case.application, case.stream, settings, schema)
    tuples = MAKERS[case.stream](Random(seed))
    return _Given(app, case.output, case.stream, schema, tuples, PROJECT)


def _counted(folder: Path, random: Random) -> _Given:
    """Returns the application that `rewindow init` writes for a file."""
    lines = ["received_at,station,n,price"]
    rows = []
    for second in sorted(random.sample(range(3600), 720)):
        row = {
            "received_at": BEGIN + timedelta(seconds=second),
            "station": random.choice(["a", "b", "c"]),
            "n": random.randint(-9, 99),
            "price": Decimal(random.randint(0, 9999)) / 100,
        }
        rows.append(row)
        lines.append(
            f"{row['received_at']:%Y-%m-%d %H:%M:%S},{row['station']},{row['n']},{row['price']:.2f}"
        )
    source = folder / "stations.csv"
    source.write_text("\n".join(lines) + "\n")
    stream = propose_stream(read_sample(source), source)
    write_files(new_files(stream, folder))
    config = Config.load(folder / "rewindow.toml")
    app = load_application(config, stream.application).app
    tuples: Rows = {}
    for row in rows:
        window = (
            int(row["received_at"].timestamp() * 1_000_000) // config.stream(stream.name).width_us
        )
        tuples.setdefault(window, []).append({"arrived_at": row["received_at"], **row})
    columns = [("received_at", TIME), ("station", pa.string()), ("n", pa.int64())]
    schema = pa.schema([*_PLACE, *columns, ("price", pa.decimal128(4, 2))])
    return _Given(app, "counts", stream.name, schema, tuples, config.expectations)


@dataclass(frozen=True)
class _Found:
    """Rows of an output, and the windows of the error tuples."""

    rows: pa.Table
    errors: list[int]


def _computed(given: _Given, spark: SparkSession) -> _Found:
    run = run_application(
        given.app,
        {given.stream: given.tuples},
        windows=(given.windows.first, given.windows.last),
        group_windows=len(given.windows),
        spark=spark,
    )
    columns = given.app.columns(given.app.outputs[given.output])
    names = ["window_id", *columns.names]
    schema = pa.schema([("window_id", pa.int64()), ("attempt", pa.int64()), *columns])
    rows = []
    for row in run.outputs[given.output]:
        rows.append({"attempt": 1, **dict(zip(names, row, strict=True))})
    errors = []
    for name in given.app.errors():
        errors += [row[0] for row in run.outputs[name]]
    return _Found(pa.Table.from_pylist(rows, schema=schema), errors)


def _stored(name: str) -> _Found:
    rows = pq.read_table(STORED / f"{name}.parquet")
    return _Found(rows, json.loads(rows.schema.metadata[b"errors"]))


def _staged(folder: Path, given: _Given, found: _Found) -> Specimen:
    config = Config(state=folder / "state", expectations=given.project)
    plan = _plan(given)
    facts = _record(config, given)
    facts += _facts(given, "out", given.output, found.rows["window_id"].to_pylist())
    for error in plan.errors:
        facts += _facts(given, "error", error.name, found.errors)
    sealed = pa.Table.from_pylist(facts, schema=FACTS_SCHEMA)
    root = config.replay_root(plan.replay_id)
    write_deltalake(str(root / given.output), found.rows)
    write_deltalake(str(root / "facts"), sealed)
    sources = Sources.open(root, given.output, config.quarantine_table)
    (output,) = plan.outputs
    suite = suite_for(given.project, output.suite)
    return Specimen(plan, output, suite, given.project, sources, found.rows, sealed)


def _plan(given: _Given) -> Plan:
    app = given.app
    declared = app.outputs[given.output]
    about = {
        "operator": str(declared.source.operator),
        "port": declared.source.port,
        "stateful": True,
        "guarantee": "",
        "upstream": list(app.nodes),
    }
    made = {
        **about,
        "name": given.output,
        "key": list(declared.key),
        "suite": declared.suite,
        "suite_parameters": dict(declared.suite_parameters),
        "columns": [(field.name, str(field.type)) for field in app.columns(declared)],
    }
    errors = []
    for error in app.errors():
        errors.append({**about, "name": error, "key": [], "suite": None, "columns": []})
    stream = {
        "stream": given.stream,
        "path": f"streams/{given.stream}",
        "version": 0,
        "windows_version": 0,
        "tuples": 0,
        "bytes": 0,
    }
    return Plan.model_validate(
        {
            "replay_id": "generated",
            "application": app.name,
            "code_version": "1",
            "configuration_digest": "1",
            "first": given.windows.first,
            "last": given.windows.last,
            "width_ms": app.grid.width_ms,
            "origin_ms": app.grid.origin_ms,
            "mode": "exactly_once",
            "checkpoint_windows": 5,
            "inputs": [stream],
            "outputs": [made],
            "errors": errors,
            "start": {"source": "initial"},
        }
    )


def _record(config: Config, given: _Given) -> list[dict[str, Any]]:
    """Records the tuples, and returns the facts of a replay that has read them."""
    rows = []
    for window, of_window in given.tuples.items():
        for offset, row in enumerate(of_window):
            rows.append({**row, "window_id": window, "offset": offset})
    table = pa.Table.from_pylist(rows, schema=given.schema)
    write_deltalake(str(config.stream_table(given.stream)), table)
    seals = []
    for window in given.windows:
        count = len(given.tuples.get(window, ()))
        seals.append({"window_id": window, "tuples": count, "stream": given.stream})
    sealed = with_checksums(pa.Table.from_pylist(seals, schema=WINDOWS_SCHEMA))
    write_deltalake(str(config.windows_table(given.stream)), sealed)
    return _facts(given, "in", given.stream, table["window_id"].to_pylist())


def _facts(
    given: _Given, direction: str, port: str, windows_of_rows: list[int]
) -> list[dict[str, Any]]:
    counts = Counter(windows_of_rows)
    facts = []
    for window in given.windows:
        fact = {
            "window_id": window,
            "direction": direction,
            "port": port,
            "tuples": counts[window],
            "attempt": 1,
            "lost": False,
            "group_first": window,
            "group_last": window,
            "began_at": MADE_AT,
            "ended_at": MADE_AT,
        }
        facts.append({column: fact.get(column) for column in FACTS_SCHEMA.names})
    return facts


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            place = Path(folder) / name
            place.mkdir()
            found = _computed(_given(place, name, seed=1), local_spark())
            rows = found.rows.replace_schema_metadata({"errors": json.dumps(found.errors)})
            pq.write_table(rows, STORED / f"{name}.parquet", compression="zstd")


if __name__ == "__main__":
    main()
