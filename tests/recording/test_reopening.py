"""Windows opened again: late tuples come into their windows, or the source's tuples in place of
what was recorded; seals get a generation, a death is completed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from rewindow.errors import InputError, RewindowError
from rewindow.ledger import Ledger
from rewindow.recording import reopening
from rewindow.storage import Table, query
from rewindow.windows import format_time
from tests.ledger.life import run_to_end
from tests.lineage.test_dependents import close
from tests.lost_files import lose_part_files
from tests.recording.conftest import Bench
from tests.recording.test_crashes import Died
from tests.recording.test_late import EDITED
from tests.recording.test_record import ROWS
from tests.recording.test_sources import frame_of

LATE = "late,1970-01-01T02:46:49.123456Z,9\nlate,1970-01-01T02:47:11Z,8\n"
AFTER = [(1000, 2), (1000, 1), (1000, 9), (1000, 3), (1001, 4), (1003, 8), (1004, 5)]


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, point: str) -> Iterator[None]:
    """Ends a reopening at one of its crash points."""

    def crash(step: str, number: int = 1, attempt: int | None = None) -> None:
        if step == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(reopening, "crash_point", crash)
        with pytest.raises(Died):
            yield


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


def test_reopening_fails_without_changes_if_a_part_file_is_lost(
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
    with dying_at(monkeypatch, point):
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
    assert "after window 1004 (1970-01-01T02:47:20Z), the end of the stream" in behind.warnings[0]
    again = bench.record(sealed_to="1970-01-01T02:48:00Z", reopen=True)
    assert (again.recorded, again.last) == (2, 1007)
    assert bench.rows("select end_window from w where window_id is null") == []


Row = tuple[str, int, int | None]
BEFORE: list[Row] = [("b", 40, 2), ("a", 41, 1), ("a", 41, 1), ("c", 50, 4)]
AFTER_EDIT: list[Row] = [("b", 40, 2), ("a", 41, 7), ("a", 41, 1), ("c", 50, 4)]


def write_csv(root: Path, rows: list[Row]) -> dict[str, Any]:
    lines = [f"{k},1970-01-01T02:46:{second}Z,{n}\n" for k, second, n in rows]
    (root / "s.csv").write_text("k,at,n\n" + "".join(lines))
    return {}


def write_json(root: Path, rows: list[Row]) -> dict[str, Any]:
    lines = [
        json.dumps({"k": k, "at": f"1970-01-01T02:46:{second}Z", "n": n}) for k, second, n in rows
    ]
    (root / "s.jsonl").write_text("\n".join(lines))
    return {"source": str(root / "s.jsonl")}


def write_parquet(root: Path, rows: list[Row]) -> dict[str, Any]:
    pq.write_table(frame_of(rows), root / "s.parquet")
    return {"source": str(root / "s.parquet"), "columns": None}


def write_delta(root: Path, rows: list[Row]) -> dict[str, Any]:
    write_deltalake(str(root / "d"), frame_of(rows), mode="overwrite")
    return {"source": str(root / "d"), "columns": None}


def seals_of(bench: Bench) -> dict[int, tuple[int, int, str]]:
    rows = bench.rows("select window_id, generation, tuples, digest from w order by window_id")
    return {row["window_id"]: (row["generation"], row["tuples"], row["digest"]) for row in rows}


@pytest.mark.parametrize(
    "write",
    [
        write_csv,
        write_delta,
        *(pytest.param(write, marks=pytest.mark.long) for write in (write_json, write_parquet)),
    ],
)
def test_changed_window_is_replaced_by_the_source_rows(bench: Bench, write: Any) -> None:
    # Rules: X52
    settings = write(bench.root, BEFORE)
    bench.record(**settings)
    first = seals_of(bench)
    pinned = Table.open(bench.config().stream_table("s"))
    read = query("select * from t", t=pinned).to_pylist()
    write(bench.root, AFTER_EDIT)
    if write is write_delta:
        with pytest.raises(InputError, match=r"version 1 \(WRITE\)") as caught:
            bench.record(**settings)
        assert "rewindow record s --reopen --replace" in caught.value.hint
    else:
        found = bench.record(**settings)
        assert (found.late, found.changed) == (0, [{"window": 1000, "gone": 1, "new": 1}])
    replaced = bench.record(reopen=True, replace=True, **settings)
    assert (replaced.reopened, replaced.taken, replaced.removed) == (1, 1, 1)
    same_arrival = [7, 1]
    if write is write_delta:  # X56: these are ordered by their content.
        same_arrival.reverse()
    assert bench.tuples() == [
        (1000, 0, "b", 2),
        (1000, 1, "a", same_arrival[0]),
        (1000, 2, "a", same_arrival[1]),
        (1001, 0, "c", 4),
    ]
    second = seals_of(bench)
    assert second[1000][:2] == (2, 3) and second[1000][2] != first[1000][2]
    assert {window: seal for window, seal in second.items() if window != 1000} == {
        window: seal for window, seal in first.items() if window != 1000
    }
    assert not bench.config().quarantine_table.exists() or bench.aside() == []
    again = Table.open(pinned.path, pinned.version)
    assert query("select * from t", t=again).to_pylist() == read
    write(bench.root, BEFORE)
    bench.record(reopen=True, replace=True, **settings)
    assert seals_of(bench)[1000] == (3, 3, first[1000][2])
    quiet = bench.record(**settings)
    assert (quiet.late, quiet.changed, quiet.reopened, quiet.warnings) == (0, [], 0, [])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ROWS.replace("a,1970-01-01T02:46:50Z,4\n", ""), [2, 1, 3, 5]),
        (ROWS.replace("a,1970-01-01T02:46:50Z,4", "a,1970-01-01T02:47:05Z,4"), [2, 1, 3, 4, 5]),
        ("z,1970-01-01T02:47:25Z,9\n", [9]),
        (ROWS + "late,1970-01-01T02:47:01Z,6\n", [2, 1, 3, 4, 6, 5]),
    ],
    ids=["a row gone", "a row moved to another window", "all windows but one empty", "late"],
)
def test_replaced_windows_contain_exactly_the_source_rows(
    bench: Bench,
    rows: str,
    expected: list[int],
) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write(rows)
    bench.record()
    bench.record(reopen=True, replace=True)
    assert [row[3] for row in bench.tuples()] == expected
    counts = bench.rows("select window_id, tuples from w order by window_id")
    held = [row[0] for row in bench.tuples()]
    assert [row["tuples"] for row in counts] == [held.count(n) for n in range(1000, 1005)]
    assert bench.aside() == [] if bench.config().quarantine_table.exists() else True
    quiet = bench.record()
    assert (quiet.late, quiet.changed) == (0, [])


def test_very_many_changed_windows_are_replaced(bench: Bench) -> None:
    def write(step: int) -> None:
        lines = [
            f"k,{format_time((10_000 + 10 * n) * 1_000_000)},{n if n % 2 else n * step}\n"
            for n in range(900)
        ]
        bench.write("".join(lines))

    write(1)
    bench.record(sealed_to=None, end=True)
    write(3)
    changed = bench.record(sealed_to=None)
    assert (len(changed.changed), changed.late) == (449, 0)
    replaced = bench.record(sealed_to=None, reopen=True, replace=True)
    assert (replaced.taken, replaced.removed) == (449, 449)
    assert [row[3] for row in bench.tuples()] == [n if n % 2 else n * 3 for n in range(900)]
    assert bench.aside() == []


def test_replaced_windows_make_dependent_publications_stale(bench: Bench) -> None:
    # Rules: X52
    bench.write(ROWS)
    bench.record()
    ledger = Ledger.open(bench.config().ledger_url)
    plan = {"inputs": [{"stream": "s"}], "outputs": [{"name": "rows", "stateful": False}]}
    ledger.replays.create("done", "app", 1000, 1004, "exactly_once", plan, "v1")
    run_to_end(ledger, "done")
    close(ledger, ledger.publications.open("done", {"app.rows": None}, 1000, 1004).number)
    bench.write(EDITED)
    bench.record(reopen=True, replace=True)
    assert [(row.table_name, row.first, row.last) for row in ledger.stale.ranges("app")] == [
        ("app.rows", 1000, 1000)
    ]


def test_windows_of_a_deleted_source_file_are_not_replaced(bench: Bench) -> None:
    (bench.root / "in").mkdir()
    settings: dict[str, Any] = {"source": str(bench.root / "in")}
    bench.write(ROWS, "in/1.csv")
    bench.write("b,1970-01-01T02:46:43Z,8\nb,1970-01-01T02:46:44Z,9\n", "in/2.csv")
    bench.record(**settings)
    (bench.root / "in" / "1.csv").rename(bench.root / "1.csv")
    bench.record(**settings)
    bench.write("b,1970-01-01T02:46:43Z,6\nb,1970-01-01T02:46:44Z,9\n", "in/2.csv")
    assert bench.record(**settings).changed == [{"window": 1000, "gone": 4, "new": 1}]
    before = bench.tuples(), seals_of(bench)
    for _ in range(2):
        with pytest.raises(InputError, match="cannot be replaced") as caught:
            bench.record(reopen=True, replace=True, **settings)
        assert "missing from its source: 1.csv" in caught.value.primary
        assert (bench.tuples(), seals_of(bench)) == before
    (bench.root / "1.csv").rename(bench.root / "in" / "renamed.csv")
    bench.record(reopen=True, replace=True, **settings)
    assert [row[3] for row in bench.tuples()] == [2, 1, 6, 9, 3, 4, 5]


POINTS = ["reopen_after_note", "reopen_after_data", "reopen_after_seals"]


def check_replaced(bench: Bench) -> None:
    assert [row[3] for row in bench.tuples()] == [2, 7, 3, 4, 5]
    assert [seal[:2] for seal in seals_of(bench).values()] == [
        (2, 3),
        (1, 1),
        (1, 0),
        (1, 0),
        (1, 1),
    ]
    assert bench.aside() == []


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(POINTS[0], marks=pytest.mark.long),
        POINTS[1],
        pytest.param(POINTS[2], marks=pytest.mark.long),
    ],
)
def test_interrupted_window_replacement_is_completed_without_mixed_versions(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write(EDITED)
    bench.record()
    old = seals_of(bench)
    with dying_at(monkeypatch, point):
        bench.record(reopen=True, replace=True)
    seals = seals_of(bench)
    assert seals == old if point != "reopen_after_seals" else seals[1000][:2] == (2, 3)
    result = bench.record()
    if point == "reopen_after_note":
        assert (result.changed, seals_of(bench)) == ([{"window": 1000, "gone": 1, "new": 1}], old)
        bench.record(reopen=True, replace=True)
    check_replaced(bench)


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_window_replacement_survives_a_sigkill(bench: Bench, tmp_path: Path, point: str) -> None:
    bench.write(ROWS)
    bench.record()
    bench.write(EDITED)
    bench.record()
    script = f"""
from pathlib import Path
from tests.recording.conftest import Bench
from rewindow.settings.config import Config, SparkConfig
from rewindow.spark.session import spark_session
config = Config(state=Path({str(tmp_path)!r}) / "spark",
    spark=SparkConfig(jars={str(Path.cwd() / ".rewindow/jars")!r}))
bench = Bench(spark_session(config, "dies", quick=True), Path({str(tmp_path)!r}))
bench.record(reopen=True, replace=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "REWINDOW_CRASH": point},
        start_new_session=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    bench.record()
    if point == "reopen_after_note":
        bench.record(reopen=True, replace=True)
    check_replaced(bench)
