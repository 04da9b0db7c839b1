"""Sealed windows held against their source: late tuples, changed windows, windows that lack
tuples.
"""

from __future__ import annotations

import pytest

from rewindow.errors import InputError
from tests.recording.conftest import Bench
from tests.recording.test_record import ROWS

EDITED = ROWS.replace("02:46:41Z,1", "02:46:41Z,7")
"""The first row has another number; window 1000."""


def changed_aside(bench: Bench) -> list[int]:
    return [
        row["window_id"]
        for row in bench.rows("select window_id from q where reason = 'changed' order by 1")
    ]


def test_edited_source_row_is_counted_as_a_changed_window_and_not_as_late(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write(EDITED)
    result = bench.record()
    assert (result.late, result.changed) == (0, [{"window": 1000, "gone": 1, "new": 1}])
    assert (
        "1 windows were changed in the source, such as 1000 (1 removed, 1 added)"
        in result.warnings[-1]
    )
    assert "rewindow record s --reopen --replace" in result.warnings[-1]
    assert not any(words.endswith("--reopen") for words in result.warnings)
    assert bench.aside() == [(1000, "changed", "s.csv:2")]
    assert result.already_there == 4


def test_changed_late_and_incomplete_windows_are_counted_separately(bench: Bench) -> None:
    more = "m,1970-01-01T02:47:02Z,6\nm,1970-01-01T02:47:02Z,6\n"
    bench.write(ROWS + more)
    bench.record()
    edited = EDITED.replace("02:46:49.999999Z,3", "02:46:42Z,3").replace(
        "a,1970-01-01T02:46:50Z,4\n", ""
    )
    one = "m,1970-01-01T02:47:02Z,6\n"
    bench.write(edited + one + "n,1970-01-01T02:47:03Z,6\nz,1970-01-01T02:47:11Z,9\n")
    result = bench.record()
    assert result.changed == [
        {"window": 1000, "gone": 2, "new": 2},
        {"window": 1002, "gone": 1, "new": 1},
    ]
    assert (result.late, result.short_windows, result.short_tuples) == (1, 1, 1)
    assert changed_aside(bench) == [1000, 1000, 1002]
    assert (
        "were moved to these windows: rewindow record s --reopen --replace" in result.warnings[-1]
    )


def test_late_tuples_stay_in_quarantine_while_a_window_is_changed(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write(EDITED + "late,1970-01-01T02:47:11Z,8\n")
    assert bench.record().late == 1
    before = bench.tuples()
    with pytest.raises(
        InputError, match="windows .1000, 1000. .* cannot be reopened: in the source"
    ) as caught:
        bench.record(reopen=True)
    assert "rewindow record s --reopen --replace" in caught.value.hint
    assert bench.tuples() == before


@pytest.mark.long
def test_only_late_tuples_remain_after_the_source_is_restored(bench: Bench) -> None:
    late = "late,1970-01-01T02:47:11Z,8\n"
    bench.write(ROWS)
    bench.record()
    bench.write(EDITED + late)
    bench.record()
    bench.write(EDITED.replace("41Z,7", "41Z,8") + late)
    bench.record()
    assert changed_aside(bench) == [1000]
    bench.write(ROWS + late)
    again = bench.record()
    assert (again.changed, bench.aside()) == ([], [(1003, "late", "s.csv:7")])
    assert bench.record(reopen=True).taken == 1
