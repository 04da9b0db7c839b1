"""Files as other tools write them, and with values that are not what their column says: every row
is recorded as it is meant, put into quarantine, or its file is refused by name.
"""

from __future__ import annotations

import json
import re
import zipfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.errors import InputError
from tests.recording.conftest import HEADER, Bench

AT = datetime(1970, 1, 1, 2, 46, 41, tzinfo=UTC)
LATER = datetime(1970, 1, 1, 2, 46, 42, tzinfo=UTC)
NOON = datetime(2024, 7, 1, 12)
INSTANT = pa.timestamp("us", "UTC")
WRONG = object()


def write_parquet(path: Path, at: datetime = AT, **columns: pa.Array) -> Path:
    """Writes one row."""
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"at": pa.array([at], INSTANT), **columns}), path)
    return path.parent


def test_int96_times_of_any_year_are_recorded_with_a_report_of_lost_digits(bench: Bench) -> None:
    for number, until in enumerate([datetime(9999, 12, 31, 2), datetime(1500, 1, 1)]):
        path = bench.root / "in" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        columns = {"at": pa.array([AT], INSTANT), "until": pa.array([until], pa.timestamp("us"))}
        pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True)
    fine = {"at": pa.array([AT], INSTANT), "until": pa.array([1_001], pa.timestamp("ns"))}
    pq.write_table(
        pa.table(fine), bench.root / "in" / "2.parquet", use_deprecated_int96_timestamps=True
    )
    result = bench.record(source=str(bench.root / "in"), columns=None, keys=[])
    assert bench.rows('select cast(until as string) as t from s order by "offset"') == [
        {"t": "9999-12-31T02:00:00Z"},
        {"t": "1500-01-01T00:00:00Z"},
        {"t": "1970-01-01T00:00:00.000001Z"},
    ]
    assert result.warnings == ["1 timestamps are more precise than microseconds and were truncated"]


@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize("columns", [None, "at TIMESTAMP, k STRING"])
def test_times_with_and_without_the_utc_flag_are_recorded_correctly(
    bench: Bench,
    names: str,
    columns: str | None,
) -> None:
    folder = bench.root / "in"
    folder.mkdir()
    for name, key, moment, kind in (
        (names[0], "local", NOON, pa.timestamp("us")),
        (names[1], "instant", NOON.replace(hour=10, minute=30, tzinfo=UTC), INSTANT),
    ):
        table = pa.table({"at": pa.array([moment], kind), "k": [key]})
        pq.write_table(table, folder / f"{name}.parquet")
    bench.record(
        source=str(folder), columns=columns, zone="Europe/Berlin", sealed_to=None, end=True
    )
    assert bench.rows("select k, cast(at as string) as t from s order by window_id") == [
        {"k": "local", "t": "2024-07-01T10:00:00Z"},
        {"k": "instant", "t": "2024-07-01T10:30:00Z"},
    ]


def test_file_with_a_nonexistent_local_time_is_rejected(bench: Bench) -> None:
    write_parquet(bench.root / "in" / "1.parquet", t=pa.array([AT], INSTANT))
    absent = pa.array([datetime(2024, 3, 31, 2, 30)], pa.timestamp("us"))
    folder = write_parquet(bench.root / "in" / "2.parquet", LATER, t=absent)
    with pytest.raises(InputError, match='column "t" of source file "2.parquet"') as caught:
        bench.record(source=str(folder), columns=None, keys=[], zone="Europe/Berlin")
    assert "2024-03-31 02:30:00" in caught.value.detail


def nested(value: float, kind: pa.DataType) -> pa.Array:
    row = pa.struct([("t", INSTANT), ("v", kind)])
    return pa.array([[{"t": AT, "v": value}]], pa.list_(row))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"r": pa.array([2**40])}, {"r": pa.array([1.7])}),
        ({"r": nested(1, pa.int64())}, {"r": nested(1.7, pa.float64())}),
        ({"r": nested(1, pa.int32())}, {"r": nested(2**40 + 5, pa.int64())}),
        ({"r": pa.array([5])}, {"r": pa.array(["five"])}),
    ],
)
def test_later_file_that_would_lose_a_value_is_rejected_with_a_working_hint(
    bench: Bench,
    first: dict[str, pa.Array],
    second: dict[str, pa.Array],
) -> None:
    write_parquet(bench.root / "in" / "1.parquet", **first)
    folder = write_parquet(bench.root / "in" / "2.parquet", LATER, **second)
    settings: dict[str, Any] = {"source": str(folder), "keys": []}
    with pytest.raises(InputError, match='column "r" of source file "2.parquet"') as caught:
        bench.record(columns=None, **settings)
    advice = re.search(r'columns = "(.*), \.\.\."', caught.value.hint)
    assert advice is not None
    bench.record(columns=f"at TIMESTAMP, {advice[1]}", **settings)
    found = [row["r"] for row in bench.rows('select r from s order by "offset"')]
    written = [column["r"].to_pylist()[0] for column in (first, second)]
    if isinstance(written[1], str):
        assert found == ["5", "five"]
    elif isinstance(written[1], list):
        assert [row[0]["v"] for row in found] == [row[0]["v"] for row in written]
    else:
        assert found == written


def test_small_unsigned_numbers_are_recorded(bench: Bench) -> None:
    folder = write_parquet(
        bench.root / "in" / "1.parquet",
        a=pa.array([200], pa.uint8()),
        b=pa.array([60_000], pa.uint16()),
        c=pa.array([[255]], pa.list_(pa.uint8())),
    )
    bench.record(source=str(folder), columns=None, keys=[])
    assert bench.rows("select a, b, c from s") == [{"a": 200, "b": 60_000, "c": [255]}]


def test_digits_beyond_microseconds_are_reported_only_if_present(bench: Bench) -> None:
    kind = pa.list_(pa.timestamp("ns", "UTC"))
    folder = write_parquet(bench.root / "in" / "1.parquet", t=pa.array([[-1, 2_000]], kind))
    result = bench.record(source=str(folder), columns=None, keys=[])
    assert result.warnings == ["1 timestamps are more precise than microseconds and were truncated"]
    found = bench.rows("select cast(t[1] as string) as a, cast(t[2] as string) as b from s")
    assert found == [{"a": "1969-12-31T23:59:59.999999Z", "b": "1970-01-01T00:00:00.000002Z"}]


def test_column_without_a_type_is_omitted_unless_its_type_is_declared(
    bench: Bench,
) -> None:
    folder = write_parquet(bench.root / "in" / "1.parquet", k=pa.array(["a"]), n=pa.nulls(1))
    settings: dict[str, Any] = {"source": str(folder), "sealed_to": "1970-01-01T02:46:50Z"}
    result = bench.record(columns=None, **settings)
    assert "empty columns without a type are not recorded: n. " in result.warnings[0]
    declared = "at TIMESTAMP, k STRING, n TIMESTAMP"
    bench.record(columns=declared, start_over=True, **settings)
    assert bench.rows("select k, n from s") == [{"k": "a", "n": None}]


def test_columns_that_differ_only_in_case_are_rejected_with_a_working_hint(bench: Bench) -> None:
    (bench.root / "s.csv").write_text(f"Id,id,at\n1,2,{AT.isoformat()}\n")
    with pytest.raises(InputError, match='columns "Id" and "id" of the source of stream "s"') as e:
        bench.record(columns=None, keys=[])
    advice = re.search('columns = "(.*)"', e.value.hint)
    assert advice is not None and advice[1] == "Id string, at string"
    bench.record(columns=advice[1], keys=[])
    assert bench.rows('select "Id" from s') == [{"Id": "1"}]
    with pytest.raises(InputError, match='Remove "Id" or "id": in Spark'):
        bench.record(columns="Id STRING, id STRING, at STRING", keys=[], start_over=True)
    with pytest.raises(InputError, match='event columns "Id" and "ID" of stream "s"'):
        bench.record(columns=advice[1], keys=[], select={"ID": "1"}, start_over=True)


def test_macos_metadata_in_a_zip_file_is_ignored(bench: Bench) -> None:
    with zipfile.ZipFile(bench.root / "s.zip", "w") as archive:
        archive.writestr("__MACOSX/._notes.json", b"\x00\x05\x16\x07")
        archive.writestr("__MACOSX/._s.csv", b"\x00\x05\x16\x07Mac OS X \xff")
        archive.writestr("s.csv", f"{HEADER}a,{AT.isoformat()},1\n")
    bench.record(source=str(bench.root / "s.zip"))
    assert bench.tuples() == [(1000, 0, "a", 1)]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_file_with_only_a_header_has_no_rows(bench: Bench, end: str, mark: str) -> None:
    folder = bench.root / "in"
    folder.mkdir()
    (folder / "1.csv").write_text(f"{HEADER}a,{AT.isoformat()},1\n")
    (folder / "2.csv").write_text(mark + HEADER.strip() + end, newline="")
    assert bench.record(source=str(folder)).recorded == 1


@pytest.mark.parametrize(
    "more",
    ['{"k": "b"}', ' {"k": "b"}', ',{"k": "b"}', ",", "]", "}", " x", "\t1"],
)
def test_line_with_more_than_one_json_value_is_malformed(bench: Bench, more: str) -> None:
    row = json.dumps({"k": "a{}", "at": AT.isoformat(), "n": 1})
    lines = [row, row + more, f"[{row}]", f"[{row},{row}]", f"{row} \t"]
    (bench.root / "s.jsonl").write_text("\n".join(lines))
    bench.record(source=str(bench.root / "s.jsonl"))
    assert bench.tuples() == [(1000, 0, "a{}", 1), (1000, 1, "a{}", 1)]
    assert [position for _, _, position in bench.aside()] == [f"s.jsonl:{n}" for n in (2, 3, 4)]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_without_a_full_date_is_malformed_and_does_not_affect_windows(
    bench: Bench,
    kind: str,
) -> None:
    bad = ["10:15:30", "202401", "2024", "2024-05", "20224-01-05", "T10:15", "1704067200"]
    rows = [(text, 1) for text in [AT.isoformat(), *bad]]
    path = bench.root / f"s.{kind}"
    if kind == "csv":
        path.write_text("at,n\n" + "".join(f"{at},{n}\n" for at, n in rows))
    else:
        path.write_text("\n".join(json.dumps({"at": at, "n": n}) for at, n in rows))
    settings: dict[str, Any] = {"source": str(path), "keys": [], "sealed_to": None}
    result = bench.record(columns="at TIMESTAMP, n INT", end=True, **settings)
    assert (result.recorded, result.malformed, result.last) == (1, 7, 1000)
    assert {reason for _, reason, _ in bench.aside()} == {"malformed: column at is not timestamp"}
    again = bench.record(columns="at STRING, n INT", end=True, start_over=True, **settings)
    assert (again.recorded, again.malformed, again.last) == (1, 7, 1000)
    assert {reason for _, reason, _ in bench.aside()} == {"malformed: arrived_at is not timestamp"}


def test_number_without_a_unit_is_not_converted_to_a_time(bench: Bench) -> None:
    (bench.root / "s.jsonl").write_text('{"at": 1704067200}\n')
    settings: dict[str, Any] = {"source": str(bench.root / "s.jsonl"), "keys": []}
    assert bench.record(columns="at TIMESTAMP", **settings).malformed == 1
    folder = write_parquet(bench.root / "in" / "1.parquet", ms=pa.array([1_000]))
    with pytest.raises(InputError, match="has no unit of time"):
        bench.record(source=str(folder), keys=[], columns="at TIMESTAMP, ms TIMESTAMP")


def test_instant_outside_the_python_datetime_range_is_recorded(bench: Bench) -> None:
    extremes = [2**63 - 1, -(2**63), 576_000_000_000_000_000]
    rows = {
        "at": pa.array([AT] * 3, INSTANT),
        "until": pa.array(extremes, INSTANT),
        "day": pa.array([2**31 - 1, -(2**31), 0], pa.int32()).cast(pa.date32()),
    }
    (bench.root / "in").mkdir()
    pq.write_table(pa.table(rows), bench.root / "in" / "1.parquet")
    bench.record(source=str(bench.root / "in"), columns=None, keys=[])
    files = sorted((bench.root / "state" / "streams" / "s").rglob("*.parquet"))
    found = pa.concat_tables(pq.read_table(path, columns=["until", "day"]) for path in files)
    assert found["until"].cast(pa.int64()).to_pylist() == extremes
    assert found["day"].cast(pa.int32()).to_pylist() == [2**31 - 1, -(2**31), 0]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_nonexistent_and_ambiguous_local_times_are_reported(bench: Bench, kind: str) -> None:
    local = ["2024-03-31 02:30:00", "2024-10-27 02:30:00", "2024-07-01 12:00:00"]
    zoned = "2024-10-27T02:30:00+01:00"
    path = bench.root / f"s.{kind}"
    if kind == "csv":
        path.write_text("at\n" + "\n".join([*local, zoned]))
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps({"at": text}) for text in [*local, zoned]))
    else:
        times = [datetime.fromisoformat(text) for text in local]
        pq.write_table(pa.table({"at": pa.array(times, pa.timestamp("us"))}), path)
    result = bench.record(
        source=str(path),
        columns=None if kind == "parquet" else "at TIMESTAMP",
        keys=[],
        zone="Europe/Berlin",
        width="1 hour",
        sealed_to=None,
        end=True,
    )
    found = [row["t"] for row in bench.rows("select cast(at as string) as t from s order by at")]
    instants = ["2024-03-31T01:30:00Z", "2024-07-01T10:00:00Z", "2024-10-27T00:30:00Z"]
    assert found == [*instants, *(["2024-10-27T01:30:00Z"] if kind != "parquet" else [])]
    assert [warning.split(",")[0] for warning in result.warnings] == [
        "1 local times do not exist in Europe/Berlin",
        "1 local times are ambiguous in Europe/Berlin",
    ]


def test_digits_beyond_microseconds_in_text_are_reported(bench: Bench) -> None:
    bench.write("a,1970-01-01T02:46:41.123456789Z,1\nb,1970-01-01T02:46:41.1234560Z,2\n")
    result = bench.record()
    assert result.warnings == ["1 timestamps are more precise than microseconds and were truncated"]


@pytest.mark.parametrize(
    ("values", "declared", "expected"),
    [
        (pa.array([1.0, 1.7, None]), "INT", [1, WRONG, None]),
        (pa.array([5, 2**40]), "INT", [5, WRONG]),
        (pa.array([5, 2**40]), "DOUBLE", [5.0, 2.0**40]),
        (pa.array([1.25, 1.255]), "DECIMAL(9,2)", [Decimal("1.25"), WRONG]),
        (pa.array([1.25, float("nan")]), "BIGINT", [WRONG, WRONG]),
        (pa.array(["7", "12d", " 8 "]), "DOUBLE", [7.0, WRONG, 8.0]),
        (
            pa.array([LATER, LATER.replace(hour=0, minute=0, second=0)], INSTANT),
            "DATE",
            [WRONG, date(1970, 1, 1)],
        ),
        (pa.array([[1.0], [1.5, None], None]), "ARRAY<INT>", [[1], WRONG, None]),
        (pa.array([{"a": 1, "b": "x"}]), "STRUCT<b: STRING, a: BIGINT>", [{"b": "x", "a": 1}]),
        (pa.array([{"a": "1"}, {"a": "x"}, None]), "STRUCT<a: INT>", [{"a": 1}, WRONG, None]),
        (
            pa.array([[("k", "1")], [("k", "x")]], pa.map_(pa.string(), pa.string())),
            "MAP<STRING, INT>",
            [[("k", 1)], WRONG],
        ),
    ],
)
def test_row_is_malformed_if_the_declared_type_would_change_a_value(
    bench: Bench,
    values: pa.Array,
    declared: str,
    expected: list[Any],
) -> None:
    folder = bench.root / "in"
    folder.mkdir()
    at = pa.array([AT] * len(values), INSTANT)
    pq.write_table(pa.table({"at": at, "v": values}), folder / "1.parquet")
    bench.record(source=str(folder), columns=f"at TIMESTAMP, v {declared}", keys=[])
    good = [value for value in expected if value is not WRONG]
    if good:
        assert [row["v"] for row in bench.rows('select v from s order by "offset"')] == good
    bad = [f"1.parquet:{n}" for n, value in enumerate(expected, 1) if value is WRONG]
    assert ([position for _, _, position in bench.aside()] if bad else []) == bad


def test_declared_field_missing_in_the_source_is_rejected_by_name(bench: Bench) -> None:
    folder = write_parquet(bench.root / "in" / "1.parquet", v=pa.array([{"a": 1}]))
    with pytest.raises(InputError, match='field "b" in the setting "columns" does not exist'):
        bench.record(source=str(folder), columns="at TIMESTAMP, v STRUCT<a: INT, b: INT>", keys=[])


def test_arrival_in_a_window_outside_the_python_datetime_range_is_malformed(bench: Bench) -> None:
    (bench.root / "in").mkdir()
    year_10000_us = 253_402_300_800_000_000
    times = [AT.timestamp() * 10**6, 2**63 - 1, -(2**63), year_10000_us, year_10000_us - 20_000_000]
    at = pa.array(map(int, times), pa.int64()).cast(INSTANT)
    pq.write_table(pa.table({"at": at}), bench.root / "in" / "1.parquet")
    settings: dict[str, Any] = {"columns": None, "keys": [], "sealed_to": None}
    settings["origin"] = "1970-01-01T00:00:10Z"
    result = bench.record(source=str(bench.root / "in"), **settings)
    assert (result.malformed, result.waiting) == (3, 2)
    assert [(reason, position) for _, reason, position in bench.aside()] == [
        ("malformed: arrival after the year 9999", "1.parquet:2"),
        ("malformed: arrival after the year 9999", "1.parquet:4"),
        ("malformed: arrival before the origin of the grid", "1.parquet:3"),
    ]
