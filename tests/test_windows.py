"""Window arithmetic against plain reformulations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewindow.errors import InputError, RangeError
from rewindow.windows import (
    WIDTH_MS_MAX,
    WINDOWS_MAX,
    Grid,
    WindowRange,
    format_time,
    parse_duration,
    parse_time,
    to_ranges,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(1, 10**7), st.integers(-(10**12), 10**12), st.integers(0, 10**15))
def test_each_time_is_in_exactly_one_window(width_ms: int, origin_ms: int, after_us: int) -> None:
    # Rules: W5, W10
    grid = Grid(width_ms, origin_ms)
    t_us = origin_ms * 1000 + after_us
    window = grid.window(t_us)
    assert grid.start_us(window) <= t_us < grid.end_us(window)
    assert grid.end_us(window) == grid.start_us(window + 1)


def test_time_before_the_origin_is_rejected() -> None:
    # Rules: W5
    with pytest.raises(RangeError, match="before the grid's origin"):
        Grid(1000, 5000).window(4_999_999)


@pytest.mark.parametrize("width_ms", [0, -1, WIDTH_MS_MAX + 1])
def test_width_out_of_range_is_rejected(width_ms: int) -> None:
    # Rules: W3
    with pytest.raises(InputError, match="is out of range"):
        Grid(width_ms)


def test_widest_window_is_accepted() -> None:
    # Rules: W3
    assert Grid(WIDTH_MS_MAX).window(0) == 0


@given(st.sets(st.integers(-50, 50)))
def test_window_ranges_and_time_ranges_contain_the_same_windows(windows: set[int]) -> None:
    ranges = to_ranges(windows)
    assert [window for part in ranges for window in part] == sorted(windows)
    assert all(before.last + 1 < after.first for before, after in pairwise(ranges))


@given(st.integers(-20, 20), st.integers(0, 20), st.integers(-20, 20), st.integers(0, 20))
def test_range_overlap_equals_the_set_intersection(a: int, n: int, b: int, m: int) -> None:
    one = WindowRange(a, a + n)
    other = WindowRange(b, b + m)
    found = one.overlap(other)
    assert set(found or ()) == set(one) & set(other)


def test_reversed_range_is_rejected_with_both_ends() -> None:
    with pytest.raises(RangeError, match="first 377390 is after last 377330"):
        WindowRange(377390, 377330)


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        ("2013-01-01T05:30", "2013-01-01T07:00", "not on a window border"),
        ("2013-01-02", "2013-01-01", "reversed"),
        ("2013-01-01", "2013-01-01", "empty"),
    ],
)
def test_time_ranges_that_are_not_whole_windows_are_rejected(
    begin: str,
    end: str,
    words: str,
) -> None:
    with pytest.raises(RangeError, match=words):
        Grid(3_600_000).aligned_range(parse_time(begin), parse_time(end))


def test_half_open_time_range_is_converted_to_a_closed_window_range() -> None:
    assert (
        len(
            Grid(3_600_000).aligned_range(
                parse_time("2013-01-01T05:00Z"),
                parse_time("2013-01-01T07:00Z"),
            )
        )
        == 2
    )


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)))
def test_times_are_unchanged_by_a_round_trip_through_text(moment: datetime) -> None:
    t_us = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    assert parse_time(format_time(t_us)) == t_us


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1 hour", 3_600_000_000),
        ("10 minutes", 600_000_000),
        ("0.10", 100_000),
        ("5s", 5_000_000),
        ("250 ms", 250_000),
        (1.5, 1_500_000),
        ("2 days", 172_800_000_000),
    ],
)
def test_durations_are_parsed_without_loss_of_precision(text: object, us: int) -> None:
    assert parse_duration(text) == us  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "soon", "1 fortnight", "0.0000001 s", "1 hour 5"])
def test_text_without_a_valid_duration_is_rejected(text: str) -> None:
    # Rules: H26
    with pytest.raises(InputError, match="duration"):
        parse_duration(text)


@given(st.integers(-(10**40), 10**40), st.integers(0, 10**40))
def test_huge_range_is_rejected_without_enumerating_it(first: int, more: int) -> None:
    windows = WindowRange(first, first + more)
    if more + 1 > WINDOWS_MAX:
        with pytest.raises(RangeError, match="windows, but at most"):
            windows.checked("the replay")
    else:
        assert windows.checked("the replay") is windows
