"""Finds the partition of each row of a pass in tests, with the same rules as Spark.

Rules: X55
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from rewindow.application.placing import mask_of
from rewindow.state.row_hash import row_hashes
from rewindow.tuple_engine.passes import Pass
from rewindow.tuple_engine.tagged_rows import SORT_KEY, by_tag, tag_of

EVERY = -1
"""Marks a tuple of a broadcast port, which goes to all partitions."""
_INT = 1 << 32


def partitions_of(one: Pass, rows: pa.RecordBatch, count: int) -> Any:
    """Returns the partition of each row. A row that goes to all partitions has `EVERY`.

    A SQL partitioner is not evaluated. Keys are divided by their hash instead, because no result
    depends on the partition.
    """
    places = rows[SORT_KEY].to_numpy()
    if one.placing.spread:
        return _round_robin(
            one,
            rows,
            places,
            count,
        )
    if count == 1:
        return np.zeros(rows.num_rows, np.int64)
    keys = rows.select(one.keys)
    if one.codec == "java":
        hashes = np.array(_java_hashes(keys), np.int64)
    else:
        hashes = row_hashes(pa.Table.from_batches([keys])).view(np.int64)
    if one.placing.partitioner == "apex":
        hashes = hashes & mask_of(count)
    # numpy's remainder of a negative hash is not negative, like Spark's pmod.
    found = hashes % count
    broadcast = [one.inputs[place].tag for place in one.broadcast]
    found[np.isin(tag_of(places), broadcast)] = EVERY
    return found


def _round_robin(one: Pass, rows: pa.RecordBatch, places: Any, count: int) -> Any:
    """Returns the instance of each row.

    Recorded tuples are divided by position, and all others by hash.
    """
    found = np.zeros(rows.num_rows, np.int64)
    ports = by_tag(one.inputs)
    begins = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
    for begin, end in pairwise(begins):
        if begin == end or (tag := int(tag_of(places[begin]))) not in ports:
            continue
        name, port = ports[tag]
        if port in one.members[name].unordered:
            columns = one.inputs[name, port]
            own = rows.slice(begin, end - begin).select(columns.names)
            named = pa.table(own.columns, names=columns.schema.names)
            found[begin:end] = row_hashes(named).view(np.int64) % count
        else:
            found[begin:end] = np.arange(end - begin) % count
    return found


def java_hash(value: Any, *, is_long: bool = True) -> int:
    """Returns the value of Java's hashCode for a boolean, a whole number or a text; 0 for None.

    Args:
        value: the boolean, whole number or text.
        is_long: whether a whole number is a Java long; otherwise it is an int.

    >>> java_hash("hello"), java_hash(True), java_hash(-1), java_hash(-1, is_long=False)
    (99162322, 1231, 0, -1)
    """
    if value is None:
        return 0
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, int):
        return _as_int(value ^ ((value % (1 << 64)) >> 32)) if is_long else value
    units = np.frombuffer(value.encode("utf-16-be", "surrogatepass"), ">u2")
    found = 0
    for unit in units.tolist():
        found = (found * 31 + unit) % _INT
    return _as_int(found)


def _java_hashes(keys: pa.RecordBatch) -> list[int]:
    """Returns the hashCode of each key. Several columns are hashed as a java.util.List."""
    columns = []
    for column in keys.columns:
        is_long = column.type == pa.int64()
        columns.append([java_hash(value, is_long=is_long) for value in column.to_pylist()])
    if len(columns) == 1:
        return columns[0]
    found = []
    for hashes in zip(*columns, strict=True):
        of_key = 1
        for one in hashes:
            of_key = (of_key * 31 + one) % _INT
        found.append(_as_int(of_key))
    return found


def _as_int(value: int) -> int:
    low = value % _INT
    return low - _INT if low >= _INT // 2 else low
