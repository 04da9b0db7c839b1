"""Ids of Apex: there and back, against counting window by window, and what belongs to no grid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.apex_ids import COUNTERS, INITIAL, ApexIds, id_of_state, state_name
from rewindow.errors import InputError
from rewindow.windows import Grid

GRIDS = st.builds(Grid, st.integers(1, 10_000), st.integers(-(10**12), 10**12))


def counted(grid: Grid, windows: int) -> list[int]:
    """Returns the ids of the first windows, as a machine makes them that counts on and begins
    epochs (W1, W2, W6).
    """
    first_ms = grid.origin_us // 1000
    width_ms = grid.width_us // 1000
    found = []
    base_s = first_ms // 1000
    counter = 0
    for window in range(windows):
        if counter == COUNTERS:
            base_s = (first_ms + window * width_ms) // 1000
            counter = 0
        found.append(base_s * 2**32 + counter)
        counter += 1
    return found


@pytest.mark.parametrize(
    "grid",
    [Grid(500, 1_357_016_400_000), Grid(7, -12_345), Grid(1, 999), Grid(3_600_000, 0)],
)
def test_ids_equal_those_of_a_simulated_counter(grid: Grid) -> None:
    # Rules: W4, W7, W10, W1, W2, W6
    ids = ApexIds(grid)
    machine = counted(grid, 3 * COUNTERS + 2)
    assert [ids.id_of(window) for window in range(len(machine))] == machine
    assert [ids.window_of(one) for one in machine] == list(range(len(machine)))


@given(GRIDS, st.integers(0, 3 * COUNTERS), st.integers(0, 3 * COUNTERS))
def test_apex_id_conversion_is_reversible(grid: Grid, window: int, other: int) -> None:
    # Rules: W9, W13
    ids = ApexIds(grid)
    one = ids.id_of(window)
    two = ids.id_of(other)
    assert ids.window_of(one) == window and id_of_state(state_name(one)) == one
    assert ids.distance(one, two) == other - window
    assert (ids.sort_key(one) < ids.sort_key(two)) == (window < other)
    assert ids.start_us(one) == grid.start_us(window)
    assert ids.window_of(ids.after(one)) == window + 1


def test_initial_state_id_is_before_the_first_window() -> None:
    # Rules: W8, W11
    ids = ApexIds(Grid(500, 1_357_016_400_000))
    assert ids.start_us(INITIAL) == 1_357_016_400_000_000
    assert ids.window_of(ids.after(INITIAL)) == 1 and ids.distance(INITIAL, ids.id_of(1)) == 1
    assert sorted([ids.id_of(0), INITIAL, ids.id_of(1)], key=ids.sort_key) == [
        INITIAL,
        ids.id_of(0),
        ids.id_of(1),
    ]
    with pytest.raises(InputError, match="initial state"):
        ids.window_of(INITIAL)
    assert id_of_state(state_name(INITIAL)) == INITIAL == id_of_state("f" * 16)


def test_ids_outside_any_window_are_rejected() -> None:
    # Rules: W7
    ids = ApexIds(Grid(500, 1_357_016_400_000))
    base = ids.id_of(0)
    for foreign in (base + COUNTERS, base + (1 << 32), base - (1 << 32)):
        with pytest.raises(InputError, match="does not belong to a window of this grid"):
            ids.window_of(foreign)
    with pytest.raises(InputError, match="window -1 has no Apex id"):
        ids.id_of(-1)
    with pytest.raises(InputError, match="32 bits of seconds"):
        ids.id_of(2**40)


@pytest.mark.parametrize(
    "name",
    ["", "50e26d50", "50E26D5000000003", "50e26d5000000003.tmp", "+" + "0" * 15],
)
def test_invalid_apex_state_names_are_rejected(name: str) -> None:
    # Rules: W13
    with pytest.raises(InputError, match="is not the name of a state of Apex"):
        id_of_state(name)
