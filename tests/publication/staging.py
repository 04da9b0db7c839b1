"""Replays made by hand, as the engine would leave them: staged outputs, facts, checkpoints, and a
row in the ledger.

The engine's own replays are used where real processes are tested; here every table says exactly
what a test wants.
"""

from __future__ import annotations

import atexit
import copy
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from rewindow.application import Mode
from rewindow.facts.arrow_digests import arrow_digests
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.location import Location
from rewindow.planning.creation import create_staging
from rewindow.publication.prepare import prepare_tables
from rewindow.recovery import OutputPlan, Plan, StartState, guarantee
from rewindow.settings.config import Config
from rewindow.spark.digests import empty_digests
from rewindow.spark.frames import spark_schema
from rewindow.state import checkpoints as stored
from rewindow.storage import Position, Table, data_files, staged_replay
from rewindow.storage.checksums import with_checksums
from rewindow.storage.layout import CHECKPOINTS, FACTS, FACTS_SCHEMA, app_id, staged_contents
from rewindow.windows import to_datetime

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
DELAYS = pa.schema(
    [("origin", pa.string()), ("flights", pa.int64()), ("delay", pa.decimal128(12, 2))]
)
RANKS = pa.schema([("carrier", pa.string()), ("minutes", pa.int64()), ("share", pa.float64())])
OUTPUTS = {"delays": DELAYS, "ranks": RANKS}
KEYS = {"delays": ["origin"], "ranks": ["carrier"]}
STATEFUL = {"delays": False, "ranks": True}
HOUR_MS = 3_600_000

Row = dict[str, Any]
Digests = Callable[[str, pa.Schema, list[Row]], tuple[str, str | None]]


def python_digests(output: str, schema: pa.Schema, rows: list[Row]) -> tuple[str, str | None]:
    """Returns order-free digests that only these tests understand."""
    doubles = (pa.float64(), pa.list_(pa.float64()))
    floats = [column.name for column in schema if column.type in doubles]
    exact = [column.name for column in schema if column.name not in floats]

    def total(names: list[str]) -> str:
        hashes = (
            hashlib.sha256(repr([row[name] for name in names]).encode()).digest()[:8]
            for row in rows
        )
        return f"{sum(int.from_bytes(part, 'big') for part in hashes) % 2**64:016x}"

    return total(exact), total(floats) if floats else None


@dataclass
class StagedReplay:
    """A replay under construction; every `group` is what one commit group leaves.

    Attributes:
        inputs: streams that it reads, each with the version of its seals.
        ended: the last window of these streams, where they have ended.
        missing: windows that these streams lack.
        linkable: its files can be published as they are; otherwise they do not show of which
            attempt their rows are.
        noted: its files have checksums; the log that has them may be lost.
        outside: outputs whose operator reads systems outside.
    """

    config: Config
    replay_id: str
    first: int
    last: int
    mode: Mode = Mode.EXACTLY_ONCE
    start: StartState = field(default_factory=lambda: StartState(source="initial"))
    start_state: pa.Table | None = None
    application: str = "app"
    code_version: str = "code-1"
    input_version: int = 3
    inputs: tuple[tuple[str, int], ...] = (("flights", 1),)
    ended: int | None = None
    missing: tuple[tuple[int, int], ...] = ()
    parameters: dict[str, str] = field(default_factory=dict)
    digests: Digests = python_digests
    outputs: tuple[str, ...] = tuple(OUTPUTS)
    tolerance: float = 1e-9
    linkable: bool = True
    noted: bool = True
    outside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.root = self.config.replay_root(self.replay_id)
        create_staging(
            self.root,
            {name: OUTPUTS[name] for name in self.outputs},
            self.plan.model_dump_json(),
        )
        self.facts: list[Row] = []
        self.save(
            self.first - 1,
            0,
            self.start_state if self.start_state is not None else state_of(0),
        )

    @property
    def plan(self) -> Plan:
        outputs = [
            OutputPlan(
                name=name,
                operator=f"{name}_operator",
                port="out",
                key=KEYS[name],
                suite=None,
                columns=[(column.name, str(column.type)) for column in schema],
                stateful=STATEFUL[name],
                guarantee=guarantee(self.mode, stateful=STATEFUL[name], lost=5, unseen=5),
                tolerance=self.tolerance,
                reads_outside=[f"{name}_operator"] if name in self.outside else [],
            )
            for name, schema in OUTPUTS.items()
            if name in self.outputs
        ]
        inputs = [
            {
                "stream": stream,
                "path": stream,
                "version": self.input_version,
                "windows_version": version,
                "tuples": 1,
                "bytes": 1,
                "end": self.ended,
                "missing": self.missing,
            }
            for stream, version in self.inputs
        ]
        return Plan(
            replay_id=self.replay_id,
            application=self.application,
            code_version=self.code_version,
            configuration_digest="settings-1",
            first=self.first,
            last=self.last,
            width_ms=HOUR_MS,
            origin_ms=0,
            mode=self.mode,
            checkpoint_windows=5,
            inputs=inputs,
            outputs=outputs,
            start=self.start,
            parameters=self.parameters,
        )

    def group(
        self,
        first: int,
        last: int,
        rows: dict[str, dict[int, list[Row]]],
        epoch: int = 1,
        *,
        seal: bool = True,
        state: pa.Table | None = None,
    ) -> StagedReplay:
        """Commits rows per output and window, seals them, and saves a checkpoint at the group's end
        if given.
        """
        for output in self.outputs:
            by_window = rows.get(output)
            if by_window is None:
                continue
            self.write(output, first, last, by_window, epoch)
            if seal:
                self.seal(
                    output,
                    {window: by_window.get(window, []) for window in range(first, last + 1)},
                    epoch,
                )
        if state is not None:
            self.save(last, epoch, state)
        return self

    def write(
        self,
        output: str,
        first: int,
        last: int,
        by_window: dict[int, list[Row]],
        epoch: int,
    ) -> None:
        """Commits rows of an output without sealing them."""
        flat = [
            {
                "arrived_at": start,
                **row,
                "window_id": window,
                "attempt": epoch,
                "offset": (window << 33) + place,
            }
            for window, rows in by_window.items()
            if first <= window <= last
            for start in [to_datetime(self.plan.grid.start_us(window))]
            for place, row in enumerate(rows)
        ]
        frame = pa.Table.from_pylist(flat, schema=Table.open(self.root / output).schema)
        if not self.noted:
            self._commit(output, frame, epoch, last)
            return
        table = Table.open(self.root / output)
        folder = self.root / output / f"group-{uuid4().hex}"
        folder.make_folder()
        counted = [name for name in frame.column_names if self.linkable or name != "attempt"]
        pq.write_table(frame, (folder / "rows.parquet").uri, write_statistics=counted)
        version = Position(epoch, max(0, self.plan.mark_of(last))).version
        files = with_checksums(data_files(folder))
        table.commit_files(files, app_id=app_id(self.replay_id, output), version=version)

    def seal(self, output: str, by_window: dict[int, list[Row]], epoch: int) -> None:
        for window, rows in by_window.items():
            digest, float_digest = self.digests(output, OUTPUTS[output], rows)
            self._fact(window, "out", output, len(rows), digest, float_digest, epoch, lost=False)
            self.facts[-1]["rows"] = rows

    def lose(self, first: int, last: int, outputs: Iterable[str], epoch: int) -> None:
        for window in range(first, last + 1):
            for output in outputs:
                self._fact(window, "out", output, 0, None, None, epoch, lost=True)

    def save(self, window: int, epoch: int, state: pa.Table) -> None:
        made = stored.Provenance({}, epoch)
        mark = self.plan.mark_of(window)
        rows = stored.encode(window, mark, {"ranks_operator": state}, {"ranks_operator": 1}, made)
        self._commit(CHECKPOINTS, rows, epoch, window)

    def digest(self) -> StagedReplay:
        """Gives the seals the digests that the engine would take."""
        for fact in self.facts:
            if not fact["lost"]:
                fact["digest"], fact["float_digest"] = engine_digests(
                    fact["port"],
                    OUTPUTS[fact["port"]],
                    fact["rows"],
                )
        return self

    def end(self, *, epoch: int = 1, checked: bool = True, ledger: bool = True) -> StagedReplay:
        """Commits the facts, ends the replay and enters it in the ledger."""
        self._commit(FACTS, pa.Table.from_pylist(self.facts, schema=FACTS_SCHEMA), epoch, self.last)
        if ledger:
            self.enter(checked)
        return self

    def enter(self, checked: bool) -> None:
        book = Ledger.open(self.config.ledger_url)
        plan = self.plan
        book.replays.create(
            plan.replay_id,
            plan.application,
            plan.first,
            plan.last,
            plan.mode.name,
            plan.model_dump(mode="json"),
            plan.code_version,
        )
        epoch = book.attempts.next_epoch(plan.replay_id)
        book.attempts.begin(
            plan.replay_id,
            epoch,
            host="test",
            pid=0,
            process_group=0,
            process_identity="boot/0",
        )
        book.attempts.end(plan.replay_id, epoch, AttemptEnd.DONE, "")
        if checked:
            book.checks.record(plan.replay_id, "passed", tables=staged_contents(self.root))

    def _fact(
        self,
        window: int,
        direction: str,
        port: str,
        tuples: int,
        digest: str | None,
        float_digest: str | None,
        epoch: int,
        *,
        lost: bool,
    ) -> None:
        self.facts.append(
            {
                "window_id": window,
                "direction": direction,
                "port": port,
                "tuples": tuples,
                "digest": digest,
                "float_digest": float_digest,
                "attempt": epoch,
                "lost": lost,
                "group_first": window,
                "group_last": window,
                "began_at": BEGAN,
                "ended_at": BEGAN,
            }
        )

    def _commit(self, name: str, frame: pa.Table, epoch: int, window: int) -> None:
        version = Position(epoch, max(0, self.plan.mark_of(window))).version
        Table.open(self.root / name).commit_arrow(
            frame,
            app_id=app_id(self.replay_id, name),
            version=version,
        )


def engine_digests(output: str, schema: pa.Schema, rows: list[Row]) -> tuple[str, str | None]:
    if not rows:
        return empty_digests(spark_schema(schema))
    frame = pa.Table.from_pylist(
        [{**row, "window_id": 0} for row in rows],
        pa.schema([("window_id", pa.int64()), *schema]),
    )
    (found,) = arrow_digests(frame, schema).to_pylist()
    return found["digest"], found["float_digest"]


def state_of(total: int) -> pa.Table:
    """Returns a state frame that a total tells apart."""
    return pa.table({"carrier": ["AA", "UA"], "minutes": pa.array([total, total + 1], pa.int64())})


def rows_of(windows: Iterable[int], plus: int = 0) -> dict[str, dict[int, list[Row]]]:
    """Returns plausible rows of both outputs; every fourth window of `delays` is empty."""
    from decimal import Decimal

    listed = list(windows)
    return {
        "delays": {
            w: []
            if w % 4 == 0
            else [
                {"origin": o, "flights": w + n + plus, "delay": Decimal(w) / 4}
                for n, o in enumerate(("EWR", "JFK"))
            ]
            for w in listed
        },
        "ranks": {
            w: [
                {"carrier": c, "minutes": w * 10 + n + plus, "share": (w + n) / 7}
                for n, c in enumerate(("AA", "UA"))
            ]
            for w in listed
        },
    }


def simple(
    config: Config,
    replay_id: str,
    first: int,
    last: int,
    plus: int = 0,
    **fields: Any,
) -> StagedReplay:
    """Returns an ended, checked replay of one group. One that was staged before is copied: writing
    its tables takes longer than most tests.
    """
    checked = fields.pop("checked", True)
    ledger = fields.pop("ledger", True)
    publishable = fields.pop("publishable", False)
    root = config.replay_root(replay_id)
    key = repr((replay_id, first, last, plus, publishable, fields))
    if root.exists() or key not in _staged:
        replay = StagedReplay(config, replay_id, first, last, **fields)
        replay.group(
            first, last, rows_of(range(first, last + 1), plus), state=state_of(last + plus)
        )
        if publishable:
            replay.digest()
        replay.end(ledger=False)
        _staged[key] = replay, _kept(root)
    else:
        made, tables = _staged[key]
        shutil.copytree(tables, root)
        replay = copy.copy(made)
        replay.config, replay.root = config, root
        replay.facts = [dict(fact) for fact in made.facts]
    if ledger:
        replay.enter(checked)
    return replay


_staged: dict[str, tuple[StagedReplay, Path]] = {}


def _kept(root: Path) -> Path:
    """Returns a copy of a replay's tables that lasts as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="rewindow-staged-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(shutil.copytree(root, folder / "tables"))


def lose_last_commit(path: Location) -> None:
    """Deletes the newest entry of a table's log, as a disk that forgets its last writes would."""
    (path / "_delta_log" / f"{Table.open(path).version:020}.json").delete()


def stage_lossy(config: Config, name: str, *, checked: bool = True) -> None:
    """Stages a replay that has lost windows 105 and 106, so that 107 to 109 are affected."""
    replay = StagedReplay(config, name, 100, 109, mode=Mode.AT_MOST_ONCE, outputs=("ranks",))
    replay.group(100, 104, rows_of(range(100, 105)), 1, state=state_of(1))
    replay.lose(105, 106, ["ranks"], 2)
    replay.group(107, 109, rows_of(range(107, 110)), 2, state=state_of(2))
    replay.digest().end(epoch=2, checked=checked)


def lossy_and_full(config: Config) -> None:
    """Stages FULL, and LOSSY, which lacks three rows of ranks and the windows 118 and 119 of
    delays.
    """
    rows = rows_of(range(100, 120))
    simple(config, "FULL", 100, 119)
    lossy = StagedReplay(config, "LOSSY", 100, 119)
    ranks = {
        window: rows["ranks"][window][1:] if window < 103 else rows["ranks"][window]
        for window in rows["ranks"]
    }
    lossy.group(100, 119, {"ranks": ranks}, state=state_of(0))
    lossy.group(100, 117, {"delays": rows["delays"]})
    lossy.end(ledger=False)


def prepared(config: Config, plan: Plan) -> dict[str, int]:
    """Prepares the published tables of a staged replay; returns their versions."""
    return prepare_tables(
        config, staged_replay.StagedReplay(plan, config.replay_root(plan.replay_id))
    )
