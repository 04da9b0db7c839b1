"""Digests of windows from Arrow rows, equal to those of `rewindow.spark.digests`, without a JVM.

They are used for rows that are in memory anyway, such as those of a file that a publication cuts,
to compare them with the seals. Memory and time are linear in the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.facts.window_facts import DIGESTS_SCHEMA, unequal
from rewindow.sequences import excluding, names_of
from rewindow.state.row_hash import Hashes, level_hashes, one_array
from rewindow.storage.fields import fields_without

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def arrow_digests(rows: pa.Table, events: pa.Schema) -> pa.Table:
    """Returns the digests of the windows that have a tuple, in ascending order.

    Args:
        rows: `window_id` and the event columns.
        events: the event columns with their types, as the output's table has them.

    Raises:
        InputError: a column's type cannot be digested.
    """
    from rewindow.spark.digests import NOT_DIGESTED, SALTS, holds_float, schema_hash
    from rewindow.spark.frames import spark_schema

    fields = fields_without(spark_schema(events).fields, NOT_DIGESTED)
    fields.sort(key=lambda field: field.name)
    names = names_of(fields)
    floats = [field.name for field in fields if holds_float(field.dataType)]
    exact = excluding(names, floats)
    columns = {name: one_array(rows[name].cast(events.field(name).type)) for name in names}
    ids = one_array(rows["window_id"]).to_numpy(zero_copy_only=False)
    order = np.argsort(ids, kind="stable")
    windows, starts = np.unique(ids[order], return_index=True)
    prefix = schema_hash(spark_schema(events))
    # A digest is two sums of 64-bit hashes, over the columns in both orders, so that the order of
    # the rows makes no difference. Floats have a separate digest, which a comparison with a
    # tolerance leaves out.
    digests = []
    float_digests = []
    for salt, step in zip(SALTS, (1, -1), strict=True):
        hashes = level_hashes([columns[name] for name in exact[::step]], len(ids), salt)
        digests.append(_sums(hashes[order], starts))
        if floats:
            of_row = pa.array(hashes.view(np.int64))
            hashes = level_hashes(
                [of_row, *(columns[name] for name in floats[::step])],
                len(ids),
                salt,
            )
            float_digests.append(_sums(hashes[order], starts))
    return pa.table(
        {
            "window_id": windows,
            "tuples": np.diff([*starts, len(ids)]),
            "digest": _texts(prefix, digests),
            "float_digest": _texts(prefix, float_digests)
            if floats
            else pa.nulls(len(windows), pa.string()),
        },
        schema=DIGESTS_SCHEMA,
    )


def merged_digests(parts: Sequence[pa.Table]) -> pa.Table:
    """Returns the digests of windows whose rows were digested in parts, in ascending order.

    Args:
        parts: at least one result of `arrow_digests`, all over the same event columns.
    """
    rows = pa.concat_tables(parts).sort_by("window_id").combine_chunks()
    windows, starts = np.unique(rows["window_id"].to_numpy(), return_index=True)
    merged = {"window_id": pa.array(windows)}
    counts = rows["tuples"].to_numpy()
    merged["tuples"] = pa.array(np.add.reduceat(counts, starts) if len(starts) else counts)
    for name in ("digest", "float_digest"):
        texts = one_array(rows[name])
        if not len(texts) or texts.null_count:
            merged[name] = (
                texts.slice(0, 0) if not len(texts) else pa.nulls(len(windows), pa.string())
            )
            continue
        prefix = texts[0].as_py().partition("-")[0]
        merged[name] = _texts(prefix, [_sums(part, starts) for part in _numbers(texts)])
    return pa.table(merged, schema=DIGESTS_SCHEMA)


def differing_windows(found: pa.Table, seals: pa.Table, events: pa.Schema) -> pa.Table:
    """Returns the windows whose digests differ from the sealed digests.

    Columns: window_id, tuples, and `sealed`, which is the sealed count.

    Args:
        found: from `arrow_digests`.
        seals: a row for each window that may occur; an empty window has the digest of no tuples.
        events: the event columns.
    """
    from rewindow.spark.digests import empty_digests
    from rewindow.spark.frames import spark_schema

    of_empty_window = dict(
        zip(("digest", "float_digest"), empty_digests(spark_schema(events)), strict=True)
    )
    # The row in `found` of each sealed window; null for a window without tuples.
    index = pc.index_in(seals["window_id"], one_array(found["window_id"]))
    tuples = pc.fill_null(found["tuples"].take(index), 0)
    differs = unequal(tuples, seals["tuples"])
    for name, empty in of_empty_window.items():
        digests = found[name].take(index)
        digests = pc.if_else(pc.is_null(index), pa.scalar(empty, pa.string()), digests)
        differs |= unequal(digests, seals[name])
    known = pa.table({"window_id": seals["window_id"], "tuples": tuples, "sealed": seals["tuples"]})
    unknown = found.filter(pc.invert(pc.is_in(found["window_id"], one_array(seals["window_id"]))))
    never = unknown.select(["window_id", "tuples"]).append_column(
        "sealed",
        pa.nulls(unknown.num_rows, pa.int64()),
    )
    return pa.concat_tables([known.filter(pa.array(differs)), never])


def _sums(hashes: Hashes, starts: Any) -> Hashes:
    """Returns the sums of hashes, modulo 2^64, of the segments that begin at `starts`."""
    return np.add.reduceat(hashes, starts) if len(starts) else hashes[:0]


def _numbers(texts: pa.Array) -> list[Hashes]:
    """Returns the two sums in the texts of digests that `_texts` has written."""
    size = len(texts[0].as_py())
    fixed = texts.cast(pa.binary()).cast(pa.binary(size))
    letters = np.frombuffer(fixed.buffers()[1], np.uint8)
    letters = letters.reshape(-1, size)[fixed.offset : fixed.offset + len(fixed)]
    digits = np.searchsorted(_HEX, letters).astype(np.uint64)
    places = np.arange(60, -1, -4, dtype=np.uint64)
    ends = (size - 17, size)
    return [np.bitwise_or.reduce(digits[:, end - 16 : end] << places, axis=1) for end in ends]


def _texts(prefix: str, sums: Sequence[Hashes]) -> pa.Array:
    """Returns digests as text: the prefix, and two sums in hexadecimal.

    All texts have the same length.
    """
    lines = [np.broadcast_to(np.frombuffer(prefix.encode(), np.uint8), (len(sums[0]), len(prefix)))]
    for some in sums:
        places = np.arange(60, -1, -4, dtype=np.uint64)
        lines += [
            np.full((len(some), 1), ord("-"), np.uint8),
            _HEX[(some[:, None] >> places) & np.uint64(15)],
        ]
    letters = np.concatenate(lines, axis=1)
    ends = np.arange(len(letters) + 1, dtype=np.int32) * letters.shape[1]
    return pa.StringArray.from_buffers(
        len(letters),
        pa.py_buffer(ends),
        pa.py_buffer(letters.tobytes()),
    )
