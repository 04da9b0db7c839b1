"""Sources: each format gives the same tuples; a Delta table is read by what it has gained."""

from __future__ import annotations

import gzip
import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rewindow.errors import InputError
from tests.recording.conftest import HEADER, Bench

TUPLES = [("b", 40, 2), ("a", 41, 1), ("c", 50, None)]
EXPECTED = [(1000, 0, "b", 2), (1000, 1, "a", 1), (1001, 0, "c", None)]


def time_of(second: int) -> datetime:
    """Returns a time in the minute in which window 1000 begins."""
    return datetime(1970, 1, 1, 2, 46, second, tzinfo=UTC)


def text_of(rows: list[tuple[str, int, int | None]]) -> str:
    """Returns tuples as CSV without a header."""
    return "".join(
        f"{k},{time_of(second).isoformat()},{'' if n is None else n}\n" for k, second, n in rows
    )


def frame_of(rows: list[tuple[str, int, int | None]]) -> pa.Table:
    ks, seconds, ns = zip(*rows, strict=True)
    return pa.table(
        {
            "k": pa.array(ks),
            "at": pa.array([time_of(s) for s in seconds], pa.timestamp("us", "UTC")),
            "n": pa.array(ns, pa.int32()),
        }
    )


def with_struct(nested: str, second: int, value: dict[str, Any]) -> pa.Table:
    """Returns a row whose column s is a struct, a list of one or a map with one."""
    fields = {"a": pa.int32(), "b": pa.string()}
    kind: pa.DataType = pa.struct([(name, fields[name]) for name in value])
    held: Any = value
    if nested == "list":
        kind, held = pa.list_(kind), [value]
    if nested == "map":
        kind, held = pa.map_(pa.string(), kind), [("x", value)]
    at = pa.array([time_of(second)], pa.timestamp("us", "UTC"))
    return pa.table({"k": ["a"], "at": at, "s": pa.array([held], kind)})


def inner_of(value: Any) -> Any:
    """Returns the struct in a value of `with_struct`."""
    while isinstance(value, list | tuple):
        value = value[-1]
    return value


def write_csv_zip(root: Path) -> Path:
    """Writes a zip file that holds two CSV files and something else."""
    with zipfile.ZipFile(root / "s.zip", "w") as archive:
        archive.writestr("in/1.csv", HEADER + text_of(TUPLES[:1]))
        archive.writestr("in/2.csv", HEADER + text_of(TUPLES[1:]))
        archive.writestr("readme.md", "not a stream")
    return root / "s.zip"


def write_csv_gz(root: Path) -> Path:
    """Writes a compressed CSV file with a byte order mark and another order of columns."""
    rows = [row.split(",") for row in text_of(TUPLES).split()]
    swapped = "n,k,at\n" + "".join(f"{n},{k},{at}\n" for k, at, n in rows)
    (root / "s.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + swapped.encode()))
    return root / "s.csv.gz"


def write_json(root: Path) -> Path:
    """Writes JSON lines, an empty one among them."""
    lines = [
        json.dumps({"k": k, "at": time_of(s).isoformat(), "n": n, "more": [1]})
        for k, s, n in TUPLES
    ]
    (root / "s.jsonl").write_text("\n\n".join(lines))
    return root / "s.jsonl"


def write_pandas_parquet(root: Path) -> Path:
    """Writes Parquet as pandas does: nanoseconds, an index column."""
    frame = pd.DataFrame(
        {"k": [r[0] for r in TUPLES], "at": pd.to_datetime([time_of(r[1]) for r in TUPLES])}
    )
    frame["n"] = pd.array([r[2] for r in TUPLES], dtype="Int32")
    frame = frame.set_index(pd.Index([7, 8, 9])).astype({"at": "datetime64[ns, UTC]"})
    frame.to_parquet(root / "s.parquet", version="2.6")
    return root / "s.parquet"


def write_pandas_feather(root: Path) -> Path:
    """Writes Feather as pandas does: nanoseconds, categories."""
    frame = frame_of(TUPLES).to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get)
    frame.astype({"k": "category", "at": "datetime64[ns, UTC]"}).to_feather(root / "s.feather")
    return root / "s.feather"


def write_folder(root: Path) -> Path:
    (root / "in").mkdir()
    for number, row in enumerate(TUPLES):
        (root / "in" / f"{number}.csv").write_text(HEADER + text_of([row]))
    return root / "in"


def write_pattern(root: Path) -> Path:
    """Writes a folder of CSV files and returns a pattern for them."""
    return write_folder(root) / "*.csv"


WRITERS = [
    write_csv_gz,
    write_json,
    write_pandas_parquet,
    *(
        pytest.param(write, marks=pytest.mark.long)
        for write in (write_csv_zip, write_pandas_feather, write_folder, write_pattern)
    ),
]


@pytest.mark.parametrize("write", WRITERS)
def test_all_source_formats_yield_the_same_tuples(bench: Bench, write: Any) -> None:
    bench.record(source=str(write(bench.root)))
    assert bench.tuples() == EXPECTED


def test_csv_values_may_contain_delimiters_and_line_ends(bench: Bench) -> None:
    at = time_of(41).isoformat()
    (bench.root / "s.csv").write_text(f'k;at;n\n"a;\nb";{at};1\n\n"x";{at};many\n')
    bench.record(delimiter=";")
    assert bench.tuples() == [(1000, 0, "a;\nb", 1)]
    assert bench.aside() == [(None, "malformed: column n is not int", "s.csv:3")]


def test_unreadable_rows_do_not_shift_later_row_numbers(bench: Bench) -> None:
    at = time_of(41).isoformat()
    rows = [
        f"r{n},{at},{'x' if n % 7 == 0 else n}" if n % 3 else f"r{n},{at}" for n in range(2, 200)
    ]
    bench.write("\n".join(rows) + "\n")
    bench.record(malformed_max_share=1)
    positions = {position: reason for _, reason, position in bench.aside()}
    wide = "malformed: row has 2 columns, 3 expected"
    expected = {
        f"s.csv:{n}": wide if n % 3 == 0 else "malformed: column n is not int"
        for n in range(2, 200)
    }
    assert positions == {
        f"s.csv:{n}": expected[f"s.csv:{n}"] for n in range(2, 200) if n % 3 == 0 or n % 7 == 0
    }


def test_csv_without_header_reads_its_column_names_from_the_settings(bench: Bench) -> None:
    at = time_of(41).isoformat()
    (bench.root / "s.csv").write_text(f"a,{at},1\nb,{at}\nc,{at},x\n")
    bench.record(header=False)
    assert bench.tuples() == [(1000, 0, "a", 1)]
    assert bench.aside() == [
        (None, "malformed: column n is not int", "s.csv:3"),
        (None, "malformed: row has 2 columns, 3 expected", "s.csv:2"),
    ]
    with pytest.raises(InputError, match="has 3 columns, but the setting .columns. has 2"):
        bench.record(header=False, columns="k STRING, at TIMESTAMP")
    with pytest.raises(InputError, match="is missing: its CSV source has no header"):
        bench.record(header=False, columns=None)


def test_decimal_that_would_be_rounded_is_malformed(bench: Bench) -> None:
    at = time_of(41).isoformat()
    bench.write(f"a,{at},1.25\nb,{at},1.255\nc,{at},1.2500\nd,{at},12345678.9\n")
    bench.record(columns="k STRING, at TIMESTAMP, n DECIMAL(5,2)")
    assert [(key, str(n)) for _, _, key, n in bench.tuples()] == [("a", "1.25"), ("c", "1.25")]
    assert [(reason, position) for _, reason, position in bench.aside()] == [
        ("malformed: column n is not decimal(5,2)", "s.csv:3"),
        ("malformed: column n is not decimal(5,2)", "s.csv:5"),
    ]


def test_configured_null_values_are_read_as_null_and_not_as_malformed(bench: Bench) -> None:
    bench.write(f'NA,{time_of(41).isoformat()},NA\n"NA",{time_of(42).isoformat()},"NA"\n')
    result = bench.record(null_values=["", "NA"])
    assert bench.tuples() == [(1000, 0, None, None), (1000, 1, "NA", None)]
    assert result.malformed == 0


def test_column_of_a_later_file_is_added_to_a_recorded_stream(bench: Bench) -> None:
    # No tuple of an older window is late or missing.
    folder = write_folder(bench.root)
    settings = {
        "source": str(folder),
        "columns": None,
        "select": {"m": "cast(n as int)"},
        "new_columns": "take",
    }
    bench.record(**settings)
    (folder / "3.csv").write_text(f"k,at,n,note\nz,{time_of(59).isoformat()},3,late\n")
    (folder / "4.csv").write_text(
        f"k,at,n,note\nw,{datetime(1970, 1, 1, 2, 47, 31, tzinfo=UTC).isoformat()},4,new\n"
    )
    result = bench.record(**settings, sealed_to="1970-01-01T02:47:40Z")
    assert (result.recorded, result.late, result.files_unchanged, result.short_windows) == (
        1,
        1,
        3,
        0,
    )
    assert bench.rows("select k, note, m from s order by window_id, k desc") == [
        {"k": "b", "note": None, "m": 2},
        {"k": "a", "note": None, "m": 1},
        {"k": "c", "note": None, "m": None},
        {"k": "w", "note": "new", "m": 4},
    ]
    again = bench.record(**settings, sealed_to="1970-01-01T02:47:40Z")
    assert (again.recorded, again.late, again.short_windows) == (0, 0, 0)


def test_column_names_may_contain_dots_and_backticks(bench: Bench) -> None:
    (bench.root / "s.csv").write_text(
        f"a.b,c`d,at\n1,x,{time_of(41).isoformat()}\n?,y,{time_of(42).isoformat()}\n"
    )
    settings = {"columns": "`a.b` INT, `c``d` STRING, at TIMESTAMP", "keys": ["a.b"]}
    bench.record(**settings)
    assert bench.rows('select "a.b", "c`d" from s') == [{"a.b": 1, "c`d": "x"}]
    with (bench.root / "s.csv").open("a") as source:
        source.write(f"2,z,{time_of(43).isoformat()}\n")
    assert bench.record(**settings).late == 1
    payload = json.loads(bench.rows("select payload from q where reason = 'late'")[0]["payload"])
    assert (payload["a.b"], payload["c`d"]) == (2, "z")


def test_malformed_json_is_quarantined_with_its_text_and_column(bench: Bench) -> None:
    at = time_of(41).isoformat()
    good = {"k": "a", "at": at, "n": 1, "where": {"x": 1}}
    columns = {"n": "many", "where": {"x": "far"}, "tags": [1, "a"]}
    bad = ['{"k": "a", ', "[1]", "null", *(json.dumps(good | {c: v}) for c, v in columns.items())]
    bad.append('{"n": "many"} {}')
    (bench.root / "s.json").write_text("\n".join([json.dumps(good), *bad]))
    declared = "k STRING, at TIMESTAMP, n INT, where STRUCT<x: INT, y: INT>, tags ARRAY<INT>"
    bench.record(source=str(bench.root / "s.json"), columns=declared)
    no_json = "malformed: line is not JSON with the declared columns"
    no_value = "malformed: column {} is not {}".format
    reasons = [no_json] * 3 + [no_value("n", "int"), no_value("where.x", "int")]
    reasons += [no_value("tags", "array<int>"), no_json]
    found = [(None, reason, f"s.json:{n}") for n, reason in enumerate(reasons, 2)]
    assert sorted(bench.aside(), key=lambda row: row[2]) == found
    assert {row["payload"] for row in bench.rows("select payload from q")} == set(bad)


def test_nonfinite_json_number_in_a_text_column_is_read_as_its_name(bench: Bench) -> None:
    at = time_of(41).isoformat()
    texts = ["NaN", "-Infinity", '"NaN"', '"a\\"NaN\\""']
    lines = [f'{{"k": {text}, "at": "{at}", "n": {n}}}' for n, text in enumerate(texts)]
    (bench.root / "s.json").write_text("\n".join(lines))
    bench.record(source=str(bench.root / "s.json"))
    assert [row[2] for row in bench.tuples()] == ["NaN", "-Infinity", "NaN", 'a"NaN"']


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", b"", 'source file "s.csv" is empty'),
        ("s.csv", b"k,at,\xff\n", 'first row of source file "s.csv" is not UTF-8'),
        ("s.parquet", b"not parquet", "cannot be read as Parquet"),
        ("s.feather", b"not feather", "cannot be read as Feather"),
        ("s.zip", b"not a zip", "is not a zip file"),
    ],
)
def test_malformed_source_files_are_rejected_by_name(
    bench: Bench,
    name: str,
    content: bytes,
    message: str,
) -> None:
    (bench.root / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        bench.record(source=str(bench.root / name), format="csv" if name == "s.zip" else None)


def test_json_without_columns_is_rejected(bench: Bench) -> None:
    # JSON lines do not declare their types.
    with pytest.raises(InputError, match="a JSON source needs it"):
        bench.record(source=str(write_json(bench.root)), columns=None)


def test_timestamp_without_a_zone_is_read_in_the_time_zone_of_the_stream(bench: Bench) -> None:
    frame = pd.DataFrame({"k": ["a"], "at": [pd.Timestamp("1970-06-01T12:00:00")], "n": [1]})
    frame.to_parquet(bench.root / "s.parquet")
    bench.record(
        end=True,
        sealed_to=None,
        source=str(bench.root / "s.parquet"),
        columns=None,
        zone="Europe/Berlin",
    )
    assert bench.rows("select cast(at as string) as at from s") == [{"at": "1970-06-01T11:00:00Z"}]


class TestDelta:
    def test_second_run_reads_only_added_files(self, bench: Bench) -> None:
        source = bench.root / "d"
        write_deltalake(str(source), frame_of(TUPLES))
        first = bench.record(source=str(source), columns=None, sealed_to="1970-01-01T02:47:00Z")
        assert (first.recorded, first.source_version) == (3, 0)
        write_deltalake(
            str(source),
            frame_of([("new", 59, 9), ("late", 45, 8), ("a", 41, 1)]),
            mode="append",
        )
        second = bench.record(source=str(source), columns=None, sealed_to="1970-01-01T02:47:10Z")
        assert (second.recorded, second.late, second.windows_sealed, second.source_version) == (
            0,
            3,
            1,
            1,
        )
        assert second.bytes_read < first.bytes_read * 2
        assert bench.tuples() == EXPECTED
        third = bench.record(source=str(source), columns=None)
        assert (third.bytes_read, third.late, third.known) == (0, 0, 0)

    def test_offsets_of_simultaneous_tuples_do_not_depend_on_the_files(self, bench: Bench) -> None:
        # Rules: X56
        rows = [(key, 41 + number % 2, number) for number, key in enumerate("abcdefgh" * 4)]
        last = ("z", 59, 0)

        def recorded(name: str, *files: list[tuple[str, int, int | None]]) -> list[Any]:
            source = bench.root / name
            for file in files:
                write_deltalake(str(source), frame_of(file), mode="append")
            bench.record(source=str(source), columns=None, start_over=True)
            return bench.tuples()

        expected = recorded("whole", [*rows, last])
        assert len(expected) == len(rows) + 1
        assert recorded("optimized", rows[20:], [last], rows[:20][::-1]) == expected
        # Late tuples get the same places.
        recorded("late", rows[3:], [last])
        write_deltalake(str(bench.root / "late"), frame_of(rows[:3]), mode="append")
        settings: dict[str, Any] = {"source": str(bench.root / "late"), "columns": None}
        assert bench.record(**settings).late == 3
        assert bench.record(reopen=True, **settings).taken == 3
        assert bench.tuples() == expected

    def test_pending_tuples_are_recorded_when_their_window_is_sealed(self, bench: Bench) -> None:
        source = bench.root / "d"
        write_deltalake(str(source), frame_of([*TUPLES, ("w", 59, 7)]), partition_by=["k"])
        bench.record(source=str(source), columns=None, sealed_to="1970-01-01T02:46:50Z")
        write_deltalake(str(source), frame_of([("late", 41, 0), ("x", 55, 5)]), mode="append")
        again = bench.record(source=str(source), columns=None, sealed_to="1970-01-01T02:46:50Z")
        assert (again.late, again.recorded, again.waiting) == (1, 0, 3)
        last = bench.record(source=str(source), columns=None)
        assert (last.recorded, last.late, last.waiting) == (3, 0, 0)
        assert [row[2] for row in bench.tuples()] == ["b", "a", "c", "x", "w"]
        assert len(bench.aside()) == 1

    def test_compaction_of_the_source_adds_no_tuples(self, bench: Bench) -> None:
        source = bench.root / "d"
        for row in TUPLES:
            write_deltalake(str(source), frame_of([row]), mode="append")
        bench.record(source=str(source), columns=None)
        DeltaTable(str(source)).optimize.compact()
        result = bench.record(source=str(source), columns=None)
        assert (result.bytes_read, result.late, result.warnings) == (0, 0, [])

    def test_changed_source_rows_are_rejected_before_anything_is_written(
        self, bench: Bench
    ) -> None:
        source = bench.root / "d"
        write_deltalake(str(source), frame_of(TUPLES))
        bench.record(source=str(source), columns=None)
        write_deltalake(str(source), frame_of([("n", 59, 1)]), mode="overwrite")
        with pytest.raises(InputError, match=r"version 1 \(WRITE\) of the Delta source"):
            bench.record(source=str(source), columns=None)
        result = bench.record(source=str(source), columns=None, changed_rows="skip")
        assert (result.late, len(result.warnings)) == (0, 1)
        assert bench.tuples() == EXPECTED

    def test_pending_tuples_are_found_after_compaction_and_vacuum(self, bench: Bench) -> None:
        source = bench.root / "d"
        settings = {"source": str(source), "columns": None}
        write_deltalake(str(source), frame_of([*TUPLES, ("w", 59, 7)]))
        bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
        write_deltalake(str(source), frame_of([("late", 41, 0), ("x", 55, 5)]), mode="append")
        bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
        table = DeltaTable(str(source))
        table.optimize.compact()
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)
        result = bench.record(**settings)
        assert (result.recorded, result.late, result.known, result.already_there) == (3, 0, 1, 2)
        assert [row[2] for row in bench.tuples()] == ["b", "a", "c", "x", "w"]
        assert len(bench.aside()) == 1
        assert "compacted and vacuumed" in result.warnings[0]

    def test_new_source_column_is_added_or_reported(self, bench: Bench) -> None:
        source = bench.root / "d"
        settings = {"source": str(source), "columns": None}
        write_deltalake(str(source), frame_of(TUPLES))
        bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
        new = frame_of([("x", 55, 5)]).append_column("m", pa.array(["new"]))
        write_deltalake(str(source), new, mode="append", schema_mode="merge")
        reported = bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
        assert 'not recorded: "m"' in reported.warnings[0]
        result = bench.record(**settings, new_columns="take")
        assert (result.recorded, result.late, result.warnings) == (2, 0, [])
        assert bench.rows("select k, m from s where m is not null") == [{"k": "x", "m": "new"}]

    def test_rows_of_a_restored_source_are_recorded_once(self, bench: Bench) -> None:
        source = bench.root / "d"
        settings = {"source": str(source), "columns": None}
        write_deltalake(str(source), frame_of(TUPLES[:1]))
        write_deltalake(str(source), frame_of(TUPLES[2:]), mode="append")
        bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
        DeltaTable(str(source)).restore(0)
        DeltaTable(str(source)).restore(1)
        write_deltalake(str(source), frame_of([("x", 59, 5)]), mode="append")
        with pytest.raises(InputError, match=r"version 2 \(RESTORE\)"):
            bench.record(**settings)
        result = bench.record(**settings, changed_rows="skip")
        assert (result.recorded, result.late, len(result.warnings)) == (2, 0, 2)
        assert [row[2] for row in bench.tuples()] == ["b", "c", "x"]

    def test_restored_source_is_accepted_with_the_suggested_command(self, bench: Bench) -> None:
        source = bench.root / "d"
        settings = {"source": str(source), "columns": None}
        write_deltalake(str(source), frame_of(TUPLES[:2]))
        write_deltalake(str(source), frame_of([("x", 42, 5)]), mode="append")
        bench.record(**settings)
        DeltaTable(str(source)).restore(0)
        write_deltalake(str(source), frame_of([("y", 43, 6)]), mode="append")
        with pytest.raises(InputError, match="RESTORE") as caught:
            bench.record(**settings)
        assert "rewindow record s --reopen --replace" in caught.value.hint
        result = bench.record(**settings, reopen=True, replace=True)
        assert (result.taken, result.removed) == (1, 1)
        assert [row[2] for row in bench.tuples()] == ["b", "a", "y"]
        assert bench.record(**settings).warnings == []

    def test_skipped_changed_rows_are_reported_after_their_files_are_vacuumed(
        self, bench: Bench
    ) -> None:
        source = bench.root / "d"
        settings = {"source": str(source), "columns": None, "changed_rows": "skip"}
        write_deltalake(str(source), frame_of([*TUPLES, ("w", 59, 7)]))
        bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
        table = DeltaTable(str(source))
        table.update({"n": "9"}, predicate="k = 'a'")
        table.vacuum(0, enforce_retention_duration=False, dry_run=False)
        result = bench.record(**settings)
        assert (result.late, result.changed) == (0, [{"window": 1000, "gone": 1, "new": 1}])
        bench.record(**settings, reopen=True, replace=True)
        assert [row[2:] for row in bench.tuples()] == [("b", 2), ("a", 9), ("c", None), ("w", 7)]
        assert bench.aside() == []

    @pytest.mark.parametrize("declared", [False, True])
    @pytest.mark.parametrize(
        "nested",
        ["struct", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("list", "map"))],
    )
    def test_new_nested_field_is_reported_and_recorded_after_a_restart(
        self,
        bench: Bench,
        nested: str,
        declared: bool,
    ) -> None:
        source = bench.root / "d"
        types = {"struct": "{}", "list": "array<{}>", "map": "map<string,{}>"}
        columns = f"k STRING, at TIMESTAMP, s {types[nested]}"
        before = columns.format("struct<a:int>")
        settings: dict[str, Any] = {
            "source": str(source),
            "columns": before if declared else None,
        }
        write_deltalake(str(source), with_struct(nested, 41, {"a": 1}))
        bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
        new = with_struct(nested, 55, {"a": 2, "b": "new"})
        write_deltalake(str(source), new, mode="append", schema_mode="merge")
        result = bench.record(**settings)
        assert result.recorded == 1
        where = {"struct": "s.b", "list": "s.item.b", "map": "s.entries.value.b"}[nested]
        assert f"are not recorded: {where}. To record them, " in result.warnings[0]
        assert ("declare them in the setting columns" in result.warnings[0]) == declared
        assert "rewindow record s --start-over" in result.warnings[0]
        assert [inner_of(row["s"]) for row in bench.rows("select s from s order by at")] == [
            {"a": 1},
            {"a": 2},
        ]
        if declared:
            settings["columns"] = columns.format("struct<a:int,b:string>")
        bench.record(**settings, start_over=True)
        assert [inner_of(row["s"]) for row in bench.rows("select s from s order by at")] == [
            {"a": 1, "b": None},
            {"a": 2, "b": "new"},
        ]

    @pytest.mark.parametrize("in_utc", [True, pytest.param(False, marks=pytest.mark.long)])
    def test_partition_times_written_in_another_session_time_zone_are_read_correctly(
        self,
        bench: Bench,
        in_utc: bool,
    ) -> None:
        source = bench.root / "d"
        conf = bench.spark.conf
        zone = conf.get("spark.sql.session.timeZone")
        key = "spark.databricks.delta.write.utcTimestampPartitionValues"
        conf.set("spark.sql.session.timeZone", "America/New_York")
        conf.set(key, str(in_utc).lower())
        try:
            frame = bench.spark.sql("select 'a' as k, timestamp '1970-01-01T02:46:41Z' as at")
            frame.write.format("delta").partitionBy("at").save(str(source))
        finally:
            conf.set("spark.sql.session.timeZone", str(zone))
            conf.unset(key)
        settings = {"source": str(source), "columns": None, "sealed_to": "1970-01-01T02:47:00Z"}
        if not in_utc:
            with pytest.raises(InputError, match="times without a zone"):
                bench.record(**settings)
            settings["zone"] = "America/New_York"
        bench.record(**settings)
        found = bench.rows("select window_id, cast(at as varchar) as at from s")
        assert [row["window_id"] for row in found] == [1000]

    @pytest.mark.long
    def test_shallow_clone_by_spark_is_recorded_including_rows_added_to_the_clone(
        self, bench: Bench
    ) -> None:
        base, clone = bench.root / "ba se", bench.root / "clone"
        rows = bench.spark.createDataFrame(frame_of(TUPLES))
        rows.write.format("delta").partitionBy("k").save(str(base))
        bench.spark.sql(f"create table delta.`{clone}` shallow clone delta.`{base}`")
        settings = {"source": str(clone), "columns": None}
        bench.record(**settings, sealed_to="1970-01-01T02:46:50Z")
        own = bench.spark.createDataFrame(frame_of([("z", 58, 9)]))
        own.write.format("delta").mode("append").save(str(clone))
        assert bench.record(**settings).warnings == []
        assert [row[2] for row in bench.tuples()] == ["b", "a", "c", "z"]

    @pytest.mark.long
    def test_source_changes_by_spark_are_replaced_and_can_be_reverted(self, bench: Bench) -> None:
        source = bench.root / "d"
        settings: dict[str, Any] = {"source": str(source), "columns": None}
        replace: dict[str, Any] = {**settings, "reopen": True, "replace": True}
        for row in TUPLES:
            frame = bench.spark.createDataFrame(frame_of([row]))
            frame.write.format("delta").mode("append").save(str(source))
        bench.record(**settings)
        first = bench.rows("select window_id, digest from w order by 1")
        bench.spark.sql(f"delete from delta.`{source}` where k = 'c'")
        with pytest.raises(InputError, match="DELETE"):
            bench.record(**settings)
        assert bench.record(**replace).removed == 1
        bench.spark.sql(f"restore table delta.`{source}` to version as of 2")
        with pytest.raises(InputError, match="RESTORE"):
            bench.record(**settings)
        bench.record(**replace)
        assert bench.rows("select window_id, digest from w order by 1") == first
        bench.spark.sql(f"update delta.`{source}` set n = 77 where k = 'a'")
        bench.spark.sql(f"optimize delta.`{source}`")
        result = bench.record(**replace)
        assert (result.reopened, result.taken, result.removed) == (1, 1, 1)
        assert bench.record(**settings).warnings == []

    def test_truncated_source_log_is_rejected(self, bench: Bench) -> None:
        # Without its commits the added rows cannot be determined.
        source = bench.root / "d"
        write_deltalake(str(source), frame_of(TUPLES))
        bench.record(source=str(source), columns=None)
        for row in TUPLES:
            write_deltalake(str(source), frame_of([row]), mode="append")
        DeltaTable(str(source)).create_checkpoint()
        (source / "_delta_log" / f"{1:020}.json").unlink()
        with pytest.raises(InputError, match="version 1 of the Delta source"):
            bench.record(source=str(source), columns=None)
