"""Quarantines tuples whose timestamp is too far ahead.

Rules: H61
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.operators.columns import AT, TS
from rewindow.operators.heartbeat import clock
from rewindow.operators.heartbeat.clock import IS_TUPLE
from rewindow.operators.heartbeat.settings import HeartbeatProperties
from rewindow.sequences import numbered_names
from rewindow.spark.columns import bigint, equal_or_null, named_columns, null_of, renamed_columns
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from rewindow.windows import Grid

_HIGHEST = "_highest_us"


def split_jumps(
    frame: DataFrame,
    settings: HeartbeatProperties,
    state: DataFrame | None,
    grid: Grid | None,
) -> tuple[DataFrame, DataFrame]:
    """Separates accepted tuples from tuples beyond the running maximum plus `max_jump`, which
    become error tuples.

    The maximum includes only accepted tuples, so each decision depends on earlier ones. A clock
    without a jump needs only a running maximum. For a clock with a jump, the tuples above the
    maximum from the first jump on are collected into one row and checked in order.
    """
    if settings.max_jump_us is None:
        return frame, clock.as_errors(
            frame.filter(F.lit(False)),
            settings,
            "jump",
            null_of("string"),
        )
    # A join finds the rejected tuples by all columns that order them, with nulls as values. Equal
    # tuples would match each other there, so they are grouped first.
    place = list(
        dict.fromkeys([*settings.key_by, *clock.blocks(frame), *settings.order_by, AT, TS])
    )
    refused = _refused(clock.to_clock_rows(frame, settings, grid), settings, state)
    other = numbered_names(place, "_refused_")
    refused = refused.groupBy(*renamed_columns(other))
    refused = refused.agg(F.min(_HIGHEST).alias(_HIGHEST))
    timed = frame.select("*", *clock.times(frame, settings, grid))
    same = equal_or_null(other)
    words = (
        f"timestamp is %d us after the latest one before it; max_jump is {settings.max_jump_us} us"
    )
    detail = F.format_string(words, F.col(TS) - F.col(_HIGHEST))
    jumps = clock.as_errors(
        timed.join(refused, same),
        settings,
        "jump",
        detail,
    )
    return timed.join(refused, same, "left_anti").drop(AT, TS), jumps.drop(
        AT,
        TS,
        _HIGHEST,
        *other.values(),
    )


def _refused(
    rows: DataFrame,
    settings: HeartbeatProperties,
    state: DataFrame | None,
) -> DataFrame:
    """Returns key, window, order columns and times of the tuples to quarantine, with the highest
    accepted timestamp before each.
    """
    jump_us = settings.max_jump_us
    if state is not None:
        known = state.select(
            *named_columns(settings.key_by),
            F.col("clock_event_us").alias(TS),
            F.lit(0).alias(IS_TUPLE),
        )
        rows = rows.unionByName(known, allowMissingColumns=True)
    order = clock.ordered(rows, settings)
    rows = rows.withColumn(
        _HIGHEST,
        F.max(TS).over(order.rowsBetween(Window.unboundedPreceding, -1)),
    )
    first = F.when(F.col(TS) > F.col(_HIGHEST) + jump_us, F.col(_HIGHEST))
    rows = rows.withColumn(
        "_believed",
        F.min(first).over(order.rowsBetween(Window.unboundedPreceding, 0)),
    )
    keys = named_columns(settings.key_by)
    columns = dict.fromkeys([*clock.blocks(rows), *settings.order_by, AT, TS])
    tuples = F.struct(*named_columns(columns))
    doubtful = rows.filter(F.col(TS) > F.col("_believed")).groupBy(*keys)
    in_order = F.sort_array(F.collect_list(tuples)).alias("_tuples")
    doubtful = doubtful.agg(F.min("_believed").alias("_believed"), in_order)
    return doubtful.select(*keys, F.inline(_fold(jump_us)))


def _fold(jump_us: int | None) -> Column:
    """Returns the rejected tuples of `_tuples`, each with the highest accepted timestamp before it.

    The tuples are checked in order, and `_believed` is the first maximum.
    """
    with_highest = F.transform(
        "_tuples",
        lambda one: one.withField(_HIGHEST, bigint(0)),
    )
    none_yet = F.filter(with_highest, lambda _: F.lit(False))
    start = F.struct(F.col("_believed").alias("highest"), none_yet.alias("refused"))

    def take(so_far: Column, one: Column) -> Column:
        refuse = one[TS] > so_far["highest"] + jump_us
        highest = F.when(refuse, so_far["highest"]).otherwise(
            F.greatest(so_far["highest"], one[TS])
        )
        row = one.withField(_HIGHEST, so_far["highest"])
        refused = F.when(refuse, F.array_append(so_far["refused"], row)).otherwise(
            so_far["refused"]
        )
        return F.struct(highest.alias("highest"), refused.alias("refused"))

    return F.aggregate("_tuples", start, take, lambda end: end["refused"])
