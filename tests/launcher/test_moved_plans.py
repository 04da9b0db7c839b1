"""Plans and where the state folder is: a plan does not depend on it."""

from __future__ import annotations

import json
from pathlib import Path

from rewindow.certificate.snapshots import staged_plan
from rewindow.ledger import Ledger
from rewindow.location import location
from rewindow.planning import create_replay
from rewindow.recovery import InputPlan, path_in
from rewindow.settings.config import Config
from tests.planning.options import request
from tests.recovery.project import Project


def moved(config: Config) -> Config:
    there = config.root / "elsewhere" / "deep"
    there.parent.mkdir()
    config.state.rename(there)
    return Config.load(config.file, state=there)


def test_paths_of_a_plan_are_relative_to_the_state_folder_in_tables_and_ledger(
    project: Project,
) -> None:
    plan = create_replay(project.config, request(replay_id="one"))
    assert plan.inputs[0].path == "streams/events"
    ledger = Ledger.open(project.config.ledger_url)
    assert staged_plan(project.config, "one") == plan == ledger.replays.get("one").read_plan()
    assert str(project.config.state) not in json.dumps(ledger.replays.get("one").plan)


def test_table_outside_the_state_folder_keeps_its_path(tmp_path: Path) -> None:
    given = path_in(tmp_path / "state", tmp_path / "lake" / "events")
    entry = InputPlan(stream="events", path=given, version=1, windows_version=1, tuples=1, bytes=1)
    assert entry.table(tmp_path / "moved") == tmp_path / "lake" / "events"
    assert entry.windows_table(tmp_path / "moved") == tmp_path / "lake" / "events.windows"


def test_planning_resumes_after_a_planner_crash_and_a_folder_move(project: Project) -> None:
    plan = create_replay(project.config, request(replay_id="one"))
    config = moved(project.config)
    for file in config.state.glob("ledger.sqlite"):
        file.unlink()
    assert create_replay(config, request(replay_id="one")) == plan


def test_plan_stores_relative_paths_only_below_the_state_folder() -> None:
    state = location("/somewhere/state")
    assert path_in(state, state / "streams" / "clicks") == "streams/clicks"
    assert path_in(state, location("/elsewhere/streams/clicks")) == "/elsewhere/streams/clicks"
