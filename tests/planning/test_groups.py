"""How many commit groups a replay gets whose groups are sized by time."""

from __future__ import annotations

import pytest

from rewindow.application import MODES, Mode
from rewindow.planning import containers, draft_plan
from rewindow.recovery import CheckpointSchedule, GroupSizer, Plan, next_end
from tests.planning.options import request
from tests.recovery.project import WINDOWS, Project


def groups_of(plan: Plan) -> list[int]:
    """Returns the sizes of the commit groups of a replay of which every group takes no time."""
    sizer = GroupSizer(
        plan.group_windows,
        plan.group_seconds,
        len(plan.range),
        plan.group_windows_max,
    )
    schedule = CheckpointSchedule(plan.checkpoint_windows)
    first = plan.first
    found = []
    while first <= plan.last:
        end = next_end(first, plan.last, sizer.size, plan.mode, schedule)
        sizer.took(end - first + 1, 0.0)
        found.append(end - first + 1)
        first = end + 1
    return found


@pytest.mark.parametrize("mode", [MODES["exactly_once"], MODES["at_most_once"]])
def test_short_replay_has_several_groups_without_a_fixed_size(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
) -> None:
    config = project.config
    replay_options = {"mode": mode.name, "checkpoint_windows": 10**6}
    assert groups_of(draft_plan(config, request(**replay_options)).plan) == [WINDOWS]
    monkeypatch.setattr(containers, "SHORT_WINDOWS_MIN", WINDOWS)
    plan = draft_plan(config, request(**replay_options)).plan
    assert groups_of(plan) == [6, 6, 6, 6]
    assert plan.loss_windows_max == (6 if mode.may_lose else 0)
    assert groups_of(draft_plan(config, request(**replay_options, group_windows=20)).plan) == [
        20,
        4,
    ]
    bounded = config.model_copy(
        update={"replay": config.replay.model_copy(update={"loss_windows_max": 5})}
    )
    assert draft_plan(bounded, request(**replay_options)).plan.group_windows_max == (
        5 if mode.may_lose else 6
    )
    monkeypatch.setattr(containers, "SHORT_TUPLES_MAX", 10)
    assert draft_plan(config, request(**replay_options)).plan.group_windows_max is None
