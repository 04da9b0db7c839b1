"""Requests: what is answered where their id is taken, and how a plan repeats what was asked for."""

from __future__ import annotations

import pytest

from rewindow.errors import InputError
from rewindow.ledger import Ledger
from rewindow.planning import create_replay, draft_plan
from tests.planning.options import request
from tests.recovery.project import FIRST, WINDOWS, Project

LAST = FIRST + WINDOWS - 1


def test_existing_replay_id_is_rejected_with_a_hint_that_depends_on_its_state(
    project: Project,
) -> None:
    project.plan("one", "exactly_once")
    with pytest.raises(InputError) as taken:
        create_replay(project.config, request(replay_id="one", mode="at_least_once"))
    assert "To continue it as it was planned: rewindow replay --resume one" in taken.value.hint
    Ledger.open(project.config.ledger_url).replays.abandon("one", "no use")
    with pytest.raises(InputError) as taken:
        create_replay(project.config, request(replay_id="one", mode="at_least_once"))
    assert (
        taken.value.hint
        == "It is abandoned (rewindow status one). Use another --id for the new replay."
    )


def test_plan_command_contains_exactly_the_given_options(project: Project) -> None:
    plain = draft_plan(project.config, request()).plan
    assert plain.command == f"rewindow replay totals --first {FIRST} --last {LAST}"
    replay_options = {
        "mode": "at_least_once",
        "checkpoint_windows": 5,
        "group_windows": 2,
        "cores_max": 1,
        "initial_state": True,
        "reason": "a bug",
        "allow_missing": True,
        "verify_inputs": False,
    }
    plan = draft_plan(project.config, request(**replay_options)).plan
    assert plan.command == (
        f"rewindow replay totals --first {FIRST} --last {LAST} --mode at_least_once "
        "--group-windows 2 "
        "--checkpoint-windows 5 --cores-max 1 --allow-missing --initial-state "
        "--no-verify-inputs --reason 'a bug'"
    )
