"""The protocol of several containers under random crashes, and what each of its rules is for."""

from __future__ import annotations

import pytest

from tests.recovery.container_simulation import RULES, run

RUNS = 40
RUNS_MORE = 140
RUNS_MANY = 600
SEEDS_MAX = 2000
FIRST_SEED = {
    "compare and set": 11,
    "the first attempt pins what all attempts read": 179,
    "a resume reads the seals that the plan has pinned": 16,
    "the assembly compares the seals that were read": 144,
    "a reader takes nothing of a window that was lost": 40,
    "the assembly has its own fence": 140,
    "nothing is assembled twice": 49,
    "rows are linked again until their seals are committed": 829,
}
"""Rules that few random runs need, with a seed that needs them."""


def test_containers_keep_their_guarantees_under_any_crash() -> None:
    # Rules: R30, R31, R34, R35, R38, R42, R48 to R50, R58, R70, X53
    check(range(RUNS))


@pytest.mark.long
@pytest.mark.parametrize(
    "seeds",
    [
        range(RUNS, RUNS_MORE),
        pytest.param(range(RUNS_MORE, RUNS_MANY), marks=pytest.mark.exhaustive),
    ],
)
def test_containers_keep_their_guarantees_in_many_more_runs(seeds: range) -> None:
    check(seeds)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule])
def test_containers_violate_a_guarantee_if_any_rule_is_removed(rule: str) -> None:
    seeds = range(FIRST_SEED.get(rule, 0), SEEDS_MAX)
    assert any(run(seed, rule) for seed in seeds), f"nothing broke without: {rule}"


def check(seeds: range) -> None:
    broken = {seed: found for seed in seeds if (found := run(seed))}
    assert not broken, f"seeds and broken promises: {dict(list(broken.items())[:3])}"
