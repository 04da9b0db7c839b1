"""Rows that Spark reads by itself are those that a copy gives, and what is read twice is the same
twice.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from rewindow.errors import ResourceError
from rewindow.recording import file_layout as places
from rewindow.recording.arrival_counts import ArrivalCounts
from rewindow.recording.file_layout import FileLayout
from rewindow.recording.sources import delta, parquet_files
from rewindow.windows import WindowRange
from tests.recording.conftest import Bench
from tests.recording.test_record import ROWS

BEGIN = datetime(1970, 1, 1, 2, 46, 40, tzinfo=UTC)


def frame_of(seed: int, rows: int = 60) -> pa.Table:
    """Returns rows over 50 seconds, some of them at the same time, some without a time."""
    random = np.random.default_rng(seed)
    times = [
        None if second == 0 else BEGIN + timedelta(seconds=int(second))
        for second in random.integers(0, 50, rows)
    ]
    numbers = pa.array(random.integers(0, 100, rows), pa.int32())
    keys = pa.array([f"k{number % 7}" for number in range(rows)])
    return pa.table({"k": keys, "at": pa.array(times, pa.timestamp("us", "UTC")), "n": numbers})


def write_parquet(root: Path) -> dict[str, Any]:
    """Writes three files, the last one with other columns and another order, and returns the
    settings.
    """
    (root / "p").mkdir()
    for number in range(2):
        pq.write_table(frame_of(number), root / "p" / f"{number}.parquet")
    last = frame_of(2).select(["n", "at", "k"]).append_column("more", pa.nulls(60, pa.int64()))
    pq.write_table(last, root / "p" / "2.parquet", row_group_size=20)
    return {"source": str(root / "p"), "columns": "k STRING, at TIMESTAMP, n INT"}


def write_delta(root: Path) -> dict[str, Any]:
    """Writes a Delta table with table partitions in two commits, and returns the settings."""
    for number in range(2):
        write_deltalake(str(root / "d"), frame_of(number), partition_by=["k"], mode="append")
    return {"source": str(root / "d"), "columns": None}


@pytest.mark.parametrize("write", [write_parquet, write_delta])
def test_spark_reads_the_same_tuples_as_from_a_copy_of_the_source(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    write: Any,
) -> None:
    settings = {**write(bench.root), "malformed_max_share": 1}
    bench.record(**settings)
    read = (
        bench.tuples(),
        bench.aside(),
        bench.rows("select window_id, digest from w order by window_id"),
    )
    assert len(read[0]) + len(read[1]) in {120, 180}
    asked: list[int] = []
    for module in (parquet_files, delta):
        monkeypatch.setattr(module, "parquet_frame", lambda *_, **__: asked.append(1))
    other = Bench(bench.spark, bench.root / "other")
    other.record(**settings)
    assert asked == [1]
    assert (
        other.tuples(),
        other.aside(),
        other.rows("select window_id, digest from w order by window_id"),
    ) == read


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ns", "UTC"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("s", "UTC"),
    ],
)
def test_sources_with_any_time_unit_yield_the_same_tuples(bench: Bench, kind: pa.DataType) -> None:
    # Spark cannot read nanoseconds by itself, so such files are copied.
    frame = frame_of(1)
    times = frame["at"].cast(kind)
    pq.write_table(frame.set_column(1, "at", times), bench.root / "t.parquet")
    bench.record(source=str(bench.root / "t.parquet"), columns=None, malformed_max_share=1)
    first = bench.rows("select k, n, cast(arrived_at as bigint) as at from s order by at, k, n")
    wanted = sorted(
        (row["at"], row["k"], row["n"]) for row in frame.to_pylist() if row["at"] is not None
    )
    assert [(row["k"], row["n"]) for row in first] == [(k, n) for _, k, n in wanted]


def test_nondeterministic_expression_is_computed_once(bench: Bench) -> None:
    settings = write_parquet(bench.root)
    bench.record(**settings, select={"dice": "cast(rand() * 1000 as int)"}, malformed_max_share=1)
    assert len(bench.tuples()) > 150
    arrived = Bench(bench.spark, bench.root / "now")
    now = {**settings, "arrived_at": "current_timestamp()", "keep": ["k", "n"]}
    assert arrived.record(**now, sealed_to=None, end=True).recorded == 180


def test_file_that_changes_during_the_read_is_rejected(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {**write_parquet(bench.root), "malformed_max_share": 1}
    file = bench.root / "p" / "1.parquet"
    put = FileLayout.put

    def touched(self: FileLayout, *arguments: Any) -> Any:
        os.utime(file, ns=(1, 1))
        return put(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FileLayout, "put", touched)
        with pytest.raises(
            ResourceError,
            match='file "1.parquet" of stream "s" changed while it was read',
        ):
            bench.record(**settings)
    assert bench.tuples() == []
    assert bench.record(**settings).recorded > 150


def test_rows_are_not_committed_if_their_number_differs_from_the_count(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.write(ROWS)
    count = ArrivalCounts.count

    def one_more(tuples: Any, event_at: str | None) -> ArrivalCounts:
        found = count(tuples, event_at)
        more = found.tuples + (np.arange(len(found.tuples)) == 0)
        return replace(found, tuples=more)

    monkeypatch.setattr(ArrivalCounts, "count", one_more)
    with pytest.raises(ResourceError, match="changed while it was being recorded"):
        bench.record()
    assert bench.tuples() == []


def test_window_function_numbers_many_windows_with_equal_offsets(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {**write_parquet(bench.root), "malformed_max_share": 1}
    bench.record(**settings)
    monkeypatch.setattr(places, "_SENT_MAX", 1)
    other = Bench(bench.spark, bench.root / "other")
    other.record(**settings)
    assert other.tuples() == bench.tuples()


def test_windows_are_distributed_over_files_of_equal_size_in_order() -> None:
    counts = np.array([400_000, 100_000, 1, 300_000, 200_000])
    arrivals = ArrivalCounts(np.array([1, 2, 5, 6, 9]), counts, counts, counts, 3)
    whole = FileLayout.of(arrivals, WindowRange(1, 9))
    assert (whole.tuples, whole.files) == (1_000_001, 5)
    assert FileLayout.of(arrivals, WindowRange(2, 5)).tuples == 100_001
    assert arrivals.rows == 1_000_004


def test_nothing_is_committed_before_the_written_rows_are_verified(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.write(ROWS)
    monkeypatch.setattr(
        FileLayout,
        "check",
        lambda *_, **__: (_ for _ in ()).throw(ResourceError("gone")),
    )
    with pytest.raises(ResourceError, match="gone"):
        bench.record()
    assert bench.tuples() == []
