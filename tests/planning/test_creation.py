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
from tests.planning.wishes import request
from tests.recovery.project import FIRST, Project


class Killed(BaseException):
    """Stands for a kill of the planner."""


def die(*arguments: object, **named: object) -> None:
    """Dies in the place of what should have happened."""
    raise Killed


def stored_plan(project: Project, replay_id: str) -> Plan:
    """Returns the plan that the tables hold."""
    table = Table.open(project.config.replay_root(replay_id) / CHECKPOINTS)
    return Plan.model_validate_json(table.properties["rewindow.plan"])


def planned_and_killed(project: Project, monkeypatch: pytest.MonkeyPatch, **wishes: object) -> None:
    """Plans a replay, and dies between its tables and its row in the ledger."""
    with monkeypatch.context() as patch:
        patch.setattr(Replays, "create", die)
        with pytest.raises(Killed):
            create_replay(project.config, request(replay_id="one", **wishes))


def test_planner_that_dies_before_the_ledger_leaves_the_plan_to_the_next(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same id again, after the input has grown: tables and ledger hold one plan, the first one."""
    planned_and_killed(project, monkeypatch, last=FIRST + 5)
    before = stored_plan(project, "one")
    Table.open(project.config.stream_table("events")).commit_files([], app_id="record", version=2)
    plan = create_replay(project.config, request(replay_id="one", last=FIRST + 5))
    assert plan == before == stored_plan(project, "one")
    assert Ledger.open(project.config.ledger_url).replays.get("one").read_plan() == plan


def test_left_tables_are_not_taken_for_another_wish(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another range under that id is refused, and neither tables nor ledger change."""
    planned_and_killed(project, monkeypatch, last=FIRST + 5)
    with pytest.raises(InputError, match=f"there already with last {FIRST + 5}, asked for was {FIRST + 7}"):
        create_replay(project.config, request(replay_id="one", last=FIRST + 7))
    assert Ledger.open(project.config.ledger_url).replays.find("one") is None


def test_planner_that_dies_among_its_tables_leaves_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables come in one step: before it there is no folder of that id, and the next planner begins anew."""
    with monkeypatch.context() as patch:
        patch.setattr("rewindow.planning.creation._start_rows", die)
        with pytest.raises(Killed):
            create_replay(project.config, request(replay_id="one", last=FIRST + 5))
    assert not project.config.replay_root("one").exists()
    plan = create_replay(project.config, request(replay_id="one", last=FIRST + 7))
    assert stored_plan(project, "one") == plan


def test_tables_of_attempts_that_the_ledger_does_not_know_are_refused(project: Project) -> None:
    """A ledger that was deleted: the same id does not go on over another replay's tables."""
    create_replay(project.config, request(replay_id="one"))
    fence(project.config.replay_root("one") / FACTS, app_id("one", FACTS), 3)
    for file in Path(project.config.state).glob("ledger.sqlite*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(TableError, match="the ledger does not know that replay") as caught:
        create_replay(project.config, request(replay_id="one"))
    assert "attempt 3" in caught.value.detail
    assert "rewindow ledger rebuild" in caught.value.hint
