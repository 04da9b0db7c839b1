"""Rows of a file: encodings, quoted nulls, columns that some files lack; no Spark."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from rewindow.errors import InputError
from rewindow.recording.sources import readers
from rewindow.recording.sources.files import find_source_files
from rewindow.recording.sources.readers import csv_columns, csv_rows, json_rows
from rewindow.recording.sources.source import BAD, RAW, ROW, SourceFile
from rewindow.settings.config import StreamConfig


def file_of(folder: Path, content: bytes, name: str = "s.csv") -> SourceFile:
    (folder / name).write_bytes(content)
    return find_source_files("s", str(folder / name), {Path(name).suffix})[0]


def rows_of(
    file: SourceFile,
    columns: list[str],
    optional: tuple[str, ...] = (),
    **settings: Any,
) -> list[dict[str, Any]]:
    stream = StreamConfig(source="s.csv", arrived_at="at", **settings)
    return sorted(
        pa.concat_tables(csv_rows(file, columns, stream, optional)).to_pylist(),
        key=lambda row: int(row[ROW]),
    )


def test_undecodable_byte_rejects_only_its_row(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"k,n\na,1\nb\xff,2\nc\xff\nd,4\n")
    rows = rows_of(file, ["k", "n"])
    assert [(row[ROW], row["k"], row[BAD]) for row in rows] == [
        (2, "a", None),
        (3, None, "row is not UTF-8"),
        (4, None, "row has 1 columns, 2 expected"),
        (5, "d", None),
    ]
    assert rows[1][RAW] == "b\\xff,2"


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig"])
def test_csv_and_json_are_read_in_their_encoding(tmp_path: Path, encoding: str) -> None:
    file = file_of(tmp_path, "où,n\né,1\n".encode(encoding))
    assert csv_columns(file, ",", None, encoding) == ["où", "n"]
    assert [row["où"] for row in rows_of(file, ["où", "n"], encoding=encoding)] == ["é"]
    lines = file_of(tmp_path, '{"où": "é"}\n'.encode(encoding), "s.json")
    assert [row[RAW].lstrip("\ufeff") for row in next(json_rows(lines, encoding)).to_pylist()] == [
        '{"où": "é"}'
    ]


def test_byte_missing_from_a_code_page_rejects_only_its_row(tmp_path: Path) -> None:
    # 0x81 is undefined in cp1252.
    rows = rows_of(file_of(tmp_path, b"k\n\x81\n\xe9\n"), ["k"], encoding="cp1252")
    assert [(row["k"], row[BAD]) for row in rows] == [(None, "row is not CP1252"), ("é", None)]


def test_undecodable_header_is_rejected_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not UTF-8\n  Hint: Set the stream's encoding"):
        csv_columns(file_of(tmp_path, b"k\xff,n\na,1\n"), ",")


def test_unknown_encoding_is_rejected() -> None:
    with pytest.raises(ValidationError, match='encoding "klingon" is unknown'):
        StreamConfig(source="s.csv", arrived_at="at", encoding="klingon")


def test_quoted_null_is_read_as_text(tmp_path: Path) -> None:
    file = file_of(tmp_path, b'k,n\n"null",1\nnull,2\n"",3\n,4\n')
    rows = rows_of(file, ["k", "n"], null_values=["", "null"])
    assert [row["k"] for row in rows] == ["null", None, "", None]


def test_only_optional_columns_may_be_missing(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"k\na\n")
    assert [row["n"] for row in rows_of(file, ["k", "n"], ("n",))] == [None]
    with pytest.raises(InputError, match='column "n" is not in source file "s.csv"'):
        rows_of(file, ["k", "n"])


def test_line_with_the_replacement_character_is_valid(tmp_path: Path) -> None:
    lines = next(
        json_rows(file_of(tmp_path, '"\ufffd"\n'.encode() + b'"\xff"\n', "s.json"))
    ).to_pylist()
    assert [line[BAD] for line in lines] == [None, "line is not UTF-8"]


class Endless(io.RawIOBase):
    """A file of one line without an end; whoever reads far too much of it fails before memory is
    filled.
    """

    def __init__(self, begin: bytes) -> None:
        self._begin = begin
        self.read_bytes = 0

    def read(self, size: int = -1) -> bytes:
        assert 0 < size <= 8 << 20 and self.read_bytes < 100 << 20, "it is read as if it had an end"
        self.read_bytes += size
        begin = self._begin
        self._begin = b""
        return begin + b"2" * (size - len(begin))


def test_very_long_line_is_rejected_with_bounded_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readers, "_HEAD_CHARACTERS", 1000)
    monkeypatch.setattr(readers, "_LINE_MAX_BYTES", 1000)
    monkeypatch.setattr(readers, "_BLOCK_BYTES", 1000)
    header = file_of(tmp_path, b"k" * 5000, "a.csv")
    row = file_of(tmp_path, b"k,n\n1," + b"2" * 5000 + b"\n", "b.csv")
    line = file_of(tmp_path, b"{}\n" + b"[" * 5000, "c.json")
    with pytest.raises(
        InputError,
        match=r'first row of source file "a.csv" is longer than 1,000 characters',
    ):
        csv_columns(header, ",")
    with pytest.raises(InputError, match=r'source file "b.csv" has a row longer than'):
        rows_of(row, ["k", "n"])
    endless = replace(row, open=lambda: Endless(b'k,n\n1,"'))
    with pytest.raises(InputError, match=r'source file "b.csv" has a row longer than'):
        rows_of(endless, ["k", "n"])
    with pytest.raises(InputError, match=r'line 2 of source file "c.json" is longer than'):
        list(json_rows(line))


def test_duplicate_column_names_are_numbered(tmp_path: Path) -> None:
    file = file_of(tmp_path, b'id,name,name,,\n1,"a\nb",c,d,e\n2\n3,f,g,h,i\n')
    assert csv_columns(file, ",") == ["id", "name", "name_2", "", "column_5"]
    rows = rows_of(file, ["id", "name", "name_2", "column_5"])
    assert [
        (row[ROW], row["id"], row["name"], row["name_2"], row["column_5"])
        for row in rows
        if not row[BAD]
    ] == [
        (2, "1", "a\nb", "c", "e"),
        (4, "3", "f", "g", "i"),
    ]


def test_json_lines_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    lines = file_of(tmp_path, b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n', "s.jsonl")
    assert [row[RAW] for row in next(json_rows(lines)).to_pylist()] == ['{"a": 1}', '{"a": 2}']
