"""Published error tuples are fed back, each once, under a new window, with what they came from
(R94, X15, X51).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rewindow.application.error_tuples import COLUMNS, error_columns
from rewindow.errors import InputError
from rewindow.location import location
from rewindow.recording import sealing
from rewindow.recording.sources import fed_back
from rewindow.recording.sources.source import SourcePosition, open_source
from rewindow.settings.config import StreamConfig
from tests.recording.conftest import Bench

PORT = "shop.split.rejected"
SOURCE = f"errors:{PORT}"
NOW_US = 20_005_000_000
"""Five seconds after the begin of window 2000, of ten seconds."""


class _Crash(BaseException):
    pass


def publish(streams: Path, by_window: dict[int, list[str]], replay: str = "one") -> None:
    rows = [
        {
            "window_id": window,
            "offset": offset,
            "k": k,
            "n": offset,
            "_rw_replay": replay,
            "_rw_window": window,
            "_rw_attempt": 1,
            "_rw_reason": "emitted",
        }
        for window, keys in by_window.items()
        for offset, k in enumerate(keys)
    ]
    event = pa.schema([("k", pa.string()), ("n", pa.int32())])
    place = [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("arrived_at", pa.timestamp("us", "UTC")),
    ]
    table = pa.Table.from_pylist(rows, pa.schema([*place, *error_columns(event)]))
    write_deltalake(streams / PORT, table, mode="overwrite")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What time it is for whoever feeds back, in microseconds."""
    now = SimpleNamespace(us=NOW_US)
    monkeypatch.setattr(fed_back, "time", SimpleNamespace(time_ns=lambda: now.us * 1000))
    return now


def read(
    folder: Path,
    position: SourcePosition | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    stream = StreamConfig(
        **{"source": SOURCE, "arrived_at": "arrived_at", "width": "10 s", **settings}
    )
    source = open_source("again", stream, folder, location(folder))
    contents = source.scan(position or SourcePosition(), None, None)
    found = [table for part in contents.files for table in source.rows(contents, part)]
    return pa.concat_tables(found).to_pylist() if found else []


def test_fed_back_tuples_arrive_in_the_newest_ended_window_or_the_open_window(
    tmp_path: Path,
    clock: SimpleNamespace,
) -> None:
    # Rules: X15
    publish(tmp_path, {3: ["a", "b"], 7: ["a"]})
    found = read(tmp_path)
    assert [(row["k"], row["_rw_from_window"], row["_rw_from_offset"]) for row in found] == [
        ("a", 3, 0),
        ("b", 3, 1),
        ("a", 7, 0),
    ]
    assert {(row["_rw_from_stream"], row["_rw_from_replay"]) for row in found} == {(PORT, "one")}
    assert {row["arrived_at"].timestamp() for row in found} == {19_999.999999}
    assert not set(COLUMNS.names) & set(found[0])
    waiting = read(tmp_path, SourcePosition(version=0, sealed_last=1999))
    assert {row["arrived_at"].timestamp() for row in waiting} == {NOW_US / 1e6}


@pytest.mark.parametrize(
    ("published", "words"),
    [(False, "is not published"), (True, "has no error tuples: it is not an error port")],
)
def test_stream_that_is_not_an_error_port_is_rejected_with_a_hint(
    tmp_path: Path,
    published: bool,
    words: str,
) -> None:
    if published:
        write_deltalake(tmp_path / PORT, pa.table({"window_id": pa.array([1], pa.int64())}))
    with pytest.raises(InputError, match=words):
        read(tmp_path)


def test_settings_of_other_sources_are_rejected(tmp_path: Path) -> None:
    publish(tmp_path, {3: ["a"]})
    with pytest.raises(
        InputError,
        match='"delimiter" of stream "again" does not apply to sources of format errors',
    ):
        read(tmp_path, delimiter=";")


@pytest.mark.jvm
def test_fed_back_tuples_are_recorded_once_despite_republication(
    bench: Bench,
    clock: SimpleNamespace,
) -> None:
    # Rules: R94, X15
    streams = bench.root / "state" / "streams"
    publish(streams, {3: ["a", "b"]})
    asked: dict[str, Any] = {
        "source": SOURCE,
        "arrived_at": "arrived_at",
        "columns": None,
        "sealed_to": None,
        "select": {"n": "n + 100"},
    }
    first = bench.record(**asked)
    assert (first.recorded, first.first, first.last, first.waiting) == (2, 1999, 1999, 0)
    assert bench.tuples() == [(1999, 0, "a", 100), (1999, 1, "b", 101)]
    clock.us += 10_000_000
    assert (second := bench.record(**asked)).recorded == 0 and second.windows_empty == 1
    publish(streams, {3: ["a", "b"], 4: ["c"]}, replay="two")
    clock.us += 10_000_000
    third = bench.record(**asked)
    assert third.recorded == 1
    assert [
        "2 error tuples of windows [3, 3] are not fed back" in words for words in third.warnings
    ] == [True]
    assert [row["_rw_from_window"] for row in bench.rows("select * from s order by window_id")] == [
        3,
        3,
        4,
    ]
    assert bench.record(**asked).recorded == 0
    with pytest.raises(InputError, match="cannot be read again from the start"):
        bench.record(**asked, reopen=True, replace=True)


@pytest.mark.jvm
def test_run_killed_before_its_seals_does_not_feed_tuples_back_twice(
    bench: Bench,
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(bench.root / "state" / "streams", {3: ["a", "b"]})
    asked: dict[str, Any] = {
        "source": SOURCE,
        "arrived_at": "arrived_at",
        "columns": None,
        "sealed_to": None,
    }

    def crash(name: str) -> None:
        if name == "record_after_data":
            raise _Crash

    with monkeypatch.context() as patch:
        patch.setattr(sealing, "crash_point", crash)
        with pytest.raises(_Crash):
            bench.record(**asked)
    clock.us += 10_000_000
    assert bench.record(**asked).recorded == 0
    assert [row["k"] for row in bench.rows("select * from s order by k")] == ["a", "b"]
    assert sum(row["tuples"] for row in bench.rows("select tuples from w")) == 2
