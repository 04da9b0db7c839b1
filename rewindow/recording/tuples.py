"""Turns rows into tuples with types, arrival, window and event columns, or marks them as malformed
with a reason.

A row is malformed if it could not be read, if a value cannot have its column's type (see
`declared_types`), or if its arrival timestamp is missing or before the grid's origin. Times without
a zone are interpreted in the stream's zone (see `local_times`).

Rules: W5
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from rewindow.application.error_tuples import FROM, PREFIX
from rewindow.errors import InputError
from rewindow.names import BOOKKEEPING, did_you_mean, quoted_column
from rewindow.recording.declared_types import TypedValue, parsed_type, typed_value, zoned_type
from rewindow.recording.expression_errors import (
    columns_error,
    event_at_hint,
    expression_error,
    plain_words,
)
from rewindow.recording.local_times import sum_notes
from rewindow.recording.sources.arrow_types import NOTES
from rewindow.recording.sources.source import BAD, FILE, RAW, ROW, SourceContents, SourceFile
from rewindow.sequences import excluding, names_of
from rewindow.settings.config import StreamConfig
from rewindow.spark.columns import aliased, or_false
from rewindow.spark.digests import check_digestible
from rewindow.spark.frames import empty_frame
from rewindow.storage.fields import fields_without

REASON = "__reason"
PAYLOAD = "__payload"
POSITION = (FILE, ROW)
_CORRUPT = "__corrupt"
_LINE = "__line"
_END = "__end"
_OF_THE_MOMENT = re.compile(
    r"\b(current_\w+|now|curdate|localtimestamp|unix_timestamp)\b",
    re.IGNORECASE,
)
_WITH_COMMA = r"^\s*[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?\s*$"
_NOT_FINITE = ('"NaN"', '"Infinity"', '"-Infinity"')
"""Texts that Spark's JSON parser returns for numbers that are not finite."""
_YEAR_10000_US = 253_402_300_800_000_000
_FORBIDDEN = set(" ,;{}()\n\t=")


@contextmanager
def session_of(spark: SparkSession, zone: str) -> Iterator[None]:
    """Sets the session's time zone and the options that recording needs, and restores the session
    afterwards.
    """
    wanted = {
        "spark.sql.session.timeZone": zone,
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.json.enablePartialResults": "true",
    }
    before = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def parse_columns(name: str, columns: str | None) -> T.StructType | None:
    """Returns declared columns as a schema; None if none are declared. Needs a session.

    Raises:
        InputError: the text is not valid DDL.
    """
    if columns is None:
        return None
    try:
        declared = T.StructType.fromDDL(columns)
    except PySparkException as error:
        raise columns_error(name, columns, error) from error
    names = list(map(str.lower, declared.names))
    same = [column for column in declared.names if names.count(column.lower()) > 1]
    if same:
        raise InputError(
            f'setting "columns" of stream "{name}" has column "{same[0]}" twice',
            hint=f'Remove "{same[0]}" or "{same[1]}": in Spark, names that differ only in case '
            "are equal.",
        )
    if not names:
        raise InputError(
            f'setting "columns" of stream "{name}" is empty',
            hint="Remove the setting to record all columns.",
        )
    return declared


def read_tuples(
    name: str,
    stream: StreamConfig,
    contents: SourceContents,
    declared: T.StructType | None,
    raw: DataFrame,
) -> DataFrame:
    """Returns the tuples of a source's rows, including malformed ones.

    Columns: `__file, __row, __reason, __payload, window_id, arrived_at`, the event columns, and the
    columns of `NOTES` that may not be 0. `__reason` and `__payload` are null in a valid tuple.

    Raises:
        InputError: an expression of the settings cannot be computed, or an event column's name or
            type is not allowed.
    """
    lines = declared if not contents.schema.names else None
    try:
        typed = (
            _typed_json(raw, lines, stream.zone)
            if lines
            else _typed(raw, contents, declared, stream.decimal, stream.zone)
        )
    except AnalysisException as error:
        raise InputError(
            f'setting "columns" of stream "{name}" has a type that the source cannot be converted '
            "to",
            detail=plain_words(error),
            hint="Declare the column as STRING, and compute another column from it with select.",
        ) from error
    read = names_of(declared.fields) if declared else contents.columns
    events = _event_expressions(name, stream, read)
    try:
        arrived = _arrival(stream, typed, events)
        reason = F.when(arrived.is_wrong, F.lit("arrived_at is not timestamp"))
        frame = typed.select(
            *POSITION,
            F.coalesce(F.col(BAD), reason).alias(BAD),
            PAYLOAD,
            *aliased(sum_notes([_notes_of(typed), arrived.notes])),
            arrived.value.alias("__arrived"),
            *(expression.alias(f"__event {column}") for column, expression in events.items()),
        )
    except (ParseException, AnalysisException) as error:
        refused = expression_error(name, stream, typed.select(*map(_quoted, read)), columns=read)
        raise refused or InputError(
            f'cannot compute the tuples of stream "{name}" from its settings',
            detail=plain_words(error),
            hint="The settings arrived_at and select are SQL over the columns of the source: "
            f"{', '.join(read)}.",
        ) from error
    tuples = _with_window(frame, stream, list(events))
    check_event_columns(name, stream, tuples.schema)
    return tuples


@contextmanager
def computing(name: str) -> Iterator[None]:
    """Raises an `InputError` if an expression in a stream's settings fails."""
    try:
        yield
    except PySparkException as error:
        if (error.getSqlState() or "").startswith("22"):
            raise InputError(
                f'an expression of stream "{name}" cannot be computed',
                detail=plain_words(error),
                hint="Use functions that return null for such values: try_cast, try_to_timestamp, "
                "try_divide.",
            ) from error
        raise


def may_change(stream: StreamConfig, tuples: DataFrame) -> bool:
    """Returns whether tuples can differ when they are computed again from the same rows, for
    example because of rand() or now().
    """
    expressions = " ".join([stream.arrived_at, *stream.select.values()])
    plan = tuples._jdf.queryExecution().analyzed()
    return not plan.deterministic() or _OF_THE_MOMENT.search(expressions) is not None


def recorded_schema(tuples: T.StructType) -> T.StructType:
    """Returns the schema of the recorded stream for a frame of tuples."""
    head = [T.StructField("window_id", T.LongType()), T.StructField("offset", T.LongType())]
    rest = fields_without(tuples.fields, (*POSITION, REASON, PAYLOAD, *NOTES, "window_id"))
    return T.StructType(head + rest)


def frame_of(spark: SparkSession, schema: T.StructType, paths: Sequence[str]) -> DataFrame:
    """Returns the rows of Parquet files, or an empty frame if there are no files."""
    return spark.read.schema(schema).parquet(*paths) if paths else empty_frame(spark, schema)


def untaken(tuples: DataFrame, files: Sequence[SourceFile], sealed_last: int | None) -> DataFrame:
    """Returns the tuples that no earlier run has read.

    This matters for files that had waiting tuples or that have grown since.

    Args:
        tuples: tuples of the files, by file index.
        files: the files as they are read now.
        sealed_last: last window that was sealed at that time; tuples of later windows waited.
    """
    pairs: list[Column] = []
    for index, file in enumerate(files):
        if file.seen_rows:
            pairs += [F.lit(index), F.lit(file.seen_rows).cast("long")]
    if not pairs or sealed_last is None:
        return tuples
    rows_seen = F.create_map(*pairs)[F.col(FILE)]
    is_new = F.col(ROW) > F.coalesce(rows_seen, F.lit(0))
    return tuples.where(is_new | F.coalesce(F.col("window_id") > F.lit(sealed_last), F.lit(False)))


def check_event_columns(name: str, stream: StreamConfig, schema: T.StructType) -> None:
    """Checks that event columns can be recorded, and that they include the keys and the event
    timestamp.

    Raises:
        InputError: names the column.
    """
    events = {field.name: field.dataType for field in recorded_schema(schema).fields[3:]}
    for column in events:
        is_ours = column.lower() in BOOKKEEPING or (
            column.lower().startswith(PREFIX) and column not in FROM.names
        )
        if is_ours or set(column) & _FORBIDDEN:
            raise InputError(
                f'event column "{column}" of stream "{name}" cannot be recorded under this name',
                hint="Leave the column out with keep, and rename it with select.",
            )
    for key in stream.keys:
        if key not in events:
            hint = did_you_mean(key, events) + _known(events)
            raise InputError(f'key "{key}" of stream "{name}" is not an event column', hint=hint)
    if stream.event_at is not None and not isinstance(events.get(stream.event_at), T.TimestampType):
        times = [column for column, kind in events.items() if isinstance(kind, T.TimestampType)]
        raise InputError(
            f'event timestamp "{stream.event_at}" of stream "{name}" is not a TIMESTAMP column',
            hint=event_at_hint(stream.event_at, events)
            or did_you_mean(stream.event_at, times) + _known(events),
        )
    check_digestible(recorded_schema(schema))


def _known(events: dict[str, T.DataType]) -> str:
    return (
        "Event columns: "
        + ", ".join(f"{name} {kind.simpleString()}" for name, kind in events.items())
        + "."
    )


def rows_schema(contents: SourceContents) -> T.StructType:
    """Returns the schema of a source's rows."""
    head = T.StructType([T.StructField(FILE, T.IntegerType()), T.StructField(ROW, T.LongType())])
    head = head.add(BAD, T.StringType()).add(RAW, T.StringType())
    return T.StructType(
        head.fields + from_arrow_schema(contents.schema, prefer_timestamp_ntz=True).fields
    )


def _typed(
    raw: DataFrame,
    contents: SourceContents,
    declared: T.StructType | None,
    decimal: str,
    zone: str,
) -> DataFrame:
    """Casts columns to the declared types. Also returns, for each row, the first column whose text
    has no value of its type.

    In a column that is not a text, a text that means null also means null if it is quoted, because
    it has no other meaning there.
    """
    columns = {name: TypedValue(_quoted(name)) for name in contents.columns}
    # A failed cast and a text that means null both result in null. Only the first is an error.
    for field in declared.fields if declared else []:
        given = raw.schema[field.name].dataType
        if given == field.dataType:
            continue
        text = _quoted(field.name)
        if contents.nulls:
            text = F.when(~text.isin(*contents.nulls), text)
        if decimal == "," and isinstance(field.dataType, T.NumericType):
            text = _with_point(text)
        columns[field.name] = typed_value(text, given, field.dataType, zone)
    fields_text = F.to_json(
        F.struct(*map(_quoted, contents.columns)),
        {"ignoreNullFields": "false"},
    )
    frame = raw.withColumn(PAYLOAD, F.coalesce(F.col(RAW), fields_text))
    return _rows(frame, columns, declared)


def _rows(
    frame: DataFrame,
    columns: Mapping[str, TypedValue],
    declared: T.StructType | None,
) -> DataFrame:
    """Returns rows with typed columns.

    The first invalid column becomes the reason, unless the row already has a reason.
    """
    reasons = [F.col(BAD)]
    for field in declared.fields if declared else []:
        why = f"column {field.name} is not {field.dataType.simpleString()}"
        reasons.append(F.when(columns[field.name].is_wrong, F.lit(why)))
    return frame.select(
        *POSITION,
        F.coalesce(*reasons).alias(BAD),
        PAYLOAD,
        *aliased(sum_notes(column.notes for column in columns.values())),
        *aliased({name: column.value for name, column in columns.items()}),
    )


def _notes_of(frame: DataFrame) -> dict[str, Column]:
    found = {}
    for name in NOTES:
        if name in frame.columns:
            found[name] = F.col(name)
    return found


def _arrival(
    stream: StreamConfig,
    typed: DataFrame,
    events: Mapping[str, Column],
) -> TypedValue:
    """Returns the arrival timestamp; a number is interpreted as seconds."""
    arrived = F.expr(stream.arrived_at)
    given = typed.select(arrived).schema[0].dataType
    if isinstance(given, T.NumericType | T.BooleanType):
        return TypedValue(arrived.try_cast("timestamp"))
    found = typed_value(
        arrived,
        given,
        T.TimestampType(),
        stream.zone,
    )
    # A local time that is also an event column is counted there.
    is_event = isinstance(given, T.TimestampNTZType) and stream.arrived_at.strip("` ") in events
    return replace(found, notes={}) if is_event else found


def _with_point(text: Column) -> Column:
    """Replaces a decimal comma in a number by a decimal point.

    Any other text is changed to a text that is not a number.
    """
    plain = F.regexp_replace(F.regexp_replace(text, r"\.", ""), ",", ".")
    return F.when(text.rlike(_WITH_COMMA), plain).when(text.isNotNull(), F.lit("no number"))


def _typed_json(
    raw: DataFrame,
    declared: T.StructType,
    zone: str,
) -> DataFrame:
    # The parser stops after the first value of a text. A list around the line, and another field
    # after the list, make it read the whole line: more values make the list longer, or the text
    # invalid.
    parts = T.StructType().add(_LINE, T.ArrayType(parsed_type(declared)))
    parts = parts.add(_END, T.BooleanType()).add(_CORRUPT, T.StringType())
    text = F.concat(F.lit(f'{{"{_LINE}":['), F.col(RAW), F.lit(f'],"{_END}":true}}'))
    parsed = F.from_json(text, parts, {"columnNameOfCorruptRecord": _CORRUPT})
    frame = raw.select(*POSITION, BAD, F.col(RAW).alias(PAYLOAD), parsed.alias("__parsed"))
    values = F.col(f"__parsed.{_LINE}")
    line = F.get(values, F.lit(0))
    is_one = F.col(f"__parsed.{_END}") & (F.size(values) == F.lit(1)) & line.isNotNull()
    is_one &= F.col(f"__parsed.{_CORRUPT}").isNull()
    # The parser omits a value that has another type, and keeps the others of the line.
    named = F.when(F.size(values) == F.lit(1), F.coalesce(*_unread(line, declared)))
    no_json = F.lit("line is not JSON with the declared columns")
    reason = F.when(~or_false(is_one), F.coalesce(named, no_json))
    frame = frame.select(*POSITION, F.coalesce(BAD, reason).alias(BAD), PAYLOAD, line.alias(_LINE))
    columns = {}
    for field in declared.fields:
        value = F.col(_LINE).getField(field.name)
        if isinstance(field.dataType, T.StringType):
            is_named = value.isin(*_NOT_FINITE)
            value = F.when(is_named, F.translate(value, '"', "")).otherwise(value)
        columns[field.name] = typed_value(
            value,
            parsed_type(
                field.dataType,
            ),
            field.dataType,
            zone,
        )
    return _rows(frame, columns, declared)


def _unread(
    value: Column,
    declared: T.StructType,
    path: tuple[str, ...] = (),
) -> Iterator[Column]:
    """Yields a reason for each column, and each field of a nested object, that is null although the
    line has a value.
    """
    for field in declared.fields:
        part = value.getField(field.name)
        names = (*path, field.name)
        at = "".join(f"['{name}']" for name in names)
        is_unread = part.isNull() & F.get_json_object(PAYLOAD, f"${at}").isNotNull()
        why = f"column {'.'.join(names)} is not {field.dataType.simpleString()}"
        if isinstance(field.dataType, T.StructType):
            yield from _unread(part, field.dataType, names)
        yield F.when(is_unread, F.lit(why))


def _event_expressions(name: str, stream: StreamConfig, read: list[str]) -> dict[str, Column]:
    """Returns the expressions of the event columns.

    A source column that is the arrival column is left out.
    """
    kept = read if stream.keep is None else stream.keep
    unknown = excluding(kept, read)
    if unknown:
        raise InputError(
            f'column "{unknown[0]}" in the setting "keep" of stream "{name}" is not in the source',
            hint=f"{did_you_mean(unknown[0], read)}The source has the columns: {', '.join(read)}.",
        )
    if stream.arrived_at.strip("` ") == "arrived_at" or stream.keep is None:
        kept = excluding(kept, {"arrived_at"})
    if "arrived_at" in [*kept, *stream.select]:
        raise InputError(
            f'stream "{name}" cannot have an event column "arrived_at": the name is reserved for '
            "the arrival timestamp"
        )
    seen: dict[str, str] = {}
    for column in [*kept, *stream.select]:
        other = seen.setdefault(column.lower(), column)
        if other != column:
            raise InputError(
                f'event columns "{other}" and "{column}" of stream "{name}" differ only in case',
                hint="Rename one of the columns with select, or leave it out with keep.",
            )
    return {column: _quoted(column) for column in kept} | {
        column: F.expr(expression) for column, expression in stream.select.items()
    }


def _with_window(
    frame: DataFrame,
    stream: StreamConfig,
    events: list[str],
) -> DataFrame:
    grid = stream.grid
    arrived = F.col("__arrived")
    arrived_us = F.unix_micros(arrived)
    window = F.expr(f"(unix_micros(__arrived) - {grid.origin_us}) div {grid.width_us}")
    reason = F.coalesce(
        F.col(BAD),
        F.when(arrived.isNull(), F.lit("no arrival timestamp")),
        F.when(arrived_us < F.lit(grid.origin_us), F.lit("arrival before the origin of the grid")),
        # The times of its window must be representable in Python.
        F.when(
            arrived_us > F.lit(_YEAR_10000_US - grid.width_us),
            F.lit("arrival after the year 9999"),
        ),
    )
    columns = {}
    for column in events:
        kind = frame.schema[f"__event {column}"].dataType
        columns[column] = typed_value(
            _quoted(f"__event {column}"), kind, zoned_type(kind), stream.zone
        )
    notes = sum_notes([_notes_of(frame), *(column.notes for column in columns.values())])
    return frame.select(
        *POSITION,
        F.concat(F.lit("malformed: "), reason).alias(REASON),
        F.when(reason.isNotNull(), F.col(PAYLOAD)).alias(PAYLOAD),
        F.when(reason.isNull(), window).alias("window_id"),
        arrived.alias("arrived_at"),
        *aliased({name: column.value for name, column in columns.items()}),
        *aliased(notes),
    )


def _quoted(name: str) -> Column:
    return F.col(quoted_column(name))
