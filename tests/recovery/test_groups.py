"""How sizes of commit groups follow the time that groups take: pure, over synthetic timings."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from rewindow.recovery import GroupSizer

TARGET_S = 20.0
Cost = Callable[[int, int], float]
"""Seconds that a group takes, by its first window and its count of windows."""


def run(
    cost: Cost, windows: int, size: int, size_max: int | None = None
) -> list[tuple[int, float]]:
    """Returns windows and seconds of every group of a replay."""
    sizer = GroupSizer(None, TARGET_S, size, size_max)
    groups = []
    first = 0
    while first < windows:
        count = min(sizer.size, windows - first)
        seconds = cost(first, count)
        sizer.took(count, seconds)
        groups.append((count, seconds))
        first += count
    return groups


def total(groups: list[tuple[int, float]]) -> float:
    return sum(seconds for _, seconds in groups)


def test_groups_grow_to_the_target_time_if_cost_is_proportional_to_windows() -> None:
    groups = run(lambda first, count: 0.5 + 0.1 * count, 20_000, 64)
    assert all(abs(seconds - TARGET_S) < 1 for _, seconds in groups[2:-1])


@pytest.mark.parametrize("slower", [3, 5, 8])
@pytest.mark.parametrize("busy_from", [0, 300, 365, 800])
def test_busy_machine_does_not_shrink_groups_with_nearly_fixed_cost(
    slower: int,
    busy_from: int,
) -> None:
    def cost(first: int, count: int) -> float:
        return (15 + 0.002 * count) * (slower if first >= busy_from else 1)

    groups = run(cost, 1_460, 365, 365)
    unchanged = [(365, cost(first, 365)) for first in range(0, 1_460, 365)]
    assert total(groups) <= total([*unchanged, unchanged[-1]])


@pytest.mark.parametrize("loads", [(6, 1), (5, 1, 3), (1, 6, 6, 1), (4, 6, 1, 2)])
def test_varying_machine_load_does_not_shrink_groups_with_nearly_fixed_cost(
    loads: tuple[int, ...],
) -> None:
    load = itertools.cycle(loads)
    groups = run(lambda first, count: (15 + 0.002 * count) * next(load), 1_460, 365, 365)
    assert len(groups) <= 6


def test_busy_machine_shrinks_groups_if_cost_is_proportional_to_windows() -> None:
    def cost(first: int, count: int) -> float:
        return (0.5 + 0.1 * count) * (5 if first >= 5_000 else 1)

    groups = run(cost, 20_000, 64)
    assert abs(groups[-2][1] - TARGET_S) < 1
    assert max(seconds for _, seconds in groups) < 6 * TARGET_S


def test_groups_exceed_the_target_time_if_their_cost_is_nearly_fixed() -> None:
    groups = run(lambda first, count: 30 + 0.002 * count, 100_000, 500)
    largest = max(count for count, _ in groups)
    assert largest >= 3 * 30 / 0.002
    assert total(groups) < 0.1 * total([(500, 31.0)] * 200)


@pytest.mark.parametrize("fixed_s", [1.0, 4.0, 12.0])
def test_fixed_cost_is_at_most_a_quarter_of_a_group_after_two_measured_sizes(
    fixed_s: float,
) -> None:
    each_s = 0.01
    groups = run(lambda first, count: fixed_s + each_s * count, 400_000, 1_000)
    for _, seconds in groups[4:-1]:
        assert fixed_s <= 0.2501 * seconds
    bounded = run(lambda first, count: fixed_s + each_s * count, 10_000, 1_000, 50)
    assert {count for count, _ in bounded} == {50}


@pytest.mark.parametrize("slow_window", [1_000, 1_500, 3_000])
def test_single_slow_window_does_not_change_the_size_of_later_groups(
    slow_window: int,
) -> None:
    def cost(first: int, count: int) -> float:
        is_inside = first <= slow_window < first + count
        return 1 + 0.05 * count + 400 * is_inside

    groups = run(cost, 6_000, 64)
    (slow,) = [place for place, (_, seconds) in enumerate(groups) if seconds > 300]
    before, after = groups[slow - 1], groups[slow + 1]
    assert abs(after[0] - before[0]) <= 1


def test_slow_first_group_does_not_change_the_group_size() -> None:
    sizer = GroupSizer(None, TARGET_S, 500)
    sizer.took(500, 90.0)
    assert sizer.size == 500


def test_groups_shrink_if_every_group_takes_far_longer_than_the_target() -> None:
    groups = run(lambda first, count: 0.1 * count, 60_000, 10_000)
    assert groups[0][0] == groups[1][0] == 10_000
    assert abs(groups[-2][1] - TARGET_S) < 1
    assert len([1 for _, seconds in groups if seconds > 2 * TARGET_S]) <= 5
