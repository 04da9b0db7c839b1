"""Replays over a table in place that other programs change between two attempts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rewindow.errors import TableError
from rewindow.launcher import begin_attempt
from rewindow.recording.in_place import record_in_place
from rewindow.settings.config import Config
from rewindow.storage import Table, TuplesInPlace, query
from tests.recovery.project import Project, make_project
from tests.recovery.promises import check_promise

SETTINGS = """
[streams.events]
source = "lake/events"
arrived_at = "arrived_at"
width = "1 hour"
copy = false
"""


@pytest.fixture
def in_place(tmp_path: Path) -> Project:
    """A project whose stream is a table in place, with the tuples of the other projects."""
    config = make_project(tmp_path).config
    folder = config.stream_table("events")
    rows = query("select arrived_at, key, x from t order by arrived_at", t=folder)
    for path in (folder, config.windows_table("events"), config.files_table("events")):
        path.delete_tree()
    quarter = -(-rows.num_rows // 4)
    for number in range(4):
        part = rows.slice(number * quarter, quarter)
        write_deltalake(str(tmp_path / "lake/events"), part, mode="append")
    settings = tmp_path / "rewindow.toml"
    settings.write_text(settings.read_text() + SETTINGS)
    config = Config.load(settings)
    record_in_place(config, "events", end=True)
    return Project(config)


def change(config: Config) -> None:
    """Appends late and new rows, deletes and updates others, compacts the table, and seals it."""
    path = str(config.root / "lake/events")
    stream = Table.open(config.stream_table("events"))
    assert isinstance(stream, TuplesInPlace) and stream.sealed is not None
    late_us = stream.columns.grid.start_us(stream.sealed.first + 3)
    rows = pa.table(
        {
            "arrived_at": pa.array([late_us + 1], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "key": ["a"],
            "x": pa.array([100], pa.int64()),
        }
    )
    write_deltalake(path, rows, mode="append")
    table = DeltaTable(path)
    table.delete("x = 1")
    table.update({"x": "x + 1"}, predicate="key = 'b'")
    table.optimize.compact()
    record_in_place(config, "events")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once", "at_most_once"])
def test_replay_reads_the_planned_version_while_the_table_changes(
    in_place: Project, here: None, mode: str
) -> None:
    # Rules: X57
    whole = in_place.plan_of("tuple_totals", "whole", "exactly_once", group_windows=100)
    in_place.attempts("whole", [])
    plan = in_place.plan_of("tuple_totals", "one", mode)
    in_place.attempt("one", "after_facts:2@1")
    change(in_place.config)
    assert in_place.attempt("one").exit_code == 0
    check_promise(in_place.config, plan, whole)
    new = in_place.plan_of("tuple_totals", "new", "exactly_once", group_windows=100)
    assert new.inputs[0].version > plan.inputs[0].version


@pytest.mark.long
def test_killed_job_over_a_table_in_place_resumes(in_place: Project) -> None:
    whole = in_place.plan_of("tuple_totals", "whole", "exactly_once", group_windows=100)
    in_place.attempts("whole", [])
    plan = in_place.plan_of("tuple_totals", "one", "exactly_once")
    in_place.attempts("one", ["after_facts:2"])
    check_promise(in_place.config, plan, whole)


def test_attempt_over_a_vacuumed_version_is_not_started(in_place: Project) -> None:
    in_place.plan_of("tuple_totals", "one", "exactly_once")
    change(in_place.config)
    path = str(in_place.config.root / "lake/events")
    DeltaTable(path).vacuum(0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(TableError, match="VACUUM or another program has removed the file"):
        begin_attempt(in_place.config, "one", None, again=True)
