"""Per-window tuple accounting: pending and input tuples equal the sum of all outcomes.

In each window, for each stream and key, `pending_before` and `input` add up to all other outcomes.
The number of tuples that are pending after a window is computed without counts from earlier pieces.
Of the tuples that are pending or fire in the piece, it is the number that fire later or never,
minus the number that arrive later. So the counts do not depend on the division of a recording into
pieces.

One aggregation counts the tuples by the window of their arrival, another one by the window in which
their first window fires, and a running sum combines both.

Rules: E40, X37
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rewindow.names import quoted_column
from rewindow.operators.event_time.lateness import (
    LATE,
    LATE_BY,
    ON_TIME,
    OUTCOME,
    OUTCOMES,
    Lateness,
)
from rewindow.operators.event_time_windows.firing import FIRED, STREAM, TUPLES
from rewindow.operators.event_time_windows.late_windows import BETWEEN, with_between
from rewindow.operators.event_time_windows.settings import AnyWindows
from rewindow.sequences import excluding
from rewindow.spark.columns import named_columns, union_all
from rewindow.spark.functions import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW_ID = "window_id"
INPUT = "input"
BEFORE = "pending_before"
AFTER = "pending_after"
"""Outcomes in addition to those of single tuples."""
_LEFT = (*excluding(OUTCOMES, (ON_TIME,)), BETWEEN)
"""Outcomes of tuples that enter no window."""
_SETTLED = "_n_settled"
_LATE_BY = "_late_by"


def tuple_accounting(
    classified: Lateness,
    windows: AnyWindows,
    first_fired_tuples: DataFrame,
    window_of: Callable[[str], Column],
    by: Sequence[str],
) -> DataFrame:
    """Returns the number of tuples for each stream, streaming window, outcome and value of the
    columns `by`.

    There are no rows for 0 tuples. Columns: `stream STRING`, `window_id BIGINT`, the columns `by`,
    `outcome STRING`, `tuples BIGINT`, `late_by_us_max BIGINT`. A tuple that is in no window is
    counted in the window of its arrival. A tuple with the outcome `on_time` is counted in the
    streaming window in which its first window fires.

    Args:
        classified: tuples with a column `window_id`.
        windows: the windows that they enter.
        first_fired_tuples: the tuples that were pending before the piece or arrived in it, and the
            time when the first window of each fires: by `recording_keys` and keys, `STREAM`,
            `TUPLES`, `FIRED`, which is null if it does not fire.
        window_of: returns the streaming window of a column of instants on the arrival clock.
        by: columns of `recording_keys` and keys.
    """
    columns = [STREAM, WINDOW_ID, *map(quoted_column, by)]
    fires_in = F.when(F.col(FIRED).isNotNull(), window_of(FIRED)).alias(WINDOW_ID)
    # Arrivals and firings are counted by the window in which they happen, and both counts are
    # combined in one row per window. The tuples that are pending after a window are those that fire
    # later, minus those that arrive later. A row with 0 tuples has only late tuples, or tuples
    # whose first window is another one.
    first_fired_tuples = first_fired_tuples.where(f"{TUPLES} > 0")
    fired = first_fired_tuples.groupBy(STREAM, fires_in, *columns[2:]).agg(
        F.sum(TUPLES).alias(_SETTLED)
    )
    rows = _came(classified, windows, by).unionByName(fired, allowMissingColumns=True)
    totals = []
    for name in (*map(_n, (INPUT, ON_TIME, *_LEFT)), _SETTLED):
        totals.append(F.expr(f"coalesce(sum({name}), 0) AS {name}"))
    rows = rows.groupBy(*columns).agg(*totals, F.max(_LATE_BY).alias(_LATE_BY))
    # In descending order, because Spark computes a sum over all following rows again for each row.
    order = Window.partitionBy(STREAM, *columns[2:]).orderBy(F.desc_nulls_first(WINDOW_ID))
    change = F.expr(f"{_SETTLED} - {_n(ON_TIME)}")
    later = F.sum(change).over(order.rowsBetween(Window.unboundedPreceding, -1))
    rows = rows.withColumn(_n(AFTER), F.coalesce(later, F.lit(0))).where(f"{WINDOW_ID} IS NOT NULL")
    return rows.select(*columns, F.expr(f"inline({_structs()})"))


def _n(outcome: str) -> str:
    return f"_n_{outcome}"


def _came(classified: Lateness, windows: AnyWindows, by: Sequence[str]) -> DataFrame:
    """Returns the number of tuples that arrived in each window, in total and for each outcome."""
    totals = []
    for outcome in (ON_TIME, *_LEFT):
        totals.append(F.expr(f"count_if({OUTCOME} = '{outcome}') AS {_n(outcome)}"))
    totals += [F.count("*").alias(_n(INPUT)), F.max(LATE_BY).alias(_LATE_BY)]
    parts = []
    for name, frame in classified.tuples.items():
        stream = F.lit(name).alias(STREAM)
        grouped = with_between(frame, windows).groupBy(
            stream,
            WINDOW_ID,
            *named_columns(by),
        )
        parts.append(grouped.agg(*totals))
    return union_all(parts)


def _structs() -> str:
    """Returns a SQL array of the outcomes that have tuples."""
    names = (INPUT, *_LEFT, AFTER)
    counts = dict(zip(names, map(_n, names), strict=True))
    counts |= {ON_TIME: _SETTLED, BEFORE: f"{_n(AFTER)} + {_SETTLED} - {_n(ON_TIME)}"}
    structs = []
    for name, count in counts.items():
        late_by = _LATE_BY if name == LATE else "CAST(NULL AS BIGINT)"
        structs.append(
            f"struct('{name}' AS outcome, {count} AS tuples, {late_by} AS late_by_us_max)"
        )
    return f"filter(array({', '.join(structs)}), one -> one.tuples > 0)"
