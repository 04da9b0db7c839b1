"""Plans and where the state folder is: a plan does not depend on it, also one that an older version has made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from rewindow.certificate.snapshots import staged_plan
from rewindow.config import Config
from rewindow.launcher import begin_attempt
from rewindow.ledger import Ledger
from rewindow.location import location
from rewindow.planning import create_replay
from rewindow.recovery import InputPlan, Plan, StartState, path_in
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS
from tests.planning.wishes import request
from tests.recovery.project import Project


def moved(config: Config) -> Config:
    """Moves a project's state to another folder, and returns the settings that say so."""
    there = config.root / "elsewhere" / "deep"
    there.parent.mkdir()
    config.state.rename(there)
    return Config.load(config.file, state=there)


def test_paths_of_a_plan_are_relative_to_the_state_folder(project: Project) -> None:
    """In the tables and in the ledger."""
    plan = create_replay(project.config, request(replay_id="one"))
    assert plan.inputs[0].path == "streams/events"
    ledger = Ledger.open(project.config.ledger_url)
    assert staged_plan(project.config, "one") == plan == ledger.replays.get("one").read_plan()
    assert str(project.config.state) not in json.dumps(ledger.replays.get("one").plan)


def test_a_table_outside_of_the_state_folder_keeps_its_path(tmp_path: Path) -> None:
    """Wherever the state folder goes, a table of somebody else stays where it is."""
    given = path_in(tmp_path / "state", tmp_path / "lake" / "events")
    entry = InputPlan(stream="events", path=given, version=1, windows_version=1, tuples=1, bytes=1)
    assert entry.table(tmp_path / "moved") == tmp_path / "lake" / "events"
    assert entry.windows_table(tmp_path / "moved") == tmp_path / "lake" / "events.windows"


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/was/here/streams/app.checkpoints", "streams/app.checkpoints"),
        ("/was/replays/streams/replays/r1/checkpoints", "replays/r1/checkpoints"),
        ("/lake/states", "/lake/states"),
        ("", ""),
    ],
)
def test_a_start_state_of_an_older_plan_is_found_in_the_state_folder(path: str, kept: str) -> None:
    """Its path was absolute; the end of it says which table of the state folder it is."""
    assert StartState(source="published", taken_from=path).taken_from == kept


def test_a_plan_of_an_older_version_begins_in_a_moved_state_folder(project: Project) -> None:
    """Tables and ledger hold absolute paths of a folder that is no longer there; they agree, and nothing is refused."""
    plan = create_replay(project.config, request(replay_id="one"))
    older = _with_absolute_paths(plan, project.config.state)
    Table.open(project.config.replay_root("one") / CHECKPOINTS).set_properties({"rewindow.plan": older})
    ledger = Ledger.open(project.config.ledger_url)
    with ledger.database.writing() as connection:
        connection.execute(text("UPDATE replays SET plan = :plan"), {"plan": older})
    ledger.close()
    config = moved(project.config)
    assert str(project.config.state) in json.dumps(Ledger.open(config.ledger_url).replays.get("one").plan)
    assert begin_attempt(config, "one") is not None
    assert staged_plan(config, "one") == plan


def test_planning_goes_on_where_a_planner_died_before_a_move(project: Project) -> None:
    """The plan that lies in the tables is the one that the same request gives in the moved folder."""
    plan = create_replay(project.config, request(replay_id="one"))
    config = moved(project.config)
    for file in config.state.glob("ledger.sqlite"):
        file.unlink()
    assert create_replay(config, request(replay_id="one")) == plan


def _with_absolute_paths(plan: Plan, state: Path) -> str:
    told = plan.model_dump(mode="json")
    for entry in told["inputs"]:
        entry["path"] = str(state / entry["path"])
    return json.dumps(told)


def test_a_plan_keeps_paths_below_the_state_folder_and_no_others() -> None:
    """What lies elsewhere does not move along."""
    state = location("/somewhere/state")
    assert path_in(state, state / "streams" / "clicks") == "streams/clicks"
    assert path_in(state, location("/elsewhere/streams/clicks")) == "/elsewhere/streams/clicks"
