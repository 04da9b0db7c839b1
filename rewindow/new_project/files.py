"""Writes the files of a new project: settings, a first application and its suite. Existing files
are never changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewindow.errors import InputError
from rewindow.new_project.columns import Column
from rewindow.new_project.stream import NewStream
from rewindow.sequences import excluding, names_of
from rewindow.settings.file import SETTINGS_FILE
from rewindow.storage import Table
from rewindow.storage.in_place import has_statistics

OUTPUT = "counts"
_LINE = 100


def new_files(stream: NewStream, folder: Path, jars: Path | None = None) -> dict[Path, str]:
    """Returns the text of each file of a project for a stream.

    Args:
        stream: the stream to record.
        folder: folder of the project.
        jars: folder of Delta's jars; None for the default in the project.
    """
    suite = f"{stream.application}_{OUTPUT}"
    return {
        folder / SETTINGS_FILE: _settings(stream, folder, jars),
        folder / "applications" / f"{stream.application}.py": _application(stream, suite),
        folder / "expectations" / "suites" / f"{suite}.json": _suite(stream, suite),
    }


def write_files(files: Mapping[Path, str]) -> None:
    """Writes the files of a project.

    Either all of them are written or none.

    Raises:
        InputError: one of them already exists.
    """
    for path in files:
        if path.exists():
            raise InputError(
                f'file "{path}" already exists',
                detail="Nothing was written.",
                hint=f"Use another folder, or add a section [streams.NAME] to {SETTINGS_FILE}.",
            )
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)


def _settings(stream: NewStream, folder: Path, jars: Path | None) -> str:
    sample = stream.sample
    arrival = stream.arrival
    lines = [
        f"# Settings of Rewindow, guessed by `rewindow init` from {sample.words} of the source: "
        "change what is wrong.",
        "# Paths are relative to this file. A row that does not fit goes to quarantine, with the "
        "reason.",
        "",
        'state = "state"                     # tables, ledger and results',
        'applications = ["applications"]     # a file for each; what is replayed',
        'expectations = "expectations"       # suites/NAME.json: what must hold of an output '
        "before it is published",
        "",
    ]
    if jars is not None:
        lines += ["[spark]", f"jars = {_toml(str(jars))}     # Delta's jars", ""]
    lines += [f"[streams.{stream.name}]", f"source = {_toml(_place(sample.path, folder))}"]
    lines += [f"{name} = {_toml(value)}" for name, value in sample.settings.items()]
    columns = [*_columns(stream), *_event_columns(stream)]
    if not columns and _can_stay(stream):
        lines.append("copy = false     # the table stays where it is; replays read it there")
    lines += columns
    nulls: set[str] = set()
    for column in stream.columns:
        nulls |= column.nulls
    # A list in the settings replaces the default, so the empty text must be included again.
    if nulls:
        lines.append(f"null_values = {_toml(['', *sorted(nulls)])}")
    lines += [
        f"# {stream.why['arrived_at']}; {arrival.why}",
        f"arrived_at = {_toml(arrival.instant)}",
    ]
    lines += [f"# {stream.why['event_at']}", f"event_at = {_toml(stream.event_at.event)}"]
    if stream.key is not None:
        lines += [f"# {stream.why['keys']}", f"keys = {_toml([stream.key.event])}"]
    if stream.interval is not None:
        lines += [f"# {stream.why['interval']}: a longer silence is a gap"]
        lines += [f"interval = {_toml(stream.interval)}"]
    lines += [f"# {stream.why['width']}", f"width = {_toml(stream.width)}"]
    example = '# zone = "Europe/Berlin"            # of times without a zone; by default UTC'
    lines += [
        example
        if stream.zone == "UTC"
        else f"zone = {_toml(stream.zone)}     # of times without a zone"
    ]
    lines += [
        '# seal_after = "5 minutes"          # how long after a window\'s end tuples of it may '
        "still come"
    ]
    return "\n".join(lines) + "\n"


def _can_stay(stream: NewStream) -> bool:
    """Returns whether the windows of a source can be sealed over it without a copy."""
    arrival = stream.arrival
    is_column = arrival.instant == arrival.sql and not arrival.path
    if stream.sample.kind != "delta" or not is_column:
        return False
    table = Table.open(stream.sample.path)
    kind = table.schema.field(arrival.name).type
    return (
        pa.types.is_timestamp(kind)
        and kind.tz is not None
        and arrival.name not in table.delta.metadata().partition_columns
        and has_statistics(table.delta, arrival.name)
        and "typeWidening" not in (table.delta.protocol().reader_features or [])
    )


def _place(path: str, folder: Path) -> str:
    """Returns a source's path for the settings: relative if it is in the project folder or next to
    it.
    """
    relative = os.path.relpath(path, folder)
    return path if relative.startswith(os.path.join("..", "..")) else relative


def _source_columns(stream: NewStream) -> list[Column]:
    """Returns the columns of the source, without the fields of nested objects."""
    return [column for column in stream.columns if not column.path]


def _columns(stream: NewStream) -> list[str]:
    """Returns the setting `columns`.

    It is empty for Parquet files and Delta tables, whose columns have types.
    """
    if stream.sample.kind in ("parquet", "delta") and not stream.sample.left_out:
        return []
    lines = []
    line = ""
    for column in _source_columns(stream):
        word = f"{column.sql} {column.kind}"
        if line and len(line) + len(word) > _LINE:
            lines.append(f"    {line}")
            line = ""
        line += f"{word}, "
    lines.append(f"    {line.removesuffix(', ')}")
    return ['columns = """', *map(str.rstrip, lines), '"""']


def _event_columns(stream: NewStream) -> list[str]:
    """Returns `keep` and `select` if a column cannot be recorded unchanged, or must be recorded as
    a time.
    """
    columns = _source_columns(stream)
    renamed = [column for column in columns if column.event != column.name]
    select = {column.event: column.sql for column in renamed}
    for time in (stream.arrival, stream.event_at):
        if time.kind == "DATE" and not time.pattern:
            select[time.event] = f"cast({time.instant} as timestamp)"
        elif time.instant != time.sql or time.path:
            select[time.event] = time.instant
    key = stream.key
    if key is not None and key.missing:
        # A null in the key fails the gate.
        none = "'none'" if key.kind == "STRING" else "-1"
        select[key.event] = f"coalesce({key.sql}, {none})"
    elif key is not None and key.path:
        select[key.event] = key.sql
    lines = []
    if renamed:
        lines.append(f"keep = {_toml(names_of(excluding(columns, renamed)))}")
    if select:
        inside = ", ".join(f"{name} = {_toml(sql)}" for name, sql in select.items())
        lines += ["# event columns under another name, or computed", f"select = {{ {inside} }}"]
    return lines


def _toml(value: Any) -> str:
    """Returns a value as TOML, whose basic strings, lists and booleans have the syntax of JSON."""
    return json.dumps(value, ensure_ascii=False)


def _arrow(column: Column) -> str:
    head, _, rest = column.kind.partition("(")
    if head == "DECIMAL":
        precision, scale = rest.rstrip(")").split(",")
        return f"pa.decimal128({precision}, {scale})"
    return {"BIGINT": "pa.int64()", "INT": "pa.int32()"}.get(head, "pa.string()")


def _application(stream: NewStream, suite: str) -> str:
    keys = [stream.key] if stream.key else []
    needed = [f"({_toml(column.event)}, {_arrow(column)})" for column in [*keys, *stream.measures]]
    fields = [*needed[: len(keys)], '("tuples", pa.int64())']
    adds = ""
    # A sum needs more digits than its terms: Spark widens a decimal to 38 digits at most.
    for column in stream.measures:
        name = _toml(f"{column.event}_sum")
        arrow = "pa.int64()"
        cast = "bigint"
        if "(" in column.kind:
            cast = f"decimal(38, {column.kind[:-1].split(',')[1]})"
            arrow = cast.replace("decimal", "pa.decimal128")
        fields.append(f"({name}, {arrow})")
        adds += f"            F.sum({_toml(column.event)}).cast({_toml(cast)}).alias({name}),\n"
    listed_fields = "".join(f"        {field},\n" for field in fields)
    names = [column.event for column in keys]
    groups = ", ".join(map(_toml, ["window_id", *names]))
    per = f"{names[0]} and window" if names else "window"
    class_name = "".join(map(str.capitalize, stream.application.split("_")))
    return f'''"""Counts tuples of stream {stream.name} for each {per}; change it as you like."""

from typing import ClassVar

import pyarrow as pa
from pyspark.sql import functions as F

from rewindow.application import Application, FrameOperator, InputPort, OutputPort

NEEDED = pa.schema([{", ".join(needed)}])
"""Columns of the stream that are read; it may have more."""
COUNTS = pa.schema(
    [
{listed_fields}    ]
)


class {class_name}(FrameOperator):
    """Tuples of each {per}{", and sums" if adds else ""}. Groups without tuples have no row."""

    inputs: ClassVar = {{"{stream.name}": InputPort(NEEDED)}}
    outputs: ClassVar = {{"{OUTPUT}": OutputPort(COUNTS)}}

    def transform(self, inputs, state, context):
        return inputs["{stream.name}"].groupBy({groups}).agg(
            F.count("*").alias("tuples"),
{adds}        )


app = Application("{stream.application}", window="{stream.width}")
counted = app.add("counted", {class_name}(), {stream.name}=app.input("{stream.name}"))
app.output("{OUTPUT}", counted, key={_toml(names)}, suite="{suite}")
'''


def _suite(stream: NewStream, suite: str) -> str:
    came_in = f"tuples_in_{stream.name}"
    expectations = [
        {
            "description": "The tuples that were counted are those that came in.",
            "kwargs": {
                "column_A": "counted",
                "column_B": came_in,
                "ignore_row_if": "either_value_is_missing",
            },
            "meta": {"check": "every-tuple-counted"},
            "severity": "critical",
            "type": "expect_column_pair_values_to_be_equal",
        },
        {
            "description": "Each row is what the stream's tuples of its window give when they are "
            "added up once more.",
            "kwargs": {"column": "rows_not_as_recorded", "value_set": [0]},
            "meta": {"check": "rows-as-recorded"},
            "severity": "critical",
            "type": "expect_column_values_to_be_in_set",
        },
    ]
    compared = {"inputs": [stream.name], "sql": _recount(stream)}
    meta = {
        "measures": {"counted": {"sql": "sum(tuples)", "empty": 0}},
        "row_measures": {"rows_not_as_recorded": compared},
    }
    notes = (
        f"Expectations of each window of {stream.application}.{OUTPUT}: measures are SQL over its "
        "rows, row measures compare them with the stream. Change them with the application."
    )
    value = {"name": suite, "notes": notes, "meta": meta, "expectations": expectations}
    return json.dumps(value, indent=2) + "\n"


def _recount(stream: NewStream) -> str:
    """Returns SQL that counts, for each window, rows that are superfluous, missing, or different
    from an aggregation of the stream.
    """
    keys = ["window_id"]
    if stream.key:
        keys.append(stream.key.event)
    values = ['count(*) as "tuples"']
    differ = ['(o."tuples" is distinct from s."tuples")']
    for column in stream.measures:
        total = _sql(f"{column.event}_sum")
        values.append(f"sum({_sql(column.event)}) as {total}")
        differ.append(f"(o.{total} is distinct from s.{total})")
    groups = ", ".join(map(_sql, keys))
    recount = f"select {groups}, {', '.join(values)}"
    same = " and ".join(f"o.{_sql(key)} = s.{_sql(key)}" for key in keys)
    # A full join also finds rows that only one side has: their values are distinct from null.
    return (
        "select coalesce(o.window_id, s.window_id) as window_id, count(*) as value from output o "
        "full join "
        f"({recount} from {_sql(stream.name)} group by {groups}) s on {same} "
        f"where {' or '.join(differ)} group by coalesce(o.window_id, s.window_id)"
    )


def _sql(name: str) -> str:
    return f'"{name}"'
