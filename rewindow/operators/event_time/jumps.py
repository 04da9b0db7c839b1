"""Finds tuples whose timestamp jumps ahead of its stream. They do not move the clock.

A tuple jumps if its timestamp exceeds the largest accepted one before it by too much, so each
decision depends on earlier ones. In a stream without jumps this maximum is the running maximum of
all tuples, which is computed for blocks of ticks in parallel. From the first jump of a stream on,
the tuples above the maximum at that point are checked one after the other, with arrival and
timestamp only. Tuples with the same arrival are ordered by timestamp, so that the order is unique.

Rules: E50
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rewindow.operators.columns import BIGINT_MIN, floor_div
from rewindow.operators.event_time.watermarks import AT, BLOCK, TICK, TS
from rewindow.sequences import numbered_names
from rewindow.spark.columns import equal_or_null, named_columns, renamed_columns
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

JUMPS = "_jumps"
"""Whether a tuple jumps ahead."""
_BLOCK = "_block"
_HIGHEST = "_highest_us"
_BEGINS = "_begins"
_IS_TUPLE = "_is_tuple"
_AT = "_jump_arrived_us"
_TS = "_jump_event_us"
_CHUNK = 4_096


def mark_jumps(
    timed: DataFrame,
    moves: Column,
    jump_us: int,
    highest: DataFrame | None,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Adds `JUMPS` to the tuples of a stream.

    Args:
        timed: tuples with `AT`, `TS`, `TICK`, and `recording_keys`.
        moves: whether a tuple may move the clock; other tuples do not jump.
        jump_us: a tuple jumps if its timestamp exceeds the largest one before it by more than this.
        highest: `TS`, the largest one before all of these tuples, and `recording_keys`; None at the
            start.
        recording_keys: columns whose values are separate streams.
    """
    own = timed.where(moves).select(*named_columns(recording_keys), TICK, AT, TS)
    jumping = _refused(own, jump_us, highest, recording_keys)
    same = [F.col(AT) == F.col(_AT), F.col(TS) == F.col(_TS)]
    others = numbered_names(recording_keys, "_jump_")
    same += equal_or_null(others)
    jumping = jumping.withColumnsRenamed({**others, AT: _AT, TS: _TS}).distinct()
    marked = timed.join(jumping, same, "left").withColumn(JUMPS, F.col(_AT).isNotNull() & moves)
    return marked.drop(_AT, _TS, *others.values())


def _refused(
    own: DataFrame,
    jump_us: int,
    highest: DataFrame | None,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns `recording_keys`, `AT` and `TS` of the tuples whose timestamp jumps."""
    # Up to the first jump of a stream, the maximum over all tuples equals the maximum over accepted
    # tuples. So the first jump is found without processing tuples in order, and only the later
    # tuples that exceed the maximum are processed in order.
    before = _with_highest(own, highest, recording_keys)
    place = F.struct(AT, TS)
    first = before.where(F.col(TS) > F.col(_HIGHEST) + jump_us).groupBy(
        *named_columns(recording_keys)
    )
    first = first.agg(F.min(F.struct(AT, TS, _HIGHEST)).alias("_first"))
    others = numbered_names(recording_keys, "_first_")
    same = equal_or_null(others)
    same += [
        place >= F.struct(f"_first.{AT}", f"_first.{TS}"),
        F.col(TS) > F.col(f"_first.{_HIGHEST}"),
    ]
    doubtful = own.join(F.broadcast(first.withColumnsRenamed(others)), same)
    order = Window.partitionBy(*named_columns(recording_keys)).orderBy(AT, TS)
    # pyspark does not quote the names of the columns that it passes to Python.
    plain = numbered_names(recording_keys, "_recording_")
    columns = [*plain.values(), AT, TS]
    rows = doubtful.select(
        *renamed_columns(plain),
        AT,
        TS,
        F.col(f"_first.{_HIGHEST}").alias(_HIGHEST),
        (F.row_number().over(order) == 1).alias(_BEGINS),
    )
    jumping = rows.mapInArrow(_refusing(jump_us, columns), rows.select(*columns).schema)
    return jumping.toDF(*recording_keys, AT, TS)


def _with_highest(
    own: DataFrame,
    highest: DataFrame | None,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Adds the largest timestamp of all tuples before each tuple; null before the first."""
    # A running maximum in one order would put each stream into one task. The maximum of all earlier
    # blocks enters a block as its first row instead, so that blocks are sorted in parallel.
    rows = own.withColumns({_BLOCK: floor_div(F.col(TICK), BLOCK), _IS_TUPLE: F.lit(1)})
    totals = rows.groupBy(*named_columns(recording_keys), _BLOCK).agg(F.max(TS).alias(TS))
    if highest is not None:
        totals = totals.unionByName(
            highest.select(*named_columns(recording_keys), F.lit(BIGINT_MIN).alias(_BLOCK), TS)
        )
    blocks = (
        Window.partitionBy(*named_columns(recording_keys))
        .orderBy(_BLOCK)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    carry = totals.select(
        *named_columns(recording_keys),
        _BLOCK,
        F.max(TS).over(blocks).alias(TS),
        F.lit(0).alias(_IS_TUPLE),
    )
    rows = rows.unionByName(carry.where(F.col(_BLOCK) != BIGINT_MIN), allowMissingColumns=True)
    order = (
        Window.partitionBy(*named_columns(recording_keys), _BLOCK)
        .orderBy(_IS_TUPLE, AT, TS)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return rows.withColumn(_HIGHEST, F.max(TS).over(order)).where(F.col(_IS_TUPLE) == 1)


def _refusing(
    jump_us: int,
    columns: Sequence[str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that reads sorted tuples and yields those that jump."""

    def refuse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        highest = 0
        for batch in batches:
            ts = batch.column(TS).to_numpy(zero_copy_only=False)
            begins = np.flatnonzero(batch.column(_BEGINS).to_numpy(zero_copy_only=False)).tolist()
            jumps = np.zeros(len(ts), bool)
            ends = [*begins, len(ts)] if begins[:1] == [0] else [0, *begins, len(ts)]
            for begin, end in pairwise(ends):
                if begin in begins:
                    highest = batch.column(_HIGHEST)[begin].as_py()
                highest = fold_jumps(
                    ts[begin:end],
                    jumps[begin:end],
                    highest,
                    jump_us=jump_us,
                )
            yield batch.select(columns).filter(pa.array(jumps))

    return refuse


def fold_jumps(
    ts: npt.NDArray[np.int64],
    jumps: npt.NDArray[np.bool_],
    highest: int,
    jump_us: int,
) -> int:
    """Marks the timestamps that jump in `jumps`, starting with a given maximum.

    Returns the new maximum.
    """
    # Each iteration processes one run of timestamps without jumps and one run of jumps. numpy finds
    # both ends in a chunk, so the loop has an iteration per run and not per tuple.
    at = 0
    while at < len(ts):
        chunk = ts[at : at + _CHUNK]
        before = np.maximum.accumulate(np.concatenate(([highest], chunk)))
        jumping = chunk > before[:-1] + jump_us
        clean = int(jumping.argmax()) if jumping.any() else len(chunk)
        highest = int(before[clean])
        too_far = chunk[clean:] > highest + jump_us
        refused = len(too_far) if too_far.all() else int((~too_far).argmax())
        jumps[at + clean : at + clean + refused] = True
        at += clean + refused
    return highest
