"""Repairs that are run: as far as must be, once, and on from where they were killed."""

from __future__ import annotations

import os
import socket
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rewindow.certificate import certify
from rewindow.launcher import loop
from rewindow.launcher.verbs import publish, record, replay
from rewindow.ledger import Ledger
from rewindow.processes.identity import pid_place, process_identity
from rewindow.quality import check
from rewindow.repairs.find import find_repairs
from rewindow.repairs.run import Repaired, interrupted, repair
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.files import note_files
from rewindow.windows import WindowRange
from tests.recovery.here import jobs_here
from tests.recovery.project import FIRST as FIRST_EVENT
from tests.recovery.project import ROOT, WINDOWS, make_project, make_stream, seals_of
from tests.repairs.test_find import (
    EVENTS,
    FIRST,
    LAST,
    STATELESS,
    published,
    seal_again,
    seals_version,
)
from tests.small_frames import small_frames_toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_replay_of_a_killed_repair_is_resumed(tmp_path: Path) -> None:
    # Not while its process lives, nor for other reasons or inputs.
    config = Config(state=tmp_path)
    make_stream(
        config,
        "flights",
        EVENTS.empty_table(),
        dict.fromkeys(range(FIRST, LAST + 1), 0),
        width_ms=3_600_000,
    )
    published(config, "one", outputs=STATELESS)
    seal_again(config, 105)
    (step,) = find_repairs(config).steps
    book = Ledger.open(config.ledger_url)
    plan = book.replays.get("one").plan
    inputs = [{**entry, "windows_version": seals_version(config)} for entry in plan["inputs"]]
    mine = {**plan, "first": 105, "last": 105, "reason": step.reasons[0], "inputs": inputs}

    with subprocess.Popen(["true"], start_new_session=True) as ended:
        gone = ended.pid

    def left(replay_id: str, pid: int, **other: Any) -> str:
        """Enters a running replay, and returns what is gone on with."""
        entered = {**mine, "replay_id": replay_id, **other}
        book.replays.create(
            replay_id,
            "app",
            entered["first"],
            entered["last"],
            "EXACTLY_ONCE",
            entered,
            "code-1",
        )
        book.attempts.begin(
            replay_id,
            book.attempts.next_epoch(replay_id),
            host=socket.gethostname(),
            pid=pid,
            process_group=pid,
            process_identity=process_identity(pid) or f"{pid_place()}/1",
        )
        return interrupted(config, step)

    assert interrupted(config, step) == ""
    assert left("lives", os.getpid()) == ""
    assert left("other_reason", gone, reason="by hand") == ""
    assert left("other_range", gone, last=106) == ""
    assert left("other_inputs", gone, inputs=plan["inputs"]) == ""
    assert left("mine", gone) == "mine"


def test_replay_killed_before_it_had_a_process_is_resumed_after_the_start_timeout(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = Config(state=tmp_path)
    make_stream(
        config,
        "flights",
        EVENTS.empty_table(),
        dict.fromkeys(range(FIRST, LAST + 1), 0),
        width_ms=3_600_000,
    )
    published(config, "one", outputs=STATELESS)
    seal_again(config, 105)
    (step,) = find_repairs(config).steps
    book = Ledger.open(config.ledger_url)
    plan = book.replays.get("one").plan
    inputs = [{**entry, "windows_version": seals_version(config)} for entry in plan["inputs"]]
    mine = {
        **plan,
        "replay_id": "mine",
        "first": 105,
        "last": 105,
        "reason": step.reasons[0],
        "inputs": inputs,
    }
    book.replays.create("mine", "app", 105, 105, "EXACTLY_ONCE", mine, "code-1")
    assert interrupted(config, step) == "", "it was only planned, and holds nothing"
    book.take_over("mine", ["app.delays"], 105, 105)
    assert interrupted(config, step) == ""
    monkeypatch.setattr("rewindow.repairs.run.STARTED_WITHIN", timedelta(0))
    assert interrupted(config, step) == "mine"


@pytest.mark.jvm
@pytest.mark.exhaustive  # in real processes, as the next test in this one
def test_repair_of_a_late_tuple_equals_a_full_computation(tmp_path: Path) -> None:
    config = make_project(tmp_path).config
    replay(config, "totals", replay_id="before")
    check(config, "before")
    publish(config, "before")
    window = add_tuple(config)
    steps = repair(config).steps
    assert (steps[0].application, steps[0].windows.first) == ("totals", window)
    assert repair(config) == Repaired([], [], ())
    replay(config, "totals", replay_id="anew")
    assert certify(config, "anew", "published").equal


@pytest.mark.long
@pytest.mark.parametrize(
    ("application", "catches_up"),
    [("recent", True), ("totals", False)],
    ids=["forgets", "forgets_nothing"],
)
def test_repair_ends_when_the_state_converges_and_equals_a_full_computation(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    application: str,
    catches_up: bool,
) -> None:
    monkeypatch.setattr(loop, "run", jobs_here(spark))
    config = make_project(tmp_path).config
    replay(config, application, replay_id="before", group_windows=3)
    check(config, "before")
    publish(config, "before")
    before = Ledger.open(config.ledger_url).publications.newest()[0].details.states
    window = add_tuple(config)
    last = FIRST_EVENT + WINDOWS - 1
    (proposal,) = find_repairs(config).steps
    known = min(state for state in before if state >= window)
    assert (proposal.windows, proposal.may_follow) == (
        WindowRange(window, known),
        (WindowRange(known + 1, last),),
    )
    steps = repair(config).steps
    expected = (
        [WindowRange(window, known)]
        if catches_up
        else [WindowRange(window, known), WindowRange(known + 1, last)]
    )
    assert [step.windows for step in steps] == expected
    told = (
        "equals the published one: later windows stay as they are"
        if catches_up
        else "differs from the published one"
    )
    described = steps[0].grid.describe(known)
    assert f"{application}: the state after window {described} {told}" in caplog.messages
    assert repair(config) == Repaired([], [], ())
    assert Ledger.open(config.ledger_url).stale.ranges() == []
    replay(config, application, replay_id="anew")
    assert certify(config, "anew", "published").equal


FILLED = """
state = "state"
expectations = "{root}/expectations"
applications = []
[spark]
jars = "{root}/.rewindow/jars"
driver_memory = "1g"
{small_frames}
[streams.weather]
source = "weather.csv"
columns = "origin STRING, at TIMESTAMP, temp DOUBLE"
arrived_at = "at"
event_at = "at"
keys = ["origin"]
interval = "1 hour"
width = "1 hour"
sealed_to = "1970-01-05T00:00:00Z"
[streams.weather.fill.columns]
temp = "linear"
"""


@pytest.mark.long
def test_late_row_replaces_the_filled_row_and_a_second_repair_changes_nothing(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: G42
    monkeypatch.setattr(loop, "run", jobs_here(spark))
    (tmp_path / "rewindow.toml").write_text(
        FILLED.format(root=ROOT, small_frames=small_frames_toml())
    )
    config = Config.load(tmp_path / "rewindow.toml")
    hours = {
        hour: f"JFK,1970-01-0{1 + hour // 24}T{hour % 24:02}:00:00Z,{10 * hour}"
        for hour in range(96)
    }
    rows = [line for hour, line in hours.items() if not 20 <= hour <= 22]
    (tmp_path / "weather.csv").write_text("\n".join(["origin,at,temp", *rows]) + "\n")
    record(config, "weather")
    replay(config, "filled_weather", replay_id="before", group_windows=12)
    check(config, "before")
    publish(config, "before")
    assert around_the_gap(config) == ({19: 190, 23: 230}, {20: 200, 21: 210, 22: 220})

    with (tmp_path / "weather.csv").open("a") as source:
        source.write("JFK,1970-01-01T21:00:00Z,300\n")
    assert record(config, "weather").late == 1
    steps = repair(config).steps
    assert steps[0].windows.first == 21
    assert steps[-1].windows.last < 95, "what is behind the gap stays"
    assert around_the_gap(config) == ({19: 190, 21: 300, 23: 230}, {20: 245, 22: 265})
    assert repair(config) == Repaired([], [], ())
    replay(config, "filled_weather", replay_id="anew")
    assert certify(config, "anew", "published").equal


def around_the_gap(config: Config) -> tuple[dict[int, int], dict[int, int]]:
    """Returns hour to temperature of the recorded rows, and of the made ones."""
    table = Table.open(config.stream_table("filled_weather.filled"))
    rows = query(
        "select at, temp, _rw_is_made as made from f where window_id between 19 and 23",
        f=table,
    ).to_pylist()
    found = [
        {row["at"].hour: round(row["temp"]) for row in rows if row["made"] is made}
        for made in (False, True)
    ]
    return found[0], found[1]


def add_tuple(config: Config) -> int:
    """Puts one more tuple into a window of `events`, as a reopening does, and returns the
    window.
    """
    data = Table.open(config.stream_table("events"))
    windows = Table.open(config.windows_table("events"))
    row = query(
        'select * from e where x is not null order by window_id, "offset" limit 40',
        e=data,
    ).slice(39)
    window = row["window_id"][0].as_py()
    count = query(f"select count(*) as n from e where window_id = {window}", e=data)["n"][0].as_py()
    late = row.set_column(
        row.schema.get_field_index("offset"),
        "offset",
        pa.array([count], pa.int64()),
    )
    data.commit_arrow(late, app_id="record", version=2)
    note_files(data, Table.open(config.files_table("events")))
    windows.replace(
        seals_of(config, "events", {window: count + 1}).to_reader(),
        f"window_id = {window}",
        app_id="record",
        version=2,
    )
    return int(window)
