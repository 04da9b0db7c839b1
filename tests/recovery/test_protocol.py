"""The commit protocol under random crashes, and what each of its rules is for."""

from __future__ import annotations

import pytest

from rewindow.application import MODES, Mode
from tests.recovery.simulation import run

RUNS = 60
RUNS_MORE = 400
RUNS_MANY = 2000
RULES = [
    (Mode.EXACTLY_ONCE, "compare and set"),
    (Mode.EXACTLY_ONCE, "files joined on the snapshot that was read"),
    (Mode.EXACTLY_ONCE, "mark carried by the fence"),
    (Mode.EXACTLY_ONCE, "done read on the snapshot of the fence"),
    (Mode.EXACTLY_ONCE, "nothing to a table that has it"),
    (Mode.EXACTLY_ONCE, "groups end where a table does"),
    (Mode.AT_MOST_ONCE, "mark carried by the fence"),
    (Mode.AT_MOST_ONCE, "checkpoints read after their fence"),
    (Mode.AT_MOST_ONCE, "checkpoint last"),
    (Mode.AT_MOST_ONCE, "seals after the rows"),
    (Mode.AT_MOST_ONCE, "losses listed before the first new group"),
    (Mode.AT_MOST_ONCE, "what is begun is committed before the work"),
    (Mode.AT_MOST_ONCE, "the commit of what is begun checks the epoch"),
    (Mode.AT_MOST_ONCE, "compare and set"),
]


@pytest.mark.parametrize("mode", MODES.values(), ids=str)
def test_protocol_keeps_its_guarantee_under_any_crash(mode: Mode) -> None:
    # Rules: R48 to R50
    check(mode, range(RUNS))


@pytest.mark.recovery_matrix
@pytest.mark.parametrize("mode", MODES.values(), ids=str)
@pytest.mark.parametrize(
    "seeds",
    [
        range(RUNS, RUNS_MORE),
        pytest.param(range(RUNS_MORE, RUNS_MANY), marks=pytest.mark.exhaustive),
    ],
)
def test_protocol_keeps_its_guarantee_in_many_more_runs(mode: Mode, seeds: range) -> None:
    check(mode, seeds)


@pytest.mark.parametrize(("mode", "rule"), RULES)
def test_protocol_violates_its_guarantee_if_any_rule_is_removed(mode: Mode, rule: str) -> None:
    assert any(run(mode, seed, rule) for seed in range(RUNS_MANY)), f"nothing broke without: {rule}"


def check(mode: Mode, seeds: range) -> None:
    broken = {seed: found for seed in seeds if (found := run(mode, seed))}
    assert not broken, f"seeds and broken promises: {dict(list(broken.items())[:3])}"
