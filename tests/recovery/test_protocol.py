"""The commit protocol under random crashes, and what each of its rules is for."""

from __future__ import annotations

import pytest

from rewindow.application import Mode
from tests.recovery.simulation import run

RUNS = 2000
RULES = [
    (Mode.EXACTLY_ONCE, "compare and set"),
    (Mode.EXACTLY_ONCE, "mark carried by the fence"),
    (Mode.EXACTLY_ONCE, "nothing to a table that has it"),
    (Mode.EXACTLY_ONCE, "groups end where a table does"),
    (Mode.EXACTLY_ONCE, "epoch checked by the commit"),
    (Mode.AT_LEAST_ONCE, "checkpoint last"),
    (Mode.AT_MOST_ONCE, "seals after the rows"),
    (Mode.AT_MOST_ONCE, "started mark checks the epoch"),
    (Mode.AT_MOST_ONCE, "started mark before the work"),
    (Mode.AT_MOST_ONCE, "compare and set"),
]


@pytest.mark.parametrize("mode", Mode)
def test_protocol_keeps_its_promise_whatever_crashes(mode: Mode) -> None:
    """No interleaving of crashes, zombies and late attempts breaks the mode's promise."""
    broken = {seed: found for seed in range(RUNS) if (found := run(mode, seed))}
    assert not broken, f"seeds and broken promises: {dict(list(broken.items())[:3])}"


@pytest.mark.parametrize(("mode", "rule"), RULES)
def test_protocol_breaks_without_a_rule(mode: Mode, rule: str) -> None:
    """Each rule is needed: without it some run breaks the promise."""
    assert any(run(mode, seed, rule) for seed in range(RUNS)), f"nothing broke without: {rule}"
