"""Real rows of the example, to be damaged: some windows of its outputs and inputs, in
`planted_data`.

They were taken from a replay of the year, and one of `heartbeat_weather`, by

    python -m tests.quality.planted_rows STATE_FOLDER REPLAY HEARTBEAT_REPLAY
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import write_deltalake

from rewindow.facts.readers import read_output
from rewindow.facts.seals import WINDOWS_SCHEMA, with_checksums
from rewindow.loading.catalog import load_application
from rewindow.loading.suites import suite_for
from rewindow.quality.planting import Specimen
from rewindow.quality.window_table import Sources
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.windows import WindowRange
from tests.quality.staging import MADE_AT, PROJECT

DATA = Path(__file__).parent / "planted_data"
SEASON = WindowRange(376954, 377003)
"""The season's first windows: the totals of the carriers begin with nothing."""
SILENT = WindowRange(384070, 384129)
"""Windows with hours in which no station has reported."""
INPUTS = {
    "hourly_weather": ["weather"],
    "delays": ["flights", "weather"],
    "ranks": ["flights"],
    "ticks": ["weather"],
}
RANGES = {"hourly_weather": SILENT, "delays": SILENT, "ranks": SEASON, "ticks": SILENT}
READ = {"flights": "window_id, origin, carrier, dep_delay", "weather": "*"}


def specimen(folder: Path, name: str) -> Specimen:
    """Returns an output of the example as a replay of its windows would have staged it, in a folder
    of its own.
    """
    windows = RANGES[name]
    rows = _read(name, RANGES[name])
    config = Config.load(PROJECT.parent / "rewindow.toml").model_copy(
        update={"state": folder / "state"}
    )
    plan = _plan(config, name, windows)
    facts: list[dict[str, Any]] = [
        _fact(w, "out", name, n) for w, n in _counts(rows, windows).items()
    ]
    for entry in plan.inputs:
        tuples = _read(entry.stream, windows)
        if name == "ticks":
            tuples = _placed(tuples, rows)
        write_deltalake(str(entry.table(config.state)), tuples)
        counts = _counts(tuples, windows)
        seals = [
            {"window_id": window, "tuples": count, "stream": entry.stream}
            for window, count in counts.items()
        ]
        sealed = with_checksums(pa.Table.from_pylist(seals, schema=WINDOWS_SCHEMA))
        write_deltalake(str(entry.windows_table(config.state)), sealed)
        facts += [_fact(window, "in", entry.stream, count) for window, count in counts.items()]
    made = pa.Table.from_pylist(facts, schema=FACTS_SCHEMA)
    root = config.replay_root(plan.replay_id)
    write_deltalake(str(root / name), rows)
    write_deltalake(str(root / "facts"), made)
    output = plan.outputs[0]
    sources = Sources.open(root, name, config.quarantine_table)
    return Specimen(plan, output, suite_for(PROJECT, output.suite), PROJECT, sources, rows, made)


def _placed(tuples: pa.Table, rows: pa.Table) -> pa.Table:
    """Returns recorded tuples with arrival and offset, which are those of the output's rows."""
    place = {}
    for row in rows.to_pylist():
        if not row["_rw_is_timer"]:
            place[row["window_id"], row["origin"]] = (row["arrived_at"], row["_rw_emission"])
    keys = zip(tuples["window_id"].to_pylist(), tuples["origin"].to_pylist(), strict=True)
    arrivals, offsets = zip(*map(place.__getitem__, keys), strict=True)
    arrived_at = pa.array(arrivals, rows.schema.field("arrived_at").type)
    return tuples.append_column("arrived_at", arrived_at).append_column("offset", pa.array(offsets))


def columns_of(name: str) -> dict[str, str]:
    declared = _declared(Config.load(PROJECT.parent / "rewindow.toml"), name)
    return {field.name: str(field.type) for field in declared[0].columns(declared[1])}


def _plan(config: Config, name: str, windows: WindowRange) -> Plan:
    app, declared = _declared(config, name)
    output = {
        "name": name,
        "operator": "made",
        "port": "out",
        "key": list(declared.key),
        "suite": declared.suite,
        "suite_parameters": dict(declared.suite_parameters),
        "columns": [],
        "stateful": True,
        "guarantee": "",
    }
    inputs = [
        {
            "stream": stream,
            "path": f"streams/{stream}",
            "version": 0,
            "windows_version": 0,
            "tuples": 0,
            "bytes": 0,
        }
        for stream in INPUTS[name]
    ]
    return Plan.model_validate(
        {
            "replay_id": f"{name}-planted",
            "application": app.name,
            "code_version": "1",
            "configuration_digest": "1",
            "first": windows.first,
            "last": windows.last,
            "width_ms": app.grid.width_ms,
            "origin_ms": 0,
            "mode": "exactly_once",
            "checkpoint_windows": 5,
            "inputs": inputs,
            "outputs": [output],
            "errors": [],
            "start": {"source": "initial" if name == "ranks" else "none"},
        }
    )


def _declared(config: Config, name: str) -> tuple[Any, Any]:
    if name == "ticks":
        from rewindow.loading.stream_applications import heartbeat_application

        place = [("offset", pa.int64()), ("arrived_at", pa.timestamp("us", tz="UTC"))]
        schema = pa.schema([*place, *pq.read_schema(DATA / "weather.parquet").remove(0)])
        app = heartbeat_application("weather", config.stream("weather"), schema)
    else:
        app = load_application(config, "flight_delays").app
    return app, app.outputs[name]


def _fact(window: int, direction: str, port: str, tuples: int) -> dict[str, Any]:
    made = {
        "window_id": window,
        "direction": direction,
        "port": port,
        "tuples": tuples,
        "attempt": 1,
        "lost": False,
    }
    made |= {"group_first": window, "group_last": window, "began_at": MADE_AT, "ended_at": MADE_AT}
    return {column: made.get(column) for column in FACTS_SCHEMA.names}


def _counts(rows: pa.Table, windows: WindowRange) -> Mapping[int, int]:
    found = {
        entry["values"]: entry["counts"] for entry in pc.value_counts(rows["window_id"]).to_pylist()
    }
    return {window: found.get(window, 0) for window in windows}


def _read(name: str, windows: WindowRange) -> pa.Table:
    rows = pq.read_table(DATA / f"{name}.parquet")
    inside = pc.and_(
        pc.greater_equal(rows["window_id"], windows.first),
        pc.less_equal(rows["window_id"], windows.last),
    )
    return rows.filter(inside)


def main(state: str, replay: str, heartbeat: str) -> None:
    config = Config(state=Path(state))
    for name, windows in RANGES.items():
        root = config.replay_root(heartbeat if name == "ticks" else replay)
        _write(name, read_output(root, name, windows))
    inside = " or ".join(
        f"window_id between {part.first} and {part.last}" for part in (SEASON, SILENT)
    )
    for name, columns in READ.items():
        _write(
            name,
            query(
                f"select {columns} from s where {inside}",
                s=Table.open(config.stream_table(name)),
            ),
        )


def _write(name: str, rows: pa.Table) -> None:
    columns = [
        column
        for column in rows.column_names
        if column not in ("offset", "arrived_at") or name == "ticks"
    ]
    order = [(column, "ascending") for column in columns]
    pq.write_table(
        rows.select(columns).sort_by(order),
        DATA / f"{name}.parquet",
        compression="zstd",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
