"""The digest that the first formats of checkpoints had: states that they published are still read."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc


def first_digest(frame: pa.Table) -> str:
    """Returns it for a frame without string or binary views."""
    names = sorted(frame.column_names)
    frame = pa.table([frame[name] for name in names], names=names)
    digest = hashlib.sha256(str([(field.name, str(field.type)) for field in frame.schema]).encode())
    digest.update(str(frame.num_rows).encode())
    if frame.num_rows and names:
        if any(pa.types.is_nested(field.type) for field in frame.schema):
            for row in sorted(repr(sorted(row.items())) for row in frame.to_pylist()):
                digest.update(row.encode())
        else:
            order = pc.sort_indices(frame, sort_keys=[(name, "ascending") for name in names])
            for name in names:
                _update(digest, frame[name].take(order).combine_chunks())
    return digest.hexdigest()[:32]


def _update(digest: hashlib._Hash, column: pa.Array | pa.ChunkedArray) -> None:
    """Feeds a flat column: its null bitmap, then its values with a fixed filling for nulls."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    digest.update(pc.cast(pc.is_null(column), pa.uint8()).to_numpy(zero_copy_only=False).tobytes())
    kind = column.type
    if pa.types.is_boolean(kind):
        column = pc.cast(column, pa.uint8())
    elif pa.types.is_decimal(kind):
        column = pc.cast(column, pa.string())
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int64()) if kind.bit_width == 64 else column.view(pa.int32())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        lengths = pc.fill_null(pc.binary_length(column), 0)
        digest.update(lengths.to_numpy(zero_copy_only=False).tobytes())
        for value in column.drop_null().cast(pa.binary()).to_pylist():
            digest.update(value)
    elif not pa.types.is_null(column.type):
        digest.update(pc.fill_null(column, 0).to_numpy(zero_copy_only=False).tobytes())
