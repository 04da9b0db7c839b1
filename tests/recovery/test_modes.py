"""Recovery modes as policies: another mode is another entry of `MODES`, which everything else
asks.
"""

from __future__ import annotations

import pytest

from rewindow.application import MODES, Mode
from rewindow.recovery import Plan, guarantee
from tests.recovery.simulation import RULES, make_plan, run

SAVED_AT_MARKS = Mode(
    "saved_at_marks",
    "saved at marks: every window once, and more is computed again after a crash",
)
REPEATS_SAVED = Mode(
    "repeats_saved",
    "repeats, saved after every group",
    may_repeat=True,
    saves_every_group=True,
)
RUNS = 60


@pytest.fixture(params=[SAVED_AT_MARKS, REPEATS_SAVED], ids=str)
def fourth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mode:
    mode: Mode = request.param
    monkeypatch.setitem(MODES, mode.name, mode)
    return mode


def test_custom_mode_is_stored_in_a_plan_with_its_guarantees(fourth: Mode) -> None:
    plan = make_plan(Mode.parse(str(fourth)))
    text = plan.model_dump_json()
    assert f'"mode":"{fourth.name}"' in text and Plan.model_validate_json(text).mode is fourth
    assert guarantee(fourth, stateful=True, lost=1, unseen=1) == fourth.promise


def test_custom_mode_keeps_its_guarantee_under_any_crash(fourth: Mode) -> None:
    broken = {seed: found for seed in range(RUNS) if (found := run(fourth, seed))}
    assert not broken


def test_custom_mode_violates_its_guarantee_without_a_required_rule() -> None:
    assert "nothing to a table that has it" in RULES
    assert any(run(SAVED_AT_MARKS, seed, "nothing to a table that has it") for seed in range(RUNS))


def test_plan_of_an_unknown_mode_is_rejected() -> None:
    with pytest.raises(ValueError, match="recovery mode saved_at_marks is unknown"):
        Plan.model_validate_json(make_plan(SAVED_AT_MARKS).model_dump_json())
