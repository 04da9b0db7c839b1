"""Converts values of a source to the types that a stream declares. One table applies to texts in
CSV and JSON, the other to typed columns.

| declared | a text is a value if it is |
|---|---|
| TIMESTAMP | a full ISO 8601 date, then perhaps a time of day and a zone |
| TIMESTAMP_NTZ | the same without a zone |
| DATE | a full ISO 8601 date, then perhaps midnight |
| DECIMAL | a number of which no digit is rounded away |
| DOUBLE, FLOAT | a number, NaN or Infinity |
| others | what Spark reads as such |

| declared | a value of another type is one if |
|---|---|
| STRING, DOUBLE, FLOAT | it can be cast; it is rounded to the nearest |
| TIMESTAMP | it is a date or a local time; numbers lack a unit and cause an error |
| others | it is equal when it is cast back |

Null stays null, and any other value is malformed. Spark's casts are not strict enough: they accept
"10:15:30" as a time today, "202401" as a year and "12d" as a number, and round decimals.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rewindow.errors import InputError
from rewindow.recording.local_times import Notes, notes_on_local, one_if, sum_notes
from rewindow.recording.sources.arrow_types import CUT
from rewindow.spark.columns import or_false

_DAY = r"^\s*\d{4}-\d\d-\d\d"
_SHAPES: dict[type[T.DataType], str] = {
    T.TimestampType: rf"{_DAY}(?!\d)",
    T.TimestampNTZType: rf"{_DAY}([ T][\d:.]*)?\s*$",
    T.DateType: rf"{_DAY}([ T]00(:00(:00(\.0*)?)?)?)?\s*$",
}
"""Patterns that the texts of each type of time must match, in addition to Spark's checks."""
_TOO_FINE = r"\.\d{6}\d*[1-9]"
_WITH_SUFFIX = r"(?i)(\d\.?[df]|x.*)\s*$"


@dataclass(frozen=True)
class TypedValue:
    """A value converted to its declared type.

    Attributes:
        value: of that type; null if the conversion failed.
        is_wrong: whether the source has a value that cannot have the type.
        notes: counts of values that were changed or chosen, except those in lists and maps.
    """

    value: Column
    is_wrong: Column = field(default_factory=lambda: F.lit(False))
    notes: Notes = field(default_factory=dict)


def parsed_type(kind: T.DataType) -> T.DataType:
    """Returns the type with which JSON is parsed.

    Times stay texts and decimals keep more digits, so that the tables of this module decide about
    them and not the parser.
    """
    if isinstance(kind, T.DecimalType):
        return _finest(kind)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(parsed_type(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, parsed_type(kind.valueType))
    if isinstance(kind, T.StructType):
        parsed = T.StructType()
        for each in kind.fields:
            parsed = parsed.add(each.name, parsed_type(each.dataType))
        return parsed
    return T.StringType() if type(kind) in _SHAPES else kind


def zoned_type(kind: T.DataType) -> T.DataType:
    """Returns the type with which a column is recorded.

    Local times, including those within lists, become instants.
    """
    text = T.StructType().add("it", kind).json().replace('ype":"timestamp_ntz"', 'ype":"timestamp"')
    return T.StructType.fromJson(json.loads(text))["it"].dataType


def typed_value(
    value: Column,
    given: T.DataType,
    declared: T.DataType,
    zone: str,
) -> TypedValue:
    """Converts a value to another type, according to the tables of this module.

    Raises:
        InputError: no value of the first type can have the second one.
    """
    if given == declared:
        return TypedValue(value)
    if isinstance(given, T.StringType):
        return _typed_text(value, declared, zone)
    if isinstance(given, T.StructType) and isinstance(declared, T.StructType):
        return _typed_struct(value, given, declared, zone)
    if isinstance(given, T.ArrayType) and isinstance(declared, T.ArrayType):
        typed = partial(
            typed_value, given=given.elementType, declared=declared.elementType, zone=zone
        )
        whole = F.transform(value, lambda each: typed(each).value)
        return TypedValue(whole, _any_wrong(value, typed))
    if isinstance(given, T.MapType) and isinstance(declared, T.MapType):
        typed = partial(typed_value, given=given.valueType, declared=declared.valueType, zone=zone)
        whole = F.transform_values(value, lambda _, each: typed(each).value)
        return TypedValue(whole, _any_wrong(F.map_values(value), typed))
    cast = value.try_cast(declared)
    if isinstance(given, T.TimestampNTZType) and isinstance(declared, T.TimestampType):
        return TypedValue(cast, notes=notes_on_local(zone, value, cast))
    if isinstance(given, T.NumericType | T.BooleanType) and type(declared) in _SHAPES:
        raise InputError(
            f'setting "columns" converts a column of type {given.simpleString()} to '
            f"{declared.simpleString()}, but the column has no unit of time",
            hint=f"Declare the column as {given.simpleString()}, and convert it in arrived_at or "
            "select with timestamp_seconds, timestamp_millis or timestamp_micros.",
        )
    is_loose = isinstance(declared, T.StringType | T.FloatType | T.DoubleType)
    is_value = cast.isNotNull() if is_loose else cast.try_cast(given) == value
    return TypedValue(cast, value.isNotNull() & ~or_false(is_value))


def _typed_text(
    text: Column,
    declared: T.DataType,
    zone: str,
) -> TypedValue:
    value = text.try_cast(declared)
    is_value = value.isNotNull()
    notes: Notes = {}
    if type(declared) in _SHAPES:
        is_value &= text.rlike(_SHAPES[type(declared)])
    if isinstance(declared, T.TimestampType):
        # The 27th character is the seventh digit of the fraction, if it has one.
        is_fine = F.substring(text, 27, 1).between("0", "9") & text.rlike(_TOO_FINE)
        local = notes_on_local(zone, text.try_cast("timestamp_ntz"), value, text)
        notes = {CUT: one_if(is_fine), **local}
    elif isinstance(declared, T.FloatType | T.DoubleType):
        has_letter = text.contains("x") | text.contains("X")
        for letter in "dDfF":
            has_letter |= F.rtrim(text).endswith(letter)
        is_value &= ~(has_letter & text.rlike(_WITH_SUFFIX))
    elif isinstance(declared, T.DecimalType):
        is_rounded = or_false(text.try_cast(_finest(declared)) != value)
        is_value &= ~(is_rounded | text.rlike(rf"\.\d{{{declared.scale}}}\d*[1-9]"))
    return TypedValue(value, text.isNotNull() & ~is_value, notes)


def _finest(kind: T.DecimalType) -> T.DecimalType:
    """Returns the decimal type with the same number of digits before the point, and as many as
    possible after it.
    """
    return T.DecimalType(38, 38 - (kind.precision - kind.scale))


def _typed_struct(
    value: Column,
    given: T.StructType,
    declared: T.StructType,
    zone: str,
) -> TypedValue:
    """Converts a structure field by field, because Spark's cast matches fields by position."""
    parts = []
    is_wrong = F.lit(False)
    notes: Notes = {}
    for each in declared.fields:
        if each.name not in given.names:
            raise InputError(
                f'field "{each.name}" in the setting "columns" does not exist in the source',
                hint=f"The source has the fields: {', '.join(given.names)}.",
            )
        part = typed_value(
            value.getField(each.name),
            given[each.name].dataType,
            each.dataType,
            zone,
        )
        parts.append(part.value.alias(each.name))
        is_wrong |= part.is_wrong
        notes = sum_notes([notes, part.notes])
    return TypedValue(
        F.when(value.isNotNull(), F.struct(*parts)),
        is_wrong,
        notes,
    )


def _any_wrong(elements: Column, typed: Callable[[Column], TypedValue]) -> Column:
    return or_false(F.exists(elements, lambda each: typed(each).is_wrong))
