"""Resume points, commit groups and due checkpoints, against independent formulations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.application import MODES, Mode
from rewindow.errors import CheckpointError
from rewindow.recovery import (
    CheckpointSchedule,
    GroupSizer,
    affected_from,
    guarantee,
    next_end,
    resume,
)

MARK = st.integers(0, 60)


@given(st.sets(MARK, min_size=1), st.dictionaries(st.sampled_from("abc"), MARK, min_size=1))
def test_exactly_once_restores_the_newest_checkpoint_that_every_table_has_reached(
    saved: set[int],
    done: dict,
) -> None:
    # Rules: R1, R21
    lowest = min(done.values())
    usable = [mark for mark in saved if mark <= lowest]
    if not usable:
        with pytest.raises(CheckpointError, match="no usable checkpoint"):
            resume(Mode.EXACTLY_ONCE, saved, done)
        return
    found = resume(Mode.EXACTLY_ONCE, saved, done)
    assert found.restore == sorted(usable)[-1]
    assert found.first == found.restore + 1
    assert set(found.cuts) == {mark for mark in done.values() if mark > found.restore}
    assert not found.lost and found.skipped is None


@given(st.sets(MARK, min_size=1), st.dictionaries(st.sampled_from("abc"), MARK, min_size=1))
def test_at_least_once_restores_the_newest_checkpoint_and_loses_nothing(
    saved: set[int],
    done: dict,
) -> None:
    # Rules: R10
    usable = [mark for mark in saved if mark <= min(done.values())]
    if not usable:
        with pytest.raises(CheckpointError, match="no usable checkpoint"):
            resume(Mode.AT_LEAST_ONCE, saved, done)
        return
    found = resume(Mode.AT_LEAST_ONCE, saved, done)
    assert (found.restore, found.first, found.lost, found.cuts) == (
        max(usable),
        max(usable) + 1,
        {},
        (),
    )


@given(st.sets(MARK, min_size=1), st.dictionaries(st.sampled_from("abc"), MARK, min_size=1), MARK)
def test_at_most_once_never_starts_a_window_twice(
    saved: set[int],
    done: dict,
    started: int,
) -> None:
    # Rules: R12, R13
    found = resume(Mode.AT_MOST_ONCE, saved, done, started)
    started = max(started, *done.values())
    assert found.first > started
    assert found.restore == max(saved)
    for table, mark in done.items():
        lost = (
            set(range(found.lost[table][0], found.lost[table][1] + 1))
            if table in found.lost
            else set()
        )
        assert lost == set(range(mark + 1, started + 1))


def test_resume_without_a_checkpoint_is_rejected() -> None:
    with pytest.raises(CheckpointError):
        resume(Mode.AT_LEAST_ONCE, [], {})


@given(st.integers(1, 20), st.integers(1, 6))
def test_checkpoints_are_due_at_the_documented_window_numbers(distance: int, multiple: int) -> None:
    # Rules: W42, W43, W45, W46, X7
    # Mark m leads to a checkpoint after ordinal ceil(m / K) * K; ordinals count from 1.
    schedule = CheckpointSchedule(distance, multiple)
    expected = {-(-m // multiple) * multiple for m in range(distance, 600, distance)}
    assert {w + 1 for w in range(300) if schedule.is_due(w)} == {n for n in expected if n <= 300}
    for window in range(0, 200, 7):
        assert schedule.next_due(window) == min(n - 1 for n in expected if n - 1 >= window)


@given(
    st.integers(0, 500),
    st.integers(0, 80),
    st.integers(1, 90),
    st.sampled_from([*MODES.values()]),
    st.integers(1, 30),
)
def test_group_never_crosses_a_checkpoint_mark_or_the_end_of_the_range(
    first: int,
    more: int,
    size: int,
    mode: Mode,
    distance: int,
) -> None:
    schedule = CheckpointSchedule(distance)
    end = next_end(first, first + more, size, mode, schedule)
    assert first <= end <= first + more and end - first + 1 <= size
    if mode is not Mode.EXACTLY_ONCE:
        assert not any(schedule.is_due(window) for window in range(first, end))


@given(st.integers(1, 1000), st.floats(0.01, 100), st.integers(1, 500))
def test_group_size_approaches_the_target_in_bounded_steps(
    windows: int,
    seconds: float,
    size: int,
) -> None:
    sizer = GroupSizer(None, 10.0, size)
    sizer.took(windows, seconds)
    assert 1 <= sizer.size <= 4 * size
    assert sizer.size >= size // 4


@pytest.mark.parametrize(
    ("overhead", "each", "least"),
    [(0.0, 0.1, 90), (2.0, 0.01, 700), (30.0, 0.003, 2_000)],
)
def test_groups_do_not_shrink_if_smaller_groups_save_no_time(
    overhead: float,
    each: float,
    least: int,
) -> None:
    sizer = GroupSizer(None, 10.0, 2_000)
    sizes = list[int]()
    for _ in range(12):
        sizer.took(sizer.size, overhead + each * sizer.size)
        sizes.append(sizer.size)
    assert min(sizes[2:]) >= least
    assert overhead + each * sizes[-1] <= max(11.0, 4.01 * overhead, overhead + each * 2_000)


@given(st.integers(1, 20), st.integers(1, 6), st.sampled_from([None, 1, 3, 50]))
def test_groups_are_not_longer_than_the_maximum_loss_in_the_plan(
    distance: int,
    multiple: int,
    bound: int | None,
) -> None:
    # Rules: X1
    schedule = CheckpointSchedule(distance, multiple)
    sizer = GroupSizer(None, 10.0, 64, bound)
    lengths = []
    window = 0
    while window < 400:
        end = next_end(window, 10_000, sizer.size, Mode.AT_MOST_ONCE, schedule)
        lengths.append(end - window + 1)
        sizer.took(end - window + 1, 0.01)
        window = end + 1
    assert max(lengths) == min(schedule.gap_max, bound or schedule.gap_max)


def test_fixed_group_size_is_not_adapted_to_measured_times() -> None:
    sizer = GroupSizer(7, 10.0, 64)
    sizer.took(7, 100.0)
    assert sizer.size == 7


def test_guarantees_describe_each_mode() -> None:
    # Rules: R14
    texts = {mode: guarantee(mode, stateful=True, lost=1, unseen=1_200) for mode in MODES.values()}
    assert all(text.startswith(mode.words) for mode, text in texts.items())
    assert "affected" in texts[Mode.AT_MOST_ONCE] and "affected" not in texts[Mode.EXACTLY_ONCE]
    assert "loses at most 1 window of an output" in texts[Mode.AT_MOST_ONCE]
    assert "lacks at most 1,200 windows" in texts[Mode.AT_MOST_ONCE]
    assert "affected" not in guarantee(Mode.AT_MOST_ONCE, stateful=False, lost=1, unseen=1)


def test_affected_windows_start_after_the_first_skip() -> None:
    # Rules: R14
    assert affected_from(Mode.AT_MOST_ONCE, [(7, 9), (12, 12)]) == 10
    assert affected_from(Mode.EXACTLY_ONCE, [(7, 9)]) is None
