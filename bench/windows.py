"""A replay of a million windows, a tuple each: what every command of its life takes, each in a new
process.

    python -m bench.windows [WINDOWS [RUNS]]

First the commands that show or judge it: stream, replays and ledger are written as the engine would
leave them, in commit groups of 10,000 windows, without Spark. Then the same stream is replayed by
Spark in 10 and in 100 groups, once each, and checked, published and taken back; beside each replay
is the peak of the Python process that drives it.

The floor is what Python takes to import the libraries that every command needs: delta-rs and
pyarrow, SQLAlchemy, pydantic, typer and rich; it is held beside what `import rewindow` alone takes,
which imports none of them. Seconds are the best of the runs, memory is the largest peak of the
process. CPU seconds are compared: they are the fairer of the two on a shared machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from rewindow.facts.seals import columns_text, seal_rows
from rewindow.ledger import AttemptEnd, Ledger, PortCount
from rewindow.ledger.stretches import Direction
from rewindow.planning import ReplayRequest, create_replay
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.state import checkpoints
from rewindow.storage import Position, Table
from rewindow.storage.files import note_files
from rewindow.storage.layout import CHECKPOINTS, FACTS, FACTS_SCHEMA, app_id, staged_contents
from rewindow.storage.streams import create_stream

FIRST = 400_000
GROUP = 10_000
STREAM = "events"
OUTPUT = "copied"
PORTS: tuple[tuple[Direction, str], ...] = (("in", STREAM), ("out", OUTPUT))
REACH_S = 0.3
REACH_MB = 500
ARRIVED_AT = pa.timestamp("us", tz="UTC")
JARS = Path(__file__).parents[1] / ".rewindow" / "jars"
APPLICATION = """
from typing import ClassVar
import pyarrow as pa
from rewindow.application import Application, FrameOperator, InputPort, OutputPort

EVENTS = pa.schema([("key", pa.int64())])

class Copied(FrameOperator):
    inputs: ClassVar = {"events": InputPort(EVENTS)}
    outputs: ClassVar = {"out": OutputPort(EVENTS)}
    def transform(self, inputs, state, windows):
        return inputs["events"].select("window_id", "key")

app = Application("copy", window="1 s")
app.output("copied", app.add("copied", Copied(), events=app.input("events")), key=["key"])
"""
_RUNNER = """
import os, resource, subprocess, sys, time
began = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
if done.returncode:
    sys.exit(done.stderr)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)
"""
"""A process of its own between, since a process inherits the peak of memory of the one that starts
it."""
FLOORS = {
    "import rewindow": ["-c", "import rewindow"],
    "and its libraries": [
        "-c",
        "import rewindow, deltalake, pyarrow.compute, pyarrow.parquet, sqlalchemy, pydantic, "
        "typer, rich.progress",
    ],
}


def main(windows: int, runs: int) -> None:
    """Prints a line a command: wall and CPU seconds, peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        config = make_project(Path(folder), windows)
        print(
            f"{windows:,} windows, groups of {GROUP:,}, written in {time.monotonic() - began:.0f} s"
        )
        print(f"{'':28}{'wall s':>8}{'CPU s':>8}{'MB':>8}")
        floor = 0.0
        for name, arguments in (FLOORS | _commands(windows)).items():
            wall, cpu, peak = _measure(config, arguments, runs)
            floor = cpu if name in FLOORS else floor
            slow = (
                ""
                if name in FLOORS or cpu <= floor + REACH_S
                else f"  {cpu - floor:.1f} s over the floor"
            )
            print(
                f"{name:28}{wall:8.2f}{cpu:8.2f}{peak:8.0f}{slow}"
                f"{'  too much memory' if peak > REACH_MB else ''}"
            )
        print("replayed by Spark")
        for name, arguments in _life(windows).items():
            with _DriverPeak(config) as driver:
                wall, cpu, peak = _run(config, arguments)
            print(
                f"{name:28}{wall:8.2f}{cpu:8.2f}{peak:8.0f}"
                + (f"  driver {driver.mb:.0f} MB" if driver.mb else "")
            )


def make_project(folder: Path, windows: int) -> Config:
    """Returns the settings of a project with a recorded stream, and two ended and checked replays
    of all of it.
    """
    (folder / "applications").mkdir()
    (folder / "applications" / "copy.py").write_text(APPLICATION)
    settings = (
        'applications = ["applications"]\nstate = "state"\n[spark]\njars = '
        f'"{JARS}"\ndriver_memory = "2g"\n'
    )
    (folder / "rewindow.toml").write_text(settings)
    config = Config.load(folder / "rewindow.toml")
    _record(config, windows)
    for name in ("a", "b"):
        _replay(config, create_replay(config, ReplayRequest("copy", replay_id=name)))
    return config


def _commands(windows: int) -> dict[str, list[str]]:
    verbs = {
        "plan": ["plan", "copy"],
        "status": ["status", "b"],
        "why": ["why", "b", str(FIRST + windows // 2)],
        "certify": ["certify", "a", "b"],
        "page": ["status", "b", "--page"],
    }
    return {name: ["-m", "rewindow.cli", *verb] for name, verb in verbs.items()}


def _life(windows: int) -> dict[str, list[str]]:
    """Returns the commands from a replay to the end of its publication, in their order."""
    verbs = {
        f"replay, {groups} groups": [
            "replay",
            "copy",
            "--id",
            f"g{groups}",
            "--group-windows",
            str(windows // groups),
        ]
        for groups in (10, 100)
    }
    verbs |= {
        "check": ["check", "g100"],
        "certify two replays": ["certify", "g10", "g100"],
        "page": ["status", "g100", "--page"],
        "publish": ["publish", "g100", "--accept", "bench"],
        "undo": ["undo", "g100"],
    }
    return {name: ["-m", "rewindow.cli", *verb] for name, verb in verbs.items()}


class _DriverPeak:
    """Looks, while it is entered, for the Python process that drives a replay; `mb` is the peak of
    its memory.
    """

    mb = 0.0

    def __init__(self, config: Config) -> None:
        self._project = str(config.file).encode()

    def __enter__(self) -> Self:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    command = (process / "cmdline").read_bytes().split(b"\0")
                    is_driver = b"python" in command[0] and any(
                        part.endswith(b"jobs/replay.py") for part in command[1:]
                    )
                    if is_driver and self._project in (process / "environ").read_bytes():
                        self.mb = max(self.mb, _peak_mb(process))


def _peak_mb(process: Path) -> float:
    lines = (process / "status").read_text().splitlines()
    return max(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _measure(config: Config, arguments: list[str], runs: int) -> tuple[float, float, float]:
    """Returns the best wall and CPU seconds, and the highest peak of memory in MB, of a command."""
    found = [_run(config, arguments) for _ in range(runs)]
    return min(run[0] for run in found), min(run[1] for run in found), max(run[2] for run in found)


def _run(config: Config, arguments: list[str]) -> tuple[float, float, float]:
    environment = {**os.environ, "REWINDOW_CONFIG": str(config.file)}
    command = [sys.executable, "-c", _RUNNER, sys.executable, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    wall, cpu, peak = map(float, done.stdout.split())
    return wall, cpu, peak


def _record(config: Config, windows: int) -> None:
    """Makes a recorded stream of a tuple a window."""
    ids = np.arange(FIRST, FIRST + windows)
    arrived_at = pa.array(ids * 1_000_000).cast(ARRIVED_AT)
    tuples = pa.table(
        {
            "window_id": ids,
            "offset": np.zeros_like(ids),
            "arrived_at": arrived_at,
            "key": ids % 1000,
        }
    )
    path = config.stream_table(STREAM)
    create_stream(path, tuples.schema, {"width_ms": 1000, "origin_ms": 0})
    table = Table.open(path)
    table.commit_arrow(tuples, app_id="bench", version=1)
    note_files(table, Table.open(config.files_table(STREAM)))
    found = pa.table({"window_id": ids, "tuples": np.ones_like(ids), "digest": _digests(ids)})
    seals = seal_rows(found, table, columns_text(tuples.schema))
    Table.open(config.windows_table(STREAM)).commit_arrow(seals, app_id="bench", version=1)


def _replay(config: Config, plan: Plan) -> None:
    """Fills the tables of a planned replay group after group, and ends it in the ledger."""
    ledger = Ledger.open(config.ledger_url)
    root = config.replay_root(plan.replay_id)
    name = plan.replay_id
    tables = {table: Table.open(root / table) for table in (OUTPUT, FACTS, CHECKPOINTS)}
    epoch = ledger.attempts.next_epoch(name)
    ledger.attempts.begin(name, epoch, "bench", 0, 0, "bench")
    for first in range(plan.first, plan.last + 1, GROUP):
        last = min(first + GROUP - 1, plan.last)
        mark = plan.mark_of(last)
        state = checkpoints.encode(last, mark, {}, {}, checkpoints.Provenance.of(plan, epoch))
        frames = {
            OUTPUT: _rows(first, last, epoch),
            FACTS: _facts(first, last, epoch),
            CHECKPOINTS: state,
        }
        for table, frame in frames.items():
            tables[table].commit_arrow(
                frame,
                app_id=app_id(name, table),
                version=Position(epoch, mark).version,
            )
        counts = [PortCount(way, port, first, last, last - first + 1) for way, port in PORTS]
        ledger.attempts.report_progress(
            name,
            epoch,
            mark,
            mark,
            {"compute": 1.0, "commit": 0.2},
            counts,
        )
    ledger.attempts.end(name, epoch, AttemptEnd.DONE)
    ledger.checks.record(name, "passed", tables=staged_contents(root))
    ledger.close()


def _rows(first: int, last: int, epoch: int) -> pa.Table:
    ids = np.arange(first, last + 1)
    arrived_at = pa.array(ids * 1_000_000).cast(ARRIVED_AT)
    places = {"offset": np.zeros_like(ids), "arrived_at": arrived_at}
    return pa.table(
        {"window_id": ids, "attempt": np.full_like(ids, epoch), **places, "key": ids % 1000}
    )


def _facts(first: int, last: int, epoch: int) -> pa.Table:
    ids = np.arange(first, last + 1)
    now = pa.scalar(datetime.now(UTC), FACTS_SCHEMA.field("began_at").type)
    columns = {
        "window_id": ids, "tuples": np.ones_like(ids), "attempt": np.full_like(ids, epoch),
        "lost": np.zeros_like(ids, dtype=bool), "group_first": np.full_like(ids, first),
        "group_last": np.full_like(ids, last),
        "began_at": pa.repeat(now, len(ids)), "ended_at": pa.repeat(now, len(ids)),
        "float_digest": pa.nulls(len(ids), pa.string()),
        "measures": pa.nulls(len(ids), FACTS_SCHEMA.field("measures").type),
    }  # fmt: skip
    ports = [("in", STREAM, pa.nulls(len(ids), pa.string())), ("out", OUTPUT, _digests(ids))]
    named = [
        {
            **columns,
            "direction": pa.repeat(way, len(ids)),
            "port": pa.repeat(port, len(ids)),
            "digest": digests,
        }
        for way, port, digests in ports
    ]
    return pa.concat_tables(
        pa.table(part).select(FACTS_SCHEMA.names).cast(FACTS_SCHEMA) for part in named
    )


def _digests(ids: np.typing.NDArray[np.int64]) -> pa.Array:
    """Returns a text as long as a digest for each window."""
    return pa.array([f"{window * 0x9E3779B97F4A7C15 % 2**128:032x}" for window in ids.tolist()])


if __name__ == "__main__":
    main(
        *(
            int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000,
            int(sys.argv[2]) if len(sys.argv) > 2 else 3,
        )
    )
