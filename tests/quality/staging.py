"""A replay as its tables show it, without Spark: tests change one thing in it and ask the gate."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from rewindow.facts.seals import WINDOWS_SCHEMA, with_checksums
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.loading.suites import canonical
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.storage import Table, data_files
from rewindow.storage.checksums import with_checksums as with_file_checksums
from rewindow.storage.delta import create_table
from rewindow.storage.formats import TableKind, format_property
from rewindow.storage.layout import FACTS_SCHEMA
from rewindow.windows import WindowRange

PROJECT = Path(__file__).parents[2] / "expectations"
HOUR_MS = 3_600_000
STATIONS = ("EWR", "JFK", "LGA")
SCHEMA = pa.schema(
    [
        ("window_id", pa.int64()),
        ("attempt", pa.int64()),
        ("origin", pa.string()),
        ("flights", pa.int64()),
        ("is_timer", pa.bool_()),
    ]
)
QUARANTINE_SCHEMA = pa.schema(
    [("window_id", pa.int64()), ("source", pa.string()), ("reason", pa.string())]
)

MADE_AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class StagedReplay:
    """A faultless replay of an application with one input and one output, to be changed before it
    is written.

    Every window has six tuples in and a row for each station with two flights out, all by attempt
    1.
    """

    folder: Path
    replay_id: str = "made-100-119"
    mode: str = "exactly_once"
    windows: WindowRange = field(default_factory=lambda: WindowRange(100, 119))
    suite: str | None = None
    stateful: bool = False
    key: list[str] = field(default_factory=lambda: ["origin"])
    schema: pa.Schema = SCHEMA
    output: str = "made"
    inputs: list[str] = field(default_factory=lambda: ["flights"])
    start: dict[str, Any] = field(default_factory=lambda: {"source": "none"})
    errors: bool = False
    suite_parameters: dict[str, Any] = field(default_factory=dict)
    reads_outside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows: list[dict[str, Any]] = [
            {"window_id": w, "attempt": 1, "origin": origin, "flights": 2, "is_timer": False}
            for w in self.windows
            for origin in STATIONS
        ]
        self.seals: list[dict[str, Any]] = [
            {"window_id": w, "tuples": 6, "stream": s} for w in self.windows for s in self.inputs
        ]
        self.facts: list[dict[str, Any]] = []
        for w in self.windows:
            self.facts.append(self.fact(w, "out", self.output, 3))
            self.facts += [self.fact(w, "in", stream, 6) for stream in self.inputs]
        self.quarantine: list[dict[str, Any]] = []
        self.checkpoints: list[tuple[int, int]] = []
        """Mark and attempt of each checkpoint; without any there is no table of them, as after a
        purge."""
        self.expectations = self.folder / "expectations"
        if not self.expectations.exists():
            shutil.copytree(PROJECT, self.expectations)

    @staticmethod
    def fact(
        window: int,
        direction: str,
        port: str,
        tuples: int,
        attempt: int = 1,
        lost: bool = False,
    ) -> dict[str, Any]:
        made = {
            "window_id": window,
            "direction": direction,
            "port": port,
            "tuples": tuples,
            "attempt": attempt,
            "lost": lost,
            "group_first": window,
            "group_last": window,
            "began_at": MADE_AT,
            "ended_at": MADE_AT,
        }
        return {name: made.get(name) for name in FACTS_SCHEMA.names}

    def add_suite(self, name: str, *expectations: dict[str, Any], **meta: Any) -> None:
        """Writes a suite of the test's own and makes it the output's."""
        self.suite = name
        suite = {"name": name, "expectations": list(expectations), "meta": meta}
        (self.expectations / "suites" / f"{name}.json").write_text(canonical(suite))

    @property
    def config(self) -> Config:
        return Config(state=self.folder / "state", expectations=self.expectations)

    @property
    def plan(self) -> Plan:
        columns = [(entry.name, str(entry.type)) for entry in self.schema][2:]
        output = {
            "name": self.output,
            "operator": "made",
            "port": "out",
            "reads_outside": self.reads_outside,
            "key": self.key,
            "suite": self.suite,
            "columns": columns,
            "stateful": self.stateful,
            "guarantee": "",
            "errors": self.errors,
            "suite_parameters": self.suite_parameters,
        }
        inputs = [
            {
                "stream": s,
                "path": str(self.config.stream_table(s)),
                "version": 0,
                "windows_version": 0,
                "tuples": 0,
                "bytes": 0,
            }
            for s in self.inputs
        ]
        return Plan.model_validate(
            {
                "replay_id": self.replay_id,
                "application": "testing",
                "code_version": "1",
                "configuration_digest": "1",
                "first": self.windows.first,
                "last": self.windows.last,
                "width_ms": HOUR_MS,
                "origin_ms": 0,
                "mode": self.mode,
                "checkpoint_windows": 5,
                "inputs": inputs,
                "outputs": [output],
                "errors": [
                    {**output, "name": "made.rejected", "key": [], "suite": None, "errors": True}
                ],
                "start": self.start,
            }
        )

    def write(self) -> StagedReplay:
        config = self.config
        root = config.replay_root(self.replay_id)
        rows = pa.Table.from_pylist(self.rows, schema=self.schema)
        table = create_table(
            root / self.output,
            self.schema,
            {"rewindow.bookkeeping": "window_id,attempt"},
        )
        folder = root / self.output / "group-1"
        folder.make_folder()
        pq.write_table(rows, (folder / "rows.parquet").uri)
        table.commit_files(with_file_checksums(data_files(folder)), app_id="test", version=1)
        facts = pa.Table.from_pylist(self.facts, schema=FACTS_SCHEMA)
        write_deltalake(str(root / "facts"), facts)
        Table.open(root / "facts").set_properties(format_property(TableKind.FACTS))
        if self.checkpoints:
            saved = [{"mark": mark, "attempt": attempt} for mark, attempt in self.checkpoints]
            write_deltalake(str(root / "checkpoints"), pa.Table.from_pylist(saved))
            Table.open(root / "checkpoints").set_properties(format_property(TableKind.CHECKPOINTS))
        for stream in self.inputs:
            rows = [row for row in self.seals if row["stream"] == stream]
            seals = config.windows_table(stream)
            if not seals.exists():
                write_deltalake(
                    str(seals),
                    with_checksums(pa.Table.from_pylist(rows, schema=WINDOWS_SCHEMA)),
                )
        if self.quarantine:
            write_deltalake(
                str(config.quarantine_table),
                pa.Table.from_pylist(self.quarantine, schema=QUARANTINE_SCHEMA),
            )
        return self


def expectation(slug: str, type_: str, severity: str = "critical", **kwargs: Any) -> dict[str, Any]:
    meta = {"check": slug, **kwargs.pop("meta", {})}
    return {
        "type": type_,
        "kwargs": kwargs,
        "meta": meta,
        "description": f"{slug} holds.",
        "severity": severity,
    }


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def ended(staged: StagedReplay) -> Ledger:
    staged.write()
    ledger = Ledger.open(staged.config.ledger_url)
    ledger.replays.create(**ledger_row(staged))
    epoch = ledger.attempts.next_epoch(staged.replay_id)
    ledger.attempts.begin(
        staged.replay_id,
        epoch,
        host="here",
        pid=1,
        process_group=1,
        process_identity="boot/0",
    )
    ledger.attempts.end(staged.replay_id, epoch, AttemptEnd.DONE)
    return ledger


def ledger_row(staged: StagedReplay) -> dict[str, object]:
    plan = staged.plan
    return {
        "replay_id": plan.replay_id,
        "application": plan.application,
        "first": plan.first,
        "last": plan.last,
        "mode": plan.mode.name,
        "plan": plan.model_dump(mode="json"),
        "code_version": plan.code_version,
    }
