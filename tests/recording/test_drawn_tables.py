"""Drawn tables in every format are recorded as pyarrow, csv and json read them.

A table is drawn from its seed, the number in the name of a failed test; the same number draws it
again. Other programs read the expected values from the file, and the functions here, which are
written from the documentation, type them.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from rewindow.errors import InputError
from rewindow.location import location
from rewindow.progress.listener import Silent
from rewindow.recording import record as recording
from rewindow.recording.progress import RecordingProgress
from rewindow.recording.sources.source import SourcePosition
from tests.recording.conftest import Bench

ROWS = 12
START = datetime(2024, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1)
NAMES = ["n", "a.b", "Id", "more", "value", "c`d", "é"]
ZONES = ["UTC", "Europe/Berlin"]
WRONG = object()
"""Stands for a text or JSON value that does not have the declared type."""


@dataclass
class Drawn:
    """A table in a file, and what is expected of it.

    Attributes:
        source: path of the file or folder.
        settings: of the stream.
        rows: by number in the file, the expected values; None of a malformed row.
        refusal: a part of the error, where the whole source has one.
    """

    source: Path
    settings: dict[str, Any]
    rows: dict[int, dict[str, Any] | None] = field(default_factory=dict)
    refusal: str = ""


def micros(moment: datetime, zone: str) -> int:
    """Returns a time as microseconds since 1970; without a zone it is read in a stream's."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
    return (moment.astimezone(UTC).replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)


def number(text: str, digits: int, scale: int) -> Any:
    with localcontext(prec=80):
        try:
            value = Decimal(text.strip())
        except InvalidOperation:
            return WRONG
        is_exact = value.is_finite() and value == round(value, scale)
        return round(value, scale) if is_exact and abs(value) < 10 ** (digits - scale) else WRONG


def whole(text: str, bits: int) -> Any:
    if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        return WRONG
    return int(text) if -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1) else WRONG


def real(text: str) -> Any:
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|NaN|Infinity)\s*", text):
        return WRONG
    return float(text)


def instant(text: str, zone: str) -> Any:
    found = re.fullmatch(
        r"(\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d{1,6})?)?)\d*(Z|[+-]\d\d:\d\d)?", text
    )
    if not found:
        return WRONG
    try:
        return micros(datetime.fromisoformat(found[1] + (found[4] or "")), zone)
    except ValueError:
        return WRONG


def day(text: str) -> Any:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d([T ]00:00:00)?", text):
        return WRONG
    try:
        return (date.fromisoformat(text[:10]) - EPOCH.date()).days
    except ValueError:
        return WRONG


TRUTHS = {"true": True, "false": False, "t": True, "no": False, "1": True}
TEXTS: dict[str, tuple[Callable[[str, str], Any], list[str]]] = {
    "BIGINT": (
        lambda text, _: whole(text, 64),
        [
            "0",
            "-7",
            str(2**53 + 1),
            str(2**63 - 1),
            str(-(2**63)),
            str(2**63),
            "1.5",
            "x",
            " 12 ",
            "1e3",
            "٣",
        ],
    ),
    "INT": (lambda text, _: whole(text, 32), ["5", str(2**31), "-2147483648", "+4", "0x10", ""]),
    "DOUBLE": (
        lambda text, _: real(text),
        [
            "1.5",
            "-0.0",
            "1e308",
            "NaN",
            "Infinity",
            "-Infinity",
            "12d",
            "3f",
            "0x1p3",
            "1,5",
            "n/a",
            str(2**53 + 1),
            " 7 ",
            "1.",
            "4.9e-324",
        ],
    ),
    "DECIMAL(5,2)": (
        lambda text, _: number(text, 5, 2),
        [
            "1.25",
            "1.250",
            "1.255",
            "999.99",
            "1000",
            "-0.01",
            "1e2",
            "1.2e-3",
            "n/a",
            " 1.5",
        ],
    ),
    "DECIMAL(38,2)": (
        lambda text, _: number(text, 38, 2),
        [
            "9" * 36 + ".99",
            "9" * 36 + ".995",
            "1.255",
            "9" * 37,
            "0.1",
        ],
    ),
    "BOOLEAN": (
        lambda text, _: TRUTHS.get(text.lower(), WRONG),
        [
            "true",
            "FALSE",
            "t",
            "no",
            "1",
            "2",
            "maybe",
        ],
    ),
    "STRING": (
        lambda text, _: text,
        [
            "plain",
            'with "quotes"',
            "two\nlines",
            "two\r\nlines",
            "a,b;c",
            " spaces ",
            "NaN",
            "null",
            "é\U0001f600",
            "2024-01-01",
            "'",
            "\\n",
            "\t",
        ],
    ),
    "DATE": (
        lambda text, _: day(text),
        [
            "2024-02-29",
            "2023-02-29",
            "0001-01-01",
            "9999-12-31",
            "2024",
            "2024-05",
            "20224-01-05",
            "2024-01-01 00:00:00",
            "2024-01-01 10:00:00",
            "2024-01-01 x",
            "202401",
        ],
    ),
    "TIMESTAMP": (
        instant,
        [
            "2024-01-01T10:15:30Z",
            "2024-01-01 10:15:30",
            "2024-01-01",
            "10:15:30",
            "202401",
            "2024",
            "2024-05",
            "20224-01-05",
            "2024-03-31 02:30:00",
            "2024-10-27 02:30:00",
            "2024-10-27T02:30:00+01:00",
            "1816-03-29T00:00:00.123456789Z",
            "9999-12-31 23:59:59.999999Z",
            "0001-01-02T00:00:00",
            "2024-02-30T00:00:00Z",
            "1704067200",
            "T10:15:30",
            "yesterday",
        ],
    ),
}


def draw(seed: int, root: Path) -> Drawn:
    """Returns the table of a seed, written below a folder."""
    chance = random.Random(seed)
    formats = [draw_csv, draw_json, draw_typed, draw_typed]
    return formats[seed % len(formats)](chance, root)


def settings_of(chance: random.Random, source: Path, columns: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "source": str(source),
        "keys": [],
        "width": "1 minute",
        "sealed_to": None,
        "zone": chance.choice(ZONES),
        "malformed_max_share": 1,
    }
    if columns and chance.random() < 0.4:
        settings["select"] = {"made": f"{quoted(chance.choice(columns))} is null"}
    return settings


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def draw_csv(chance: random.Random, root: Path) -> Drawn:
    """Writes CSV with or without a byte order mark, CRLF, quotes around everything, and a last line
    end.
    """
    kinds = {
        name: chance.choice(list(TEXTS)) for name in chance.sample(NAMES, chance.randint(1, 5))
    }
    header = ["at", *kinds]
    if chance.random() < 0.15:
        header += ["id", "ID"]
    lines = []
    for index in range(ROWS):
        at = (START + timedelta(seconds=index)).isoformat()
        cells = [chance.choice([*TEXTS[kind][1], ""]) for kind in kinds.values()]
        lines.append([at, *cells, *["x"] * (len(header) - 1 - len(kinds))])
    text = io.StringIO(newline="")
    quoting = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    writer = csv.writer(text, quoting=quoting, lineterminator=chance.choice(["\n", "\r\n"]))
    writer.writerows([header, *lines])
    content = text.getvalue()
    content = content if chance.random() < 0.5 else content.rstrip("\r\n")
    path = root / "s.csv"
    path.write_bytes(chance.choice([b"", b"\xef\xbb\xbf"]) + content.encode())
    settings = settings_of(chance, path, list(kinds))
    if len(header) > 1 + len(kinds):
        return Drawn(path, {**settings, "columns": None}, refusal="differ only in case")
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
    settings["columns"] = f"at TIMESTAMP, {ddl}"
    written = path.read_bytes().decode("utf-8-sig")
    found = list(csv.reader(io.StringIO(written, newline="")))[1:]
    rows: dict[int, dict[str, Any] | None] = {}
    for place, cells in enumerate(found, 2):
        values = {}
        for (name, kind), cell in zip(kinds.items(), cells[1:], strict=True):
            # An empty cell is null; a quoted one is a text, and means null in any other column.
            is_null = cell == "" and (kind != "STRING" or quoting == csv.QUOTE_MINIMAL)
            values[name] = None if is_null else TEXTS[kind][0](cell, settings["zone"])
        rows[place] = with_arrival(values, place - 2, settings)
    return Drawn(path, settings, rows)


def with_arrival(values: dict[str, Any], index: int, settings: dict[str, Any]) -> Any:
    """Returns a row with its arrival and the columns of `select`; None where a value is wrong."""
    if any(is_wrong(value) for value in values.values()):
        return None
    row = {"at": micros(START + timedelta(seconds=index), "UTC"), **values}
    for name, expression in settings.get("select", {}).items():
        column = expression.removesuffix(" is null")[1:-1].replace("``", "`")
        row[name] = values[column] is None
    return row


def is_wrong(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return value is WRONG or any(map(is_wrong, parts))


def draw_value(chance: random.Random, kind: Any) -> Any:
    """Returns a JSON value that is often one of a type."""
    if chance.random() < 0.1:
        return None
    if isinstance(kind, dict):
        return {
            name: draw_value(chance, each) for name, each in kind.items() if chance.random() < 0.9
        }
    if isinstance(kind, list):
        return [draw_value(chance, kind[0]) for _ in range(chance.randint(0, 3))]
    texts = [text for text in TEXTS[kind][1] if chance.random() < 0.3 or good(kind, text)]
    text = chance.choice(texts)
    if kind in ("BIGINT", "INT"):
        return int(text) if re.fullmatch(r"-?\d+", text) else chance.choice([7, text, 1.5, True])
    if kind == "DOUBLE":
        return real(text) if real(text) is not WRONG else chance.choice([text, 3, True])
    if kind == "BOOLEAN":
        return chance.choice([True, False, text])
    return chance.choice([text] * 9 + [5])


def good(kind: str, text: str) -> bool:
    return TEXTS[kind][0](text, "UTC") is not WRONG


def json_value(value: Any, kind: Any, zone: str) -> Any:
    """Returns a JSON value as its declared type has it."""
    if value is None:
        return None
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return WRONG
        return {name: json_value(value.get(name), each, zone) for name, each in kind.items()}
    if isinstance(kind, list):
        return (
            [json_value(each, kind[0], zone) for each in value]
            if isinstance(value, list)
            else WRONG
        )
    if kind in ("BIGINT", "INT"):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return whole(str(value), 64 if kind == "BIGINT" else 32) if is_whole else WRONG
    if kind == "DOUBLE":
        is_word = value in ("NaN", "Infinity", "-Infinity")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number or is_word else WRONG
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else WRONG
    text = value if isinstance(value, str) else json.dumps(value)
    if kind.startswith("DECIMAL") and text != text.strip():
        return WRONG
    return TEXTS[kind][0](text, zone)


JSON_KINDS = ["BIGINT", "INT", "DOUBLE", "BOOLEAN", "STRING", "DATE", "TIMESTAMP", "DECIMAL(5,2)"]


def draw_kind(chance: random.Random, depth: int = 2) -> Any:
    if depth and chance.random() < 0.3:
        inside = [draw_kind(chance, depth - 1) for _ in range(2)]
        return dict(zip("xy", inside, strict=True)) if chance.random() < 0.5 else inside[:1]
    return chance.choice(JSON_KINDS)


def ddl_of(kind: Any) -> str:
    if isinstance(kind, dict):
        return f"STRUCT<{', '.join(f'{name}: {ddl_of(each)}' for name, each in kind.items())}>"
    return f"ARRAY<{ddl_of(kind[0])}>" if isinstance(kind, list) else kind


def draw_json(chance: random.Random, root: Path) -> Drawn:
    """Writes JSON lines: values of other types, keys twice, several values on a line."""
    kinds = {name: draw_kind(chance) for name in chance.sample(NAMES, chance.randint(1, 4))}
    lines = []
    for index in range(ROWS):
        at = (START + timedelta(seconds=index)).isoformat()
        values = {"at": at, **{name: draw_value(chance, kind) for name, kind in kinds.items()}}
        line = json.dumps(values, ensure_ascii=chance.random() < 0.5)
        if chance.random() < 0.1:
            twice = chance.choice(list(kinds))
            line = f"{{{json.dumps(twice)}: null, {line[1:]}"
        if chance.random() < 0.1:
            line += chance.choice(["{}", " 5", ",", "]", line, f" {line}"])
        lines.append(
            line if chance.random() < 0.9 else chance.choice(["", "[]", "{", "null", line])
        )
    path = root / "s.jsonl"
    mark = chance.choice([b"", b"\xef\xbb\xbf"])
    path.write_bytes(mark + chance.choice(["\n", "\r\n"]).join(lines).encode())
    settings = settings_of(chance, path, list(kinds))
    ddl = ", ".join(f"{quoted(name)} {ddl_of(kind)}" for name, kind in kinds.items())
    settings["columns"] = f"at TIMESTAMP, {ddl}"
    rows: dict[int, dict[str, Any] | None] = {}
    for place, line in enumerate(path.read_bytes().decode("utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            rows[place] = None
            continue
        values = {
            name: json_value(found.get(name), kind, settings["zone"])
            for name, kind in kinds.items()
        }
        rows[place] = with_arrival(values, place - 1, settings) if found.get("at") else None
    return Drawn(path, settings, rows)


def ends_of(kind: pa.DataType) -> list[int]:
    bits = kind.bit_width
    return (
        [0, 2**bits - 1]
        if pa.types.is_unsigned_integer(kind)
        else [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    )


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]
OTHERS = [
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(4),
    pa.date32(),
    pa.decimal128(9, 2),
    pa.decimal128(38, 10),
    pa.dictionary(pa.int8(), pa.string()),
    *(pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")),
]


def draw_type(chance: random.Random, depth: int = 2) -> pa.DataType:
    if depth and chance.random() < 0.3:
        inside = draw_type(chance, depth - 1)
        inside = inside.value_type if pa.types.is_dictionary(inside) else inside
        made = [
            pa.list_(inside),
            pa.struct([("x", inside), ("select", pa.int64())]),
            pa.map_(pa.string(), pa.int64()),
        ]
        return chance.choice(made)
    return chance.choice(INTEGERS + OTHERS)


def draw_of_type(chance: random.Random, kind: pa.DataType) -> Any:
    if chance.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {each.name: draw_of_type(chance, each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(key, draw_of_type(chance, kind.item_type)) for key in "ab"[: chance.randint(0, 2)]]
    if pa.types.is_list(kind):
        return [draw_of_type(chance, kind.value_type) for _ in range(chance.randint(0, 3))]
    if pa.types.is_integer(kind):
        return chance.choice([1, *ends_of(kind)])
    if pa.types.is_floating(kind):
        return chance.choice([0.5, -0.0, float("nan"), float("inf"), 2.0**100])
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind):
        return chance.choice([b"abcd", b"\xff\x00\xfe\x01"])
    if pa.types.is_date32(kind):
        return chance.choice([0, 2**31 - 1, -(2**31), 2_932_897])
    if pa.types.is_decimal(kind):
        return chance.choice([Decimal("1.25"), Decimal("-9999999.99"), Decimal(0)])
    if pa.types.is_timestamp(kind):
        hours = [datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 2, 30), datetime(1900, 1, 1)]
        per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        times = [micros(hour, "UTC") * per_second // 10**6 for hour in hours]
        ends = {"ms": 10**14, "us": 2**63 - 1, "ns": 2**63 - 1}[kind.unit]
        return chance.choice([*times, 0, -1501, 1501, *([ends] if kind.tz else [])])
    return chance.choice(["", "é", "two\nlines", "null", "x" * 100])


def draw_typed(chance: random.Random, root: Path) -> Drawn:
    """Writes Parquet, Feather or a Delta table, of one file or of two, whose types may differ."""
    kind = chance.choice(["parquet", "parquet", "feather", "delta"])
    is_int96 = kind == "parquet" and chance.random() < 0.3
    types = {name: draw_type(chance) for name in chance.sample(NAMES, chance.randint(1, 5))}
    if kind == "delta":
        types = {
            name: pa.int64() if is_beyond_delta(each) else each for name, each in types.items()
        }
    if is_int96:
        # These have no zone, so they cannot be instants that Python lacks.
        types = {name: without_zone(each) for name, each in types.items()}
    columns = {
        "at": pa.array([START + timedelta(seconds=index) for index in range(ROWS)], AT_TYPE),
        **{
            name: pa.array([draw_of_type(chance, each) for _ in range(ROWS)], each)
            for name, each in types.items()
        },
    }
    path = root / "in"
    path.mkdir()
    settings = settings_of(chance, path, list(types)) | {"columns": None}
    if is_int96:
        settings["zone"] = "UTC"
    table = pa.table(columns)
    halves = [list(range(5)), list(range(5, ROWS))]
    # delta-rs cannot write slices.
    parts = [table] if chance.random() < 0.5 else [table.take(half) for half in halves]
    refusal = ""
    if len(parts) == 2 and kind != "delta" and not is_int96:
        name = chance.choice(list(types))
        parts, refusal = differing(chance, parts, name, settings["zone"])
    for place, part in enumerate(parts):
        if kind == "delta":
            write_deltalake(str(path), part, mode="append")
        elif kind == "parquet":
            pq.write_table(
                part,
                path / f"{place}.parquet",
                store_schema=chance.random() < 0.5,
                use_deprecated_int96_timestamps=is_int96,
            )
        else:
            feather.write_feather(part, path / f"{place}.feather")
    rows: dict[int, dict[str, Any] | None] = {}
    for place in range(len(parts)):
        part = read_back(path, kind, place)
        names = part.column_names[1:]
        values = {name: plain(part[name].combine_chunks(), settings["zone"]) for name in names}
        for index in range(part.num_rows):
            row = {name: values[name][index] for name in names}
            rows[len(rows) + 1] = with_arrival(row, len(rows), settings)
    return Drawn(path, settings, rows, refusal)


def without_zone(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if "tz=" in str(kind) else kind


def differing(
    chance: random.Random,
    parts: list[pa.Table],
    name: str,
    zone: str,
) -> tuple[list[pa.Table], str]:
    """Returns two parts of a table of which one may have another type in a column, and the error
    that this causes, if any.
    """
    kind = parts[0].schema.field(name).type
    place = parts[0].schema.get_field_index(name)
    if pa.types.is_timestamp(kind):
        other = chance.randrange(2)
        column = parts[other].column(name).cast(pa.int64())
        changed = column.cast(pa.timestamp(kind.unit, None if kind.tz else "UTC"))
        parts[other] = parts[other].set_column(place, name, changed)
        local = parts[other if kind.tz else 1 - other].column(name)
        refused = any(map(partial(is_refused, zone=zone), plain_times(local)))
        return parts, f'column "{name}" of source file' if refused else ""
    wider = {pa.int8(): pa.int64(), pa.uint16(): pa.int64(), pa.float32(): pa.float64()}
    if kind in wider:
        parts[0] = parts[0].set_column(place, name, parts[0].column(name).cast(wider[kind]))
    return parts, ""


def plain_times(column: pa.ChunkedArray) -> list[int]:
    factor = {"ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
    numbers = column.cast(pa.int64()).to_pylist()
    return [number * 10**6 // factor for number in numbers if number is not None]


def is_refused(number: int, zone: str) -> bool:
    """Returns whether a local time among instants is one that the zone does not have."""
    try:
        local = EPOCH + timedelta(microseconds=number)
    except OverflowError:
        return False
    there = local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).astimezone(ZoneInfo(zone))
    return there.replace(tzinfo=None) != local


AT_TYPE = pa.timestamp("us", "UTC")


def is_beyond_delta(kind: pa.DataType) -> bool:
    """Returns whether a type is one that delta-rs does not write as it is, with all its values."""
    words = ("uint", "ns", "dictionary", "large", "fixed", "timestamp", "date")
    return any(word in str(kind) for word in words)


def read_back(path: Path, kind: str, place: int) -> pa.Table:
    """Returns a file as pyarrow reads it."""
    if kind == "feather":
        return feather.read_table(path / f"{place}.feather")
    if kind == "parquet":
        opened = pq.ParquetFile(path / f"{place}.parquet", coerce_int96_timestamp_unit="us")
        return opened.read()
    added = sorted(
        pa.table(DeltaTable(str(path)).get_add_actions()).to_pylist(),
        key=lambda action: (action["modification_time"], action["path"]),
    )
    return pq.ParquetFile(path / added[place]["path"]).read()


def plain(array: pa.Array, zone: str) -> list[Any]:
    """Returns values that can be compared: times as whole microseconds, days as numbers, local
    times as instants of a zone.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode(), zone)
    if pa.types.is_struct(kind):
        fields = [plain(part, zone) for part in array.flatten()]
        rows = [dict(zip(kind.names, row, strict=True)) for row in zip(*fields, strict=True)]
        return [
            row if there else None
            for row, there in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_map(kind):
        return [None if row is None else dict(row) for row in array.to_pylist()]
    if pa.types.is_list(kind):
        return [plain(row.values, zone) if row.is_valid else None for row in array]
    if pa.types.is_date32(kind):
        return array.cast(pa.int32()).to_pylist()
    if not pa.types.is_timestamp(kind):
        return [repr(each) if isinstance(each, float) else each for each in array.to_pylist()]
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    found = []
    for number in array.cast(pa.int64()).to_pylist():
        value = None if number is None else number * 10**6 // factor
        if value is not None and kind.tz is None and abs(value) < 10**17:
            value = micros(EPOCH + timedelta(microseconds=value), zone)
        found.append(value)
    return found


def read(bench: Bench, drawn: Drawn) -> dict[int, dict[str, Any] | None]:
    """Returns the rows of a source as they would be recorded, by their numbers."""
    config = bench.config(**drawn.settings)
    folder = location(bench.root / "scratch")
    folder.make_folder()
    with recording.session_of(bench.spark, drawn.settings["zone"]):
        run = recording._Run(
            bench.spark,
            config,
            "s",
            stream=config.stream("s"),
            folder=folder,
            progress=RecordingProgress("s", Silent()),
        )
        _, tuples = run._read_source(SourcePosition(), True)
        table = tuples.toArrow()
    table = table.sort_by([("__file", "ascending"), ("__row", "ascending")])
    rows: dict[int, dict[str, Any] | None] = {}
    last = 0
    first = 0
    files = table["__file"].to_pylist()
    numbers = table["__row"].to_pylist()
    values = values_of(table, drawn)
    for index, reason in enumerate(table["__reason"].to_pylist()):
        if index and files[index] != files[index - 1]:
            first = last
        last = first + numbers[index]
        rows[last] = None if reason else {name: column[index] for name, column in values.items()}
    return rows


def values_of(table: pa.Table, drawn: Drawn) -> dict[str, list[Any]]:
    names = next((list(row) for row in drawn.rows.values() if row is not None), ["at"])
    return {name: plain(table[name].combine_chunks(), "UTC") for name in names}


def comparable(row: dict[str, Any] | None) -> Any:
    """Returns a row with floats as text, since NaN equals nothing."""
    if isinstance(row, dict):
        return {name: comparable(value) for name, value in row.items()}
    if isinstance(row, list):
        return [comparable(each) for each in row]
    return repr(row) if isinstance(row, float) else row


def check(bench: Bench, seed: int) -> None:
    drawn = draw(seed, bench.root)
    if drawn.refusal:
        with pytest.raises(InputError, match=re.escape(drawn.refusal)):
            read(bench, drawn)
        return
    expected = {place: comparable(row) for place, row in drawn.rows.items()}
    assert read(bench, drawn) == expected, f"table {seed}: {drawn.settings}"
    good = [row for row in expected.values() if row is not None]
    if seed % 10 < 8 or not good:
        return
    result = bench.record(end=True, **drawn.settings)
    assert (result.recorded, result.malformed) == (len(good), len(expected) - len(good))
    table = DeltaTable(str(bench.root / "state" / "streams" / "s")).to_pyarrow_table()
    values = values_of(table.sort_by([("window_id", "ascending"), ("offset", "ascending")]), drawn)
    recorded = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    assert recorded == good, f"table {seed}: {drawn.settings}"


@pytest.mark.parametrize("seed", range(10))
def test_randomly_generated_table_is_recorded_unchanged(bench: Bench, seed: int) -> None:
    check(bench, seed)


@pytest.mark.long
@pytest.mark.parametrize(
    "seed",
    [
        *range(10, 40),
        *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(40, 400)),
    ],
)
def test_more_randomly_generated_tables_are_recorded_unchanged(bench: Bench, seed: int) -> None:
    check(bench, seed)
