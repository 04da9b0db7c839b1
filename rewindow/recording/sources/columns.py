"""Chooses the columns of a source to read.

These are the declared columns, otherwise the columns recorded before, otherwise the columns of the
first file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import StructType

from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.recording.sources.arrow_types import wider_type
from rewindow.recording.sources.source import SourceContents
from rewindow.recording.sources.typed_rows import in_ddl
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import StreamConfig
from rewindow.spark.frames import arrow_schema
from rewindow.storage.fields import fields_without

_OWN = ("window_id", "offset", "arrived_at")


def takes_what_appears(stream: StreamConfig, declared: Sequence[str] | None) -> bool:
    """Returns whether a column that appears in the source later becomes a column of the stream.

    It does if the settings do not name columns.
    """
    return declared is None and stream.keep is None


def choose_columns(
    name: str,
    stream: StreamConfig,
    contents: SourceContents,
    schemas: list[tuple[str, pa.Schema]],
    declared: Sequence[str] | None,
    recorded: pa.Schema | None,
) -> SourceContents:
    """Adds the columns to read to the contents of a source.

    These are the declared columns, otherwise the columns recorded before, otherwise the first
    file's columns. Depending on the setting `new_columns`, columns that appeared later are reported
    or recorded.
    """
    schemas, gained = _without_gained_fields(stream, schemas, recorded)
    if gained:
        warning = (
            f"new fields in columns of the source are not recorded: {', '.join(gained)}. To "
            "record them, "
            f"{'declare them in the setting columns and ' if declared is not None else ''}run: "
            f"rewindow record {name} --start-over"
        )
        contents = replace(contents, warnings=[*contents.warnings, warning])
    fields = _common_fields(schemas, recorded)
    names = schemas[0][1].names
    if declared is not None:
        missing = excluding(declared, names)
        if missing:
            source = schemas[0][0] or name
            raise InputError(
                f'column "{missing[0]}" is not in source file "{source}"',
                hint=f"{did_you_mean(missing[0], names)}The file has the columns: "
                f"{', '.join(names)}.",
            )
        wanted = list(map(fields.__getitem__, declared))
        return _with(name, contents, wanted, are_declared=True)
    for _, schema in schemas:
        _check_names(name, list(schema))
    empty = []
    for column, field in list(fields.items()):
        if pa.types.is_null(field.type):
            empty.append(column)
            del fields[column]
    first = fields_without(fields.values(), excluding(fields, names))
    if empty:
        words = (
            f"empty columns without a type are not recorded: {', '.join(empty)}. To record them, "
            "declare them with types in the stream's setting columns"
        )
        contents = replace(contents, warnings=[*contents.warnings, words])
    if not takes_what_appears(stream, declared):
        return _with(name, contents, first)
    known = set(names) if recorded is None else {*recorded.names, "arrived_at", *stream.select}
    new = excluding(fields, known)
    if stream.new_columns == "report":
        chosen = _with(name, contents, fields_without(fields.values(), new))
        return replace(chosen, warnings=[*contents.warnings, *_reported(name, new, schemas)])
    gone = fields_without(recorded or [], {*fields, *stream.select, *_OWN})
    optional = frozenset([*new, *names_of(gone), *excluding(fields, names)])
    return replace(_with(name, contents, [*fields.values(), *gone]), optional=optional)


def _without_gained_fields(
    stream: StreamConfig,
    schemas: list[tuple[str, pa.Schema]],
    recorded: pa.Schema | None,
) -> tuple[list[tuple[str, pa.Schema]], list[str]]:
    """Removes the fields that nested columns have gained since they were recorded from schemas.

    Also returns the names of these fields. A recorded column keeps its type.
    """
    kinds = {field.name: field.type for field in recorded or []}
    gained: list[str] = []
    found = []
    for file, schema in schemas:
        for index, field in enumerate(schema):
            kind = kinds.get(field.name, field.type)
            now = _leaves(field.type, field.name)
            before = _leaves(kind, field.name)
            if before.items() < now.items() and field.name not in stream.select:
                schema = schema.set(index, field.with_type(kind))
                gained += excluding(now, {*before, *gained})
        found.append((file, schema))
    return found, gained


def _leaves(kind: pa.DataType, path: str) -> dict[str, str]:
    """Returns the types of the fields within a type, by their paths."""
    if not pa.types.is_nested(kind):
        return {path: str(kind)}
    found: dict[str, str] = {}
    for index in range(kind.num_fields):
        inner = kind.field(index)
        found |= _leaves(inner.type, f"{path}.{inner.name}")
    return found


def as_declared(contents: SourceContents, declared: StructType | None) -> SourceContents:
    """Returns the contents with the declared types of columns, if these types can represent all
    values of the files' types.

    Then each file is read with the declared type, not with the first file's type.
    """
    if declared is None or not contents.schema.names:
        return contents
    fields = []
    for field in contents.schema:
        kind = arrow_schema(declared).field(field.name).type
        is_wider = wider_type(field.type, kind) == kind
        fields.append(field.with_type(kind) if is_wider else field)
    return replace(contents, schema=pa.schema(fields))


def _common_fields(
    schemas: Sequence[tuple[str, pa.Schema]],
    recorded: pa.Schema | None,
) -> dict[str, pa.Field]:
    """Returns the columns of all files.

    A column has the type of the first file that has the column, but is an instant if it is one in
    any file. A column without a type in every file gets its recorded type.
    """
    fields: dict[str, pa.Field] = {}
    for _, schema in schemas:
        for field in schema:
            first = fields.setdefault(field.name, field).type
            is_time = pa.types.is_timestamp(first) and pa.types.is_timestamp(field.type)
            if pa.types.is_null(first) or (is_time and first.tz is None):
                fields[field.name] = field
    for field in recorded or ():
        if field.name in fields and pa.types.is_null(fields[field.name].type):
            fields[field.name] = field
    return fields


def _check_names(name: str, fields: Sequence[pa.Field]) -> None:
    """Checks that Spark does not treat the names of two columns as equal.

    Raises:
        InputError: names both, and columns that can be recorded.
    """
    single: dict[str, pa.Field] = {}
    for field in fields:
        single.setdefault(field.name.lower(), field)
    for field in fields:
        other = single[field.name.lower()]
        if other is not field:
            raise InputError(
                f'columns "{other.name}" and "{field.name}" of the source of stream "{name}" '
                "differ only in case",
                detail="Spark treats them as one column.",
                hint="List the columns to record in the stream's setting columns, such as columns "
                f'= "{in_ddl(single.values())}".',
            )


def _with(
    name: str,
    contents: SourceContents,
    fields: list[pa.Field],
    are_declared: bool = False,
) -> SourceContents:
    _check_names(name, fields)
    for field in fields:
        if not _can_be_recorded(field.type, or_empty=are_declared):
            others = [other.name for other in fields if _can_be_recorded(other.type)]
            raise InputError(
                f'column "{field.name}" of the source of stream "{name}" cannot be recorded: its '
                f"type is {field.type}",
                hint="Leave the column out: list the columns to record in the setting columns, "
                f'such as columns = "{others[0]} ...".'
                if others
                else "Supported types are numbers, texts, bytes, dates, timestamps, and lists, "
                "structures and maps of these.",
            )
    schema = pa.schema(fields)
    return replace(contents, columns=schema.names, schema=schema)


def _reported(name: str, new: list[str], schemas: list[tuple[str, pa.Schema]]) -> list[str]:
    """Returns a warning about new columns of the source that are not recorded; no warning if there
    are none.

    Args:
        name: name of the stream.
        new: names of these columns.
        schemas: each file with its columns, to name the first file with the first new column.
    """
    if not new:
        return []
    where = next(file for file, schema in schemas if new[0] in schema.names)
    listed = ", ".join(f'"{column}"' for column in new) + (
        f' (first in "{where}")' if where else ""
    )
    return [
        f"new columns of the source are not recorded: {listed}. To record them, set new_columns = "
        f'"take" of stream "{name}", or list the columns to record in the setting columns'
    ]


def _can_be_recorded(kind: pa.DataType, *, or_empty: bool = False) -> bool:
    """Returns whether Delta can store a type. Times of day, durations and half floats, for example,
    cannot be stored.

    Args:
        or_empty: accept a column without type and values, because it gets a type from the settings.
    """
    if pa.types.is_nested(kind):
        inside = [kind.field(index) for index in range(kind.num_fields)]
        has_twins = len({field.name.lower() for field in inside}) < len(inside)
        return (
            not pa.types.is_union(kind)
            and not has_twins
            and all(_can_be_recorded(field.type, or_empty=or_empty) for field in inside)
        )
    if pa.types.is_null(kind):
        return or_empty
    return not (
        pa.types.is_duration(kind)
        or pa.types.is_time(kind)
        or pa.types.is_interval(kind)
        or pa.types.is_float16(kind)
        or pa.types.is_decimal256(kind)
    )
