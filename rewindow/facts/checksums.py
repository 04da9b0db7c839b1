"""Computes the CRC-32 of many short lines at once. A line consists of a row's columns as text,
joined by a separator.

CRC-32 is linear over exclusive or: the checksum of a line follows from those of its parts and the
number of bytes after each part, and the checksum of a part is a table look-up for every two bytes.
So numpy computes for all rows the values that `zlib.crc32` computes for one.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = npt.NDArray[np.uint32]
SEPARATOR = b"\x1f"
NULL = b"\x00"
_ALL = 0xFFFFFFFF
_BATCH = 65_536


def line_checksums(rows: pa.Table, alike: Sequence[str]) -> pa.ChunkedArray:
    """Returns the CRC-32 of each row's columns as text, joined by a separator.

    Null differs from every text.

    Args:
        rows: the columns, in the order of the line; a time is converted to its microseconds.
        alike: the last columns, which have the same values in long runs of rows. They are computed
            once per run.
    """
    batches = rows.to_batches(max_chunksize=_BATCH)
    return pa.chunked_array([_batch_checksums(batch, alike) for batch in batches], pa.int64())


def _batch_checksums(batch: pa.RecordBatch, alike: Sequence[str]) -> pa.Array:
    total: Words = np.zeros(batch.num_rows, dtype=np.uint32)
    for place, name in enumerate(batch.schema.names[: -len(alike)]):
        _append(total, _text(batch[name]), SEPARATOR if place else b"")
    ends = batch.select(alike)
    begins = [*_run_starts(ends), batch.num_rows]
    for first, end in itertools.pairwise(begins):
        parts = (_text(column)[0].as_py() for column in ends.slice(first, 1).columns)
        text = b"".join(SEPARATOR + part for part in parts)
        total[first:end] = _shifted(total[first:end], len(text)) ^ np.uint32(zlib.crc32(text))
    return pa.array(total).cast(pa.int64())


def _append(total: Words, texts: pa.Array, prefix: bytes) -> None:
    """Updates checksums in place for a prefix and one more text per line."""
    _, offsets, content = texts.buffers()
    starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(content or b"", np.uint8)
    lengths = np.diff(starts)
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        mine = np.flatnonzero(lengths == length)
        if len(mine) == len(texts):
            # All texts have the same length, as digests have, so the buffer is the block.
            block = letters[starts[0] : starts[-1]].reshape(len(texts), length)
        else:
            block = letters[starts[mine, None] + np.arange(length)]
        total[mine] = _shifted(total[mine], len(prefix) + length) ^ _block_checksums(block, prefix)


def _block_checksums(block: npt.NDArray[np.uint8], prefix: bytes) -> Words:
    """Returns the checksums of texts of one length, one per row of a block, each after a prefix."""
    count, length = block.shape
    if length % 2:
        # A leading zero byte adds nothing to the sum of look-ups, and makes the length even.
        block = np.concatenate([np.zeros((count, 1), dtype=np.uint8), block], axis=1)
    checksums = np.full(count, zlib.crc32(prefix + bytes(length)), dtype=np.uint32)
    pairs = np.ascontiguousarray(block).view("<u2")
    for place in range(pairs.shape[1]):
        checksums ^= _pair_checksums(block.shape[1] - 2 * place - 2)[pairs[:, place]]
    return checksums


@lru_cache(1024)
def _pair_checksums(after: int) -> Words:
    """Returns the contribution of each pair of bytes to a checksum if `after` bytes follow it.

    A pair is indexed by its little-endian number.
    """
    first = _of_bytes(partial(_effect, after + 1))
    second = _of_bytes(partial(_effect, after))
    return (second[:, None] ^ first[None, :]).ravel()


def _of_bytes(number_of: Callable[[int], int]) -> Words:
    """Returns the results of a function for all values of a byte."""
    return np.array(list(map(number_of, range(256))), np.uint32)


def _effect(after: int, byte: int) -> int:
    """Returns the contribution of a byte to the checksum of a text in which `after` bytes follow
    it.
    """
    return zlib.crc32(bytes([byte]) + bytes(after)) ^ zlib.crc32(bytes(after + 1))


def _shifted(checksums: Words, length: int) -> Words:
    """Returns the contributions of checksums to the checksums of lines that continue for `length`
    more bytes.
    """
    low, high = _shifts(length)
    return low[checksums & 0xFFFF] ^ high[checksums >> 16]


@lru_cache(1024)
def _shifts(length: int) -> tuple[Words, Words]:
    """Returns lookup tables for `_shifted` with the contributions of the low and high half of a
    checksum.
    """
    # CRC-32 is linear over exclusive or, so each of its four bytes is shifted separately. Tables of
    # two bytes each halve the number of look-ups.
    lanes = [_of_bytes(partial(_shifted_byte, length, lane)) for lane in (0, 8, 16, 24)]
    low = (lanes[1][:, None] ^ lanes[0][None, :]).ravel()
    high = (lanes[3][:, None] ^ lanes[2][None, :]).ravel()
    return low, high


def _shifted_byte(length: int, lane: int, byte: int) -> int:
    """Returns the contribution of one byte of a checksum, at bit `lane`, if `length` bytes
    follow.
    """
    return zlib.crc32(bytes(length), byte << lane ^ _ALL) ^ zlib.crc32(bytes(length), _ALL)


def _run_starts(rows: pa.RecordBatch) -> list[int]:
    """Returns the index of the first row of each run of equal rows."""
    starts = np.zeros(rows.num_rows, dtype=bool)
    starts[:1] = True
    for column in rows.columns:
        before = column[:-1]
        after = column[1:]
        nulls = pc.xor(pc.is_null(before), pc.is_null(after))
        differ = pc.or_(nulls, pc.fill_null(pc.not_equal(before, after), False))
        starts[1:] |= differ.to_numpy(zero_copy_only=False)
    indexes: list[int] = np.flatnonzero(starts).tolist()
    return indexes


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return pc.fill_null(column.cast(pa.string()).cast(pa.binary()), NULL)
