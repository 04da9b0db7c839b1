"""Recovery modes as policies: another mode is another entry of `MODES`, which everything else asks."""

from __future__ import annotations

import pytest

from rewindow.application import MODES, Mode
from rewindow.recovery import Plan, guarantee
from tests.recovery.simulation import RULES, make_plan, run

SAVED_AT_MARKS = Mode("saved_at_marks", "saved at marks: every window once, and more is computed again after a crash")
REPEATS_SAVED = Mode(
    "repeats_saved", "repeats, saved after every group", may_repeat=True, saves_every_group=True
)  # fmt: skip
RUNS = 60


@pytest.fixture(params=[SAVED_AT_MARKS, REPEATS_SAVED], ids=str)
def fourth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mode:
    mode: Mode = request.param
    monkeypatch.setitem(MODES, mode.name, mode)
    return mode


def test_another_mode_is_kept_with_a_plan_and_promised(fourth: Mode) -> None:
    """By its name in JSON, as every other."""
    plan = make_plan(Mode.parse(str(fourth)))
    text = plan.model_dump_json()
    assert f'"mode":"{fourth.name}"' in text and Plan.model_validate_json(text).mode is fourth
    assert guarantee(fourth, stateful=True, lost=1, unseen=1) == fourth.promise


def test_another_mode_keeps_its_promise_whatever_crashes(fourth: Mode) -> None:
    """The protocol asks the policy only, so no interleaving breaks what it says."""
    broken = {seed: found for seed in range(RUNS) if (found := run(fourth, seed))}
    assert not broken


def test_another_mode_breaks_without_a_rule_that_it_needs() -> None:
    """What is computed again must not be written where it is there already."""
    assert "nothing to a table that has it" in RULES
    assert any(run(SAVED_AT_MARKS, seed, "nothing to a table that has it") for seed in range(RUNS))


def test_a_mode_that_is_not_there_is_refused_in_a_plan() -> None:
    """A plan of a mode that was taken away is a wrong plan, not another mode."""
    with pytest.raises(ValueError, match="recovery mode saved_at_marks is unknown"):
        Plan.model_validate_json(make_plan(SAVED_AT_MARKS).model_dump_json())
