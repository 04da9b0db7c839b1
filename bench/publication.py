"""Publishing and undoing: the whole command, by files and by rows, and what grows with files or
with windows.

    python -m bench.publication [RUNS]
    python -m bench.publication daily [DAYS]
    python -m bench.publication joined [GROUPS]

A replay is staged as the engine leaves it, without Spark, in so many files; the command is a
separate process. The last case has files that do not show of which attempt their rows are, so that
their rows are written again. Publish replaces a range that is published already, so that files are
removed too; the undo puts it back. Seconds are the best of the runs. `daily` publishes a day after
the other into one table, and reads it beside one that was written at once. `joined` publishes a
replay of so many groups whose small files stay apart, and the same with its files joined.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rewindow.application import Mode
from rewindow.engine.joining import FILE_BYTES, join_files
from rewindow.facts.arrow_digests import arrow_digests
from rewindow.ledger import AttemptEnd, Ledger
from rewindow.location import Location
from rewindow.planning.creation import create_staging
from rewindow.publication.publish import publish
from rewindow.recovery import OutputPlan, Plan, StartState, guarantee
from rewindow.settings.config import Config
from rewindow.state import checkpoints
from rewindow.storage import Position, Table, data_files, fence, query
from rewindow.storage.checksums import with_checksums
from rewindow.storage.layout import CHECKPOINTS, FACTS, FACTS_SCHEMA, app_id, staged_contents

FIRST = 400_000
OUTPUT = "copied"
EVENTS = pa.schema([("key", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
_DAY_TUPLES = 24 * 1_000
CASES = (  # name, windows, tuples, files, whether files are linked
    ("1 M rows in 1,000 windows, 50 files", 1_000, 1_000_000, 50, True),
    ("1 M rows in 1,000 windows, 1,000 files", 1_000, 1_000_000, 1_000, True),
    ("10 M rows in 1,000 windows, 50 files", 1_000, 10_000_000, 50, True),
    ("20 M rows in 1,000 windows, 1,000 files", 1_000, 20_000_000, 1_000, True),
    ("1 M windows of a tuple each, 100 files", 1_000_000, 1_000_000, 100, True),
    ("1 M rows in 1,000 windows, rows written anew", 1_000, 1_000_000, 50, False),
)


def main(runs: int) -> None:
    """Prints a line a case: seconds of publish and of undo, beside what Python takes to start."""
    floor = min(_seconds(None, ["-c", "import rewindow.publication.actions"]) for _ in range(runs))
    print(f"{'':46}{'publish s':>10}{'undo s':>10}   (Python and its libraries: {floor:.1f} s)")
    for name, windows, tuples, files, linked in CASES:
        with tempfile.TemporaryDirectory() as folder:
            config = _project(Path(folder))
            stage(config, "below", windows, tuples, files, linked)
            _seconds(config, ["publish", "below"])
            stage(config, "above", windows, tuples, files, linked)
            found = [
                [_seconds(config, [verb, "above"]) for verb in ("publish", "undo")]
                for _ in range(runs)
            ]
            published, undone = (min(seconds) for seconds in zip(*found, strict=True))
            print(f"{name:46}{published:10.2f}{undone:10.2f}", flush=True)


def daily(days: int) -> None:
    """Prints what a table of daily publications costs: its files, reading it and a day of it, the
    last publications.
    """
    with tempfile.TemporaryDirectory() as folder:
        every = _project(Path(folder) / "every")
        once = _project(Path(folder) / "once")
        seconds = []
        for day in range(days):
            stage(every, f"day{day}", 24, _DAY_TUPLES, 1, True, first=FIRST + 24 * day)
            began = time.monotonic()
            publish(every, f"day{day}")
            seconds.append(time.monotonic() - began)
        stage(once, "all", 24 * days, _DAY_TUPLES * days, 1, True)
        publish(once, "all")
        of_a_day = f"window_id between {FIRST + 240} and {FIRST + 263}"
        print(f"{'':24}{'files':>8}{'all rows s':>12}{'a day s':>10}")
        for name, config in (("published by the day", every), ("written at once", once)):
            path = config.stream_table(f"copy.{OUTPUT}")
            found = [
                _best(f"select count(*), sum(value) from t where {where}", path)
                for where in ("true", of_a_day)
            ]
            print(
                f"{name:24}{len(Table.open(path).files()):8}{found[0]:12.3f}{found[1]:10.3f}",
                flush=True,
            )
        print(
            f"publish: first {min(seconds[:5]):.2f} s, last {min(seconds[-5:]):.2f} s, longest "
            f"{max(seconds):.2f} s"
        )


def joined(groups: int) -> None:
    """Prints what joining costs at the end of a replay of a million rows, and what it saves
    afterwards.
    """
    with tempfile.TemporaryDirectory() as folder:
        print(
            f"{'':16}{'files':>8}{'joining s':>12}{'publish s':>12}{'undo s':>10}{'all rows s':>12}"
        )
        for name in ("files apart", "files joined"):
            config = _project(Path(folder) / name.replace(" ", "-"))
            stage(config, "one", groups, 1_000_000, groups, True)
            root = config.replay_root("one")
            seconds = 0.0
            if name == "files joined":
                fenced = fence(root / OUTPUT, app_id("one", OUTPUT), 2)
                began = time.monotonic()
                join_files(fenced, f"2-{groups}", FILE_BYTES)
                seconds = time.monotonic() - began
                Ledger.open(config.ledger_url).checks.record(
                    "one",
                    "passed",
                    tables=staged_contents(root),
                )
            files = len(Table.open(root / OUTPUT).files())
            published = _seconds(config, ["publish", "one"])
            rows = _best(
                "select count(*), sum(value) from t",
                config.stream_table(f"copy.{OUTPUT}"),
            )
            undone = _seconds(config, ["undo", "one"])
            print(
                f"{name:16}{files:8}{seconds:12.2f}{published:12.2f}{undone:10.2f}{rows:12.3f}",
                flush=True,
            )


def _best(sql: str, path: Location) -> float:
    """Returns the least seconds of a query, the opening of the table included."""
    found = []
    for _ in range(5):
        began = time.monotonic()
        query(sql, t=Table.open(path))
        found.append(time.monotonic() - began)
    return min(found)


def stage(
    config: Config,
    name: str,
    windows: int,
    tuples: int,
    files: int,
    linked: bool,
    *,
    first: int = FIRST,
) -> None:
    """Stages an ended and checked replay of one output."""
    last = first + windows - 1
    plan = _plan(name, first, last)
    root = config.replay_root(name)
    create_staging(root, {OUTPUT: EVENTS}, plan.model_dump_json())
    facts = []
    for group in np.array_split(np.arange(first, last + 1), files):
        rows = _rows(group, tuples // windows)
        mark = Position(1, plan.mark_of(int(group[-1]))).version
        table = Table.open(root / OUTPUT)
        _commit(table, rows.select(table.schema.names), app_id(name, OUTPUT), mark, linked=linked)
        facts.append(_facts(arrow_digests(rows, EVENTS), group))
    every = pa.concat_tables(facts)
    version = Position(1, windows).version
    Table.open(root / FACTS).commit_arrow(every, app_id=app_id(name, FACTS), version=version)
    for window, mark in ((first - 1, 0), (last, windows)):
        state = checkpoints.encode(
            window,
            mark,
            {},
            {},
            checkpoints.Provenance({}, 1),
        )
        saved = Position(1, mark).version
        Table.open(root / CHECKPOINTS).commit_arrow(
            state,
            app_id=app_id(name, CHECKPOINTS),
            version=saved,
        )
    _enter(config, plan)


def _commit(table: Table, rows: pa.Table, app: str, mark: int, *, linked: bool) -> None:
    """Commits rows as a file, as the engine does, with its checksum."""
    folder = table.path / f"group-{mark}"
    folder.make_folder()
    counted = [name for name in rows.column_names if linked or name != "attempt"]
    pq.write_table(rows, (folder / "rows.parquet").uri, write_statistics=counted)
    table.commit_files(with_checksums(data_files(folder)), app_id=app, version=mark)


def _rows(group: np.ndarray, each: int) -> pa.Table:
    ids = np.repeat(group, each)
    keys = np.arange(len(ids))
    return pa.table(
        {
            "window_id": ids,
            "attempt": np.ones_like(ids),
            "offset": keys,
            "arrived_at": pa.array(ids * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            "key": keys,
            "name": pa.array(keys % 1000).cast(pa.string()),
            "value": keys / 7,
        }
    )


def _facts(digests: pa.Table, group: np.ndarray) -> pa.Table:
    at = pa.scalar(0, pa.timestamp("us", tz="UTC"))
    count = digests.num_rows
    values = {
        **{name: digests[name] for name in digests.column_names},
        "direction": pa.repeat("out", count),
        "port": pa.repeat(OUTPUT, count),
        "attempt": pa.repeat(1, count),
        "lost": pa.repeat(False, count),
        "group_first": pa.repeat(int(group[0]), count),
        "group_last": pa.repeat(int(group[-1]), count),
        "began_at": pa.repeat(at, count),
        "ended_at": pa.repeat(at, count),
    }
    columns = {
        field.name: values.get(field.name, pa.nulls(count, field.type)) for field in FACTS_SCHEMA
    }
    return pa.table(columns, schema=FACTS_SCHEMA)


def _plan(name: str, first: int, last: int) -> Plan:
    output = OutputPlan(
        name=OUTPUT,
        operator=OUTPUT,
        port="out",
        key=["key"],
        suite=None,
        stateful=False,
        tolerance=0.0,
        columns=[(column.name, str(column.type)) for column in EVENTS],
        guarantee=guarantee(Mode.EXACTLY_ONCE, stateful=False, lost=0, unseen=0),
    )
    return Plan(
        replay_id=name,
        application="copy",
        code_version="code",
        configuration_digest="settings",
        first=first,
        last=last,
        width_ms=1000,
        origin_ms=0,
        mode=Mode.EXACTLY_ONCE,
        checkpoint_windows=1_000_000,
        inputs=[],
        outputs=[output],
        start=StartState(source="initial"),
    )


def _enter(config: Config, plan: Plan) -> None:
    ledger = Ledger.open(config.ledger_url)
    name = plan.replay_id
    ledger.replays.create(
        name,
        plan.application,
        plan.first,
        plan.last,
        plan.mode.name,
        plan.model_dump(mode="json"),
        plan.code_version,
    )
    epoch = ledger.attempts.next_epoch(name)
    ledger.attempts.begin(
        name,
        epoch,
        host="bench",
        pid=0,
        process_group=0,
        process_identity="bench/0",
    )
    ledger.attempts.end(name, epoch, AttemptEnd.DONE, "")
    ledger.checks.record(name, "passed", tables=staged_contents(config.replay_root(name)))


def _project(folder: Path) -> Config:
    folder.mkdir(exist_ok=True)
    (folder / "rewindow.toml").write_text('state = "state"\n')
    return Config.load(folder / "rewindow.toml")


def _seconds(config: Config | None, arguments: list[str]) -> float:
    command = [sys.executable, *(["-m", "rewindow.cli"] if config else []), *arguments]
    environment = {**os.environ, **({"REWINDOW_CONFIG": str(config.file)} if config else {})}
    began = time.monotonic()
    subprocess.run(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - began


if __name__ == "__main__":
    if sys.argv[1:2] == ["daily"]:
        daily(int(sys.argv[2]) if len(sys.argv) > 2 else 365)
    elif sys.argv[1:2] == ["joined"]:
        joined(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
