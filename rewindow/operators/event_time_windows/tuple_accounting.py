"""What became of tuples in each streaming window, and how many wait behind it: a balance (E40,
X37).

Of each stream and key, in each window, `pending_before` and `input` are together all other
outcomes. How many wait behind a window is known without what waited before the piece: of those that
wait or fire in the piece, the ones that fire later or not at all, without those that come later. So
where a recording is cut changes nothing.

How it scales: one aggregation of the tuples by the window of their arrival, one of what windows
hold by the window in which it fires, and a running sum over these.
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
"""Outcomes of a balance beside those of tuples."""
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
    """Returns tuples by stream, streaming window, the columns `by` and outcome; of 0 tuples there
    is no row.

    Columns: `stream STRING`, `window_id BIGINT`, those of `by`, `outcome STRING`, `tuples BIGINT`,
    `late_by_us_max BIGINT`. What comes and what leaves at once counts in the window of its arrival,
    `on_time` in the one in which the first window of a tuple fires.

    Args:
        classified: tuples with a column `window_id`.
        windows: which windows they enter.
        settled: the tuples that waited before the piece or came in it, and when the first window of
            each fires: by of apart and keys, `STREAM`, `TUPLES`, `FIRED`, which is null where it
            does not fire.
        window_of: returns the streaming window of a column of instants on the arrival clock.
        by: columns of apart and keys.
    """
    columns = [STREAM, WINDOW_ID, *map(quoted_column, by)]
    fires_in = F.when(F.col(FIRED).isNotNull(), window_of(FIRED)).alias(WINDOW_ID)
    # Arrivals and firings are counted by their own window, and both counts meet in one row for each
    # window. The tuples that wait after a window are those that fire later, less those that arrive
    # later. Rows of 0 tuples contain late ones, or those that are in later windows too.
    first_fired_tuples = first_fired_tuples.where(f"{TUPLES} > 0")
    fired = first_fired_tuples.groupBy(STREAM, fires_in, *columns[2:]).agg(
        F.sum(TUPLES).alias(_SETTLED)
    )
    rows = _came(classified, windows, by).unionByName(fired, allowMissingColumns=True)
    totals = []
    for name in (*map(_n, (INPUT, ON_TIME, *_LEFT)), _SETTLED):
        totals.append(F.expr(f"coalesce(sum({name}), 0) AS {name}"))
    rows = rows.groupBy(*columns).agg(*totals, F.max(_LATE_BY).alias(_LATE_BY))
    # From behind: a sum over all that follows would be made anew for each row.
    order = Window.partitionBy(STREAM, *columns[2:]).orderBy(F.desc_nulls_first(WINDOW_ID))
    change = F.expr(f"{_SETTLED} - {_n(ON_TIME)}")
    later = F.sum(change).over(order.rowsBetween(Window.unboundedPreceding, -1))
    rows = rows.withColumn(_n(AFTER), F.coalesce(later, F.lit(0))).where(f"{WINDOW_ID} IS NOT NULL")
    return rows.select(*columns, F.expr(f"inline({_structs()})"))


def _n(outcome: str) -> str:
    return f"_n_{outcome}"


def _came(classified: Lateness, windows: AnyWindows, by: Sequence[str]) -> DataFrame:
    """Returns how many tuples came in each window, and how many of them with each outcome."""
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
    """Returns an array of the outcomes that have tuples, as SQL."""
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
