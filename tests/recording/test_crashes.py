"""A recording that dies at any point leaves a stream that the next run completes: nothing lost,
nothing doubled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import write_deltalake

from rewindow.errors import OverlapError, RewindowError
from rewindow.recording import record as record_module
from rewindow.recording import sealing
from rewindow.storage import Table
from tests.lost_files import lose_part_files
from tests.recording.conftest import Bench
from tests.recording.test_record import ROWS
from tests.recording.test_sources import frame_of

POINTS = [
    "record_after_data",
    "record_after_files",
    "record_after_windows",
    "record_after_malformed",
]
BAD = "a,1970-01-01T02:46:41Z,many\n"


class Died(Exception):
    pass


def die_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def crash(step: str, number: int = 1, attempt: int | None = None) -> None:
        if step == point:
            raise Died

    monkeypatch.setattr(sealing, "crash_point", crash)
    monkeypatch.setattr(record_module, "crash_point", crash)


def check_complete(bench: Bench) -> None:
    assert [row[3] for row in bench.tuples()] == [2, 1, 3, 4, 5]
    sealed = bench.rows("select window_id, tuples from w order by window_id")
    assert [tuple(row.values()) for row in sealed] == [
        (1000, 3),
        (1001, 1),
        (1002, 0),
        (1003, 0),
        (1004, 1),
    ]
    assert bench.aside() == [(None, "malformed: column n is not int", "s.csv:7")]


@pytest.mark.parametrize("point", POINTS)
def test_next_run_completes_a_file_recording(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    # A third run changes nothing.
    bench.write(ROWS + BAD)
    with monkeypatch.context() as patch:
        die_at(patch, point)
        with pytest.raises(Died):
            bench.record()
    bench.record()
    check_complete(bench)
    third = bench.record()
    assert (third.windows_sealed, third.late, third.malformed, third.files_unchanged) == (
        0,
        0,
        0,
        1,
    )


@pytest.mark.parametrize("written", ["typed", "s", "quarantine"])
def test_next_run_completes_a_recording_that_lost_a_part_file(
    written: str,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.write(ROWS + BAD)
    with monkeypatch.context() as patch:
        lost = lose_part_files(patch, written)
        with pytest.raises(RewindowError, match="rows into folder .* the driver finds"):
            bench.record()
    assert len(lost) == 1
    assert written != "s" or bench.tuples() == []
    bench.record()
    check_complete(bench)


@pytest.mark.long
@pytest.mark.parametrize("point", [*POINTS, "move_on"])
def test_next_run_completes_a_delta_recording_without_duplicates(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    source = bench.root / "d"
    write_deltalake(str(source), frame_of([("a", 41, 1)]))
    settings = {"source": str(source), "columns": None}
    bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
    write_deltalake(str(source), frame_of([("b", 51, 2), ("late", 42, 3)]), mode="append")
    with monkeypatch.context() as patch:
        if point == "move_on":
            patch.setattr(
                record_module._Run, "_move_on", lambda *_, **__: (_ for _ in ()).throw(Died())
            )
        else:
            die_at(patch, point)
        with pytest.raises(Died):
            bench.record(**settings)
    bench.record(**settings)
    assert [row[2] for row in bench.tuples()] == ["a", "b"]
    assert [row[:2] for row in bench.aside()] == [(1000, "late")]


def test_next_run_completes_a_stream_after_a_sigkill(bench: Bench, tmp_path: Path) -> None:
    bench.write(ROWS + BAD)
    script = f"""
from pathlib import Path
from tests.recording.conftest import Bench
from rewindow.settings.config import Config, SparkConfig
from rewindow.spark.session import spark_session
config = Config(state=Path({str(tmp_path)!r}) / "spark",
    spark=SparkConfig(jars={str(Path.cwd() / ".rewindow/jars")!r}))
Bench(spark_session(config, "dies", quick=True), Path({str(tmp_path)!r})).record()
"""
    environment = {**os.environ, "REWINDOW_CRASH": "record_after_data"}
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        start_new_session=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert len(bench.tuples()) == 5
    assert bench.rows("select count(*) as n from w") == [{"n": 0}]
    result = bench.record()
    assert "without a seal" in result.warnings[0]
    assert (result.first, result.last, result.windows_sealed, result.windows_empty) == (
        1000,
        1004,
        5,
        2,
    )
    check_complete(bench)


def test_one_of_two_recorders_without_a_common_lock_fails_with_a_conflict(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.write(ROWS + BAD)
    seal = sealing.seal

    def overtaken(*arguments: object, **named: object) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(sealing, "seal", seal)
            from contextlib import nullcontext

            patch.setattr(record_module, "recording_lock", lambda *_, **__: nullcontext())
            patch.setattr(record_module, "_scratch", _other_scratch(bench))
            bench.record()
        return seal(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(sealing, "seal", overtaken)
    with pytest.raises(OverlapError, match="by another process"):
        bench.record()
    check_complete(bench)
    assert Table.open(bench.config().stream_table("s")).version == 1


def _other_scratch(bench: Bench) -> object:
    from contextlib import contextmanager

    @contextmanager
    def scratch(*_: object) -> Iterator[Path]:
        folder = bench.root / "other"
        folder.mkdir()
        yield folder

    return scratch


def test_only_orphan_files_of_dead_runs_are_removed(bench: Bench) -> None:
    # Files of a later commit number may be a recording on another machine.
    bench.write(ROWS)
    bench.record()
    folder = bench.config().stream_table("s")
    tuples = bench.tuples()
    held = {path.name for path in folder.glob("run-*")}
    assert held
    for name in ("run-1-dead", "run-7-elsewhere"):
        (folder / name).mkdir()
        (folder / name / "part.parquet").touch()
    bench.record()
    assert {path.name for path in folder.glob("run-*")} == {*held, "run-7-elsewhere"}
    assert bench.tuples() == tuples
