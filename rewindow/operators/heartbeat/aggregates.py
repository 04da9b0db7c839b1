"""Computes timer indices if the slack depends on earlier timers. The tuples of each clock are
collected into one row and processed in order.

With the default settings the slack is constant and the timer index is a running maximum. With
`slack_restart="arrival"` or `slack_after_timeout="none"` the slack of a silence depends on the
timers before it, and these timers depend on earlier slacks. Then the clock tuples of a commit group
are collected by clock and processed in order, and only those that cause timers are kept. Use keys,
and commit groups whose clock tuples fit in memory.

Rules: H31, H37
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.operators.columns import FARTHEST_US, floor_div
from rewindow.operators.heartbeat.settings import HeartbeatProperties
from rewindow.sequences import excluding
from rewindow.spark.columns import bigint, named_columns, or_false
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def fold_indices(
    clock: DataFrame,
    settings: HeartbeatProperties,
    order: list[str],
) -> DataFrame:
    """Returns the clock tuples that cause timers and the last tuple of each clock, with timer
    indices and slack.

    Args:
        clock: clock tuples and carried rows, with `_crossed_index`, `_first_index`, `_next_us`,
            `_prev_arrived_us`, `_prev_event_us` and `_is_last`.
        settings: the Heartbeat's settings.
        order: columns that order each clock.
    """
    rest = excluding(clock.columns, {*order, *settings.key_by})
    keys = named_columns(settings.key_by)
    in_order = F.struct(*named_columns((*order, *rest)))
    tuples = F.sort_array(F.collect_list(in_order)).alias("_tuples")
    return clock.groupBy(*keys).agg(tuples).select(*keys, F.inline(_fold(settings)))


def recorded_us(arrivals_us: Column, settings: HeartbeatProperties) -> Column:
    """Converts a duration between arrivals to time of the recording, by the playback speed.

    The result is rounded down.

    Rules: H51
    """
    speed, per = settings.speed_ratio
    if speed == per:
        return arrivals_us
    most = FARTHEST_US // speed
    return floor_div(F.when(arrivals_us > most, most).otherwise(arrivals_us) * speed, per)


def _fold(settings: HeartbeatProperties) -> Column:
    unknown = bigint(None)
    none_yet = F.filter(
        F.transform(
            "_tuples", lambda one: _indexed(one, unknown, unknown, slack=unknown, last=unknown)
        ),
        lambda _: F.lit(False),
    )
    start = F.struct(
        unknown.alias("last"),
        unknown.alias("base"),
        none_yet.alias("rows"),
    )

    def take(so_far: Column, one: Column) -> Column:
        seen, base, slack, last = _step(so_far, one, settings)
        row = _indexed(one, seen, base, slack=slack, last=last)
        keep = or_false(last > seen) | one["_is_last"]
        rows = F.when(keep, F.array_append(so_far["rows"], row)).otherwise(so_far["rows"])
        return F.struct(last.alias("last"), base.alias("base"), rows.alias("rows"))

    return F.aggregate("_tuples", start, take, lambda end: end["rows"])


def _step(
    so_far: Column,
    one: Column,
    settings: HeartbeatProperties,
) -> tuple[Column, Column, Column, Column]:
    """Processes a tuple.

    Returns the timer index before it, the index at the start of its silence, the slack of the
    silence, and the index after it.
    """
    # The index before a tuple follows from the previous tuple. The slack of the silence after it
    # depends on this index, and the index after the silence depends on the slack. Therefore the
    # tuples of a clock must be processed in order.
    interval_us = settings.interval_us
    carried = one["_is_tuple"] == 0
    own = one["_crossed_index"]
    is_first = one["_prev_event_us"].isNull()
    seen = (
        F.when(carried, own)
        .when(is_first, F.greatest(so_far["last"], one["_first_index"]))
        .otherwise(so_far["last"])
    )
    base = F.when(carried, one["_silence_index"]).otherwise(F.greatest(seen, own))
    slack = bigint(settings.slack_us)
    if settings.slack_restart == "arrival":
        due_us = (seen + 1) * interval_us
        silence_us = recorded_us(one["_arrived_us"] - one["_prev_arrived_us"], settings)
        is_running = due_us - one["_prev_event_us"] <= silence_us
        left = F.greatest(F.lit(0), settings.slack_us - (due_us - one["_event_us"]))
        slack = F.when(is_running & (own <= seen), left).otherwise(slack)
    if settings.slack_after_timeout == "none":
        slack = F.when(so_far["last"] > so_far["base"], bigint(0)).otherwise(slack)
    slack = F.when(carried, one["_slack_us"]).otherwise(slack)
    silence_us = recorded_us(one["_next_us"] - one["_arrived_us"], settings)
    reached = floor_div(one["_event_us"] - slack + silence_us, interval_us)
    return seen, base, slack, F.greatest(seen, own, reached)


def _indexed(
    one: Column,
    seen: Column,
    base: Column,
    slack: Column,
    last: Column,
) -> Column:
    indices = {"_seen_index": seen, "_silence_index": base, "_slack_us": slack, "_last_index": last}
    for name, value in indices.items():
        one = one.withField(name, value)
    return one
