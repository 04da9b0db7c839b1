"""`rewindow record --reopen` before it does anything: what it says, and that it asks."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.ledger import Ledger
from rewindow.settings.config import Config
from rewindow.storage.streams import QUARANTINE_SCHEMA, create_quarantine
from tests.commands.conftest import Command
from tests.recovery.project import FIRST, Project, make_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose recorded stream is in the settings; an open replay reads it."""
    project = make_project(tmp_path)
    project.plan("one", "exactly_once")
    file = tmp_path / "rewindow.toml"
    file.write_text(
        file.read_text()
        + '[streams.events]\nsource = "x.csv"\narrived_at = "at"\nwidth = "1 hour"\n'
    )
    monkeypatch.setenv("REWINDOW_CONFIG", str(file))
    return Project(Config.load(file))


def put_aside(project: Project, *windows: int, reason: str = "late") -> None:
    now = datetime.now(UTC)
    rows = [(window, "events", None, reason, f"x.csv:{window}", "{}", now) for window in windows]
    columns = dict(zip(QUARANTINE_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True))
    table = create_quarantine(project.config.quarantine_table)
    table.commit_arrow(
        pa.table(columns, schema=QUARANTINE_SCHEMA),
        app_id="record/events",
        version=1,
    )


def test_record_reopens_windows_only_after_confirmation(
    project: Project,
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_aside(project, FIRST + 1, FIRST + 2, FIRST + 2, FIRST - 5)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, errors = run("record", "events", "--reopen")
    assert code == 1
    assert f"windows [{FIRST + 1}, {FIRST + 2}] (" in errors
    assert "): 3 late tuples, sealed again" in errors
    assert 'read the old seal and will become stale: replay "one"' in errors
    assert not list(project.config.state.glob("outcomes/record-*"))


def test_reopening_requires_a_late_tuple_of_a_sealed_window(project: Project, run: Command) -> None:
    put_aside(project, FIRST - 5)
    code, _, errors = run("record", "events", "--reopen", "--yes")
    assert (code, 'stream "events" has no late tuples of sealed windows' in errors) == (2, True)


def test_changed_windows_cannot_be_reopened_but_are_replaced_after_confirmation(
    project: Project,
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_aside(project, FIRST + 1, reason="changed")
    code, _, errors = run("record", "events", "--reopen", "--yes")
    assert code == 2 and "cannot be reopened: in the source" in errors
    assert "rewindow record events --reopen --replace" in errors
    assert run("record", "events", "--replace")[0] == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, errors = run("record", "events", "--reopen", "--replace")
    assert code == 1 and "Replace these windows?" in errors
    assert 'will become stale if its windows differ: replay "one"' in errors
    assert not list(project.config.state.glob("outcomes/record-*"))


def test_stream_needed_by_a_replay_is_not_restarted(project: Project, run: Command) -> None:
    code, _, errors = run("record", "events", "--start-over", "--yes")
    assert (code != 0, 'stream "events" is still needed: replay "one"' in errors) == (True, True)
    assert not list(project.config.state.glob("outcomes/record-*"))


def test_stream_is_restarted_only_after_confirmation(
    project: Project,
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Ledger.open(project.config.ledger_url).replays.abandon("one", "test")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, errors = run("record", "events", "--start-over")
    assert (code, "Delete them and record the stream again?" in errors, "tuples, " in errors) == (
        1,
        True,
        True,
    )
    assert not list(project.config.state.glob("outcomes/record-*"))


def test_quarantined_rows_are_printed_with_reason_and_position(
    project: Project,
    run: Command,
) -> None:
    put_aside(project, FIRST + 1, FIRST + 2)
    assert f"x.csv:{FIRST + 2}" in run("streams", "quarantine", "events")[1]
    assert [
        row["reason"] for row in json.loads(run("streams", "quarantine", "events", "--json")[1])
    ] == ["late"] * 2
