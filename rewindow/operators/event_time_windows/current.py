"""The current content of windows that fire more than once, computed from all fired rows.

Example:
    hours = current_windows(spark.read.format("delta").load(path), keys=["country"])

The result depends on the set of rows, not on their order, and a duplicate row counts once. So the
result may be merged again with rows that were fired later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from rewindow.errors import InputError
from rewindow.names import BOOKKEEPING, did_you_mean, quoted_column
from rewindow.operators.event_time_windows.firing import WINDOW
from rewindow.operators.event_time_windows.retriggering import RETRACTION
from rewindow.sequences import excluding
from rewindow.spark.columns import named_columns, or_false
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Accumulation = Literal["discarding", "accumulating", "retracting"]
BEGIN, END, PANE, KIND, FIRED = WINDOW
_ADDED = {"count": "sum", "max": "max", "min": "min", "sum": "sum"}
"""Aggregate to the function that computes the window's value from those of its panes."""
_ROW = "_row"
_MANY = "_many"
_IS_BACK = "_is_back"
_LEAST = "_least"
_MOST = "_most"
DIFFER = "several different rows were fired for one window and pane; pass all keys in `keys`: "
SEVERAL = (
    "several rows were fired for one window, and no retractions of the older ones; pass "
    "`accumulation` if the windows do not retract: "
)
_ABOUT = (*BOOKKEEPING, "arrived_at")
"""Columns that may differ between duplicates of a fired row."""


def current_windows(
    fired: DataFrame,
    keys: Sequence[str] = (),
    *,
    accumulation: Accumulation = "retracting",
    aggregates: Mapping[str, tuple[str, str] | str] | None = None,
) -> DataFrame:
    """Returns the newest row that was emitted for each window and key.

    A row that was retracted does not count, so a session that was replaced by another one is not in
    the result. The call itself runs no query.

    Args:
        fired: rows of `fired`, of `event_windows` or as published by `AggregateWindows`, in any
            order. They may contain duplicates, and rows that this function has returned.
        keys: columns that the windows are grouped by, `recording_keys` of the function included. A
            null is a key like any other.
        accumulation: that of the windows. The columns of `retracting` and `accumulating` windows
            are unchanged. The panes of `discarding` windows are added up: the result has the keys,
            the columns of the window with the pane, kind and tick of the newest row, and
            `aggregates`. The sum counts as one pane, as old as its newest: merge it with later
            panes only.
        aggregates: required for `discarding`, as they were passed to the windows: `{"clicks":
            ("count", "*")}`, or `{"clicks": "count(*)"}`. Averages cannot be added up.

    Raises:
        InputError: a column is missing, or panes cannot be added up. A query over the result fails
            if rows of one window, key and pane differ, which happens if not all keys are named; and
            if retracting windows have two rows for one window and neither is retracted.

    Rules: E49, E69
    """
    if accumulation not in get_args(Accumulation):
        raise InputError(
            f'accumulation must be one of {", ".join(get_args(Accumulation))}, not "{accumulation}"'
        )
    functions = _functions(aggregates) if accumulation == "discarding" else {}
    missing = excluding((*keys, *WINDOW, *functions), fired.columns)
    if missing:
        available = f"Available columns: {', '.join(fired.columns)}."
        hint = did_you_mean(missing[0], fired.columns) or available
        raise InputError(f"fired rows have no column {', '.join(missing)}", hint=hint)
    # Rows are reduced to one per pane, then to one per window. Duplicates of a row have the same
    # content, so the smallest and the largest hash of a pane's rows show whether they differ.
    window = [*named_columns(keys), F.col(BEGIN), F.col(END)]
    is_back = F.col(KIND) == RETRACTION
    row = F.max_by(F.when(~is_back, F.struct("*")), F.when(~is_back, F.col(FIRED)))
    content = F.when(~is_back, F.xxhash64(*_content(fired)))
    whole = [
        row.alias(_ROW),
        F.max(is_back).alias(_IS_BACK),
        F.min(content).alias(_LEAST),
        F.max(content).alias(_MOST),
    ]
    panes = fired.groupBy(*window, PANE).agg(*whole)
    differ = or_false(F.col(_LEAST) != F.col(_MOST))
    panes = panes.where(F.when(differ, _failure(DIFFER, window)).otherwise(~F.col(_IS_BACK)))
    added = []
    for name, function in functions.items():
        added.append(F.call_function(_ADDED[function], _of_row(name)).alias(name))
    newest = panes.groupBy(*window).agg(
        F.max_by(_ROW, PANE).alias(_ROW),
        F.count("*").alias(_MANY),
        *added,
    )
    if accumulation == "retracting":
        newest = newest.where(
            F.when(F.col(_MANY) == 1, F.lit(True)).otherwise(_failure(SEVERAL, window))
        )
    if not functions:
        return newest.select(f"{_ROW}.*")
    columns = []
    for name in (*keys, *WINDOW):
        columns.append(_of_row(name).alias(name))
    for name in functions:
        total = F.col(quoted_column(name))
        columns.append(total.cast(fired.schema[name].dataType).alias(name))
    return newest.select(*columns)


def _of_row(name: str) -> Column:
    """Returns a column of the newest row."""
    return F.col(f"{_ROW}.{quoted_column(name)}")


def _functions(aggregates: Mapping[str, tuple[str, str] | str] | None) -> dict[str, str]:
    """Returns the function of each aggregate by name.

    Raises an error if the results of several panes cannot be added up.
    """
    if not aggregates:
        raise InputError(
            "panes of discarding windows cannot be added up without `aggregates`",
            hint='Pass the aggregates of the windows, such as aggregates={"clicks": ("count", '
            '"*")}.',
        )
    functions = {}
    for name, call in aggregates.items():
        written = call.partition("(")[0] if isinstance(call, str) else call[0]
        function = functions[name] = written.strip().lower()
        if function not in _ADDED:
            raise InputError(
                f'aggregate "{name}" cannot be computed from panes: {function} cannot be added up',
                detail=f"These functions can be added up: {', '.join(_ADDED)}.",
                hint="For an average, divide a sum by a count; or use accumulating windows.",
            )
    return functions


def _content(fired: DataFrame) -> list[Column]:
    """Returns the columns in which duplicates of a fired row are equal.

    Maps are excluded, because they cannot be compared.
    """
    names = []
    for name, kind in fired.dtypes:
        if name not in _ABOUT and "map<" not in kind:
            names.append(name)
    return named_columns(names)


def _failure(text: str, window: Sequence[Column]) -> Column:
    """Returns an expression that fails the query with a message that names the window."""
    return F.raise_error(F.concat(F.lit(text), F.to_json(F.struct(*window)))).cast("boolean")
