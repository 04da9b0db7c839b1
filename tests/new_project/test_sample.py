"""Samples of files: delimiter, header, encoding, and what cannot be looked into."""

from __future__ import annotations

import codecs
import gzip
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from rewindow.errors import InputError
from rewindow.new_project.columns import describe_columns
from rewindow.new_project.sample import HEAD, ROWS, read_sample


def test_delimiter_header_and_encoding_are_detected_and_written_as_settings(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("Straße;n\nx,y;1\n".encode("latin-1"))
    sample = read_sample(file)
    assert sample.values == {"Straße": ["x,y"], "n": ["1"]}
    assert sample.settings == {"encoding": "latin-1", "delimiter": ";"}
    file.write_text("1,2026-01-01\n2,\n")
    sample = read_sample(file)
    assert sample.values == {"column_1": ["1", "2"], "column_2": ["2026-01-01", None]}
    assert sample.settings == {"header": False}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "delta"])
def test_sample_contains_rows_from_the_whole_file_and_the_total_row_count(
    tmp_path: Path,
    kind: str,
) -> None:
    total = 3 * (ROWS + HEAD)
    rows = pa.table({"n": pa.array(range(total))})
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        path = tmp_path / "a.csv.gz"
        path.write_bytes(gzip.compress(b"n\n" + b"".join(b"%d\n" % n for n in range(total))))
    elif kind == "jsonl":
        path.write_text("".join(f'{{"n": {n}}}\n' for n in range(total)))
    elif kind == "parquet":
        pq.write_table(rows, path, row_group_size=total // 30)
    else:
        for part in range(5):
            piece = rows.slice(part * total // 5, total // 5)
            write_deltalake(str(path), piece, mode="append")
    sample = read_sample(path)
    numbers = [int(n) for n in sample.values["n"]]
    assert (sample.total, sample.whole) == (total, False)
    assert ROWS <= sample.rows <= ROWS + HEAD + 40
    assert sample.rows == len(set(numbers))
    if kind != "delta":
        assert numbers[: sample.head] == list(range(sample.head))
        assert sample.head == (total // 30 if kind == "parquet" else HEAD)
        assert numbers == sorted(numbers)
    # Every tenth of the source is in the sample, in about the same share.
    tenths = Counter(n * 10 // total for n in numbers if n >= HEAD)
    assert len(tenths) == 10
    assert all(tenths[tenth] > ROWS / 40 for tenth in range(1, 10)), tenths
    if sample.positions:
        name = "a.jsonl" if kind == "jsonl" else "a.csv.gz"
        first = 1 if kind == "jsonl" else 2
        assert sample.positions[-1] == f"{name}:{numbers[-1] + first}"


def test_folder_files_are_sampled_by_column_name(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "2.csv").write_text("b,a,c\ny,2,z\n")
    (tmp_path / "3.csv").write_text("")
    sample = read_sample(tmp_path)
    assert sample.values == {"a": ["1", "2"], "b": ["x", "y"]}
    assert (sample.positions, sample.total) == (["1.csv:2", "2.csv:2"], 2)


def test_columns_whose_names_differ_only_by_case_are_omitted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Id,at,id\n1,2,3\n")
    (tmp_path / "a.jsonl").write_text('{"Id": 1, "id": 2}\n')
    pq.write_table(pa.table({"Id": [1], "id": [2]}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        sample = read_sample(tmp_path / name)
        assert "Id" in sample.values and "id" not in sample.values
        assert sample.left_out == ["id"]


def test_nanoseconds_and_int96_are_read_as_microseconds(tmp_path: Path) -> None:
    ticks = pa.array([1_772_359_200_123_456_789], pa.timestamp("ns", "UTC"))
    nested = pa.StructArray.from_arrays([ticks], ["at"])
    pq.write_table(pa.table({"at": ticks, "s": nested}), tmp_path / "a.parquet")
    wanted = datetime(2026, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)
    values = read_sample(tmp_path / "a.parquet").values
    assert values == {"at": [wanted], "s": [{"at": wanted}]}
    far = pa.array([datetime(9999, 12, 31, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    old = tmp_path / "old.parquet"
    pq.write_table(pa.table({"at": far}), old, use_deprecated_int96_timestamps=True)
    assert read_sample(old).values["at"][0].year == 9999


def test_parquet_columns_keep_their_types(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1], pa.int32()), "d": pa.array([None], pa.decimal128(9, 2))})
    pq.write_table(rows, tmp_path / "1.parquet")
    sample = read_sample(tmp_path)
    assert (sample.kind, sample.values, sample.types) == (
        "parquet",
        {"a": [1], "d": [None]},
        {"a": "INT", "d": "DECIMAL(9,2)"},
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "is empty"),
        ("a.json", '[{"a": 1}]', "is a JSON array"),
        ("a.jsonl", "what\n", "no line"),
        ("a.xlsx", "what\n", "has no known suffix, so its format is unknown"),
    ],
)
def test_unreadable_source_is_reported_with_a_hint(
    tmp_path: Path,
    name: str,
    text: str,
    message: str,
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_sample(file)
    assert caught.value.hint


def test_missing_file_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_sample(tmp_path / "nothing.csv")


def test_rows_with_a_different_column_count_are_counted_and_omitted(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,2\n\n3\n4,5,6\n7,8\n")
    sample = read_sample(file)
    assert (sample.rows, sample.misshapen, sample.whole) == (2, 2, True)
    assert sample.positions == ["a.csv:2", "a.csv:5"], (
        "as a recording counts them: the header is row 1, empty lines are none"
    )


@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-8-sig", None), ("utf-16", "utf-16"), ("cp1252", "cp1252"), ("latin-1", "latin-1")],
)
def test_encoding_is_detected_from_the_bytes(
    tmp_path: Path,
    encoding: str,
    named: str | None,
) -> None:
    text = (
        "\u00e9t\u00e9,n\nna\u00efve,1\n"
        if encoding == "latin-1"
        else "\u00e9t\u00e9,n\n\u201cna\u00efve\u201d,1\n"
    )
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    sample = read_sample(tmp_path / "a.csv")
    assert (next(iter(sample.values)), sample.settings.get("encoding")) == ("\u00e9t\u00e9", named)


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_few_bytes_that_are_not_utf_8_do_not_change_the_encoding(
    tmp_path: Path, mark: bytes
) -> None:
    good = "at,name\n1,na\u00efve\n2,na\u00efve\n".encode()
    bad = b"3,na\xefve\n"
    (tmp_path / "a.csv").write_bytes(mark + good + bad)
    sample = read_sample(tmp_path / "a.csv")
    assert (list(sample.values), sample.settings) == (["at", "name"], {})
    assert sample.values["name"][:2] == ["na\u00efve"] * 2
    (tmp_path / "a.csv").write_bytes(mark + b"at,name\n" + bad)
    assert read_sample(tmp_path / "a.csv").settings == ({} if mark else {"encoding": "latin-1"})


def test_decimal_comma_setting_is_proposed_unless_points_also_occur(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("price;n\n1.234,50;1\n-7,25;2\n")
    sample = read_sample(file)
    assert (sample.values["price"], sample.settings) == (
        ["1234.50", "-7.25"],
        {"delimiter": ";", "decimal": ","},
    )
    file.write_text("price;n\n1.234,50;1.5\n-7,25;2.5\n")
    assert "decimal" not in read_sample(file).settings


def test_possible_thousands_separator_is_not_treated_as_a_decimal_comma(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('n,x\n"1,806",n/a\n"12,345",22.5\n')
    sample = read_sample(file)
    assert (sample.values["n"], sample.settings) == (["1,806", "12,345"], {})
    [n, _] = describe_columns(sample)
    assert (n.kind, n.why) == ("STRING", "text; a comma in it may group thousands")
    file.write_text('n,x\n"1,806",a\n"0,345",b\n')
    assert read_sample(file).values["n"] == ["1.806", "0.345"]
    file.write_text("n;x\n1,806;a\n12,345;b\n")
    assert read_sample(file).values["n"] == ["1.806", "12.345"]


@pytest.mark.parametrize("gap", ["n/a", "nil"])
def test_decimal_points_are_detected_in_a_column_with_other_texts(tmp_path: Path, gap: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f'n,x\n"1,5",{gap}\n"2,25",22.5\n"3,5",1.25\n')
    assert "decimal" not in read_sample(file).settings


def test_duplicate_column_names_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at,name,name,\n1,2,3,4\n")
    assert list(read_sample(tmp_path / "a.csv").values) == ["at", "name", "name_2"]


def test_delta_table_sample_includes_partition_columns(tmp_path: Path) -> None:
    rows = pa.table({"day": ["1", "2"], "n": pa.array([5, 6], pa.int32())})
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["day"])
    sample = read_sample(tmp_path / "t")
    assert (sample.kind, sorted(sample.values["day"]), sample.types) == (
        "delta",
        ["1", "2"],
        {"day": "STRING", "n": "INT"},
    )
