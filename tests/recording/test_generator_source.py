"""A generator as source: the same rows for any number of tasks, in one recording or in several."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rewindow.errors import InputError
from rewindow.recording.record import record
from rewindow.recording.result import RecordResult
from rewindow.recording.sources import generated
from rewindow.recording.sources.generated import GeneratorSource
from rewindow.recording.sources.source import SourceContents, SourcePosition, open_source
from rewindow.settings.config import Config, StreamConfig
from rewindow.testing import run_generator
from tests.recording.conftest import Bench

FIRST = 1767225600
POSITION = [("__file", "ascending"), ("__row", "ascending")]
MODULE = """
from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from rewindow.operators import Generator


class Trips(Generator):
    columns: ClassVar[pa.Schema] = pa.schema(
        [("arrived_at", pa.timestamp("us", "UTC")), ("taxi", pa.int64())]
    )
    taxis: int = 50

    def rows(self, window_id, part, random):
        slots = self.slots(window_id, part, random)
        taxi = self.pick(self.taxis, len(slots.numbers), random)
        return pa.record_batch([slots.arrived_at, taxi], schema=self.columns)
"""


def settings(source: str = "sensors", **others: Any) -> StreamConfig:
    given = {"source": source, "format": "generator", "arrived_at": "arrived_at", "width": "1 s"}
    return StreamConfig(**{**given, **others})


def opened(
    root: Path,
    stream: StreamConfig,
    sealed: int | None = None,
) -> tuple[GeneratorSource, SourceContents]:
    source = open_source("s", stream, root)
    assert isinstance(source, GeneratorSource)
    position = SourcePosition(version=sealed or -1, sealed_last=sealed)
    return source, source.scan(position, None, None)


def rows_here(source: GeneratorSource, contents: SourceContents) -> pa.Table:
    """Returns all rows, computed in this process."""
    found = []
    for part in contents.files:
        found += list(source.rows(contents, part))
    return pa.concat_tables(found)


@pytest.mark.jvm
def test_generated_rows_are_equal_for_any_number_of_tasks_and_parts(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rules: O146
    size = random.Random().randint(30, 270)
    for parts, tuples in ((1, 1_000), (4, size)):
        monkeypatch.setattr(generated, "TUPLES_PER_TASK", tuples)
        given = {"rate": 30, "windows": 9, "parts": parts, "poison": 0.1, "disorder": "3 s"}
        source, contents = opened(tmp_path, settings(source_settings=given))
        expected = rows_here(source, contents).sort_by(POSITION).to_pylist()
        assert len(expected) == 270
        frame = source.frame(bench.spark, contents)
        assert frame is not None
        assert frame.rdd.getNumPartitions() == 1 + 270 // tuples
        assert frame.toArrow().sort_by(POSITION).to_pylist() == expected, tuples


def recorded(bench: Bench, stream: StreamConfig, **flags: Any) -> RecordResult:
    config = Config(state=bench.root / "state", streams={"s": stream})
    config._root = bench.root
    return record(bench.spark, config, "s", **flags)


@pytest.mark.jvm
def test_generator_recorded_in_one_or_several_runs_has_equal_rows(
    bench: Bench,
    tmp_path: Path,
) -> None:
    # Rules: O145, O147, W23
    lulls = {"after": 3, "windows": 1}
    given = {"rate": 20, "windows": 8, "parts": 2, "lulls": lulls, "poison": 0.1}
    stream = settings(source_settings=given, malformed_max_share=0.5)
    first = recorded(bench, stream, sealed_to="2026-01-01T00:00:03Z")
    assert (first.windows_sealed, first.waiting) == (3, 120 - first.malformed - first.recorded)
    assert not bench.rows("select * from w where end_window is not null")
    second = recorded(bench, stream)
    assert (second.windows_sealed, second.windows_empty, second.waiting) == (5, 2, 0)
    assert first.malformed == len(bench.aside()) > 0 and second.malformed == 0
    assert [row["end_window"] for row in bench.rows("select end_window from w order by 1")][:1] == [
        FIRST + 7
    ]
    third = recorded(bench, stream)
    assert (third.recorded, third.windows_sealed) == (0, 0)
    columns = "window_id, arrived_at, measured_at, sensor, temperature"
    in_pieces = bench.rows(f'select {columns} from s order by window_id, "offset"')
    source, _ = opened(tmp_path, stream)
    expected = []
    for window, rows in run_generator(source.generator).items():
        expected += [{"window_id": window, **row} for row in rows]
    assert in_pieces == expected
    counts = bench.rows("select tuples from w where end_window is null order by window_id")
    assert [row["tuples"] > 0 for row in counts] == [True, True, True, False] * 2


@pytest.mark.jvm
def test_custom_generator_is_computed_by_spark_tasks(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "trips.py").write_text(MODULE)
    stream = settings("trips.py", source_settings={"taxis": 3, "tuples": 250})
    source, contents = opened(tmp_path, stream)
    frame = source.frame(bench.spark, contents)
    assert frame is not None
    rows = frame.toArrow()
    assert rows.num_rows == 250 and set(rows["taxi"].to_pylist()) == {0, 1, 2}


def test_windows_in_the_future_are_recorded_later(tmp_path: Path) -> None:
    stream = settings(width="1 day", source_settings={"begin": "2026-01-01", "windows": 1_000_000})
    _, contents = opened(tmp_path, stream)
    assert not contents.ends and "windows after now" in contents.warnings[0]
    stream = settings(source_settings={"begin": "2999-01-01"})
    _, contents = opened(tmp_path, stream)
    assert not contents.files and not contents.ends and contents.warnings


def test_generator_scan_continues_after_the_last_sealed_window(tmp_path: Path) -> None:
    stream = settings(source_settings={"rate": 10, "windows": 5})
    source, contents = opened(tmp_path, stream, sealed=FIRST + 2)
    assert not contents.whole and contents.ends
    assert rows_here(source, contents).num_rows == 20
    _, contents = opened(tmp_path, stream, sealed=FIRST + 4)
    assert not contents.files and contents.ends


def wrong() -> Iterator[tuple[StreamConfig, str]]:
    yield (
        settings("sensor"),
        'sensor" of stream "s" does not exist\n  Hint: Did you mean "sensors"?',
    )
    yield settings("trip.py"), 'trip.py" of stream "s" does not exist'
    yield settings("empty.py"), 'empty.py" of stream "s" has 0 generators'
    yield settings("trips.py", format=None), 'A Generator needs format = "generator"'
    for given, words in (
        ({"rate": 0}, 'source_settings.rate" of stream "s" is 0: it must be greater than'),
        ({"rats": 3}, 'source_settings.rats" of stream "s" is 3: the property does not exist'),
        ({"lulls": {"after": 3}}, 'source_settings.lulls.windows" of stream "s"'),
        ({"clock_steps": {"every": 3}}, 'source_settings.clock_steps.by" of stream "s"'),
    ):
        yield settings(source_settings=given), words
    yield settings("trips.py", source_settings={"generator": "Trip"}), 'has no generator "Trip"'


@pytest.mark.parametrize(("stream", "words"), list(wrong()))
def test_invalid_generator_settings_are_rejected_with_section_and_key(
    tmp_path: Path,
    stream: StreamConfig,
    words: str,
) -> None:
    (tmp_path / "trips.py").write_text(MODULE)
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(InputError) as error:
        open_source("s", stream, tmp_path)
    assert words in str(error.value)
