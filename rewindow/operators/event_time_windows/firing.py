"""Finds the tick that fires each window.

A window fires at the first tick whose watermark is not below its end. Because watermarks only rise,
this is the smallest tick among those with a watermark at or above the end. Ends and watermarks are
divided into blocks of event time. Each block gets the first tick of all later blocks, computed from
one row per block, so the blocks are processed in parallel.

Rules: E28
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.operators.columns import floor_div
from rewindow.operators.event_time.lateness import matched
from rewindow.sequences import numbered_names
from rewindow.spark.columns import aliased, bigint, equal_or_null, named_columns
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BLOCK = 10_000
"""Length of a block, in windows or ticks, whichever are closer together."""
END = "_end_us"
FIRED = "_fired_us"
WINDOW = ("window_begin_us", "window_end_us", "pane", "kind", "fired_us")
"""Columns of a fired row in addition to `recording_keys`, keys and aggregates.

Rules: E65
"""
STREAM = "stream"
TUPLES = "tuples"
FIRED_UNTIL = "fired_until_us"
"""Columns of a carried state: stream, number of tuples of a row, and the watermark up to which
its windows have fired.
"""
BEGIN = "_begin_us"
REACHED = "_reached_us"
CARRIED = "_carried"
"""Start of a window, the last watermark, and whether a row comes from the previous piece."""
_FEW_ENDS = 1_000
_VALUE = "_value"
_BLOCK = "_block"
_IS_END = "_is_end"


def first_ticks(
    ends: DataFrame,
    ticks: DataFrame,
    step_us: int,
    recording_keys: Sequence[str],
) -> DataFrame:
    """Returns the ends of the windows that fire, each with the first tick whose watermark is not
    below it: `END`, `FIRED`.

    Args:
        ends: distinct window ends: `END`, and `recording_keys`.
        ticks: the ticks that raise the watermark: `tick_us`, `watermark_us`, and `recording_keys`.
        step_us: usual distance of ends or ticks.
        recording_keys: columns whose values have separate ticks.
    """
    # Ends and watermarks are combined in one column. In descending order of this column, the
    # running minimum of the ticks is the first tick that reaches an end. Each block of values
    # starts with the smallest tick of all higher blocks, so that blocks are sorted in parallel.
    width_us = step_us * BLOCK
    asked = ends.select(
        *named_columns(recording_keys),
        F.col(END).alias(_VALUE),
        bigint(None).alias(FIRED),
        F.lit(True).alias(_IS_END),
    )
    raised = ticks.select(
        *named_columns(recording_keys),
        F.col("watermark_us").alias(_VALUE),
        F.col("tick_us").alias(FIRED),
        F.lit(False).alias(_IS_END),
    )
    rows = asked.unionByName(raised).withColumn(_BLOCK, floor_div(F.col(_VALUE), width_us))
    later = (
        Window.partitionBy(*named_columns(recording_keys))
        .orderBy(_BLOCK)
        .rowsBetween(1, Window.unboundedFollowing)
    )
    totals = rows.groupBy(*named_columns(recording_keys), _BLOCK).agg(F.min(FIRED).alias(FIRED))
    carry = totals.select(
        *named_columns(recording_keys),
        _BLOCK,
        F.min(FIRED).over(later).alias(FIRED),
    )
    carry = carry.withColumns({_VALUE: (F.col(_BLOCK) + 1) * width_us, _IS_END: F.lit(False)})
    above = (
        Window.partitionBy(*named_columns(recording_keys), _BLOCK)
        .orderBy(F.desc(_VALUE))
        .rangeBetween(Window.unboundedPreceding, 0)
    )
    reached = rows.unionByName(carry).withColumn(FIRED, F.min(FIRED).over(above))
    return reached.where(F.col(_IS_END) & F.col(FIRED).isNotNull()).select(
        *named_columns(recording_keys),
        F.col(_VALUE).alias(END),
        FIRED,
    )


def first_fired(
    rows: DataFrame,
    ticks: DataFrame,
    step_us: int,
    recording_keys: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    """Returns the rows whose window had not fired before, with the tick that fires it in `FIRED`.

    The window of a row is the one that ends at `END`. If no tick fires it, `FIRED` is the end of
    the recording, or null before the end.
    """
    waiting = rows.where(F.col(FIRED_UNTIL).isNull() | (F.col(END) > F.col(FIRED_UNTIL)))
    ends = waiting.select(*named_columns(recording_keys), END).distinct()
    found = matched(
        waiting,
        first_ticks(ends, ticks, step_us, recording_keys=recording_keys),
        recording_keys,
        on=END,
        how="left",
    )
    return found.withColumn(FIRED, F.coalesce(FIRED, bigint(ended_us)))


def fired_at(
    found: DataFrame,
    ticks: DataFrame,
    step_us: int,
    phase_us: int,
) -> DataFrame:
    """Adds `FIRED` to rows with an `END`: the tick that fires windows with this end, or null.

    This is the method for few ticks. A tick fires the windows that end above the previous
    watermark. The ends at multiples of a step are listed in a table for a broadcast join. A tick
    that fires more than a thousand of them, such as the first tick, is a range in a second table.

    Args:
        found: windows with an `END`.
        ticks: the ticks that raise the watermark: `tick_us`, `watermark_us`, `before_us`.
        step_us, phase_us: ends are at the multiples of the step plus the phase.
    """
    # A tick that reaches few ends becomes a row per end, which is joined by equality. A tick that
    # reaches many, such as the first one, stays one row with a range of ends.
    last = f"watermark_us - pmod(watermark_us - {phase_us}, {step_us}) AS _to"
    first = f"before_us - pmod(before_us - {phase_us}, {step_us}) + {step_us} AS _from"
    reaching = ticks.selectExpr("tick_us", first, last).where("_from IS NULL OR _from <= _to")
    each = f"explode(sequence(_from, _to, {step_us}L)) AS _of_end"
    few = f"_to - _from <= {_FEW_ENDS * step_us}"
    single = reaching.where(few).selectExpr(each, "tick_us AS _single")
    long = reaching.where(f"_from IS NULL OR NOT ({few})").withColumnRenamed("tick_us", "_long")
    inside = F.expr(f"{END} <= _to AND (_from IS NULL OR {END} >= _from)")
    joined = found.join(F.broadcast(single), F.col(END) == F.col("_of_end"), "left")
    joined = joined.join(F.broadcast(long), inside, "left").withColumn(
        FIRED,
        F.coalesce("_single", "_long"),
    )
    return joined.drop("_of_end", "_single", "_from", "_to", "_long")


def firing_columns(
    begin: Column,
    end: Column,
    pane: Column,
    kind: Column,
    fired_us: Column,
) -> list[Column]:
    """Returns the columns listed in `WINDOW` for a fired row."""
    return aliased(dict(zip(WINDOW, (begin, end, pane, kind, fired_us), strict=True)))


def check_state(state: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Marks the rows of the previous piece as carried and returns them.

    Raises:
        InputError: the rows belong to other windows.
    """
    carried = state.withColumn(CARRIED, F.lit(True))
    if set(carried.columns) != set(columns):
        raise InputError(
            "the state belongs to different windows: its columns are " + ", ".join(state.columns),
            hint="Pass the state of the same windows, keys and aggregates, or start without one.",
        )
    return carried


def reached(
    rows: DataFrame,
    ticks: DataFrame,
    recording_keys: Sequence[str],
    ended_us: int | None,
) -> DataFrame:
    """Adds the last watermark of the piece to rows.

    If the recording has ended, this watermark is after all tuples.

    Rules: E45
    """
    if ended_us is not None:
        return rows.withColumn(REACHED, bigint(2**63 - 1))
    last = F.broadcast(
        ticks.groupBy(*named_columns(recording_keys)).agg(F.max("watermark_us").alias(REACHED))
    )
    if not recording_keys:
        return rows.crossJoin(last)
    # Keys may be null, and a null key has separate ticks, so the join treats two nulls as equal.
    same = numbered_names(recording_keys, "_same_")
    on = equal_or_null(same)
    return rows.join(last.withColumnsRenamed(same), on, "left").drop(*same.values())
