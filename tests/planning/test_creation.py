"""Tables of a replay and its row in the ledger: one plan, whenever the planner dies. No JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewindow.errors import InputError, TableError
from rewindow.ledger import Ledger
from rewindow.ledger.replays import Replays
from rewindow.planning import create_replay
from rewindow.recovery import Plan
from rewindow.storage import Table, fence
from rewindow.storage.layout import CHECKPOINTS, FACTS, app_id
from tests.planning.options import request
from tests.recovery.project import FIRST, Project


class Killed(BaseException):
    pass


def die(*arguments: object, **named: object) -> None:
    raise Killed


def stored_plan(project: Project, replay_id: str) -> Plan:
    table = Table.open(project.config.replay_root(replay_id) / CHECKPOINTS)
    return Plan.model_validate_json(table.properties["rewindow.plan"])


def planned_and_killed(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    **replay_options: object,
) -> None:
    """Plans a replay, and dies between its tables and its row in the ledger."""
    with monkeypatch.context() as patch:
        patch.setattr(Replays, "create", die)
        with pytest.raises(Killed):
            create_replay(project.config, request(replay_id="one", **replay_options))


def test_planning_that_died_before_the_ledger_entry_is_resumed_by_the_next_plan(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned_and_killed(project, monkeypatch, last=FIRST + 5)
    before = stored_plan(project, "one")
    Table.open(project.config.stream_table("events")).commit_files([], app_id="record", version=2)
    plan = create_replay(project.config, request(replay_id="one", last=FIRST + 5))
    assert plan == before == stored_plan(project, "one")
    assert Ledger.open(project.config.ledger_url).replays.get("one").read_plan() == plan


def test_request_for_another_range_than_leftover_tables_is_rejected(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned_and_killed(project, monkeypatch, last=FIRST + 5)
    with pytest.raises(
        InputError,
        match=f"already exists with last {FIRST + 5}, but the request has {FIRST + 7}",
    ):
        create_replay(project.config, request(replay_id="one", last=FIRST + 7))
    assert Ledger.open(project.config.ledger_url).replays.find("one") is None


def test_planner_crash_during_table_creation_leaves_nothing(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("rewindow.planning.creation._start_rows", die)
        with pytest.raises(Killed):
            create_replay(project.config, request(replay_id="one", last=FIRST + 5))
    assert not project.config.replay_root("one").exists()
    plan = create_replay(project.config, request(replay_id="one", last=FIRST + 7))
    assert stored_plan(project, "one") == plan


def test_tables_of_attempts_unknown_to_the_ledger_are_rejected(project: Project) -> None:
    create_replay(project.config, request(replay_id="one"))
    fence(project.config.replay_root("one") / FACTS, app_id("one", FACTS), 3)
    for file in Path(project.config.state).glob("ledger.sqlite*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(TableError, match="the ledger does not list that replay") as caught:
        create_replay(project.config, request(replay_id="one"))
    assert "Attempt 3" in caught.value.detail
    assert "rewindow ledger rebuild" in caught.value.hint
