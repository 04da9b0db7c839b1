"""The first rows of a source, with what it takes to read them: format, delimiter, header,
encoding.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.new_project.times import NULLS
from rewindow.recording.sources.parquet_files import parquet_schema
from rewindow.recording.sources.readers import single_names
from rewindow.recording.sources.source import SourceFile, known_sources, source_format
from rewindow.recording.sources.typed_rows import spark_type
from rewindow.sequences import names_of
from rewindow.settings.config import StreamConfig
from rewindow.storage import Table, query

ROWS = 20_000
CELLS = 1_000_000
"""A sample has so many rows, or, of a wide source, so many cells."""
_BYTES = 64 << 20
_DELIMITERS = (",", ";", "\t", "|")
_READ = ("csv", "json", "parquet", "delta")
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+")
MISFITS_MAX = 0.01
"""The share of texts that may be otherwise than a column's type; their rows go to quarantine, which
allows as many."""


@dataclass(frozen=True)
class Sample:
    """The first rows of a source.

    Attributes:
        path: the file, folder or pattern, absolute.
        kind: its format: csv, json, parquet or delta.
        values: the values of each column by its name; None where there is none. CSV's are texts.
        types: DDL of the types of columns that have types of their own (Parquet, Delta).
        settings: settings of the stream that reading took, such as a delimiter.
        whole: whether these are all its rows.
        numbers: the number of each row in its file, as a recording counts them; empty where nobody
            asks.
        misshapen: rows left out since they have another number of columns, or are no JSON object.
    """

    path: str
    kind: str
    values: dict[str, list[Any]]
    types: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    whole: bool = True
    misshapen: int = 0
    numbers: Sequence[int] = ()

    @property
    def rows(self) -> int:
        """Rows looked at."""
        return max(map(len, self.values.values()), default=0)


def read_sample(path: Path) -> Sample:
    """Returns the first rows of a file, or of the first file of a folder.

    Raises:
        InputError: it is not there, of a format that this does not look into, or cannot be read.
    """
    place = os.path.abspath(path)
    if not path.exists() and not any(letter in place for letter in "*?["):
        raise InputError(
            f'file "{path}" is not there',
            hint=f"{_beside(path)}Name a CSV, JSON lines or Parquet file, a folder of them, or a "
            "Delta table.",
        )
    kind = source_format("new", place, None)
    if kind not in _READ:
        raise InputError(
            f'"{path}" is a source of format {kind}, and only {", ".join(_READ)} are looked into',
            hint="Write rewindow.toml by hand: Rewindow's README.md has one to copy.",
        )
    if kind == "delta":
        return _delta(place)
    first = _first_file(place, kind)
    if kind == "parquet":
        return _parquet(place, first)
    with first.open() as opened:
        data = opened.read(_BYTES)
    text, encoding = _decoded(data)
    settings = {} if encoding == "utf-8" else {"encoding": encoding}
    whole = len(data) < _BYTES
    lines = text if whole else text[: text.rfind("\n") + 1]
    return (
        _csv(place, first, lines, settings=settings, whole=whole)
        if kind == "csv"
        else _json(place, first, lines, settings=settings, whole=whole)
    )


def _first_file(place: str, kind: str) -> SourceFile:
    stream = StreamConfig(source=place, arrived_at="", columns="x STRING")
    found: list[SourceFile] = known_sources()[kind]("new", stream, place).files()  # type: ignore[attr-defined]
    return found[0]


def _beside(path: Path) -> str:
    return did_you_mean(path.name, names_of(path.parent.iterdir())) if path.parent.is_dir() else ""


def _decoded(data: bytes) -> tuple[str, str]:
    """Returns a text and its encoding: as its first bytes say, else UTF-8, else what Windows or
    Latin 1 make of it.
    """
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return data[: len(data) - len(data) % 2].decode("utf-16", "ignore"), "utf-16"
    for cut in range(4):  # The sample may end inside a character.
        try:
            return data[: len(data) - cut].decode("utf-8-sig"), "utf-8"
        except UnicodeDecodeError:
            continue
    # At these bytes Latin 1 has control characters, and Windows has letters and quotes.
    if any(0x80 <= byte < 0xA0 for byte in data):
        try:
            return data.decode("cp1252"), "cp1252"
        except UnicodeDecodeError:
            pass
    return data.decode("latin-1"), "latin-1"


def _csv(place: str, file: SourceFile, text: str, settings: dict[str, Any], whole: bool) -> Sample:
    delimiter = _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    head = next(filter(None, reader), [])
    if not head:
        raise InputError(
            f'source file "{file.name}" is empty',
            hint="Its first row must name the columns.",
        )
    limit = max(1, min(ROWS, CELLS // len(head)))
    # One row more than needed shows whether the sample is the whole file.
    read = list(filter(None, islice(reader, limit + 1)))
    whole = whole and len(read) <= limit
    rows = []
    numbers = []
    for number, row in enumerate(read[:limit], 2):
        if len(row) == len(head):
            rows.append(row)
            numbers.append(number)
    misshapen = min(len(read), limit) - len(rows)
    if _has_header(head):
        names = head
    else:
        names = [f"column_{n}" for n in range(1, len(head) + 1)]
        rows = [head, *rows]
        settings = settings | {"header": False}
        numbers = [1, *numbers]
    if delimiter != ",":
        settings = settings | {"delimiter": delimiter}
    names = single_names(names)
    columns = zip(*rows[:limit], strict=True) if rows else ([] for _ in names)
    values = {}
    for name, column in zip(names, columns, strict=True):
        values[name] = [value or None for value in column]
    # A column without a name, such as an index that pandas wrote, is not read.
    values.pop("", None)
    if _has_decimal_commas(values):
        settings = settings | {"decimal": ","}
        values = {name: _with_points(column) for name, column in values.items()}
    return Sample(
        place,
        "csv",
        values,
        types={},
        settings=settings,
        whole=whole,
        misshapen=misshapen,
        numbers=numbers[: limit if rows else 0],
    )


def _has_decimal_commas(values: Mapping[str, Sequence[str | None]]) -> bool:
    """Returns whether numbers have a decimal comma: in a column at least, and no column has a
    decimal point.
    """
    found = False
    for column in values.values():
        texts = [value.strip() for value in column if value is not None and value not in NULLS]
        misfits = sum(not _COMMA.fullmatch(text) for text in texts)
        if texts and misfits <= MISFITS_MAX * len(texts):
            found = found or any("," in text for text in texts)
        elif texts and all(map(_POINT.fullmatch, texts)):
            return False
    return found


def _with_points(column: Sequence[str | None]) -> list[str | None]:
    """Returns a column with its numbers as they are written with a decimal point."""
    written: list[str | None] = []
    for value in column:
        if value and _COMMA.fullmatch(value.strip()):
            written.append(value.strip().replace(".", "").replace(",", "."))
        else:
            written.append(value)
    return written


def _delimiter(text: str) -> str:
    """Returns what splits the first lines into most columns, the same number in more than half of
    them.

    Of two that give as many, the one that does so in more lines: a decimal comma is not in the
    names of the columns.
    """
    lines = list(filter(str.strip, islice(io.StringIO(text), 20)))

    def columns(delimiter: str) -> tuple[int, int]:
        widths = list(map(len, filter(None, csv.reader(lines, delimiter=delimiter))))
        count = max(set(widths), key=widths.count)
        return (count, widths.count(count)) if 2 * widths.count(count) > len(widths) else (0, 0)

    return max(_DELIMITERS, key=columns) if lines else ","


def _has_header(head: Sequence[str]) -> bool:
    """Returns whether the first row names columns: most cells have text, none begins as a number
    does.
    """
    cells = list(map(str.strip, head))
    return 2 * sum(map(bool, cells)) > len(cells) and not any(
        cell.lstrip("+-.")[:1].isdigit() for cell in cells
    )


def _json(place: str, file: SourceFile, text: str, settings: dict[str, Any], whole: bool) -> Sample:
    if text.lstrip()[:1] == "[":
        raise InputError(
            f'source file "{file.name}" is a JSON array, not JSON lines',
            hint=f"Write one object a line, such as by: jq -c '.[]' {file.name} > "
            f"{Path(file.name).stem}.jsonl",
        )
    lines = list(filter(str.strip, islice(io.StringIO(text), ROWS + 1)))
    found: list[dict[str, Any]] = []
    for line in lines[:ROWS]:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    if lines and not found:
        raise InputError(
            f'no line of source file "{file.name}" is a JSON object',
            hint="Write one object a line.",
        )
    values = {}
    for name in dict.fromkeys(chain.from_iterable(found)):
        values[name] = [row.get(name) for row in found]
    misshapen = min(len(lines), ROWS) - len(found)
    return Sample(
        place,
        "json",
        values,
        settings=settings,
        whole=whole and len(lines) <= ROWS,
        misshapen=misshapen,
    )


def _parquet(place: str, file: SourceFile) -> Sample:
    schema = parquet_schema(file)
    with file.open() as opened:
        source = pq.ParquetFile(opened)
        limit = max(1, min(ROWS, CELLS // max(1, len(schema))))
        batch = next(source.iter_batches(batch_size=limit, columns=schema.names), None)
        whole = source.metadata.num_rows <= limit
    values = {
        name: batch.column(name).to_pylist() if batch is not None else [] for name in schema.names
    }
    return Sample(
        place,
        "parquet",
        values,
        types=_types(schema),
        whole=whole,
    )


def _delta(place: str) -> Sample:
    """Returns the first rows of a Delta table, with the columns of its partitions."""
    table = Table.open(place)
    schema = pa.schema([field.with_type(spark_type(field.type)) for field in table.schema])
    limit = max(1, min(ROWS, CELLS // max(1, len(schema))))
    rows = query(f"select * from t limit {limit + 1}", t=table)
    values = rows.select(schema.names).slice(0, limit).to_pydict()
    return Sample(place, "delta", values, types=_types(schema), whole=rows.num_rows <= limit)


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: _ddl(field.type) for field in schema}


def _ddl(kind: Any) -> str:
    """Returns a Parquet column's type as DDL, as far as a first application uses such columns; else
    its own words.
    """
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    known = {
        "string": "STRING",
        "int64": "BIGINT",
        "int32": "INT",
        "double": "DOUBLE",
        "date32[day]": "DATE",
    }
    return known.get(str(kind), str(kind).upper())
