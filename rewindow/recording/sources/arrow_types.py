"""Converts columns of a file to columns of a stream, based on their Arrow type and the wanted type.

| | the values | such as |
|---|---|---|
| exact | as they are in the file | int64 as int64, a dictionary of texts as text |
| widened | equal in a wider type | uint8 as int16, float as double, no type as any type |
| cut | without digits beyond microseconds, and counted | nanoseconds as microseconds |
| checked | equal; otherwise an error names the file | double as int64, if every value is whole |
| refused | none: an error names the file | text as a number, an instant as a local time |

The parts of a nested type are converted one by one. A part that the wanted type does not have is
left out, and its values are counted.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.storage.fields import retyped

CUT = "__cut"
ABSENT = "__absent"
TWICE = "__twice"
LEFT_OUT = "__left_out"
NOTES = (CUT, ABSENT, TWICE, LEFT_OUT)
"""Counts of a source's values: digits that were cut, local times that do not exist, local times
that exist twice, and values of fields that a nested column of the recording does not have.
"""
_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type with which Spark reads a column.

    Nanoseconds become microseconds, also within lists.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct(retyped(kind, spark_type))
    if pa.types.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    if _is_list(kind):
        return pa.list_(kind.value_field.with_type(spark_type(kind.value_type)))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else _SIGNED.get(kind, kind)


def _is_list(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list or pa.types.is_fixed_size_list(kind))


def wider_type(first: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Returns a type that can represent the values of two types, part by part; None if there is no
    such type.
    """
    both = [
        pa.schema([("x", first)]),
        pa.schema([("x", other)]),
    ]
    try:
        unified = pa.unify_schemas(both, promote_options="permissive")
        return unified.field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        is_code = {first, other} & {pa.string()} and {first, other} & {pa.int32(), pa.int64()}
        return pa.string() if is_code else None


def converted(
    array: pa.Array,
    wanted: pa.DataType,
    zone: str,
    notes: Counter[str],
) -> pa.Array:
    """Converts the values of an array to another type.

    Args:
        array: values of a file's column.
        wanted: a type that Spark has.
        zone: zone of local times that become instants.
        notes: counts by name in `NOTES`, to which this call adds.

    Raises:
        pa.ArrowInvalid: the table above rejects the conversion.
    """
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if kind == wanted:
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array), wanted)
    if pa.types.is_dictionary(kind):
        return converted(array.dictionary_decode(), wanted, zone, notes)
    if pa.types.is_nested(wanted):
        return _nested(array, wanted, zone, notes)
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted):
        return _timestamps(array, wanted, zone, notes)
    wider = wider_type(spark_type(kind), wanted)
    if wider is None or (wider == pa.string() and wanted != wider):
        raise pa.ArrowInvalid(f"{kind} cannot be converted to {wanted}")
    cast = array.cast(wanted)
    # The cast rejects integers that do not fit, and fractions as integers, but nothing else.
    same = pc.equal(cast.cast(kind, safe=False), array)
    if pa.types.is_floating(kind):
        same = pc.or_(same, pc.is_nan(array))
    changed = pc.index(pc.fill_null(same, True), False).as_py()
    if changed >= 0:
        raise pa.ArrowInvalid(f"{array[changed]} is not a value of {wanted}")
    return cast


def _nested(
    array: pa.Array,
    wanted: pa.DataType,
    zone: str,
    notes: Counter[str],
) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        parts = dict(zip(kind.names, array.flatten(), strict=True))
        found = []
        for field in wanted:
            part = parts.pop(field.name, pa.nulls(len(array)))
            found.append(converted(part, field.type, zone, notes))
        for part in parts.values():
            notes[LEFT_OUT] += len(part) - part.null_count
        return pa.StructArray.from_arrays(found, fields=list(wanted), mask=array.is_null())
    if _is_list(kind) and _is_list(wanted):
        is_null = np.append(np.asarray(array.is_null()), False)
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        ends = np.cumsum(lengths.to_numpy(zero_copy_only=False))
        offsets = pa.array(np.append(0, ends), pa.int32(), mask=is_null)
        values = converted(array.flatten(), wanted.value_type, zone, notes)
        return pa.ListArray.from_arrays(offsets, values, type=wanted)
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        return array.cast(wanted)
    raise pa.ArrowInvalid(f"{kind} cannot be converted to {wanted}: their nested types differ")


def _timestamps(
    array: pa.Array,
    wanted: pa.DataType,
    zone: str,
    notes: Counter[str],
) -> pa.Array:
    given = array.type
    times = array.cast(pa.int64()).cast(pa.timestamp(given.unit))
    if given.unit == "ns":
        # A cast alone would round times before 1970 towards 1970.
        whole = pc.floor_temporal(times, unit="microsecond")
        notes[CUT] += pc.sum(pc.not_equal(whole, times)).as_py() or 0
        times = whole
    times = times.cast(pa.timestamp("us"))
    if given.tz is not None and wanted.tz is None:
        raise pa.ArrowInvalid(
            "timestamps with a zone cannot be converted to local times: two of "
            "them may have the same local time"
        )
    if given.tz is None and wanted.tz is not None:
        # Spark also chooses the first of two instants. A local time that does not exist is an
        # error.
        last = pc.assume_timezone(times, zone, ambiguous="latest")
        times = pc.assume_timezone(times, zone, ambiguous="earliest")
        notes[TWICE] += pc.sum(pc.not_equal(times, last)).as_py() or 0
    return times.cast(pa.int64()).cast(wanted)
