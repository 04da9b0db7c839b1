"""CRC-32 of a million short lines at once: a row's columns as text, joined by a separator.

CRC-32 is linear: the checksum of a line follows from those of its parts and the number of bytes
after each, and that of a part from one table look-up for every two bytes. So numpy does for all
rows what `zlib.crc32` does for one.
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
    """Returns the CRC-32 of each row's columns as text, joined by a separator; null differs from
    all text.

    Args:
        rows: the columns, in the order of the line; a time is the number of its microseconds.
        alike: the last ones, in which many rows that follow each other hold the same; taken once
            for all of these.
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
    """Brings checksums of what came before on to what they are with a prefix and one more text each
    behind it.
    """
    _, offsets, content = texts.buffers()
    starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(content or b"", np.uint8)
    lengths = np.diff(starts)
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        mine = np.flatnonzero(lengths == length)
        if len(mine) == len(
            texts
        ):  # As digests are: they lie one behind the other, and nothing need be looked up.
            block = letters[starts[0] : starts[-1]].reshape(len(texts), length)
        else:
            block = letters[starts[mine, None] + np.arange(length)]
        total[mine] = _shifted(total[mine], len(prefix) + length) ^ _block_checksums(block, prefix)


def _block_checksums(block: npt.NDArray[np.uint8], prefix: bytes) -> Words:
    """Returns the checksums of texts of one length, a row each, behind a prefix."""
    count, length = block.shape
    if (
        length % 2
        # A zero byte in front has no part in a sum of look-ups; with it every text is whole pairs
        # of bytes.
    ):
        block = np.concatenate([np.zeros((count, 1), dtype=np.uint8), block], axis=1)
    checksums = np.full(count, zlib.crc32(prefix + bytes(length)), dtype=np.uint32)
    pairs = np.ascontiguousarray(block).view("<u2")
    for place in range(pairs.shape[1]):
        checksums ^= _pair_checksums(block.shape[1] - 2 * place - 2)[pairs[:, place]]
    return checksums


@lru_cache(1024)
def _pair_checksums(after: int) -> Words:
    """Returns what each pair of bytes, as a little-endian number, adds to a checksum when so many
    bytes follow it.
    """
    first = _of_bytes(partial(_effect, after + 1))
    second = _of_bytes(partial(_effect, after))
    return (second[:, None] ^ first[None, :]).ravel()


def _of_bytes(number_of: Callable[[int], int]) -> Words:
    """Returns a number for each value of a byte."""
    return np.array(list(map(number_of, range(256))), np.uint32)


def _effect(after: int, byte: int) -> int:
    """Returns what a byte adds to a checksum of a text in which `after` bytes follow it."""
    return zlib.crc32(bytes([byte]) + bytes(after)) ^ zlib.crc32(bytes(after + 1))


def _shifted(checksums: Words, length: int) -> Words:
    """Returns the part that checksums have in those of lines that go on for so many bytes."""
    low, high = _shifts(length)
    return low[checksums & 0xFFFF] ^ high[checksums >> 16]


@lru_cache(1024)
def _shifts(length: int) -> tuple[Words, Words]:
    """Returns where the low and the high half of a checksum go when so many bytes follow."""
    # CRC-32 is linear over exclusive or, so each of its four bytes is shifted separately. Tables of
    # two bytes each halve the number of look-ups.
    lanes = [_of_bytes(partial(_shifted_byte, length, lane)) for lane in (0, 8, 16, 24)]
    low = (lanes[1][:, None] ^ lanes[0][None, :]).ravel()
    high = (lanes[3][:, None] ^ lanes[2][None, :]).ravel()
    return low, high


def _shifted_byte(length: int, lane: int, byte: int) -> int:
    """Returns where a byte of a checksum, by its lowest bit, goes when `length` bytes follow."""
    return zlib.crc32(bytes(length), byte << lane ^ _ALL) ^ zlib.crc32(bytes(length), _ALL)


def _run_starts(rows: pa.RecordBatch) -> list[int]:
    """Returns the first row of each run of rows that hold the same."""
    starts = np.zeros(rows.num_rows, dtype=bool)
    starts[:1] = True
    for column in rows.columns:
        before = column[:-1]
        after = column[1:]
        nulls = pc.xor(pc.is_null(before), pc.is_null(after))
        differ = pc.or_(nulls, pc.fill_null(pc.not_equal(before, after), False))
        starts[1:] |= differ.to_numpy(zero_copy_only=False)
    found: list[int] = np.flatnonzero(starts).tolist()
    return found


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return pc.fill_null(column.cast(pa.string()).cast(pa.binary()), NULL)
