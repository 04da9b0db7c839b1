"""Tables in memory that have lost their last commit: what the next attempt computes again."""

from __future__ import annotations

import random

import pytest

from rewindow.application import Mode
from rewindow.storage import position
from rewindow.storage.layout import CHECKPOINTS, FACTS, app_id
from rewindow.storage.staged_marks import lost_commits
from tests.recovery.memory import OUTPUTS, MemoryLog, World
from tests.recovery.simulation import ROOT, broken, finish, make_plan, new_world


def ended(mode: Mode) -> World:
    world = new_world(make_plan(mode))
    assert finish(world, make_plan(mode), random.Random(1), [])
    return world


@pytest.mark.parametrize("table", [*OUTPUTS, FACTS, CHECKPOINTS])
@pytest.mark.parametrize("mode", [Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE])
def test_resume_recomputes_the_lost_last_commit_of_a_table(mode: Mode, table: str) -> None:
    world = ended(mode)
    lose_joins(world, table)
    world.tables[table].pop()
    assert finish(world, make_plan(mode), random.Random(2), [])
    assert list(broken(world, make_plan(mode))) == []
    assert 1 < max(world.computed.values()) <= 2


def lose_joins(world: World, table: str) -> None:
    while world.tables[table][-1].removed:
        world.tables[table].pop()


@pytest.mark.parametrize("mode", [Mode.EXACTLY_ONCE, Mode.AT_LEAST_ONCE, Mode.AT_MOST_ONCE])
def test_nothing_is_recomputed_if_only_a_file_joining_commit_is_lost(mode: Mode) -> None:
    world = ended(mode)
    assert world.tables[OUTPUTS[0]][-1].removed, "nothing was joined"
    lose_joins(world, OUTPUTS[0])
    assert list(broken(world, make_plan(mode))) == []
    assert finish(world, make_plan(mode), random.Random(2), [])
    assert list(broken(world, make_plan(mode))) == []
    assert max(world.computed[window] for window in make_plan(mode).range) == 1


@pytest.mark.parametrize("table", [FACTS, CHECKPOINTS])
def test_at_most_once_rewrites_lost_commits_without_recomputing(table: str) -> None:
    world = ended(Mode.AT_MOST_ONCE)
    world.tables[table].pop()
    assert finish(world, make_plan(Mode.AT_MOST_ONCE), random.Random(2), [])
    assert list(broken(world, make_plan(Mode.AT_MOST_ONCE))) == []


def test_lost_started_mark_does_not_restart_windows() -> None:
    # Windows with rows in a table have started, whatever the checkpoint log contains.
    world = ended(Mode.AT_MOST_ONCE)
    del world.tables[CHECKPOINTS][3:]
    assert finish(world, make_plan(Mode.AT_MOST_ONCE), random.Random(2), [])
    assert max(world.computed[window] for window in make_plan(Mode.AT_MOST_ONCE).range) == 1


def test_table_that_lost_a_whole_attempt_is_recomputed() -> None:
    # The facts seal rows of the second attempt, of which one table has none.
    mode = Mode.AT_LEAST_ONCE
    world = ended(mode)
    first, second = OUTPUTS
    of_one_attempt = len(world.tables[first])
    lose_joins(world, second)
    world.tables[second].pop()
    assert finish(world, make_plan(mode), random.Random(2), [])
    del world.tables[first][of_one_attempt:]
    logs = {name: MemoryLog(world, ROOT / name, lambda: None) for name in world.tables}
    marks = {name: position(log, app_id("simulated", name)) for name, log in logs.items()}
    assert lost_commits(make_plan(mode), marks) == 'table "a" has 0 of 10 windows'
    assert finish(world, make_plan(mode), random.Random(3), [])
    assert list(broken(world, make_plan(mode))) == []
