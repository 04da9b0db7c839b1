"""Reads rows of text files in batches, with their row numbers. Rows that cannot be parsed are
returned as text.

Nothing is typed here: CSV columns are text, JSON rows are lines. Formats with typed columns use
typed_rows.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from rewindow.errors import InputError
from rewindow.recording.sources.source import BAD, RAW, ROW, SourceFile
from rewindow.sequences import excluding
from rewindow.settings.config import StreamConfig

_BLOCK_BYTES = 8 << 20
_HEAD_BYTES = 64 << 10
_HEAD_CHARACTERS = 1 << 20
_LINE_MAX_BYTES = 64 << 20
_LINES = 50_000
_NO_TEXT = pa.string()
_MARKS = 0x10FF00
_DAMAGED = re.compile("[\U0010ff00-\U0010ffff]")
_DAMAGED_RE2 = r"[\x{10FF00}-\x{10FFFF}]"


def csv_columns(
    file: SourceFile,
    delimiter: str,
    names: Sequence[str] | None = None,
    encoding: str = "utf-8",
) -> list[str]:
    """Returns the names of a CSV file's columns, from its first row, or the given names if the file
    has no header.

    Raises:
        InputError: the file is empty, its first row is not in the encoding, or the number of
            columns differs from the number of names.
    """
    with file.open() as stream:
        text = io.TextIOWrapper(
            io.BufferedReader(_Decoded(stream, encoding, _HEAD_BYTES)),
            "utf-8-sig",
            newline="",
        )
        head = text.read(_HEAD_CHARACTERS)
    try:
        found = next(csv.reader(io.StringIO(head, newline=""), delimiter=delimiter), [])
    except csv.Error:
        found = None
    if found is None or (len(head) == _HEAD_CHARACTERS and not set(head) & {"\n", "\r"}):
        raise InputError(
            f'first row of source file "{file.name}" is longer than {_HEAD_CHARACTERS:,} '
            "characters",
            hint="Check that the file is CSV with one row per line.",
        )
    if not found:
        raise InputError(
            f'source file "{file.name}" is empty',
            hint="The first row must contain the column names.",
        )
    if any(map(_DAMAGED.search, found)):
        raise InputError(
            f'first row of source file "{file.name}" is not {encoding.upper()}',
            hint='Set the stream\'s encoding, such as encoding = "latin-1".',
        )
    if names is not None and len(names) != len(found):
        raise InputError(
            f'source file "{file.name}" has {len(found)} columns, but the setting "columns" has '
            f"{len(names)}",
            hint="For a source without a header, list all columns in order in the stream's "
            "setting columns.",
        )
    return single_names(found) if names is None else list(names)


def single_names(names: Sequence[str]) -> list[str]:
    """Returns the names of a header without duplicates. A number is appended to each repeated name,
    and the first empty name stays empty.

    >>> single_names(["at", "name", "name", "name_2", "", ""])
    ['at', 'name', 'name_2', 'name_2_2', '', 'column_6']
    """
    found: list[str] = []
    for place, name in enumerate(names, 1):
        single = name or ("column_" + str(place) if "" in found else "")
        number = 2
        while single in found:
            single = f"{name}_{number}"
            number = number + 1
        found.append(single)
    return found


def csv_rows(
    file: SourceFile,
    columns: Sequence[str],
    stream: StreamConfig,
    optional: Collection[str],
) -> Iterator[pa.Table]:
    """Yields a CSV file's rows as text.

    Rows that cannot be parsed are yielded as text in `__raw`. A header is row 1.

    Args:
        file: the file to read.
        columns: columns to read.
        stream: settings: delimiter, header, encoding, and the unquoted texts that mean null.
        optional: columns that are null in a file that lacks them.

    Raises:
        InputError: the file lacks a column, or is not CSV.
    """
    known = csv_columns(
        file, stream.delimiter, None if stream.header else columns, encoding=stream.encoding
    )
    check_there(file, excluding(columns, optional), known)
    inside = [name for name in columns if name in known]
    bad: list[pacsv.InvalidRow] = []
    named = stream.header and not file.begin_byte
    with file.open_at_begin() as opened:
        decoded = _Decoded(opened, stream.encoding)
        try:
            reader = pacsv.open_csv(
                io.BufferedReader(decoded),
                pacsv.ReadOptions(
                    use_threads=False,
                    block_size=_BLOCK_BYTES,
                    column_names=known,
                ),
                pacsv.ParseOptions(
                    delimiter=stream.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=lambda row: _skip(bad, row, file.begin_row - 1),
                ),
                pacsv.ConvertOptions(
                    column_types=dict.fromkeys(known, pa.string()),
                    include_columns=inside,
                    check_utf8=False,
                    null_values=list(stream.null_values),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            number = 2 if named else file.begin_row
            for read in reader:
                # The reader could skip the header, but not if no line end follows it.
                batch = read.slice(int(named))
                named = False
                numbers, number = _numbers(number, batch.num_rows, bad)
                rows = _widened(pa.Table.from_batches([batch]), columns)
                yield from (
                    _split(rows, numbers, stream)
                    if decoded.damaged
                    else [with_numbers(rows, numbers)]
                )
                # The reader looks ahead, so `bad` ends with rows of later batches.
                done = [row for row in bad if row.number < number]
                del bad[: len(done)]
                yield from _bad_rows(done, columns)
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise InputError(
                    f'source file "{file.name}" has a row longer than {_BLOCK_BYTES >> 20} MB',
                    hint="Check that the file is CSV with one row per line. A quote that is not "
                    "closed makes one row of all others.",
                ) from error
            raise InputError(f'source file "{file.name}" cannot be read as CSV: {error}') from error
        yield from _bad_rows(bad, columns)


def _widened(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Adds missing columns to rows, as null."""
    nulls = pa.nulls(rows.num_rows, pa.string())
    return pa.table({name: rows[name] if name in rows.column_names else nulls for name in columns})


def _split(rows: pa.Table, numbers: pa.Array, stream: StreamConfig) -> Iterator[pa.Table]:
    """Yields the rows that could be decoded, then all other rows as text in `__raw`."""
    # A byte that cannot be decoded was replaced by a mark, see `_mark`. One such value makes the
    # whole row unreadable.
    damaged = np.zeros(rows.num_rows, dtype=bool)
    for column in rows.itercolumns():
        damaged |= np.asarray(pc.fill_null(pc.match_substring_regex(column, _DAMAGED_RE2), False))
    good = pa.array(~damaged)
    bad = pa.array(damaged)
    yield with_numbers(rows.filter(good), numbers.filter(good))
    raw = pc.binary_join_element_wise(
        *rows.filter(bad).columns,
        stream.delimiter,
        null_handling="replace",
    ).to_pylist()
    reasons = [_not_in(stream.encoding, "row")] * len(raw)
    yield unreadable_rows(numbers.filter(bad), reasons, raw, columns=rows.column_names)


def json_rows(file: SourceFile, encoding: str = "utf-8") -> Iterator[pa.Table]:
    """Yields a file's lines unchanged, in `__raw`.

    Lines that cannot be decoded are marked. Empty lines are omitted.
    """
    with file.open_at_begin() as stream:
        decoded = _Decoded(stream, encoding)
        numbered = enumerate(_lines(file, io.BufferedReader(decoded)), start=file.begin_row)
        while lines := list(islice(numbered, _LINES)):
            numbers = []
            reasons = []
            raw = []
            for number, line in lines:
                filled = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if not filled.strip():
                    continue
                text = filled.rstrip(b"\r\n").decode()
                is_damaged = decoded.damaged and _DAMAGED.search(text)
                numbers.append(number)
                reasons.append(_not_in(encoding, "line") if is_damaged else None)
                raw.append(_as_written(text) if is_damaged else text)
            columns = {
                ROW: pa.array(numbers, pa.int64()),
                BAD: pa.array(reasons, pa.string()),
                RAW: pa.array(raw, pa.string()),
            }
            yield pa.table(columns)


def _lines(file: SourceFile, stream: io.BufferedReader) -> Iterator[bytes]:
    """Yields the lines of a file. Raises an error for a line that would not fit into memory."""
    number = file.begin_row - 1
    while line := stream.readline(_LINE_MAX_BYTES):
        number += 1
        if len(line) == _LINE_MAX_BYTES and not line.endswith(b"\n"):
            raise InputError(
                f'line {number} of source file "{file.name}" is longer than '
                f"{_LINE_MAX_BYTES >> 20} MB",
                hint="Each row must be on a separate line, such as one object per line in JSON "
                "lines.",
            )
        yield line


def check_there(file: SourceFile, wanted: Sequence[str], known: Sequence[str]) -> None:
    """Checks that a file has all wanted columns.

    Raises:
        InputError: names the first missing column.
    """
    missing = excluding(wanted, known)
    if missing:
        raise InputError(
            f'column "{missing[0]}" is not in source file "{file.name}"',
            hint=f"The file has the columns: {', '.join(known)}.",
        )


def _skip(bad: list[pacsv.InvalidRow], row: pacsv.InvalidRow, before: int) -> str:
    bad.append(row._replace(number=row.number + before))
    return "skip"


def _numbers(first: int, count: int, bad: Sequence[pacsv.InvalidRow]) -> tuple[pa.Array, int]:
    """Returns the numbers of the next readable rows, and the number after the last of them."""
    skipped = np.array([row.number for row in bad], dtype=np.int64)
    candidates = np.arange(first, first + count + len(skipped), dtype=np.int64)
    numbers = candidates[~np.isin(candidates, skipped)][:count]
    return pa.array(numbers), int(numbers[-1]) + 1 if count else first


def _bad_rows(bad: Sequence[pacsv.InvalidRow], columns: Sequence[str]) -> Iterator[pa.Table]:
    if bad:
        expected, actual, numbers, texts = zip(*bad, strict=True)
        reasons = list(map("row has {} columns, {} expected".format, actual, expected))
        yield unreadable_rows(pa.array(numbers, pa.int64()), reasons, list(texts), columns=columns)


def unreadable_rows(
    numbers: pa.Array,
    reasons: list[str],
    raw: list[str],
    columns: Sequence[str],
) -> pa.Table:
    """Returns unreadable rows in the format of `Source.rows`, each with a reason and its text.

    These rows go to quarantine.
    """
    texts = dict.fromkeys(columns, pa.nulls(len(raw), pa.string()))
    why = {
        BAD: pa.array(reasons, pa.string()),
        RAW: pa.array(list(map(_as_written, raw)), pa.string()),
    }
    return pa.table({**texts, ROW: numbers, **why})


def with_numbers(rows: pa.Table, numbers: pa.Array) -> pa.Table:
    """Returns readable rows in the format of `Source.rows`, with their numbers."""
    nothing = pa.nulls(rows.num_rows, _NO_TEXT)
    return rows.append_column(ROW, numbers).append_column(BAD, nothing).append_column(RAW, nothing)


def _not_in(encoding: str, what: str) -> str:
    return f"{what} is not {encoding.upper()}"


def _mark(error: UnicodeError) -> tuple[str, int]:
    """Returns a character for each byte that cannot be decoded.

    It is one of the last 256 characters of Unicode, which do not occur in text.
    """
    assert isinstance(error, UnicodeDecodeError), "only decoding asks for marks"
    return "".join(chr(_MARKS + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error("rewindow_mark", _mark)


def _as_written(text: str) -> str:
    """Returns a text with the bytes that could not be decoded in hexadecimal."""
    return _DAMAGED.sub(lambda found: f"\\x{ord(found[0]) - _MARKS:02x}", text)


class _Decoded(io.RawIOBase):
    """Converts a stream from any encoding to UTF-8, with a mark for each byte that cannot be
    decoded.

    So such a byte cannot stop a reader, and its row can be recognized later.
    """

    def __init__(self, stream: IO[bytes], encoding: str, block_bytes: int = _BLOCK_BYTES) -> None:
        super().__init__()
        self.damaged = False
        self._block_bytes = block_bytes
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("rewindow_mark")
        self._rest = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and not self._ended:
            chunk = self._stream.read(self._block_bytes)
            self._ended = not chunk
            text = self._decoder.decode(chunk, final=self._ended)
            self.damaged = self.damaged or not (text.isascii() or _DAMAGED.search(text) is None)
            self._rest = memoryview(text.encode())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
