"""Gaps: empty and missing windows, silent stretches; from tables that are written here without
Spark.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from rewindow.errors import InputError, RangeError
from rewindow.inspection.gaps import _missing, _outside, _ranges, _silences, gaps
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage import create_table
from rewindow.storage.streams import WINDOWS_SCHEMA, stream_properties
from rewindow.windows import Grid, WindowRange, to_ranges

SECOND = 1_000_000
TIME = pa.timestamp("us", "UTC")


def recorded(
    root: Path,
    sealed: dict[int, int],
    tuples: list[tuple[str, float]] | None = None,
    interval: str | None = None,
    key: str = "k",
    slack: str = "0 s",
) -> Config:
    """Returns settings for a stream "s" with windows of ten seconds and one key; `tuples` are its
    value and second.
    """
    config = Config(
        state=root,
        streams={
            "s": StreamConfig(
                source="s",
                arrived_at="at",
                keys=[key],
                interval=interval,
                slack=slack,
                width="10 s",
            )
        },
    )
    windows = create_table(
        config.windows_table("s"),
        WINDOWS_SCHEMA,
        stream_properties({"width_ms": 10_000, "origin_ms": 0, "keys": key}),
    )
    ids = pa.array(sealed, pa.int64())
    rows = {
        name: pa.nulls(len(ids), WINDOWS_SCHEMA.field(name).type) for name in WINDOWS_SCHEMA.names
    }
    rows |= {"window_id": ids, "tuples": pa.array(sealed.values(), pa.int64())}
    if sealed:
        windows.commit_arrow(pa.table(rows, schema=WINDOWS_SCHEMA), app_id="test", version=1)
    schema = pa.schema(
        [
            ("window_id", pa.int64()),
            ("offset", pa.int64()),
            ("arrived_at", TIME),
            (key, pa.string()),
        ]
    )
    stream = create_table(config.stream_table("s"), schema)
    found = [
        (int(second // 10), n, int(second * SECOND), value)
        for n, (value, second) in enumerate(tuples or [])
    ]
    if found:
        pairs = zip(zip(*found, strict=True), schema, strict=True)
        columns = [pa.array(column).cast(field.type) for column, field in pairs]
        write_deltalake(stream.delta, pa.table(columns, schema=schema), mode="append")
    return config


def test_neighbouring_empty_and_missing_windows_are_reported_as_ranges(tmp_path: Path) -> None:
    report = gaps(recorded(tmp_path, {3: 1, 4: 0, 5: 0, 8: 2, 9: 0}), "s")
    assert [(gap.kind, str(gap.windows), gap.count) for gap in report.gaps] == [
        ("empty", "[4, 5]", 2),
        ("empty", "[9, 9]", 1),
        ("missing", "[6, 7]", 2),
    ]
    assert report.sealed == 5


def test_requested_windows_after_the_last_sealed_window_are_missing(tmp_path: Path) -> None:
    report = gaps(recorded(tmp_path, {3: 1, 5: 1}), "s", 1, 8)
    assert [str(gap.windows) for gap in report.gaps] == ["[1, 2]", "[4, 4]", "[6, 8]"]
    assert report.counts["windows_missing"] == 6
    outside = gaps(recorded(tmp_path, {3: 1, 5: 1}, interval="1 s"), "s", 100, 101)
    assert [(gap.kind, str(gap.windows)) for gap in outside.gaps] == [("missing", "[100, 101]")]


def test_silence_of_exactly_the_interval_is_not_a_gap(tmp_path: Path) -> None:
    tuples = [("a", 0.0), ("a", 10.0), ("a", 20.000001), ("b", 5.0), ("b", 19.0), ("b", 19.999999)]
    report = gaps(recorded(tmp_path, {0: 3, 1: 2, 2: 1}, tuples, "10 s"), "s")
    silent = [
        (dict(gap.key), gap.from_us, gap.to_us, gap.count, gap.closed_by) for gap in report.gaps
    ]
    assert silent == [
        ({"k": "a"}, 10 * SECOND, 20_000_001, 1, "tuple 2:2"),
        ({"k": "b"}, 5 * SECOND, 19 * SECOND, 1, "tuple 1:4"),
        ({"k": "b"}, 19_999_999, 30 * SECOND, 1, "open"),
    ]


def test_silence_of_exactly_interval_plus_slack_is_not_a_gap(tmp_path: Path) -> None:
    # Rules: G12, H7
    # With both counted, a late tuple at 32 s is the one due at 30 s, and two are missing.
    tuples = [("a", 0.0), ("a", 12.0), ("a", 44.0), ("a", 56.000001), ("b", 5.0), ("b", 17.000001)]
    config = recorded(tmp_path, dict.fromkeys(range(7), 0), tuples, "10 s", slack="2 s")
    found = [
        (gap.keys, gap.length_us, gap.count, gap.closed_by) for gap in gaps(config, "s").gaps[1:]
    ]
    assert found == [
        ("k=a", 32 * SECOND, 2, "tuple 4:2"),
        ("k=a", 12 * SECOND + 1, 1, "tuple 5:3"),
        ("k=a", 14 * SECOND - 1, 1, "open"),
        ("k=b", 12 * SECOND + 1, 1, "tuple 1:5"),
        ("k=b", 53 * SECOND - 1, 5, "open"),
    ]
    with_own = gaps(config, "s", interval_us=31 * SECOND)
    assert (with_own.interval_us, with_own.slack_us) == (31 * SECOND, 0), (
        "what is asked for has no slack"
    )
    assert [gap.length_us for gap in with_own.gaps[1:]] == [32 * SECOND, 53 * SECOND - 1]


@given(st.integers(1, 9), st.integers(0, 25), st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_tuples_due_before_the_end_of_a_gap_including_slack_are_missing(
    interval: int,
    slack: int,
    length: int,
) -> None:
    # Rules: G12
    row = {"since": 0, "until": length, "by_window": 0, "by_offset": 0}
    found = _silences(
        [row],
        [],
        WindowRange(0, 0),
        Grid(1000),
        interval,
        slack,
        np.empty((0, 2), dtype=np.int64),
    )
    due = sum(1 for n in range(1, length + 1) if n * interval + slack < length)
    assert [gap.count for gap in found] == ([due] if due else [])


def test_missing_count_is_the_number_of_intervals_without_a_tuple(tmp_path: Path) -> None:
    report = gaps(
        recorded(tmp_path, dict.fromkeys(range(8), 0), [("a", 0.0), ("a", 40.0)], "10 s"),
        "s",
    )
    found = [(gap.count, gap.closed_by) for gap in report.gaps if gap.kind == "silent"]
    assert found == [(3, "tuple 4:1"), (3, "open")]
    assert (report.counts["intervals_missing"], report.counts["intervals_open"]) == (3, 3)


def silences(
    config: Config,
    first: int | None = None,
    last: int | None = None,
) -> list[tuple[object, ...]]:
    """Returns the silent stretches that are reported: windows, begin and end in seconds, count, and
    what ended them.
    """
    found = [gap for gap in gaps(config, "s", first, last).gaps if gap.kind == "silent"]
    return [
        (str(g.windows), g.from_us / SECOND, g.to_us / SECOND, g.count, g.closed_by) for g in found
    ]


def test_missing_windows_are_not_reported_as_silence(tmp_path: Path) -> None:
    config = recorded(tmp_path, {0: 0, 1: 0, 2: 1, 5: 1}, [("a", 25.0), ("a", 55.0)], "10 s")
    report = gaps(config, "s")
    assert [(gap.kind, str(gap.windows)) for gap in report.gaps] == [
        ("empty", "[0, 1]"),
        ("missing", "[3, 4]"),
    ]
    assert (report.counts["windows_missing"], report.counts["intervals_missing"]) == (2, 0)


def test_silence_ends_at_missing_windows_and_restarts_after_them(tmp_path: Path) -> None:
    sealed = dict.fromkeys([0, 1, 2, 5, 6, 8, 9, 11, 13], 1)
    config = recorded(tmp_path, sealed, [("a", 5.0), ("a", 131.0)], "10 s")
    assert silences(config) == [
        ("[0, 2]", 5.0, 30.0, 2, "open"),
        ("[5, 6]", 50.0, 70.0, 1, "open"),
        ("[8, 9]", 80.0, 100.0, 1, "open"),
    ]
    config = recorded(tmp_path / "closed", {0: 1, 3: 0, 4: 1}, [("a", 5.0), ("a", 45.0)], "10 s")
    assert silences(config) == [("[3, 4]", 30.0, 45.0, 1, "tuple 4:1")]


def test_windows_missing_before_a_range_are_not_reported_as_silence(tmp_path: Path) -> None:
    config = recorded(tmp_path, dict.fromkeys([0, 1, 2, 4, 5, 6, 7], 0), [("a", 5.0)], "10 s")
    assert silences(config, 6, 7) == [("[4, 7]", 40.0, 80.0, 3, "open")]


@given(st.sets(st.integers(0, 30)), st.integers(0, 30), st.integers(1, 30))
def test_recorded_time_without_missing_windows_equals_a_naive_count(
    holes: set[int],
    since: int,
    length: int,
) -> None:
    inside = [(span.first, span.last + 1) for span in to_ranges(holes)]
    found = _outside(np.array(inside, dtype=np.int64).reshape(-1, 2), since, since + length)
    left = to_ranges(set(range(since, since + length)) - holes)
    assert found == [(span.first, span.last + 1) for span in left]


def test_invalid_interval_is_rejected(tmp_path: Path) -> None:
    # Rules: H20
    # Zero does not mean no interval.
    with pytest.raises(InputError, match="interval must be greater than zero, not 0 us"):
        gaps(recorded(tmp_path, {0: 1}, [("a", 5.0)], "10 s"), "s", interval_us=0)


NAMES = [
    "place",
    "since",
    "until",
    "arrived",
    "by_window",
    "by_offset",
    "key_0",
    "Place",
    "a.b",
    'a"b',
    "a'b",
    "order",
]


@pytest.mark.parametrize("name", NAMES)
def test_key_column_can_have_any_valid_name(tmp_path: Path, name: str) -> None:
    report = gaps(
        recorded(
            tmp_path,
            {0: 1, 1: 0, 2: 2},
            [("a", 0.0), ("b", 25.0), ("a", 29.0)],
            "10 s",
            name,
        ),
        "s",
    )
    silent = [(gap.key, gap.to_us, gap.closed_by) for gap in report.gaps if gap.kind == "silent"]
    assert silent == [({name: "a"}, 29 * SECOND, "tuple 2:2")]


def test_range_includes_silences_that_extend_into_it(tmp_path: Path) -> None:
    config = recorded(
        tmp_path,
        dict.fromkeys(range(10), 1),
        [("a", 0.0), ("a", 25.0), ("a", 70.0)],
        "10 s",
    )
    report = gaps(config, "s", 4, 5)
    assert [(gap.from_us, gap.to_us, gap.closed_by) for gap in report.gaps] == [
        (25 * SECOND, 60 * SECOND, "open")
    ]


def test_csv_and_json_reports_contain_the_same_rows(tmp_path: Path) -> None:
    # Rules: W14
    report = gaps(recorded(tmp_path, {3: 1, 4: 0, 7: 1}, [("a", 31.0), ("a", 71.0)], "10 s"), "s")
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    found = json.loads(report.to_json())
    assert (
        [row["kind"] for row in rows]
        == [row["kind"] for row in found["gaps"]]
        == ["empty", "missing", "silent"]
    )
    assert (found["first"], found["gaps"][1]["first"], found["windows_missing"]) == (3, 5, 2)
    assert rows[2]["key"] == "k=a"
    assert rows[0]["from"] == "1970-01-01T00:00:40Z"


def test_unrecorded_stream_raises_an_error_and_an_empty_recording_has_no_gaps(
    tmp_path: Path,
) -> None:
    config = recorded(tmp_path, {})
    assert gaps(config, "s").gaps == []
    with pytest.raises(InputError, match='stream "t" is unknown'):
        gaps(config, "t")
    other = Config(state=tmp_path / "elsewhere", streams=config.streams)
    with pytest.raises(InputError, match="not recorded yet"):
        gaps(other, "s")


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(0, 10), st.integers(30, 50))
@settings(max_examples=200, deadline=None)
def test_missing_ranges_equal_a_naive_count(sealed: set[int], first: int, last: int) -> None:
    inside = np.array(
        sorted(window for window in sealed if first <= window <= last),
        dtype=np.int64,
    )
    found = _ranges("missing", _missing(inside, WindowRange(first, last)), Grid(1000))
    assert [gap.windows for gap in found] == to_ranges(set(range(first, last + 1)) - sealed)
    runs = _ranges("empty", inside, Grid(1000))
    assert [gap.windows for gap in runs] == to_ranges(inside.tolist())


def test_one_million_windows_are_analyzed_without_a_scan(tmp_path: Path) -> None:
    config = recorded(
        tmp_path,
        {window: int(window % 1000 > 0) for window in range(1_000_000) if window % 5000 != 9},
    )
    report = gaps(config, "s")
    assert report.windows == WindowRange(0, 999_999)
    assert (report.counts["windows_empty"], report.counts["windows_missing"]) == (1000, 200)


def test_gap_analysis_starts_no_jvm_and_does_not_import_spark() -> None:
    code = "import sys, rewindow.inspection.gaps; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("first", "last", "word"), [(9, None, "after"), (None, 2, "before")])
def test_open_range_outside_the_sealed_windows_is_rejected(
    tmp_path: Path,
    first: int | None,
    last: int | None,
    word: str,
) -> None:
    config = recorded(tmp_path, {3: 1, 5: 0, 8: 1})
    with pytest.raises(RangeError, match=rf"is {word} what is sealed, \[3, 8\]"):
        gaps(config, "s", first, last)


def test_open_range_of_a_stream_without_a_seal_has_no_gaps(tmp_path: Path) -> None:
    assert gaps(recorded(tmp_path, {}), "s", 9).windows is None


def test_reversed_range_is_rejected_with_the_swapped_range_as_hint(tmp_path: Path) -> None:
    config = recorded(tmp_path, {3: 1, 5: 0, 8: 1})
    with pytest.raises(RangeError) as refused:
        gaps(config, "s", from_time="1970-01-01T00:01:25Z", to_time="1970-01-01T00:00:33Z")
    assert (
        refused.value.hint
        == "Swap the two ends: --from 1970-01-01T00:00:33Z --to 1970-01-01T00:01:25Z"
    )
    with pytest.raises(RangeError) as refused:
        gaps(config, "s", 8, 3)
    assert refused.value.hint == "Swap the two ends: --first 3 --last 8"


def test_null_key_differs_from_a_key_with_the_text_none(tmp_path: Path) -> None:
    tuples: list[Any] = [(None, 31.0), ("None", 31.0), (None, 71.0), ("None", 71.0)]
    report = gaps(recorded(tmp_path, {3: 2, 4: 0, 7: 2}, tuples, "10 s"), "s")
    keys = [row["key"] for row in json.loads(report.to_json())["gaps"] if row["kind"] == "silent"]
    assert sorted(keys) == ["k is null", "k=None"]
