"""The current filled rows, without created rows for which a recorded one has arrived later.

A recorded row that arrives late, but before its window was sealed, does not change rows that were
published before: the row that was created for it remains in an earlier window. Readers of the table
remove it:

    weather = current_filled(spark.read.format("delta").load(path), filling)

Rules: G42
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.names import quoted_column
from rewindow.operators.filling.settings import FillRules
from rewindow.operators.filling.values import (
    COUNTS,
    IS_MADE,
    POINT,
    ROW,
    ROWS,
    TS,
    event_value,
    place_rows,
    with_places,
)
from rewindow.sequences import excluding
from rewindow.spark.columns import named_columns, or_false, union_all
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CUTS = "_rw_cuts"
_BEFORE = "_rw_cut_before"
_BEHIND = "_rw_cut_behind"
_ID = "_rw_id"


def current_filled(filled: DataFrame, settings: FillRules) -> DataFrame:
    """Returns filled rows without the created rows that a recorded row of the same key and grid
    point replaces.

    The result depends on the set of rows, not on their order. Calling the function on its own
    result changes nothing. The call itself runs no query.

    Args:
        filled: rows of `fill_gaps`, or as published by `FillGaps`.
        settings: the settings with which they were filled: `FillSettings`, or `rules()` of the
            operator.

    Returns:
        All recorded rows, and the created ones that still represent a missing row. A row that
            represents many is replaced by a row for each remaining part of its gap, with the same
            values.

    Raises:
        InputError: a column is missing.

    Rules: G42
    """
    wanted = (IS_MADE, ROWS, settings.event_at, *settings.keys)
    if missing := excluding(wanted, filled.columns):
        available = ", ".join(filled.columns)
        hint = f"Pass rows of fill_gaps or FillGaps. Available columns: {available}."
        raise InputError(f"filled rows have no column {', '.join(missing)}", hint=hint)
    is_made = or_false(F.col(IS_MADE))
    all_recorded = filled.where(~is_made)
    placed = place_rows(all_recorded, settings, [])
    recorded = placed.select(*named_columns(settings.keys), POINT).distinct()
    made = with_places(filled.where(is_made), settings, []).drop(ROW, COUNTS)
    of_one_row = made.where(F.col(ROWS) == 1)
    still_missing = of_one_row.join(recorded, [*settings.keys, POINT], "left_anti")
    of_many_rows = made.where(F.col(ROWS) > 1)
    stretches = _stretches(of_many_rows, recorded, settings)
    columns = named_columns(filled.columns)
    return union_all([all_recorded, still_missing.select(*columns), stretches.select(*columns)])


def _stretches(made: DataFrame, recorded: DataFrame, settings: FillRules) -> DataFrame:
    """Returns one row for each run of points without a recorded row, for created rows that
    represent several points.
    """
    # The points of recorded rows divide a created row into parts. Together with the points before
    # and after the gap they are paired in order: each pair has one remaining part between its
    # points, which may be empty.
    begin = F.col(f"made.{POINT}")
    point = F.col(f"recorded.{POINT}")
    is_in = (point >= begin) & (point < begin + F.col(f"made.{ROWS}"))
    for name in map(quoted_column, settings.keys):
        is_in = is_in & (F.col(f"made.{name}") == F.col(f"recorded.{name}"))
    numbered = made.withColumn(_ID, F.monotonically_increasing_id()).alias("made")
    beside = numbered.join(recorded.alias("recorded"), is_in, "left").groupBy(f"made.{_ID}")
    found = beside.agg(F.first(F.struct("made.*")).alias(ROW), F.collect_set(point).alias(_CUTS))
    begin = F.col(f"{ROW}.{POINT}")
    count = F.col(f"{ROW}.{ROWS}")
    ahead = F.array_sort(F.concat(F.array(begin - 1), _CUTS))
    behind = F.array_sort(F.concat(F.array(begin + count), _CUTS))
    pairs = F.arrays_zip(ahead.alias(_BEFORE), behind.alias(_BEHIND))
    cut = found.select(f"{ROW}.*", F.explode(pairs).alias(_CUTS))
    length = F.col(f"{_CUTS}.{_BEHIND}") - F.col(f"{_CUTS}.{_BEFORE}") - 1
    cut = cut.withColumns(
        {ROWS: length, TS: settings.grid.start(F.col(f"{_CUTS}.{_BEFORE}") + 1)}
    ).where(length > 0)
    stamp = event_value(cut, settings).cast(made.schema[settings.event_at].dataType)
    return cut.withColumn(settings.event_at, stamp)
