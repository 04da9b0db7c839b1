"""A project in a temporary folder: a recorded stream, the totals application, and real attempts of
its replays.
"""

from __future__ import annotations

import atexit
import functools
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from rewindow.facts.seals import columns_text, seal_rows
from rewindow.launcher import Outcome, begin_attempt, run
from rewindow.planning import ReplayRequest, create_replay
from rewindow.recovery import Plan
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.files import note_files
from rewindow.storage.streams import create_stream
from tests.small_frames import small_frames_toml

ROOT = Path(__file__).parents[2]
FIRST = 1000
WINDOWS = 24
GROUP = 3
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", tz="UTC")
STREAM = pa.schema(
    [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", _TIME),
        ("key", pa.string()),
        ("x", pa.int64()),
    ]
)


@dataclass
class Project:
    """Settings, the attempts that were run, and what they printed."""

    config: Config
    lines: list[str] = field(default_factory=list)

    def plan(self, replay_id: str, mode: str, **replay_options: object) -> Plan:
        """Plans a replay of the whole stream in fixed groups."""
        return self.plan_of("totals", replay_id, mode, **replay_options)

    def plan_of(
        self,
        application: str,
        replay_id: str,
        mode: str,
        **replay_options: object,
    ) -> Plan:
        """Plans a replay of another application."""
        replay_options = {"group_windows": GROUP, **replay_options}
        return create_replay(
            self.config,
            ReplayRequest(application, mode=mode, replay_id=replay_id, **replay_options),
        )  # type: ignore[arg-type]

    def attempt(
        self,
        replay_id: str,
        crash: str = "",
        on_line: Callable[[str], None] | None = None,
    ) -> Outcome:
        """Runs one real attempt through spark-submit."""
        submission = begin_attempt(self.config, replay_id, crash or None, again=True)
        assert submission is not None, f"{replay_id} has ended"

        def keep(line: str) -> None:
            self.lines.append(line)
            if on_line:
                on_line(line)

        return run(submission, keep)

    def attempts(self, replay_id: str, crashes: list[str]) -> list[Outcome]:
        """Runs attempts: each dies at its crash point ("step:group"), the last one ends."""
        places = ",".join(f"{crash}@{number}" for number, crash in enumerate(crashes, 1))
        outcomes = [self.attempt(replay_id, places) for _ in range(len(crashes) + 1)]
        last = "\n".join(self.lines[-15:])
        assert [outcome.exit_code for outcome in outcomes[:-1]] == [-9] * len(crashes), (
            f"an attempt survived:\n{last}"
        )
        assert outcomes[-1].exit_code == 0, f"{outcomes[-1].message}\n{last}"
        return outcomes


def make_project(folder: Path) -> Project:
    """Returns a project with a recorded stream of random tuples, three keys, and windows without
    any.
    """
    settings = f'state = "state"\napplications = ["{Path(__file__).parent / "applications"}"]\n'
    settings += f'[spark]\njars = "{ROOT / ".rewindow" / "jars"}"\ndriver_memory = "1g"\n'
    settings += small_frames_toml()
    (folder / "rewindow.toml").write_text(settings)
    config = Config.load(folder / "rewindow.toml")
    shutil.copytree(_recorded_state(), config.state, dirs_exist_ok=True)
    return Project(config)


@functools.cache
def _recorded_state() -> Path:
    """Returns a state folder with the stream in it, recorded once for all projects of this
    process.
    """
    folder = Path(tempfile.mkdtemp(prefix="rewindow-recorded-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _record(Config(state=folder), random.Random(7))
    return folder


def _record(config: Config, rng: random.Random) -> None:
    rows: list[tuple] = []
    seals: dict[int, int] = {}
    for window in range(FIRST, FIRST + WINDOWS):
        count = 0 if window % 5 == 0 else rng.randint(1, 9)
        begin = EPOCH + timedelta(hours=window)
        for offset in range(count):
            rows.append(
                (
                    window,
                    offset,
                    begin + timedelta(seconds=offset),
                    rng.choice("abc"),
                    rng.randint(-5, 9),
                )
            )
        seals[window] = count
    make_stream(config, "events", _arrow(rows, STREAM), seals, width_ms=3_600_000)


def record_clicks(config: Config, times: list[tuple[int, int]]) -> None:
    """Records the stream `clicks` of one key, ten windows of a minute, from arrivals and event
    times in seconds.
    """
    clicks = pa.schema(
        [
            ("window_id", pa.int64()),
            ("offset", pa.int64()),
            ("arrived_at", _TIME),
            ("key", pa.string()),
            ("at", _TIME),
        ]
    )
    rows = []
    counts = dict.fromkeys(range(10), 0)
    for arrived_s, at_s in times:
        window = arrived_s // 60
        arrived_at, at = (EPOCH + timedelta(seconds=seconds) for seconds in (arrived_s, at_s))
        rows.append((window, counts[window], arrived_at, "a", at))
        counts[window] += 1
    make_stream(config, "clicks", _arrow(rows, clicks), counts, width_ms=60_000)


def make_stream(
    config: Config,
    name: str,
    rows: pa.Table,
    sealed: dict[int, int],
    width_ms: int,
) -> None:
    """Makes a recorded stream of some tuples, in one file, and of sealed windows with their numbers
    of tuples.
    """
    create_stream(config.stream_table(name), rows.schema, {"width_ms": width_ms, "origin_ms": 0})
    data = Table.open(config.stream_table(name))
    data.commit_arrow(rows, app_id="record", version=1)
    note_files(data, Table.open(config.files_table(name)))
    seals = seals_of(config, name, sealed)
    Table.open(config.windows_table(name)).commit_arrow(seals, app_id="record", version=1)


def seals_of(config: Config, name: str, sealed: dict[int, int]) -> pa.Table:
    data = Table.open(config.stream_table(name))
    found = pa.table({
        "window_id": pa.array(sealed, pa.int64()), "tuples": pa.array(sealed.values(), pa.int64()),
        "digest": [""] * len(sealed), "float_digest": pa.nulls(len(sealed), pa.string()),
    })  # fmt: skip
    return seal_rows(found, data, columns_text(data.schema), sealed_at=EPOCH)


def _arrow(rows: list[tuple], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows],
        schema=schema,
    )
