"""`rewindow record --reopen` before it does anything: what it says, and that it asks."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from rewindow.config import Config
from rewindow.storage.streams import QUARANTINE_SCHEMA, create_quarantine
from tests.commands.conftest import Command
from tests.recovery.project import FIRST, Project, make_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose recorded stream is in the settings; an open replay reads it."""
    project = make_project(tmp_path)
    project.plan("one", "exactly_once")
    file = tmp_path / "rewindow.toml"
    file.write_text(file.read_text() + '[streams.events]\nsource = "x.csv"\narrived_at = "at"\nwidth = "1 hour"\n')
    monkeypatch.setenv("REWINDOW_CONFIG", str(file))
    return Project(Config.load(file))


def put_aside(project: Project, *windows: int) -> None:
    """Puts late tuples into quarantine."""
    now = datetime.now(UTC)
    rows = [(window, "events", None, "late", f"x.csv:{window}", "{}", now) for window in windows]
    columns = dict(zip(QUARANTINE_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True))
    table = create_quarantine(project.config.quarantine_table)
    table.commit_arrow(pa.table(columns, schema=QUARANTINE_SCHEMA), app_id="record/events", version=1)


def test_windows_are_opened_again_only_after_a_yes(
    project: Project, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows, their late tuples and who has read the older seal are listed first; a no starts no job."""
    put_aside(project, FIRST + 1, FIRST + 2, FIRST + 2, FIRST - 5)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, errors = run("record", "events", "--reopen")
    assert code == 1
    assert f"windows [{FIRST + 1}, {FIRST + 2}]: 3 late tuples, a new seal" in errors
    assert 'has read the older seal, and becomes stale: replay "one"' in errors
    assert not list(project.config.state.glob("outcomes/record-*"))


def test_without_a_late_tuple_there_is_nothing_to_open(project: Project, run: Command) -> None:
    """Late tuples before the first sealed window have no window to go to."""
    put_aside(project, FIRST - 5)
    code, _, errors = run("record", "events", "--reopen", "--yes")
    assert (code, 'stream "events" has no late tuple of a sealed window' in errors) == (2, True)
