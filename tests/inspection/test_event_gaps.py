"""Gaps in event time of a recorded stream, without Spark; against the same row-by-row reference as
the frames.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from rewindow.errors import InputError
from rewindow.inspection.event_gaps import EventGaps, StreamRows, event_gaps
from rewindow.inspection.gap_rows import Gap
from rewindow.inspection.gaps import gaps
from rewindow.location import location
from rewindow.operators.gaps.settings import GapSettings
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage import Table, create_table
from rewindow.storage.streams import WINDOWS_SCHEMA, stream_properties
from rewindow.windows import Grid, WindowRange
from tests.operators.gaps_reference import Expectation, report
from tests.operators.test_gaps import make_case

SECOND = 1_000_000
TIME = pa.timestamp("us", "UTC")


def recorded(
    root: Path,
    rows: list[tuple[str | None, float, float | None, float | None]],
    first: int = 0,
    **more: Any,
) -> Config:
    """Returns settings for a stream "s" with ten windows of ten seconds, all sealed: key, arrival,
    time, value.
    """
    given: dict[str, Any] = {
        "source": "s.csv",
        "arrived_at": "at",
        "keys": ["k"],
        "event_at": "at",
        "width": "10 s",
    }
    config = Config(state=root, streams={"s": StreamConfig(**given | more)})  # type: ignore[arg-type]
    properties = stream_properties({"width_ms": 10_000, "origin_ms": 0, "keys": "k"})
    windows = create_table(config.windows_table("s"), WINDOWS_SCHEMA, properties)
    seals = {name: pa.nulls(10, WINDOWS_SCHEMA.field(name).type) for name in WINDOWS_SCHEMA.names}
    seals |= {
        "window_id": pa.array(range(first, first + 10), pa.int64()),
        "tuples": pa.array([1] * 10, pa.int64()),
    }
    windows.commit_arrow(pa.table(seals, schema=WINDOWS_SCHEMA), app_id="test", version=1)
    write_rows(config.stream_table("s"), rows)
    return config


def write_rows(path: Any, rows: list[tuple[str | None, float, float | None, float | None]]) -> None:
    """Writes a stream's tuples, in no file when there are none."""
    fields = [("window_id", pa.int64()), ("offset", pa.int64()), ("arrived_at", TIME), ("at", TIME)]
    schema = pa.schema([*fields, ("k", pa.string()), ("v", pa.float64())])
    stream = create_table(path, schema)
    found = [
        (int(at // 10), n, int(at * SECOND), None if t is None else int(t * SECOND), key, value)
        for n, (key, at, t, value) in enumerate(rows)
    ]
    if found:
        columns = [
            pa.array(column).cast(field.type)
            for column, field in zip(zip(*found, strict=True), schema, strict=True)
        ]
        write_deltalake(stream.delta, pa.table(columns, schema=schema), mode="append")


def in_event_time(config: Config, **more: Any) -> EventGaps:
    found = gaps(config, "s", **more).event
    assert found is not None
    return found


def test_event_gaps_of_hundreds_of_recordings_equal_a_naive_row_scan(tmp_path: Path) -> None:
    # Rules: G1, G8 to G11, G13 to G18, X24
    random = Random(12)
    cases = [make_case(random) for _ in range(150)]
    fields = [
        ("window_id", pa.int64()),
        ("offset", pa.int64()),
        ("at", pa.int64()),
        ("case", pa.int64()),
    ]
    schema = pa.schema([*fields, ("k", pa.string()), ("v", pa.float64())])
    rows = [
        (r.window, r.place, r.t, n, r.key, r.value) for n, case in enumerate(cases) for r in case
    ]
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    write_deltalake(str(tmp_path / "s"), pa.table(columns, schema=schema))
    table = Table.open(location(tmp_path / "s"))
    for cadence, first, length, expected in [
        (1, 0, 3, ()),
        (2, 0, 1, ("a", "z")),
        (3, 1, 4, ("a", "z")),
    ]:
        windows = WindowRange(first, first + length - 1)
        grid = Grid(5_000)
        begin = grid.start_us(windows.first)
        end = grid.end_us(windows.last)
        keys = [[str(n), key] for n in range(150) for key in expected]
        found = event_gaps(
            StreamRows("s", table, ["case", "k"], {}, "at", cadence * SECOND, keys),
            windows,
            grid,
            None,
            ["v"],
        )
        assert (
            found is not None
            and {gap.gap_id for gap in found.gaps}
            and (found.from_us, found.to_us) == (begin, end)
        )
        rules = Expectation(cadence * SECOND, begin, end, 0, 10, 10**12, expected, 5 * SECOND)
        for n, case in enumerate(cases):
            seen = [row for row in case if row.window <= windows.last]
            gaps_wanted, totals_wanted = report(seen, rules)
            own = [gap for gap in found.gaps if gap.key["case"] == str(n)]
            assert sorted(map(repr, own_gaps(own))) == sorted(
                repr(tuple(g)) for g in gaps_wanted if g.kind != "lull"
            )
            totals = [row for row in found.completeness if row.key["case"] == str(n)]
            assert sorted(
                repr(
                    (
                        t.key["k"],
                        t.column or None,
                        t.is_expected,
                        t.expected,
                        t.present,
                        t.nulls,
                        t.missing,
                        t.tolerated,
                    )
                )
                for t in totals
            ) == sorted(repr(tuple(t)) for t in totals_wanted)


def own_gaps(found: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (
            gap.key["k"],
            gap.column or None,
            gap.kind,
            gap.from_us,
            gap.to_us,
            gap.count,
            gap.open_left,
            gap.open_right,
            None if gap.closed_by in ("open", "") else gap.closed_by.removeprefix("tuple "),
        )
        for gap in found
    ]


STEADY: list[tuple[str | None, float, float | None, float | None]] = [
    ("a", n, n, None if n == 30 else 1.0) for n in range(0, 100, 10) if n not in (50, 60)
]


def test_cadence_comes_from_options_or_settings_and_is_otherwise_estimated(tmp_path: Path) -> None:
    assert (
        in_event_time(recorded(tmp_path / "a", STEADY, interval="20 s", cadence="10 s")).cadence_us
        == 10 * SECOND
    )
    assert (
        in_event_time(recorded(tmp_path / "b", STEADY, interval="20 s")).cadence_us == 20 * SECOND
    )
    config = recorded(tmp_path / "c", STEADY)
    learned = in_event_time(config)
    assert (learned.cadence_us, learned.learned) == (10 * SECOND, (6, 7))
    assert [(gap.kind, gap.from_us, gap.count) for gap in learned.gaps] == [
        ("missing_rows", 50 * SECOND, 2)
    ]
    assert in_event_time(config, cadence_us=50 * SECOND).learned is None


def test_gaps_report_arrival_times_when_event_time_cannot_be_analyzed(tmp_path: Path) -> None:
    # A user who asks for event time explicitly gets the error.
    for name, rows, more, words in [
        ("a", STEADY[:1], {}, "no key has two tuples"),
        ("b", [], {}, "no key has two tuples"),
        (
            "c",
            [("a", n, n * n / 100, 1.0) for n in range(90)],
            {},
            "do not arrive at regular intervals",
        ),
        ("d", STEADY, {"event_at": "k"}, "is string, not a timestamp"),
        ("e", STEADY, {"event_at": "k", "interval": "5 s"}, "is string, not a timestamp"),
    ]:
        config = recorded(tmp_path / name, rows, **more)
        found = gaps(config, "s")
        assert found.event is None and words in found.event_lack and found.sealed == 10
        with pytest.raises(InputError, match=words):
            gaps(config, "s", columns=["v"])


def test_stream_without_keys_is_analyzed_as_a_single_key_even_when_empty(tmp_path: Path) -> None:
    found = in_event_time(recorded(tmp_path / "a", STEADY, keys=[], cadence="10 s"), columns=["v"])
    assert [(gap.kind, gap.key, gap.column, gap.count) for gap in found.gaps] == [
        ("missing_rows", {}, "", 2),
        ("recorded_nulls", {}, "v", 1),
    ]
    found = in_event_time(recorded(tmp_path / "b", [], keys=[], cadence="10 s"), columns=["v"])
    assert [(gap.kind, gap.count, gap.open_left, gap.open_right) for gap in found.gaps] == [
        ("never_started", 10, True, True)
    ]
    assert [(row.present, row.missing) for row in found.completeness] == [(0, 10), (0, 10)]


def test_keys_that_ended_early_or_never_started_are_reported_once(tmp_path: Path) -> None:
    rows = [*STEADY, ("b", 5.0, 5.0, 1.0)]
    found = in_event_time(recorded(tmp_path, rows, cadence="10 s", expected_keys=["a", "c"]))
    assert [(gap.keys, gap.kind, gap.from_us) for gap in found.silent_now] == [
        ("k=c", "never_started", 0),
        ("k=b", "ended", 10 * SECOND),
    ]
    assert [(row.keys, row.is_expected, row.share) for row in found.completeness] == [
        ("k=a", True, 0.8),
        ("k=b", False, 0.1),
        ("k=c", True, 0.0),
    ]


def test_only_keys_that_end_before_other_keys_are_silent_if_all_end_early(tmp_path: Path) -> None:
    rows = [
        (key, n, n, 1.0)
        for key, end in (("a", 70), ("b", 60), ("c", 50))
        for n in range(0, end, 10)
    ]
    config = recorded(
        tmp_path,
        [*rows, ("c", 95, 45, 1.0)],
        cadence="10 s",
        expected_keys=["a", "d"],
    )  # type: ignore[list-item]
    found = in_event_time(config)
    assert [(gap.keys, gap.kind) for gap in found.silent_now] == [
        ("k=d", "never_started"),
        ("k=c", "ended"),
    ]
    assert found.all_end_by_us == 70 * SECOND
    assert found.to_dict()["all_end_by"] == "1970-01-01T00:01:10Z"
    assert in_event_time(config, last=6).all_end_by_us is None, "a has a row there"
    behind = in_event_time(config, first=8)
    assert [gap.keys for gap in behind.silent_now] == ["k=c", "k=d"], (
        "also where all of them end before the range"
    )
    assert behind.all_end_by_us == 70 * SECOND
    alone = in_event_time(config, keys={"k": "d"})
    assert ([gap.keys for gap in alone.silent_now], alone.all_end_by_us) == (["k=d"], None)


def test_hours_outside_opening_hours_are_not_counted_as_silence(tmp_path: Path) -> None:
    fill = {"step": "1 min", "zone": "UTC", "hours": "00:00-00:02"}
    rows = [
        ("a", 0, 0, 1.0),
        ("a", 60, 60, 1.0),
        ("b", 61, 0, 1.0),
        ("a", 62, 86_400, 1.0),
        ("b", 63, 61, 1.0),
    ]
    event = in_event_time(recorded(tmp_path, rows, fill=fill))  # type: ignore[arg-type]
    day = 86_400 * SECOND
    ended = [
        Gap("ended", None, at, 3 * day, 1, {"k": key}, since_us=at)
        for key, at in (("a", day + 60 * SECOND), ("b", day))
    ]
    late = replace(event, gaps=ended, to_us=3 * day)
    assert late.silent_now == [] and late.all_end_by_us == day + 60 * SECOND
    sooner = replace(ended[1], from_us=60 * SECOND, since_us=60 * SECOND)
    assert replace(late, gaps=[ended[0], sooner]).silent_now == [sooner]
    assert (
        replace(late, gaps=[sooner, replace(sooner, from_us=day, since_us=day)]).all_end_by_us
        == 120 * SECOND
    )


def test_missing_values_of_a_gap_are_null_in_json_and_empty_in_csv(tmp_path: Path) -> None:
    report = gaps(
        recorded(tmp_path, [], keys=[], cadence="10 s", interval="10 s"),
        "s",
        first=0,
        last=19,
    )
    found = json.loads(report.to_json())
    assert not [
        value
        for row in [*found["gaps"], *found["event_time"]["completeness"]]
        for value in row.values()
        if value == ""
    ]
    [missing] = [row for row in found["gaps"] if row["kind"] == "missing"]
    assert [missing[name] for name in ("key", "closed_by", "column", "open_at", "id")] == [None] * 5
    [never] = [row for row in found["gaps"] if row["kind"] == "never_started"]
    assert (never["key"], never["column"], never["first"], never["open_at"]) == (
        None,
        None,
        None,
        "both",
    )
    assert found["event_time"]["completeness"][0]["key"] is None and found["event_time"][
        "silent_now"
    ] == [None]
    assert "missing,,10,19," in report.to_csv()


def test_report_is_filtered_by_keys_and_columns_and_unknown_names_are_rejected(
    tmp_path: Path,
) -> None:
    config = recorded(tmp_path, [*STEADY, ("b", 5.0, 5.0, None)], cadence="10 s", interval="10 s")
    report = gaps(config, "s", columns=["*"], keys={"k": "a"})
    assert {gap.keys for gap in report.gaps} == {"k=a"}
    nulls = [gap for gap in report.gaps if gap.kind == "recorded_nulls"]
    assert [(gap.column, gap.from_us, gap.count, gap.closed_by) for gap in nulls] == [
        ("v", 30 * SECOND, 1, "tuple 4:4")
    ]
    assert (report.counts["rows_missing"], report.counts["values_null"]) == (2, 1)
    for wrong, words in [
        ({"columns": ["w"]}, 'no column "w"'),
        ({"keys": {"kk": "a"}}, 'no key "kk"'),
        ({"keys": {"k": "zz"}}, "no tuple of key k=zz"),
        ({"cadence_us": -5}, "cadence"),
        ({"cadence_us": 0}, "must be above 0"),
    ]:
        with pytest.raises(InputError, match=words):
            gaps(config, "s", **wrong)  # type: ignore[arg-type]


def test_gap_across_several_windows_is_reported_as_one_row_with_a_stable_id(tmp_path: Path) -> None:
    # Rules: G9, G16
    config = recorded(tmp_path, STEADY, cadence="10 s")
    [whole] = in_event_time(config).gaps
    assert not any("None" in row for row in gaps(config, "s").table()[1]), (
        "in event time it is in no window"
    )
    [cut] = in_event_time(config, first=6, last=7).gaps
    assert (whole.from_us, cut.from_us, cut.count) == (50 * SECOND, 60 * SECOND, 1)
    assert whole.gap_id == cut.gap_id and (cut.row()["open_at"], whole.row()["open_at"]) == (
        "begin",
        "",
    )


def test_stream_without_event_time_has_only_the_arrival_report(tmp_path: Path) -> None:
    config = recorded(tmp_path / "a", STEADY, event_at=None)
    assert gaps(config, "s").event is None
    with pytest.raises(InputError, match="has no event time"):
        gaps(config, "s", columns=["v"])


def test_expected_keys_must_match_the_key_columns() -> None:
    # Rules: G7
    given = {"source": "s", "arrived_at": "at", "keys": ["a", "b"], "expected_keys": [["x", "y"]]}
    assert StreamConfig(**given).expected_values == [["x", "y"]]  # type: ignore[arg-type]
    settings = GapSettings(
        event_at="at",
        cadence=1,
        from_time=0,
        to_time=10,
        keys=["a"],
        expected_keys=[["x"]],
    )
    assert settings.expected_keys == (("x",),)


def test_invalid_expected_key_or_cadence_is_reported_with_the_correct_format(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rewindow.toml"
    stream = '[streams.s]\nsource = "s.csv"\narrived_at = "at"\nkeys = ["a", "b"]\n'
    file.write_text(stream + 'expected_keys = ["x"]\n')
    with pytest.raises(
        InputError,
        match='expected_keys" is wrong: it has "x", which is not a value',
    ) as refused:
        Config.load(file)
    assert (
        refused.value.hint
        == 'Add one value for each of keys, such as expected_keys = [["A", "B"]].'
    )
    file.write_text(stream + 'cadence = "-1 h"\n')
    with pytest.raises(InputError, match="cadence.* must be greater than 0"):
        Config.load(file)


UNBALANCED = """
from types import SimpleNamespace
from rewindow.inspection.event_gaps import _total
settings = SimpleNamespace(first_point=0, end_point=3, keys=(), columns=(), expected_keys=())
row = dict(part=0, present=1, nulls=0, missing=1, tolerated=0, is_expected=0)
_total(row, SimpleNamespace(settings=settings, keys=()))
"""


@pytest.mark.parametrize("options", [(), ("-O",)], ids=["python", "python -O"])
def test_report_fails_if_its_counts_do_not_balance(options: tuple[str, ...]) -> None:
    # Rules: G18
    done = subprocess.run(
        [sys.executable, *options, "-c", UNBALANCED],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "counts of the gap report do not add up" in done.stderr
