"""The conditions of a project: each starts and ends with the state of the ledger and the tables."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from sqlalchemy import update

from rewindow.facts.seals import with_checksums
from rewindow.inspection.conditions import Scope, find_conditions
from rewindow.ledger import Condition, Ledger
from rewindow.ledger.models import replays
from rewindow.publication.publish import publish
from rewindow.settings.conditions import CONDITIONS
from rewindow.settings.config import Config
from rewindow.storage import Table, query
from rewindow.storage.streams import create_quarantine
from tests.publication.staging import simple
from tests.recovery.project import make_stream

SETTINGS = """
state = "state"

[streams.clicks]
source = "clicks.csv"
arrived_at = "at"
interval = "1 hour"
slack = "30 minutes"
width = "1 hour"
seal_after = "1 hour"
"""
HOUR = timedelta(hours=1)
FIRST = 1000
BEGIN = datetime(1970, 1, 1, tzinfo=UTC) + FIRST * HOUR


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "rewindow.toml"
    file.write_text(SETTINGS)
    return Config.load(file)


@pytest.fixture
def ledger(config: Config) -> Ledger:
    return Ledger.open(config.ledger_url)


def conditions(config: Config, scope: Scope = Scope()) -> dict[str, Condition]:  # noqa: B008
    found, unreadable = find_conditions(config, CONDITIONS, scope)
    assert not unreadable
    assert len({condition.kind for condition in found}) == len(found)
    return {condition.kind: condition for condition in found}


def record_clicks(config: Config, *, windows: int, silent: int) -> None:
    """Records a tuple at half past each hour, except in the last windows."""
    numbers = list(range(FIRST, FIRST + windows - silent))
    arrivals = [BEGIN + (number - FIRST) * HOUR + HOUR / 2 for number in numbers]
    rows = pa.table(
        {
            "window_id": pa.array(numbers, pa.int64()),
            "offset": pa.array([0] * len(numbers), pa.int64()),
            "arrived_at": pa.array(arrivals, pa.timestamp("us", "UTC")),
        }
    )
    counts = {number: int(number in numbers) for number in range(FIRST, FIRST + windows)}
    make_stream(config, "clicks", rows, counts, width_ms=3_600_000)


def test_failed_gate_is_a_condition_until_the_replay_is_abandoned(
    config: Config,
    ledger: Ledger,
) -> None:
    simple(config, "r-1", 100, 109, outputs=("ranks",))
    assert conditions(config) == {}
    summary = {"outputs": [{"output": "ranks", "failed": ["rows per window"]}]}
    ledger.checks.record("r-1", "failed", summary=summary)  # type: ignore[arg-type]
    found = conditions(config)["gate_failed"]
    assert found.what == 'the gate of replay "r-1" did not pass: ranks: rows per window'
    assert found.where == ("app, windows [100, 109], 1970-01-05T04:00:00Z to 1970-01-05T14:00:00Z")
    assert "rewindow publish r-1 --accept" in found.next_step
    assert conditions(config, Scope("dag", "run")) == {}
    ledger.replays.abandon("r-1")
    assert conditions(config) == {}


def test_failed_replay_of_the_command_line_is_a_condition_but_that_of_a_run_is_not(
    config: Config,
    ledger: Ledger,
) -> None:
    simple(config, "r-1", 100, 109, outputs=("ranks",))
    ledger.replays.reopen("r-1", "its tables have lost commits")
    assert conditions(config) == {}  # A person or a task may resume it at once.
    with ledger.database.writing() as connection:
        failed_at = ledger.notices.clock() - timedelta(minutes=10)
        connection.execute(update(replays).values(changed_at=failed_at))
    found = conditions(config)["replay_failed"]
    assert found.what == 'replay "r-1" failed: its tables have lost commits'
    plan = ledger.replays.get("r-1").plan
    with ledger.database.writing() as connection:
        values = {"plan": {**plan, "dag": "daily", "run": "scheduled__1"}}
        connection.execute(update(replays).values(**values))
    assert conditions(config) == {}


def test_stale_windows_are_counted_by_output_and_shown_with_their_times(
    config: Config,
    ledger: Ledger,
) -> None:
    simple(config, "r-1", 100, 109, publishable=True, outputs=("ranks",))
    publish(config, "r-1")
    ledger.stale.add("app", "app.ranks", 102, 103, since=1)
    ledger.stale.add("app", "app.ranks", 107, 107, since=1)
    found = conditions(config, Scope("any", "run", frozenset()))["windows_stale"]
    assert (found.subject, found.measure) == ("app.ranks", 3)
    assert found.where.startswith(
        "windows [102, 103], 1970-01-05T06:00:00Z to 1970-01-05T08:00:00Z; windows "
    )
    shutil.rmtree(config.windows_table("app.ranks"))
    assert conditions(config)["windows_stale"].where == "app.ranks"
    ledger.stale.clear("app", "app.ranks", 100, 109)
    assert conditions(config) == {}


def test_damaged_stream_does_not_hide_the_conditions_of_the_others(
    config: Config,
    ledger: Ledger,
) -> None:
    record_clicks(config, windows=6, silent=3)
    log = config.windows_table("clicks") / "_delta_log"
    (log / f"{0:020}.json").write_text("not JSON")
    simple(config, "r-1", 100, 109, outputs=("ranks",))
    ledger.checks.record("r-1", "failed")
    found, unreadable = find_conditions(config, CONDITIONS, Scope())
    assert ([condition.kind for condition in found], unreadable) == (["gate_failed"], {"clicks"})


@pytest.mark.parametrize(("silent", "measure"), [(0, 0), (1, 0), (2, 1), (3, 2)])
def test_stream_is_silent_if_it_has_no_tuple_for_longer_than_interval_and_slack(
    silent: int,
    measure: int,
    config: Config,
) -> None:
    # The newest tuple is half an hour before the end of its window.
    record_clicks(config, windows=6, silent=silent)
    found = conditions(config)
    if not measure:
        assert found == {}
        return
    assert found["stream_silent"].measure == measure
    since = BEGIN + (5 - silent) * HOUR + HOUR / 2
    assert f"no tuple since {since:%Y-%m-%dT%H:%M:%SZ}" in found["stream_silent"].what
    assert conditions(config, Scope(streams=frozenset())) == {}


def test_late_tuples_in_quarantine_are_counted(config: Config) -> None:
    record_clicks(config, windows=6, silent=0)
    quarantine = create_quarantine(config.quarantine_table)
    columns = {field.name: pa.nulls(2, field.type) for field in quarantine.schema}
    columns["source"] = pa.array(["clicks"] * 2)
    columns["reason"] = pa.array(["late"] * 2)
    columns["window_id"] = pa.array([FIRST, FIRST], pa.int64())
    write_deltalake(str(config.quarantine_table), pa.table(columns), mode="append")
    found = conditions(config)["late_tuples"]
    assert (found.subject, found.measure) == ("clicks", 2)
    assert "rewindow record clicks --reopen" in found.next_step


@pytest.mark.parametrize(("hours", "measure"), [(2.9, 0), (3.1, 2), (6.5, 5)])
def test_standstill_is_a_condition_two_intervals_after_the_last_seal_and_seal_after(
    hours: float,
    measure: int,
    config: Config,
    ledger: Ledger,
) -> None:
    record_clicks(config, windows=6, silent=0)
    seals = config.windows_table("clicks")
    rows = Table.open(seals)
    sealed_at = ledger.notices.clock() - timedelta(hours=hours)
    table = query("select * from w", w=rows)
    number = table.schema.get_field_index("sealed_at")
    times = pa.array([sealed_at] * table.num_rows, pa.timestamp("us", "UTC"))
    changed = with_checksums(table.set_column(number, table.schema.field(number), times))
    write_deltalake(str(seals), changed, mode="overwrite")
    assert conditions(config) == {}  # No DAG records the stream.
    ledger.notices.schedule("clicks", "record_streams", 3_600_000_000)
    found = conditions(config)
    assert [condition.measure for condition in found.values()] == ([measure] if measure else [])
