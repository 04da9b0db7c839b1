"""A sample of a source's rows, with the settings to read them: format, delimiter, header, encoding.

The sample has the first rows of the source, which are consecutive, and rows from all other parts.
Text files are read once, from start to end; of Parquet files and Delta tables, some row groups are
read.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.new_project.times import MISFITS_MAX, NULLS
from rewindow.progress.steps import counted
from rewindow.recording.sources.arrow_types import spark_type
from rewindow.recording.sources.parquet_files import parquet_schema
from rewindow.recording.sources.readers import single_names
from rewindow.recording.sources.source import SourceFile, known_sources, source_format
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import StreamConfig
from rewindow.storage import Table, query
from rewindow.storage.fields import retyped

ROWS = 20_000
"""Number of rows that are drawn from the whole source."""
HEAD = 5_000
"""Number of rows from the start of the source. Only these rows are consecutive."""
CELLS = 1_000_000
"""Maximum number of cells of a sample; a wide source gets fewer rows."""
_GROUPS = 20
"""Row groups of Parquet files that are read."""
_SEED = 1
_BYTES = 1 << 20
"""Bytes of the first file from which encoding, delimiter and header are detected."""
_DELIMITERS = (",", ";", "\t", "|")
_READ = ("csv", "json", "parquet", "delta")
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+")
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
"""Texts whose commas may group thousands."""


@dataclass(frozen=True)
class SourceSample:
    """A sample of a source's rows in their original order.

    Attributes:
        path: the file, folder or pattern, absolute.
        kind: its format: csv, json, parquet or delta.
        values: the values of each column by its name; None if a row has none. Values of CSV are
            texts.
        types: DDL of the types of columns that are typed in the source (Parquet, Delta).
        settings: settings of the stream that are needed to read it, such as a delimiter.
        total: number of rows of the source; 0 if the sample has all of them.
        head: number of first rows, which are consecutive in the source; 0 for all of them.
        positions: file and number of each row, as a recording counts them; empty for Parquet.
        misshapen: rows of the sample that were omitted because they have another number of columns,
            or are not a JSON object.
        left_out: columns whose names differ from another one's only by case.
    """

    path: str
    kind: str
    values: dict[str, list[Any]]
    types: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    total: int = 0
    head: int = 0
    misshapen: int = 0
    positions: Sequence[str] = ()
    left_out: Sequence[str] = ()

    @property
    def rows(self) -> int:
        """Number of rows in the sample."""
        return max(map(len, self.values.values()), default=0)

    @property
    def whole(self) -> bool:
        """Whether the sample has all rows of the source."""
        return self.total <= self.rows + self.misshapen

    @property
    def all_rows(self) -> int:
        """Number of rows of the source."""
        return max(self.total, self.rows)

    @property
    def words(self) -> str:
        """The number of rows that were read, as text."""
        rows = self.rows + self.misshapen
        return f"all {rows:,} rows" if self.whole else f"{rows:,} of {self.total:,} rows"


def read_sample(path: Path) -> SourceSample:
    """Returns a sample of the rows of a file, a folder or a Delta table.

    Raises:
        InputError: it does not exist, has a format that is not supported here, or cannot be read.
    """
    place = os.path.abspath(path)
    if not path.exists() and not any(letter in place for letter in "*?["):
        raise InputError(
            f'file "{path}" does not exist',
            hint=f"{_beside(path)}Use a CSV, JSON lines or Parquet file, a folder of such files, "
            "or a Delta table.",
        )
    kind = source_format("new", place, None)
    if kind not in _READ:
        raise InputError(
            f'`rewindow init` cannot read "{path}": its format is {kind}, not {", ".join(_READ)}',
            hint="Write rewindow.toml by hand; docs/tutorial.md has an example.",
        )
    if kind == "delta":
        return _delta(place)
    files = [file for file in _files(place, kind) if file.size] or _files(place, kind)[:1]
    if kind == "parquet":
        return _parquet(place, files)
    with files[0].open() as opened:
        text, encoding = _decoded(opened.read(_BYTES))
    settings = {} if encoding == "utf-8" else {"encoding": encoding}
    read = _csv if kind == "csv" else _json
    try:
        return read(place, files, text, settings, encoding)
    except (csv.Error, UnicodeError) as error:
        raise InputError(
            f'source "{place}" cannot be read as {kind} in the encoding {encoding}: {error}',
            hint="Write rewindow.toml by hand, with the stream's encoding and delimiter; "
            "docs/tutorial.md has an example.",
        ) from error


def _sampled(rows: Iterable[Any], columns: int) -> tuple[list[tuple[Any, int]], int, int]:
    """Returns a sample of rows with their indices, the number of first rows, and the number of all
    rows.

    Every row after the first ones is in the sample with the same probability (Li's reservoir
    sampling, "algorithm L"), which skips rows without looking at them.
    """
    limit = max(1, CELLS // max(1, columns))
    counter = count()
    pairs = zip(rows, counter, strict=False)
    head = list(islice(pairs, min(HEAD, limit)))
    kept = list(islice(pairs, min(ROWS, limit)))
    chance = random.Random(_SEED)
    weight = 1.0
    while kept:
        weight *= math.exp(math.log(1 - chance.random()) / len(kept))
        # A weight this small would need more rows than any source has.
        skipped = math.log(1 - chance.random()) / math.log1p(-weight) if weight > 1e-15 else 1e15
        pair = next(islice(pairs, int(skipped), None), None)
        if pair is None:
            break
        kept[chance.randrange(len(kept))] = pair
    return [*head, *sorted(kept, key=lambda entry: entry[1])], len(head), next(counter)


def _files(place: str, kind: str) -> list[SourceFile]:
    stream = StreamConfig(source=place, arrived_at="", columns="x STRING")
    found: list[SourceFile] = known_sources()[kind]("new", stream, place).files()  # type: ignore[attr-defined]
    return found


def _texts(file: SourceFile, encoding: str) -> IO[str]:
    # A byte that cannot be decoded makes its row malformed, but does not end the sample.
    name = "utf-8-sig" if encoding == "utf-8" else encoding
    return io.TextIOWrapper(file.open(), encoding=name, errors="replace", newline="")


def _beside(path: Path) -> str:
    return did_you_mean(path.name, names_of(path.parent.iterdir())) if path.parent.is_dir() else ""


def _decoded(data: bytes) -> tuple[str, str]:
    """Returns a text and its encoding.

    The encoding is that of the byte order mark. Without a mark it is UTF-8 if most characters
    beyond ASCII are valid in it; otherwise that of Windows or Latin 1.
    """
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return data[: len(data) - len(data) % 2].decode("utf-16", "ignore"), "utf-16"
    # A recording puts rows with single wrong bytes into quarantine.
    text = data.decode("utf-8-sig", "replace")
    wrong = text[:-1].count("\ufffd")  # The sample may end inside a character.
    if data.startswith(codecs.BOM_UTF8) or 2 * wrong <= sum(not c.isascii() for c in text):
        return text, "utf-8"
    # At these bytes Latin 1 has control characters, and Windows has letters and quotes.
    if any(0x80 <= byte < 0xA0 for byte in data):
        try:
            return data.decode("cp1252"), "cp1252"
        except UnicodeDecodeError:
            pass
    return data.decode("latin-1"), "latin-1"


def _csv(
    place: str,
    files: Sequence[SourceFile],
    text: str,
    settings: dict[str, Any],
    encoding: str,
) -> SourceSample:
    delimiter = _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    head = next(filter(None, reader), [])
    if not head:
        raise InputError(
            f'source file "{files[0].name}" is empty',
            hint="The first row must contain the column names.",
        )
    has_header = _has_header(head)
    if has_header:
        names = head
    else:
        names = [f"column_{n}" for n in range(1, len(head) + 1)]
        settings = settings | {"header": False}
    if delimiter != ",":
        settings = settings | {"delimiter": delimiter}
    starts: list[tuple[int, str]] = []
    rows = _csv_rows(files, encoding, delimiter, head=head if has_header else None, starts=starts)
    found, first, total = _sampled(rows, len(head))
    fitting = []
    indices = []
    for row, index in found:
        if len(row) == len(head):
            fitting.append(row)
            indices.append(index)
    names = single_names(names)
    columns = zip(*fitting, strict=True) if fitting else ([] for _ in names)
    values = {}
    for name, column in zip(names, columns, strict=True):
        values[name] = [value or None for value in column]
    # A column without a name, such as an index that pandas wrote, is not read.
    values.pop("", None)
    left_out = _of_other_case(values)
    for name in left_out:
        del values[name]
    if _has_decimal_commas(values, delimiter):
        settings = settings | {"decimal": ","}
        values = {name: _with_points(column) for name, column in values.items()}
    return SourceSample(
        place,
        "csv",
        values,
        settings=settings,
        total=total,
        head=sum(index < first for index in indices),
        misshapen=len(found) - len(fitting),
        positions=_positions(starts, indices, 1 + has_header),
        left_out=left_out,
    )


def _csv_rows(
    files: Sequence[SourceFile],
    encoding: str,
    delimiter: str,
    head: Sequence[str] | None,
    starts: list[tuple[int, str]],
) -> Iterator[list[str]]:
    """Yields the rows of CSV files without empty ones.

    Args:
        files, encoding, delimiter: the files, and how to read them.
        head: the names of the first file's columns; None without a header.
        starts: receives the index of the first row of each file, with the file's name.
    """
    index = 0
    for file in counted("reading", files, len(files), "files"):
        starts.append((index, file.name))
        with _texts(file, encoding) as opened:
            rows = filter(None, csv.reader(opened, delimiter=delimiter))
            order = None
            if head is not None:
                names = next(rows, list(head))
                order = None if names == head else [*map(names.index, filter(names.count, head))]
            for row in rows:
                index += 1
                fits = order is None or (len(order) == len(head or ()) and max(order) < len(row))
                yield [row[at] for at in order] if order is not None and fits else row


def _positions(
    starts: Sequence[tuple[int, str]],
    indices: Sequence[int],
    first: int,
) -> list[str]:
    """Returns the positions of rows, such as `day.csv:7`. `first` is the number of a file's first
    row.
    """
    found = []
    at = 0
    for index in indices:
        while at + 1 < len(starts) and starts[at + 1][0] <= index:
            at += 1
        begin, name = starts[at]
        found.append(f"{name}:{index - begin + first}")
    return found


def _of_other_case(names: Iterable[str]) -> list[str]:
    """Returns the names that differ from an earlier one only by case, which Spark treats as equal.

    >>> _of_other_case(["Id", "at", "id"])
    ['id']
    """
    seen: set[str] = set()
    repeated = []
    for name in names:
        if name.lower() in seen:
            repeated.append(name)
        seen.add(name.lower())
    return repeated


def _has_decimal_commas(values: Mapping[str, Sequence[str | None]], delimiter: str) -> bool:
    """Returns whether numbers have a decimal comma: in at least one column, and no column has a
    decimal point.

    If the comma separates columns, a comma that may group thousands does not count.
    """
    found = False
    for column in values.values():
        texts = [value.strip() for value in column if value is not None and value not in NULLS]
        misfits = sum(not _COMMA.fullmatch(text) for text in texts)
        if texts and misfits <= MISFITS_MAX * len(texts):
            commas = [text for text in texts if "," in text]
            found = found or not all(delimiter == "," and GROUPED.fullmatch(c) for c in commas)
        elif 2 * sum(_POINT.fullmatch(text) is not None for text in texts) > len(texts):
            return False
    return found


def _with_points(column: Sequence[str | None]) -> list[str | None]:
    """Replaces decimal commas in the numbers of a column by decimal points."""
    written: list[str | None] = []
    for value in column:
        if value and _COMMA.fullmatch(value.strip()):
            written.append(value.strip().replace(".", "").replace(",", "."))
        else:
            written.append(value)
    return written


def _delimiter(text: str) -> str:
    """Returns the delimiter that splits the first lines into the largest number of columns, if this
    number is the same in more than half of the lines.

    If two delimiters have the same number, the one with more such lines is chosen: a decimal comma
    does not occur in the header.
    """
    lines = list(filter(str.strip, islice(io.StringIO(text), 20)))

    def columns(delimiter: str) -> tuple[int, int]:
        widths = list(map(len, filter(None, csv.reader(lines, delimiter=delimiter))))
        count = max(set(widths), key=widths.count)
        return (count, widths.count(count)) if 2 * widths.count(count) > len(widths) else (0, 0)

    return max(_DELIMITERS, key=columns) if lines else ","


def _has_header(head: Sequence[str]) -> bool:
    """Returns whether the first row names columns: most cells have text, and none starts like a
    number.
    """
    cells = list(map(str.strip, head))
    return 2 * sum(map(bool, cells)) > len(cells) and not any(
        cell.lstrip("+-.")[:1].isdigit() for cell in cells
    )


def _json(
    place: str,
    files: Sequence[SourceFile],
    text: str,
    settings: dict[str, Any],
    encoding: str,
) -> SourceSample:
    if text.lstrip()[:1] == "[":
        name = files[0].name
        raise InputError(
            f'source file "{name}" is a JSON array, not JSON lines',
            hint=f"Write one object per line, for example with: jq -c '.[]' {name} > "
            f"{Path(name).stem}.jsonl",
        )
    starts: list[tuple[int, str]] = []
    lines, first, total = _sampled(_json_lines(files, encoding, starts), 1)
    found: list[dict[str, Any]] = []
    indices = []
    for line, index in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
            indices.append(index)
    if lines and not found:
        raise InputError(
            f'no line of source file "{files[0].name}" is a JSON object',
            hint="Write one object per line.",
        )
    names = list(dict.fromkeys(chain.from_iterable(found)))
    left_out = _of_other_case(names)
    values = {}
    for name in excluding(names, left_out):
        values[name] = [row.get(name) for row in found]
    return SourceSample(
        place,
        "json",
        values,
        settings=settings,
        total=total,
        head=sum(index < first for index in indices),
        misshapen=len(lines) - len(found),
        positions=_positions(starts, indices, 1),
        left_out=left_out,
    )


def _json_lines(
    files: Sequence[SourceFile],
    encoding: str,
    starts: list[tuple[int, str]],
) -> Iterator[str]:
    """Yields the lines of files without empty ones. `starts` is as in `_csv_rows`."""
    index = 0
    for file in counted("reading", files, len(files), "files"):
        starts.append((index, file.name))
        with _texts(file, encoding) as opened:
            for line in filter(str.strip, opened):
                index += 1
                yield line


def _parquet(place: str, files: Sequence[SourceFile]) -> SourceSample:
    schema = parquet_schema(files[0])
    if files[0].in_zip:
        with files[0].open() as opened:
            rows = pq.read_table(opened, coerce_int96_timestamp_unit="us")
        return _of_rows(place, "parquet", schema, rows, rows.num_rows, rows.num_rows)
    form = ds.ParquetFileFormat(read_options={"coerce_int96_timestamp_unit": "us"})
    paths = [str(file.path) for file in files]
    try:
        rows, head, total = _row_groups(ds.dataset(paths, format=form))
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f'source "{place}" cannot be read as Parquet: {error}',
            hint="Remove or replace this file.",
        ) from error
    return _of_rows(place, "parquet", schema, rows, head, total)


def _delta(place: str) -> SourceSample:
    """Returns a sample of a Delta table, including the columns of its partitions."""
    table = Table.open(place)
    schema = pa.schema(retyped(table.schema, spark_type))
    try:
        rows, head, total = _row_groups(table.delta.to_pyarrow_dataset())
    except Exception:  # noqa: BLE001 - Arrow has no datasets with deletion vectors or column mapping
        limit = max(1, min(ROWS, CELLS // max(1, len(schema))))
        rows, total = query(f"select * from t limit {limit}", t=table), table.delta.count()
        head = rows.num_rows
    return _of_rows(place, "delta", schema, rows, head, total)


def _row_groups(source: ds.Dataset) -> tuple[pa.Table, int, int]:
    """Returns rows of several row groups of a dataset.

    Also returns how many of them are the first rows of the dataset, and the number of all its rows.
    The first and the last row group are included, with their first and last rows.
    """
    groups = []
    for fragment in source.get_fragments():
        groups += fragment.split_by_row_group()
    counts = [group.num_row_groups and group.row_groups[0].num_rows for group in groups]
    limit = max(2, min(ROWS, CELLS // max(1, len(source.schema))))
    chance = random.Random(_SEED)
    chosen = sorted({0, len(groups) - 1, *_some(chance, len(groups), _GROUPS)}) if groups else []
    parts = []
    head = min(HEAD, counts[0], limit) if groups else 0
    for number in chosen:
        size = counts[number]
        ends = {*range(0 if number else head), *([size - 1] if size else [])}
        rows = sorted(ends | {*_some(chance, size, max(1, limit // len(chosen)))})
        try:
            parts.append(groups[number].scanner(schema=source.schema).take(pa.array(rows)))
        except pa.ArrowException:
            # A file whose columns have other types is reported by the recording.
            continue
    rows = pa.concat_tables(parts) if parts else source.schema.empty_table()
    return rows, head, sum(counts)


def _some(chance: random.Random, size: int, wanted: int) -> list[int]:
    return chance.sample(range(size), min(size, wanted))


def _of_rows(
    place: str,
    kind: str,
    schema: pa.Schema,
    rows: pa.Table,
    head: int,
    total: int,
) -> SourceSample:
    left_out = _of_other_case(schema.names)
    values = {}
    for name in excluding(schema.names, left_out):
        column = rows.column(name)
        values[name] = column.cast(_microseconds(column.type), safe=False).to_pylist()
    return SourceSample(
        place,
        kind,
        values,
        types=_types(schema),
        total=total,
        head=head,
        left_out=left_out,
    )


def _microseconds(kind: pa.DataType) -> pa.DataType:
    """Converts instants in a type to microseconds, as they are recorded.

    Python has no nanoseconds.
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct(retyped(kind, _microseconds))
    if pa.types.is_list(kind):
        return pa.list_(_microseconds(kind.value_type))
    return kind


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: _ddl(field.type) for field in schema}


def _ddl(kind: Any) -> str:
    """Returns a Parquet column's type as DDL for the types that a first application uses; otherwise
    the type in upper case.
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
