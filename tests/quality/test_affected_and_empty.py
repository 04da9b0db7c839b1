"""What the gate says of a flawed start state, and of an output without a single row."""

from __future__ import annotations

import pytest

from rewindow.errors import GateError
from rewindow.quality import judge
from tests.quality.staging import StagedReplay, expectation
from tests.quality.test_gate import empty, outcome

IN_SET = "expect_column_values_to_be_in_set"


def begin_stale(staged: StagedReplay) -> None:
    """Lets the replay begin with a state that has changed since."""
    staged.stateful = True
    staged.start = {"source": "published", "window": 99, "stale": [(90, 99)]}


def test_stale_start_state_affects_every_window_of_stateful_outputs(staged: StagedReplay) -> None:
    begin_stale(staged)
    result = judge(staged.config, staged.write().plan)
    assert outcome(result, "no-affected-windows") == ("failed", "warning", list(range(100, 120)))


@pytest.mark.parametrize("consent", ["suite", "error port"])
def test_empty_output_passes_if_declared_as_allowed(staged: StagedReplay, consent: str) -> None:
    empty(staged)
    staged.add_suite(
        "own",
        expectation("total-set", IN_SET, column="total", value_set=[1]),
        measures={"total": "sum(flights)"},
    )
    assert judge(staged.config, staged.write().plan).verdict == "failed"
    meta = {"may_be_empty": True} if consent == "suite" else {}
    staged.add_suite(
        "own",
        expectation("total-set", IN_SET, column="total", value_set=[1]),
        measures={"total": "sum(flights)"},
        **meta,
    )
    staged.errors = consent == "error port"
    result = judge(staged.config, staged.plan)
    assert result.verdict == "passed"
    assert "not-empty" not in {entry.check for entry in result.outputs[0].checks}


def test_setting_that_allows_an_empty_output_must_be_a_boolean(staged: StagedReplay) -> None:
    staged.add_suite(
        "own",
        expectation("total-set", IN_SET, column="total", value_set=[6]),
        may_be_empty="perhaps",
    )
    with pytest.raises(GateError, match='true or false as "may_be_empty", not "perhaps"'):
        judge(staged.config, staged.write().plan)
