"""Turns Spark's errors about a stream's columns and expressions into errors that name the setting,
the problem and the available names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.sequences import excluding
from rewindow.settings.config import StreamConfig

_TYPES = (
    *(
        "BIGINT",
        "BINARY",
        "BOOLEAN",
        "DATE",
        "DECIMAL(10,2)",
        "DOUBLE",
        "FLOAT",
        "INT",
        "SMALLINT",
        "STRING",
    ),
    *("TIMESTAMP", "ARRAY<STRING>", "STRUCT<a: INT>"),
)
_OTHER_NAMES = {
    "TEXT": "STRING",
    "VARCHAR": "STRING",
    "STR": "STRING",
    "UUID": "STRING",
    "JSON": "STRING",
    "TIME": "STRING",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP",
    "BOOL": "BOOLEAN",
    "NUMBER": "DECIMAL(10,2)",
    "NUMERIC": "DECIMAL(10,2)",
    "REAL": "FLOAT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "FLOAT64": "DOUBLE",
}
"""Names of types in other systems, with the Spark type to use instead."""
_TAG = re.compile(r"^\[[A-Z_.]+\] ")
_STATE = re.compile(r"\.? *SQLSTATE: .*$", re.DOTALL)
_PLAIN = re.compile(r"\w+", re.ASCII)


def plain_words(error: PySparkException) -> str:
    """Returns Spark's message in one line, without the error class and the SQL state."""
    lines = filter(None, map(str.strip, str(error).splitlines()))
    line = next(lines, type(error).__name__)
    return f"{_STATE.sub('', _TAG.sub('', line))}."


def columns_error(name: str, columns: str, error: PySparkException) -> InputError:
    """Returns the error for declared columns that are not valid DDL."""
    if error.getCondition() == "UNSUPPORTED_DATATYPE":
        return InputError(
            f'setting "columns" of stream "{name}" has {_unknown_type(error)[0]}',
            hint=_unknown_type(error)[1],
        )
    detail = _syntax(error) or plain_words(error)
    return InputError(
        f'setting "columns" of stream "{name}" is not valid DDL: {" ".join(columns.split())}',
        detail=detail,
        hint='Write columns such as "origin STRING, dep_delay INT, at TIMESTAMP". Put a name with '
        "a space in backquotes, such as `Room Name` STRING.",
    )


def expression_error(
    name: str,
    stream: StreamConfig,
    rows: DataFrame,
    columns: Sequence[str],
) -> InputError | None:
    """Returns an error for the first expression in a stream's settings that Spark rejects; None if
    Spark accepts all.

    Args:
        name, stream: the stream and its settings.
        rows: the source's rows, typed.
        columns: its columns, under the names that a user knows.
    """
    for setting, expression in [("arrived_at", stream.arrived_at), *_selected(stream)]:
        try:
            value = F.expr(expression)
            _ = rows.select(
                value.try_cast("timestamp") if setting == "arrived_at" else value
            ).schema
        except PySparkException as error:
            return _refused(name, setting, expression, columns, error)
    return None


def event_at_hint(event_at: str, events: Mapping[str, T.DataType]) -> str:
    """Returns a hint how to create a TIMESTAMP column from `event_at`.

    A column is converted according to its type, and an expression is used as it is. The hint is
    empty if `event_at` names a missing column. A missing name that contains a space or one of
    `( + * /` counts as an expression.
    """
    kind = events.get(event_at)
    name = "event_time"
    column = event_at if _PLAIN.fullmatch(event_at) else f"`{event_at}`"
    if kind is None:
        if not re.search("[(+*/ ]", event_at):
            return ""
        value = event_at
        more = ""
    else:
        value, more = _as_timestamp(column, kind)
        name = f"{re.sub('_(at|us|ms|s)$', '', event_at)}_at" if column == event_at else name
    name = "event_time" if name in events or name == "at_at" else name
    wanted = (
        f'select = {{ {name} = {json.dumps(value, ensure_ascii=False)} }} and event_at = "{name}"'
    )
    return (
        f"Create a TIMESTAMP column: set {wanted} in the stream's section of rewindow.toml.{more}"
    )


def _as_timestamp(column: str, kind: T.DataType) -> tuple[str, str]:
    """Returns SQL that converts a column to TIMESTAMP, and a text for columns in another unit or
    format.
    """
    if isinstance(kind, T.StringType):
        return (
            f"to_timestamp({column})",
            f" If the text is not ISO 8601, add its format, such as to_timestamp({column}, "
            "'yyyyMMdd HH:mm').",
        )
    if not isinstance(kind, T.NumericType):
        return f"CAST({column} AS TIMESTAMP)", ""
    units = {"ms": "timestamp_millis", "us": "timestamp_micros", "s": "timestamp_seconds"}
    function = units.get(column.strip("`").rpartition("_")[2], "timestamp_seconds")
    others = excluding(units.values(), {function})
    return (
        f"{function}({column})",
        f" For another unit, use {' or '.join(others)}.",
    )


def _selected(stream: StreamConfig) -> list[tuple[str, str]]:
    return [(f"select.{column}", expression) for column, expression in stream.select.items()]


def _refused(
    name: str,
    setting: str,
    expression: str,
    columns: Sequence[str],
    error: PySparkException,
) -> InputError:
    where = f'{setting} of stream "{name}"'
    given = error.getMessageParameters() or {}
    known = f"The source has: {', '.join(columns)}."
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        column = _unquoted(given, "objectName")
        return InputError(
            f'{where} uses column "{column}", which is not in the source',
            detail=f'{setting} = "{expression}"',
            hint=f"{did_you_mean(column, columns)}{known}{_backquotes(columns)}",
        )
    if condition.startswith("UNRESOLVED_ROUTINE"):
        function = _unquoted(given, "routineName")
        return InputError(
            f'{where} uses function "{function}", which does not exist in Spark SQL',
            detail=f'{setting} = "{expression}"',
            hint=f"{did_you_mean(function, _functions())}Spark's SQL documentation lists all "
            "functions.",
        )
    if condition == "UNSUPPORTED_DATATYPE":
        primary, hint = _unknown_type(error)
        return InputError(
            f"{where} has {primary}",
            detail=f'{setting} = "{expression}"',
            hint=hint,
        )
    if syntax := _syntax(error):
        return InputError(
            f'{where} is not valid SQL: "{expression}"',
            detail=syntax,
            hint=f"{known}{_backquotes(columns)}",
        )
    return InputError(
        f'{where} cannot be computed: "{expression}"',
        detail=plain_words(error),
        hint=known,
    )


def _functions() -> list[str]:
    return [name for name in dir(F) if name[0] != "_"]


def _unknown_type(error: PySparkException) -> tuple[str, str]:
    given = _unquoted(error.getMessageParameters() or {}, "typeName")
    bare = given.partition("(")[0]
    meant = f'Did you mean "{_OTHER_NAMES[bare]}"? ' if bare in _OTHER_NAMES else ""
    meant = meant or did_you_mean(bare, [kind.partition("(")[0] for kind in _TYPES])
    return f'unknown type "{given}"', f"{meant}Types: {', '.join(_TYPES)}."


def _syntax(error: PySparkException) -> str:
    """Returns the position of a syntax error in an expression; empty for other errors."""
    given = error.getMessageParameters() or {}
    if error.getCondition() == "PARSE_EMPTY_STATEMENT":
        return "The expression is empty."
    if error.getCondition() != "PARSE_SYNTAX_ERROR":
        return ""
    at = given.get("error", "")
    return "The expression is incomplete." if at == "end of input" else f"Syntax error at {at}."


def _backquotes(columns: Sequence[str]) -> str:
    odd = next((column for column in columns if not _PLAIN.fullmatch(column)), None)
    return f" Put names with special characters in backquotes, such as `{odd}`." if odd else ""


def _unquoted(given: Mapping[str, str], key: str) -> str:
    return given.get(key, "").replace("`", "").strip('"')
