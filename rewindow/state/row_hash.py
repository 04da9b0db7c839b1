"""The hash of a row in Python, equal to that of `rewindow.spark.digests.row_hashes` in Spark.

It is xxhash64 with seed 42 over a canonical encoding: a salt, the null bitmap, then the values that
are not null, in the order of the columns' names. The digest of a state is the number of its rows
and the sum of their hashes, so it is independent of the order of rows, of buckets and of the form
in which the state is stored. The bucket of a row is the low bits of the hash of its key.

Rules: X47, X48
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.errors import InputError

Hashes: TypeAlias = Any
"""An array of 64-bit numbers."""
SEED = 42
SALT = 0x52657769_6E646F77
_BITMAP_COLUMNS = 62
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def row_hashes(frame: pa.Table | pa.RecordBatch, columns: Sequence[str] | None = None) -> Hashes:
    """Returns the hash of each row over the given columns, by default over all columns.

    Raises:
        InputError: values of a column's type cannot be hashed.
    """
    names = sorted(frame.schema.names if columns is None else columns)
    return level_hashes([one_array(frame[name]) for name in names], frame.num_rows)


def buckets_of(frame: pa.Table, key: Sequence[str], buckets: int) -> Hashes:
    """Returns the bucket of each row. Without a key, the whole row is the key."""
    return row_hashes(frame, key or None) & np.uint64(buckets - 1)


def row_sum(frame: pa.Table | pa.RecordBatch) -> int:
    """Returns the sum of the hashes of all rows, modulo 2^64."""
    return int(np.sum(row_hashes(frame), dtype=np.uint64))


def digest_text(schema: pa.Schema, rows: int, total: int) -> str:
    """Returns the digest of a state, computed from the number of its rows and the sum of their
    hashes.

    >>> digest_text(pa.schema([("a", pa.int64())]), 2, 15)
    'b1147d2f-2-000000000000000f'
    """
    text = str(sorted(zip(schema.names, map(str, schema.types), strict=True)))
    return f"{hashlib.sha256(text.encode()).hexdigest()[:8]}-{rows}-{total % 2**64:016x}"


def level_hashes(columns: Sequence[pa.Array], rows: int, salt: int = SALT) -> Hashes:
    """Returns the hash of each row over the given columns in their order: salt, null bitmaps,
    values.

    It is one level of the encoding. The fields of a struct and the elements of a list are hashed by
    another call.
    """
    hashes = _hash_longs(np.full(rows, salt, np.uint64), np.full(rows, SEED, np.uint64))
    for start in range(0, len(columns), _BITMAP_COLUMNS):
        bitmap = np.zeros(rows, np.uint64)
        for bit, column in enumerate(columns[start : start + _BITMAP_COLUMNS]):
            bitmap |= _nulls(column).astype(np.uint64) << np.uint64(bit)
        hashes = _hash_longs(bitmap, hashes)
    for column in columns:
        hashed = _hash_values(column, hashes, salt)
        hashes = np.where(_nulls(column), hashes, hashed) if column.null_count else hashed
    return hashes


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns a column as one contiguous array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    )


def _nulls(column: pa.Array) -> Any:
    return pc.is_null(column).to_numpy(zero_copy_only=False)


def _hash_values(column: pa.Array, seeds: Hashes, salt: int) -> Hashes:
    """Returns the hash of each value, starting from the given seed.

    The results for null values are undefined.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        fields = sorted(range(kind.num_fields), key=lambda place: kind.field(place).name)
        return _hash_longs(
            level_hashes([pc.struct_field(column, at) for at in fields], len(column), salt),
            seeds,
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _hash_longs(_hash_lists(column, salt), seeds)
    if _is_bytes(kind):
        return _hash_bytes(column.cast(pa.large_binary()), seeds)
    if pa.types.is_decimal(kind):
        return _hash_decimals(column, seeds)
    words = _words(column)
    return _hash_longs(words, seeds) if words.dtype == np.uint64 else _hash_ints(words, seeds)


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in (*tests, pa.types.is_string_view, pa.types.is_binary_view))


def _words(column: pa.Array) -> Any:
    """Returns the values of a flat type as 32-bit or 64-bit words, as Spark hashes them."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"), safe=False).view(pa.int64())
    elif pa.types.is_signed_integer(kind):
        column = column if kind.bit_width == 64 else column.cast(pa.int32())
    elif not (pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        raise InputError(
            f"values of type {kind} cannot be stored in a state",
            detail="They cannot be hashed, so a state that contains them could not be verified.",
            hint="Cast the column to another type, such as string or binary.",
        )
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        # All NaN values become the same, and -0.0 becomes 0.0.
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values + 0)
    return values.view(np.uint64 if values.dtype.itemsize == 8 else np.uint32)


def _hash_decimals(column: pa.Array, seeds: Hashes) -> Hashes:
    """Hashes unscaled decimal values: as a long up to 18 digits, otherwise as the shortest byte
    sequence.
    """
    kind = column.type
    scale = column.type.scale
    if kind.precision <= 18:
        words = np.frombuffer(
            column.cast(pa.decimal128(kind.precision, scale)).buffers()[1],
            np.uint64,
        )
        return _hash_longs(words[2 * column.offset : 2 * (column.offset + len(column)) : 2], seeds)
    texts = []
    for value in column.to_pylist():
        number = 0 if value is None else int(value.scaleb(scale))
        length = (number if number >= 0 else ~number).bit_length() // 8 + 1
        texts.append(number.to_bytes(length, "big", signed=True))
    return _hash_bytes(pa.array(texts, pa.large_binary()), seeds)


def _hash_lists(column: pa.Array, salt: int) -> Hashes:
    """Returns a hash for each list, over the salt, the size, and the hashes of the elements. The
    entries of a map are sorted first.
    """
    # Elements are hashed all at once, in one flat array. Spark folds the hashes of a list one after
    # the other, so the loop goes over positions: the n-th elements of all lists in one step.
    kind = column.type
    is_map = pa.types.is_map(column.type)
    if is_map:
        column = column.cast(
            pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        )
    lengths = (
        pc.fill_null(pc.list_value_length(column), 0)
        .to_numpy(zero_copy_only=False)
        .astype(np.int32)
    )
    flat = column.flatten()
    parts = [pc.struct_field(flat, 0), pc.struct_field(flat, 1)] if is_map else [flat]
    elements = level_hashes(parts, len(flat), salt)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1]
    if is_map:
        of_list = np.repeat(np.arange(len(lengths)), lengths)
        elements = elements[np.lexsort((elements.view(np.int64), of_list))]
    hashes = _hash_longs(
        np.full(len(lengths), salt, np.uint64),
        np.full(len(lengths), SEED, np.uint64),
    )
    hashes = _hash_ints(lengths.view(np.uint32), hashes)
    for place in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > place)
        hashes[longer] = _hash_longs(elements[starts[longer] + place], hashes[longer])
    return hashes


def _hash_longs(words: Hashes, seeds: Hashes) -> Hashes:
    return _finish(_eight_bytes(seeds + _P5 + np.uint64(8), words))


def _hash_ints(words: np.ndarray, seeds: Hashes) -> Hashes:
    return _finish(_four_bytes(seeds + _P5 + np.uint64(4), words.astype(np.uint64)))


def _hash_bytes(column: pa.Array, seeds: Hashes) -> Hashes:
    """Returns the xxhash64 of each text. Texts of the same length are hashed together."""
    offsets = np.frombuffer(column.buffers()[1], np.int64)[
        column.offset : column.offset + len(column) + 1
    ]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    hashes = np.empty(len(column), np.uint64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        texts = data[offsets[rows][:, None] + np.arange(length)]
        hashes[rows] = _hash_texts(texts, int(length), seeds[rows])
    return hashes


def _hash_texts(texts: np.ndarray, length: int, seeds: Hashes) -> Hashes:
    place = 0

    def take(size: int) -> Hashes:
        nonlocal place
        part = np.ascontiguousarray(texts[:, place : place + size]).view(f"<u{size}")[:, 0]
        place += size
        return part.astype(np.uint64)

    # xxhash64 over many texts of one length: each column of bytes is one array, so that the steps
    # of the algorithm are array operations. As the algorithm requires, texts of 32 bytes or more
    # are processed in four lanes of 8 bytes; the rest follows in words of 8, 4 and 1 bytes.
    hashes = seeds + _P5
    if length >= 32:
        lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
        while place <= length - 32:
            lanes = [_turn(lane + take(8) * _P2, 31) * _P1 for lane in lanes]
        turned = [_turn(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)]
        hashes = turned[0] + turned[1] + turned[2] + turned[3]
        for lane in lanes:
            hashes = (hashes ^ (_turn(lane * _P2, 31) * _P1)) * _P1 + _P4
    hashes = hashes + np.uint64(length)
    while place <= length - 8:
        hashes = _eight_bytes(hashes, take(8))
    if place <= length - 4:
        hashes = _four_bytes(hashes, take(4))
    while place < length:
        hashes = _turn(hashes ^ (take(1) * _P5), 11) * _P1
    return _finish(hashes)


def _eight_bytes(hashes: Hashes, words: Hashes) -> Hashes:
    return _turn(hashes ^ (_turn(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _four_bytes(hashes: Hashes, words: Hashes) -> Hashes:
    return _turn(hashes ^ (words * _P1), 23) * _P2 + _P3


def _turn(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _finish(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
