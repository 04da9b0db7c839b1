"""Windows opened again: late tuples come into their windows, seals get a generation, a death is
completed.
"""

from __future__ import annotations

import pytest

from rewindow.errors import RewindowError
from rewindow.recording import reopening
from rewindow.storage import Table, query
from tests.lost_files import lose_part_files
from tests.recording.conftest import Bench
from tests.recording.test_crashes import Died
from tests.recording.test_record import ROWS

LATE = "late,1970-01-01T02:46:49.123456Z,9\nlate,1970-01-01T02:47:11Z,8\n"
AFTER = [(1000, 2), (1000, 1), (1000, 9), (1000, 3), (1001, 4), (1003, 8), (1004, 5)]


def check_taken(bench: Bench) -> None:
    """Asserts that the late tuples are in their windows, in order of arrival, under a second seal,
    and nowhere else.
    """
    found = bench.rows('select window_id, "offset", n from s order by window_id, "offset"')
    assert [(row["window_id"], row["n"]) for row in found] == AFTER
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 0, 0, 0]
    seals = bench.rows("select window_id, generation, tuples from w order by window_id")
    assert [tuple(row.values()) for row in seals] == [
        (1000, 2, 4),
        (1001, 1, 1),
        (1002, 1, 0),
        (1003, 2, 1),
        (1004, 1, 1),
    ]
    assert bench.aside() == []


def test_late_tuples_are_added_to_their_reopened_windows(bench: Bench) -> None:
    # Rules: X52
    bench.write(ROWS)
    bench.record()
    bench.write(ROWS + LATE)
    late = bench.record()
    assert late.late == 2
    assert "rewindow record s --reopen" in late.warnings[-1]
    config = bench.config()
    pinned = [Table.open(path) for path in (config.stream_table("s"), config.windows_table("s"))]
    before = [query("select * from t", t=table).to_pylist() for table in pinned]
    opened = bench.record(reopen=True)
    assert (opened.reopened, opened.taken, opened.late, opened.files_unchanged) == (2, 2, 0, 1)
    check_taken(bench)
    again = [Table.open(table.path, table.version) for table in pinned]
    assert [query("select * from t", t=table).to_pylist() for table in again] == before
    assert bench.rows("select arrived_at from s where n = 9")[0]["arrived_at"].microsecond == 123456


def test_reopening_that_lost_a_part_file_changes_nothing(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write(ROWS + LATE)
    bench.record()
    before = bench.tuples()
    with monkeypatch.context() as patch:
        lost = lose_part_files(patch, "reopened")
        with pytest.raises(RewindowError, match="rows into folder .* the driver finds"):
            bench.record(reopen=True)
    assert len(lost) == 1 and bench.tuples() == before
    bench.record(reopen=True)
    check_taken(bench)


@pytest.mark.long
@pytest.mark.parametrize("point", ["reopen_after_note", "reopen_after_data", "reopen_after_seals"])
def test_interrupted_reopening_is_completed_with_every_tuple_once(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write(ROWS + LATE)
    bench.record()

    def crash(step: str, number: int = 1, attempt: int | None = None) -> None:
        if step == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(reopening, "crash_point", crash)
        with pytest.raises(Died):
            bench.record(reopen=True)
    assert bench.record().late == 0
    if point == "reopen_after_note":
        assert len(bench.aside()) == 2
        bench.record(reopen=True)
    check_taken(bench)


def test_declared_end_is_stored_and_can_be_revoked(bench: Bench) -> None:
    bench.write(ROWS)
    bench.record(end=True, sealed_to=None)
    assert bench.rows("select end_window from w where window_id is null") == [{"end_window": 1004}]
    bench.record(end=True, sealed_to=None)
    bench.write(ROWS + "d,1970-01-01T02:47:35Z,6\ne,1970-01-01T02:47:45Z,7\n")
    behind = bench.record(sealed_to="1970-01-01T02:48:00Z")
    assert (behind.windows_sealed, behind.late, behind.waiting) == (0, 0, 2)
    assert "behind the end of the stream, window 1004" in behind.warnings[0]
    again = bench.record(sealed_to="1970-01-01T02:48:00Z", reopen=True)
    assert (again.recorded, again.last) == (2, 1007)
    assert bench.rows("select end_window from w where window_id is null") == []
