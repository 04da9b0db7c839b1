"""Jumps of the arrival time: found in numbers, refused with settings that help, quarantined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rewindow.errors import InputError
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.arrival_gaps import ArrivalGap, find_gap
from rewindow.windows import WindowRange, format_time
from tests.recording.conftest import Bench

ROWS = "".join(f"k,{format_time((1_704_067_200 + n) * 1_000_000)},{n}\n" for n in range(100))
"""A tuple a second from 2024-01-01 on, in windows of ten seconds."""
EPOCH = "x,1970-01-01T00:00:03Z,-1\n"
LAST = "2024-01-01T00:01:40Z"


def arrivals(*windows: int, counts: list[int] | None = None) -> ArrivalCounts:
    numbers = np.array(counts or [1] * len(windows), np.int64)
    return ArrivalCounts(
        np.array(windows, np.int64),
        numbers,
        numbers,
        np.array(windows, np.int64) * 1_000_000,
        malformed=0,
    )


@pytest.mark.parametrize(
    ("windows", "sealed", "last", "expected"),
    [
        ([1, 12], None, 12, None),
        ([1, 2, 13], None, 13, None),
        ([1, 2, 14], None, 14, ([(14, 14)], 11, False)),
        ([1, 20, 21, 22, 50], None, 50, ([(1, 1), (50, 50)], 27, False)),
        ([1, 2, 40], None, 12, None),
        ([1, 2, 40], None, 13, ([(40, 40)], 11, False)),
        ([1, 2, 40], None, None, None),
        ([40], (1, 9), 40, ([(40, 40)], 30, True)),
        ([10, 40, 41], (1, 9), 41, ([(40, 41)], 29, True)),
        ([3, 10], (100, 109), 109, ([(3, 10)], 0, False)),
        ([89, 95], (100, 109), 109, None),
        ([], None, None, None),
    ],
)
def test_gap_of_too_many_empty_windows_in_the_arrivals_is_detected(
    windows: list[int],
    sealed: tuple[int, int] | None,
    last: int | None,
    expected: Any,
) -> None:
    found = find_gap(arrivals(*windows), WindowRange(*sealed) if sealed else None, last, 10)
    if isinstance(found, ArrivalGap):
        apart = [(part.first, part.last) for part in found.apart]
        assert (apart, found.empty, found.after_sealed) == expected
    else:
        assert expected is None


def test_larger_side_of_an_arrival_gap_is_the_side_with_more_tuples() -> None:
    found = find_gap(arrivals(1, 50, 51, counts=[9, 2, 3]), None, 51, 10)
    assert found is not None and found.apart == (WindowRange(50, 51),)


def test_arrival_in_1970_is_rejected_with_its_row_and_a_working_hint(bench: Bench) -> None:
    bench.write(ROWS + EPOCH)
    settings: dict[str, Any] = {"sealed_to": None, "end": True}
    with pytest.raises(InputError, match="have a gap of 170,406,71. windows") as caught:
        bench.record(**settings)
    assert (
        "1 row on the smaller side of the gap: s.csv:102 (1970-01-01 00:00:03)"
        in caught.value.detail
    )
    assert "gap_windows_max" not in caught.value.hint
    hours = {**settings, "width": "1 hour"}
    with pytest.raises(InputError, match="have a gap of 473,351 windows") as caught:
        bench.record(**hours)
    for setting in ('on_gap = "quarantine"', 'origin = "2024-01-01T00:00:00Z"'):
        assert setting in caught.value.hint
        name, _, value = setting.partition(" = ")
        tried = Bench(bench.spark, bench.root / name)
        tried.root.mkdir()
        tried.write(ROWS + EPOCH)
        result = tried.record(**{**hours, name: value.strip('"')})
        assert (result.recorded, result.malformed, result.windows_sealed) == (100, 1, 1)
    assert "gap_windows_max = 473351" in caught.value.hint
    taken = bench.record(**hours, gap_windows_max=473_351)
    assert (taken.recorded, taken.windows_empty) == (101, 473_351)


@pytest.mark.parametrize("wrong", ["1970-01-01T00:00:03Z", "2025-06-01T00:00:00Z"])
def test_row_with_a_wrong_clock_is_quarantined_once_and_makes_no_other_row_late(
    bench: Bench,
    wrong: str,
) -> None:
    settings: dict[str, Any] = {"sealed_to": None, "on_gap": "quarantine"}
    bench.write(f"x,{wrong},-1\n{ROWS}")
    first = bench.record(**settings)
    assert (first.recorded, first.malformed, first.windows_sealed) == (90, 1, 9)
    assert bench.aside() == [(None, "malformed: arrival is far from all others", "s.csv:2")]
    assert '"n":-1' in bench.rows("select payload from q")[0]["payload"]
    bench.write(f"x,{wrong},-1\n{ROWS}k,{LAST},100\n")
    (bench.config().windows_table("s") / "_rewindow" / "taken.json").delete()
    second = bench.record(**settings)
    assert (second.recorded, second.late, second.malformed, second.known) == (10, 0, 0, 1)
    assert len(bench.aside()) == 1


def test_too_many_rows_beyond_an_arrival_gap_are_never_quarantined(bench: Bench) -> None:
    bench.write(ROWS + EPOCH * 10)
    with pytest.raises(InputError, match="have a gap of") as caught:
        bench.record(sealed_to=None, on_gap="quarantine")
    assert "on_gap" not in caught.value.hint
    assert "10 rows on the smaller side" in caught.value.detail


def test_silence_after_the_last_sealed_window_is_never_quarantined(bench: Bench) -> None:
    settings: dict[str, Any] = {"sealed_to": None, "on_gap": "quarantine"}
    bench.write(ROWS)
    bench.record(**settings)
    bench.write(ROWS + "x,2024-02-01T00:00:00Z,1\ny,2024-02-01T00:01:00Z,2\n")
    with pytest.raises(InputError, match="have a gap of") as caught:
        bench.record(**{**settings, "sealed_to": None})
    assert "gap_windows_max = " in caught.value.hint
    limit = int(caught.value.hint.rpartition("gap_windows_max = ")[2].split()[0])
    taken = bench.record(**settings, gap_windows_max=limit)
    assert (taken.recorded, taken.late, taken.waiting) == (11, 0, 1)


def test_requested_bound_seals_any_number_of_windows(bench: Bench) -> None:
    bench.write(ROWS)
    result = bench.record(sealed_to="2024-02-01T00:00:00Z", gap_windows_max=1000)
    assert result.windows_sealed == 31 * 8640
