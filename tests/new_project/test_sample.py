"""Samples of files: delimiter, header, encoding, and what cannot be looked into."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewindow.errors import InputError
from rewindow.new_project.sample import ROWS, read_sample


def test_delimiter_header_and_encoding_are_told_from_the_bytes(tmp_path: Path) -> None:
    """They become settings where they are not the usual ones."""
    file = tmp_path / "a.csv"
    file.write_bytes("Straße;n\nx,y;1\n".encode("latin-1"))
    sample = read_sample(file)
    assert sample.values == {"Straße": ["x,y"], "n": ["1"]}
    assert sample.settings == {"encoding": "latin-1", "delimiter": ";"}
    file.write_text("1,2026-01-01\n2,\n")
    sample = read_sample(file)
    assert sample.values == {"column_1": ["1", "2"], "column_2": ["2026-01-01", None]}
    assert sample.settings == {"header": False}


def test_only_the_first_rows_are_read(tmp_path: Path) -> None:
    """And the sample says that there are more."""
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(b"a\n" + b"1\n" * (ROWS + 5)))
    sample = read_sample(file)
    assert (sample.rows, sample.whole) == (ROWS, False)


def test_a_folder_is_looked_into_by_its_first_file(tmp_path: Path) -> None:
    """Its types are those of the file."""
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
        ("a.csv", "a,b,a\n1,2,3\n", "names a column twice"),
        ("a.json", '[{"a": 1}]', "is a JSON array"),
        ("a.jsonl", "what\n", "no line"),
        ("a.xlsx", "what\n", "does not tell its format"),
    ],
)
def test_what_cannot_be_looked_into_is_said(tmp_path: Path, name: str, text: str, message: str) -> None:
    """In words, with what to do."""
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_sample(file)
    assert caught.value.hint


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(InputError, match="is not there"):
        read_sample(tmp_path / "nothing.csv")


def test_rows_of_another_shape_are_counted(tmp_path: Path) -> None:
    """They are left out of the sample, and it says how many they are."""
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,2\n\n3\n4,5,6\n7,8\n")
    sample = read_sample(file)
    assert (sample.rows, sample.misshapen, sample.whole) == (2, 2, True)
