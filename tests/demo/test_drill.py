"""Where the demo kills, and how it cuts the year into groups."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rewindow.application import MODES, Mode
from rewindow.demo.drill import GROUPS, SENSITIVE, draw_drills, group_distance, group_ends
from rewindow.errors import RangeError
from rewindow.recovery import CheckpointSchedule, next_end
from rewindow.windows import WindowRange


@given(st.integers(0, 10**9))
def test_drills_kill_each_mode_once_at_one_of_its_steps(seed: int) -> None:
    calm, *drills = draw_drills(seed)
    assert calm.crash is None
    assert [drill.mode for drill in drills] == [*MODES.values()]
    for drill in drills:
        assert drill.step in SENSITIVE[drill.mode] and 1 < drill.group < GROUPS
        assert drill.crash == f"{drill.step}:{drill.group}@1"


def test_drills_with_many_seeds_reach_every_step_of_every_mode() -> None:
    drawn = {(drill.mode, drill.step) for seed in range(200) for drill in draw_drills(seed)[1:]}
    assert drawn == {(mode, step) for mode, steps in SENSITIVE.items() for step in steps}


@given(st.integers(0, 10**6), st.integers(40, 3_000))
def test_checkpoint_distance_creates_six_groups_that_end_on_due_checkpoints(
    first: int, length: int
) -> None:
    windows = WindowRange(first, first + length - 1)
    try:
        distance = group_distance(windows)
    except RangeError:
        assume(False)
    schedule = CheckpointSchedule(distance)
    ends = []
    window = windows.first
    while window <= windows.last:
        ends.append(next_end(window, windows.last, distance, Mode.AT_LEAST_ONCE, schedule))
        window = ends[-1] + 1
    assert len(ends) == GROUPS and ends == group_ends(windows, distance)
    assert all((end + 1) % distance == 0 for end in ends[:-1])


def test_example_has_six_groups_that_all_end_on_due_checkpoints() -> None:
    windows = WindowRange(376_954, 385_709)
    distance = group_distance(windows)
    ends = group_ends(windows, distance)
    assert distance == 1_495 and len(ends) == 6 and all((end + 1) % distance == 0 for end in ends)


def test_range_with_fewer_windows_than_groups_is_rejected() -> None:
    with pytest.raises(RangeError, match="too short for 6 commit groups"):
        group_distance(WindowRange(10, 14))
