"""`rewindow streams` on a recorded stream: list, show, rows of a window, and a deletion that asks
who needs it.
"""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.facts.seals import end_row
from rewindow.ledger import Ledger
from rewindow.storage import Table
from rewindow.storage.streams import create_quarantine
from tests.commands.conftest import Command
from tests.recovery.project import FIRST, WINDOWS, Project, make_project, make_stream

LAST = FIRST + WINDOWS - 1


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = make_project(tmp_path)
    monkeypatch.setenv("REWINDOW_CONFIG", str(project.config.file))
    return project


def test_streams_list_and_show_agree_between_table_and_json(project: Project, run: Command) -> None:
    code, text, _ = run("streams", "--json")
    entry = json.loads(text)[0]
    assert (code, entry["stream"], entry["first"], entry["last"]) == (0, "events", FIRST, LAST)
    assert (entry["windows"], entry["missing"], entry["end"]) == (WINDOWS, 0, None)
    assert f"[{FIRST}, {LAST}]" in run("streams")[1]
    code, text, _ = run("streams", "show", "events", "--json")
    found = json.loads(text)
    assert (code, found["tuples"], found["needed_by"]) == (0, entry["tuples"], [])
    assert {"window_id", "arrived_at"} < set(found["columns"])
    shown = run("streams", "show", "events")[1]
    assert "not ended" in shown and f"{WINDOWS:,} of 1 h, " in shown


def test_rows_of_a_window_are_shown_in_order_and_a_missing_window_is_reported(
    project: Project,
    run: Command,
) -> None:
    full = next(window for window in range(FIRST, LAST) if window % 5)
    code, text, _ = run("streams", "rows", "events", full, "--json")
    found = json.loads(text)
    assert (code, found["sealed"]) == (0, True)
    assert [row["offset"] for row in found["tuples"]] == list(range(len(found["tuples"])))
    at = found["tuples"][0]["arrived_at"].replace(" ", "T")
    assert json.loads(run("streams", "rows", "events", at, "--json")[1]) == found
    seals = Table.open(project.config.windows_table("events"))
    seals.delta.delete(f"window_id = {full}")
    assert (
        f"window {full}, missing (not sealed), more may arrive"
        in run("streams", "rows", "events", full)[1]
    )
    assert run("streams", "rows", "nosuch", 1)[2].startswith(
        'error: stream "nosuch" is not recorded'
    )


def test_rows_with_timestamps_and_numbers_that_json_cannot_represent_are_shown(
    project: Project,
    run: Command,
) -> None:
    at = pa.array([2**63 - 1, -(2**63), 0], pa.timestamp("us", "UTC"))
    rows = pa.table(
        {
            "window_id": pa.array([5, 5, 5], pa.int64()),
            "offset": pa.array([0, 1, 2], pa.int64()),
            "arrived_at": pa.array([5 * 3_600_000_000] * 3, pa.timestamp("us", "UTC")),
            "at": at,
            "x": [math.nan, -math.inf, 1.5],
        }
    )
    make_stream(project.config, "far", rows, {5: 3}, width_ms=3_600_000)
    code, text, _ = run("streams", "rows", "far", 5, "--json")
    found = json.loads(text, parse_constant=pytest.fail)["tuples"]
    assert code == 0
    assert [(row["at"], row["x"]) for row in found] == [
        ("+294247-01-10T04:00:54.775807Z", "NaN"),
        ("-290308-12-21T19:59:05.224192Z", "-Infinity"),
        ("1970-01-01T00:00:00+00:00", 1.5),
    ]
    code, text, _ = run("streams", "rows", "far", 5)
    assert code == 0 and "+294247-01-10T04:00:54.775807Z" in text


def test_window_outside_a_stream_is_rejected_with_the_valid_bounds(
    project: Project,
    run: Command,
) -> None:
    begin = "1970-02-11T16:00:00Z"
    end = "1970-02-12T16:00:00Z"
    code, text, errors = run("streams", "rows", "events", FIRST - 1)
    assert (code, text) == (
        2,
        "",
    ) and f"no window {FIRST - 1}: it starts with window {FIRST} ({begin})" in errors
    code, text, errors = run("streams", "rows", "events", LAST + 1)
    assert (code, text) == (
        2,
        "",
    ) and f"no window {LAST + 1} yet: it is sealed up to window {LAST}" in errors
    assert "rewindow record events" in errors
    seals = Table.open(project.config.windows_table("events"))
    seals.commit_arrow(
        end_row(Table.open(project.config.stream_table("events")), LAST),
        app_id="record",
        version=2,
    )
    code, text, errors = run("streams", "rows", "events", "2013-01-01")
    assert (code, text) == (
        2,
        "",
    ) and f"no window 376944: it ends with window {LAST} ({end})" in errors
    assert f"[{FIRST}, {LAST}]" in errors and "rewindow record" not in errors


def test_unknown_subcommand_is_reported_with_suggestions_and_without_usage_box(
    project: Project,
    run: Command,
) -> None:
    code, text, errors = run("streams", "parking")
    assert (code, text) == (2, "")
    assert errors == (
        'error: subcommand "parking" of `rewindow streams` is unknown\n'
        "  Hint: Subcommands: show, rows, quarantine, delete, upgrade. `rewindow streams -h` "
        "describes them.\n"
    )
    assert 'Did you mean "show"? Subcommands: ' in run("streams", "sho")[2]
    assert (
        "Did you mean: rewindow streams show events? Subcommands: " in run("streams", "events")[2]
    )
    assert run("ledger", "rebild")[2].startswith(
        'error: subcommand "rebild" of `rewindow ledger` is unknown'
    )
    assert run("streams", "show")[2].startswith("error: missing argument")
    assert run("list", "--limit", "0")[2].startswith("error: invalid value for '--limit'")
    wrong = run("validate", "totals", "--graph", "dot")[2]
    assert wrong.startswith(
        "error: invalid value for '--graph': 'dot' is not one of 'text', 'svg', 'json'\n"
    )


def test_stream_read_by_an_open_replay_is_not_deleted(project: Project, run: Command) -> None:
    project.plan("one", "exactly_once")
    code, _, errors = run("streams", "delete", "events", "--yes")
    assert code != 0
    assert 'stream "events" is still needed: replay "one"' in errors
    assert "--force" in errors
    assert project.config.windows_table("events").exists()
    Ledger.open(project.config.ledger_url).replays.abandon("one", "test")
    assert run("streams", "delete", "events", "--yes")[0] == 0
    assert not list(project.config.stream_table("events").parent.glob("*events*/"))
    assert run("streams", "delete", "events", "--yes")[2].startswith(
        'error: stream "events" is not recorded'
    )


def test_streams_delete_force_requires_typing_the_stream_name(
    project: Project,
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project.plan("one", "exactly_once")
    monkeypatch.setattr("sys.stdin", io.StringIO("event\n"))
    code, _, errors = run("streams", "delete", "events", "--force", "--yes")
    assert (code, 'was not deleted: the typed name is "event"' in errors) == (2, True)
    assert project.config.stream_table("events").exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("events\n"))
    code, _, errors = run("streams", "delete", "events", "--force")
    assert (code, 'needed because: replay "one"' in errors) == (0, True)
    assert not project.config.stream_table("events").exists()


@pytest.mark.parametrize(
    "name",
    ["quarantine", "events.windows", "app.checkpoints", "../streams/events"],
)
def test_streams_delete_removes_only_streams(project: Project, run: Command, name: str) -> None:
    create_quarantine(project.config.quarantine_table)
    code, _, errors = run("streams", "delete", name, "--yes")
    assert (code, errors.startswith("error: ")) == (2, True)
    assert {"events", "events.windows", "quarantine"} <= {
        path.name for path in project.config.quarantine_table.parent.iterdir()
    }
