"""Gap filling of a DataFrame: creates rows where a key was silent, and records their sources.

    filled = fill_gaps(
        weather, FillSettings(event_at="at", step="1 h", ..., columns={"temp": "linear"})
    )

One sort of the rows by key and time finds every gap with the rows on both sides; if there are few
keys, the sort runs in blocks of time (`blocks`). Only the missing rows are created, from their gap.
There is no series of all expected rows, and no join with one; only seasonal values need a join,
with the rows of their period.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.names import did_you_mean, quoted_column
from rewindow.operators.filling.blocks import (
    BLOCK,
    BLOCKS,
    COSTLY,
    in_blocks,
    in_order,
    with_blocks,
)
from rewindow.operators.filling.settings import FillRules, FillSettings
from rewindow.operators.filling.sources import (
    bounded_sides,
    filled_nulls,
    no_sides,
    with_sides,
    with_usable,
)
from rewindow.operators.filling.values import (
    COUNTS,
    FILLED_PREFIX,
    HASH,
    IS_MADE,
    NEXT,
    OPEN,
    OUTLIERS,
    OWN,
    POINT,
    PREVIOUS,
    PROVENANCE,
    ROW,
    START,
    TS,
    UNIT_US,
    UNTIL,
    filled_column,
    in_range,
    make_rows,
    outliers,
    place_rows,
    row_hash,
    with_places,
    with_provenance,
    with_season,
)
from rewindow.operators.schedule.expected_keys import never_there
from rewindow.sequences import excluding, matching_names, numbered_names
from rewindow.spark.columns import (
    aliased,
    bigint,
    column_types,
    named_columns,
    null_of,
    or_false,
    renamed_columns,
)
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEHIND = "_rw_behind"
_IS_FIRST = "_rw_is_first"
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def fill_gaps(frame: DataFrame, settings: FillSettings) -> DataFrame:
    """Returns all rows of a frame, and creates a row for each row of a key that is missing in the
    range.

    The call itself runs no query. The rows of the frame are unchanged. This includes duplicates and
    rows that are off the grid, outside the range, or have a null key or timestamp. If you remove
    the created rows and the columns below, the result is the frame. Rows that an earlier call
    created are created again and are never a source. To order the result with recorded rows first,
    sort by keys, time and `_rw_is_made`.

    Args:
        frame: the rows.
        settings: grid, range, keys, methods.

    Returns:
        The frame's columns, then `_rw_is_made BOOLEAN`, and for a created row `_rw_made_rows
            BIGINT` (number of rows that it represents: 1, or more if a gap has more than
            `max_rows`), `_rw_gap_id STRING` (the same for all rows of a gap), `_rw_gap_is_open
            BOOLEAN` (the gap reaches the start or end of the range), `_rw_methods MAP<STRING,
            STRING>` (column to method; `none` if the gap is longer than `max_gap`, `expired` if a
            source is further away than `max_carry`), `_rw_before_us` and `_rw_after_us BIGINT`
            (timestamps of the rows around the gap), `_rw_sources MAP<STRING, ARRAY<BIGINT>>`
            (column to the timestamps of the rows from which its value is computed). For each column
            with `treat_null_as_missing` also `_rw_filled_<column>`: the value for a recorded null,
            which remains null; `_rw_methods` of that row has its method. With `min_value` or
            `max_value` also `_rw_outliers ARRAY<STRING>`: the columns of a recorded row whose
            values are out of bounds.

    Raises:
        InputError: a column is missing or has a type that its method cannot fill.

    Rules: G4, G5, G10, G26, G27, G40, G41, G43, G44
    """
    if IS_MADE in frame.columns:
        filled = [name for name in frame.columns if name.startswith(FILLED_PREFIX)]
        frame = frame.where(~or_false(F.col(IS_MADE))).drop(
            *PROVENANCE,
            OUTLIERS,
            *filled,
        )
    check_columns(dict(frame.dtypes), settings)
    rows = place_rows(frame, settings)
    made = make_rows(_gaps(rows, settings), rows, frame, settings)
    recorded = with_provenance(frame)
    added = [*PROVENANCE, *map(filled_column, settings.nulls)]
    if settings.nulls:
        recorded = with_provenance(_with_filled_nulls(frame, rows, settings))
    if settings.bounded_columns:
        recorded = recorded.withColumn(OUTLIERS, outliers(settings))
        added = [*added, OUTLIERS]
    columns = list(map(quoted_column, (*frame.columns, *added)))
    return recorded.select(*columns).unionByName(made, allowMissingColumns=True)


def _with_filled_nulls(
    frame: DataFrame,
    rows: DataFrame,
    settings: FillSettings,
) -> DataFrame:
    """Returns all rows of a frame, with values for recorded nulls.

    The frame is read only once. So if two reads of the frame would differ, no row is lost or
    duplicated.

    Rules: G40
    """
    marked = with_usable(with_places(frame, settings), settings)
    marked = with_blocks(
        marked.withColumn(HASH, row_hash(marked)),
        settings,
        cost=COSTLY,
    )
    # Rows that do not count may have any timestamp, and their order does not matter.
    if BLOCK in marked.columns:
        marked = marked.withColumn(
            BLOCK,
            F.when(F.col(COUNTS), F.col(BLOCK)).otherwise(F.pmod(HASH, F.lit(BLOCKS))),
        )

    def step(rows: DataFrame, by: list[str], order: list[str]) -> DataFrame:
        return with_sides(rows, settings, by, order=order)

    marked = in_blocks(
        marked,
        step,
        F.lit(True),
        by=[*settings.keys, COUNTS],
        order=[TS, HASH],
    )
    marked = marked.withColumns(bounded_sides(marked, settings))
    for period_us in settings.periods_us:
        marked = with_season(marked, rows, settings, period_us=period_us)
    return filled_nulls(marked, settings, F.col(COUNTS))


def check_columns(types: Mapping[str, str], settings: FillRules) -> None:
    """Raises an error for a frame that cannot be filled.

    Args:
        types: its columns and their types, as Spark writes them.
        settings: the columns that are used.

    Raises:
        InputError: a column is missing, or has a type or a name that cannot be used.
    """
    absent = excluding((settings.event_at, *settings.keys, *settings.columns), types)
    for fill in settings.columns.values():
        if fill.column and fill.column not in types:
            absent.append(fill.column)
    if absent:
        meant = did_you_mean(absent[0], types)
        raise InputError(
            f"frame has no column {', '.join(absent)}. {meant}Available columns: {', '.join(types)}"
        )
    if taken := matching_names(types, OWN):
        raise InputError(
            f"column {', '.join(taken)} has a name that gap filling reserves for its results",
            hint="Rename the column.",
        )
    kind = types[settings.event_at]
    if kind not in ("timestamp", "timestamp_ntz", "bigint", "int"):
        raise InputError(
            f'column "{settings.event_at}" must be a timestamp or an integer, not {kind}',
            hint="Convert it first, for example with to_timestamp.",
        )
    if settings.zone is None and not kind.startswith("timestamp"):
        _check_unit(settings)
    for name, fill in settings.columns.items():
        is_line = fill.method == "linear" or fill.fallback == "linear"
        if is_line and not types[name].startswith(_NUMBERS):
            raise InputError(
                f'column "{name}" cannot be interpolated: it must be a number, not {types[name]}',
                hint="Use nearest, forward or another method.",
            )
        if fill.is_guarded and not types[name].startswith(_NUMBERS):
            raise InputError(
                f'column "{name}" cannot have min_value or max_value: it must be a number, not '
                f"{types[name]}"
            )
        if fill.method == "previous_of" and types[name] != types[str(fill.column)]:
            raise InputError(
                f'column "{name}" is {types[name]}, but "{fill.column}" is '
                f"{types[str(fill.column)]}: previous_of needs a column of the same type"
            )


def _check_unit(settings: FillRules) -> None:
    """Raises an error if a whole number of units cannot represent the points of the grid, because
    two points would then have the same timestamp.
    """
    if settings.step_us % UNIT_US[settings.unit] or settings.origin % UNIT_US[settings.unit]:
        raise InputError(
            f'column "{settings.event_at}" counts whole {settings.unit}, but step or origin is not '
            f"a multiple of 1 {settings.unit}",
            detail=f"The step is {settings.step_us} us, the origin {settings.origin} us.",
            hint="Use a step and an origin that are multiples of the unit, or convert the column "
            "to a finer unit first.",
        )


def _beside_gaps(rows: DataFrame, settings: FillSettings) -> DataFrame:
    """Returns the rows next to gaps and the first row of each key, with the following row and its
    grid point.

    The following row and its grid point are null for the last row of a key. Columns with separate
    sources have their sides. Source values are sorted as separate columns, because a struct of them
    would double the size.
    """
    # The values of a row are split into columns, and a lead reads each from the following row. A
    # struct of them would double the width of the rows that are sorted.
    types = column_types(rows.schema[ROW].dataType)  # type: ignore[arg-type]
    own = {**numbered_names(types, "_rw_own_"), TS: TS}
    behind = numbered_names(types, "_rw_behind_")
    values = []
    unknown = {_IS_FIRST: F.lit(True), _BEHIND: bigint(None)}
    ahead = {_BEHIND: POINT}
    for name, kind in types.items():
        if name != TS:
            values.append(F.col(ROW).getField(name).alias(own[name]))
        unknown[behind[name]] = null_of(kind)
        ahead[behind[name]] = own[name]
    rows = rows.select("*", *values, row_hash(rows).alias(HASH)).drop(ROW).withColumns(unknown)
    by = [*settings.keys]
    order = [TS, HASH]

    def step(rows: DataFrame, by: list[str], order: list[str]) -> DataFrame:
        over = in_order(by, order)
        is_open = F.col(_BEHIND).isNull()
        columns = {}
        for at, name in ahead.items():
            columns[at] = F.when(is_open, F.lead(name).over(over)).otherwise(F.col(at))
        columns[_IS_FIRST] = F.col(_IS_FIRST) & (F.row_number().over(over) == 1)
        return with_sides(rows.withColumns(columns), settings, by, order=order)

    # Most rows are not next to a gap. They are dropped before their structs are built.
    at_gap = F.col(_IS_FIRST) | F.col(_BEHIND).isNull() | (F.col(_BEHIND) > F.col(POINT) + 1)
    # Sorting for recorded nulls without blocks takes as long, so blocks would not save time here.
    cost = COSTLY if settings.nulls else 1
    rows = in_blocks(
        with_blocks(rows, settings, cost=cost),
        step,
        at_gap,
        by=by,
        order=order,
        is_far=bool(settings.source_columns),
    )
    row = F.struct(*renamed_columns(dict(zip(own.values(), own, strict=True))))
    following = F.struct(*renamed_columns(dict(zip(behind.values(), behind, strict=True))))
    return rows.withColumns({ROW: row, NEXT: F.when(F.col(_BEHIND).isNotNull(), following)})


def _gaps(rows: DataFrame, settings: FillSettings) -> DataFrame:
    """Returns one row per gap: its keys, its first point, the point after it, whether it is open,
    and the rows around it.

    Rules: G8
    """
    # Each row has at most two gaps: the one after it, and, if it is the first of its key, the one
    # from the start of the range to it. Both are created from one row, as an array of structs, so
    # the rows are not read again for the gaps at the start.
    keys = named_columns(settings.keys)
    rows = _beside_gaps(with_usable(rows.select(*keys, TS, POINT, ROW), settings), settings)
    nothing = null_of(rows.schema[ROW].dataType)
    point = F.col(POINT)
    end = F.lit(settings.end_point)
    first = F.lit(settings.first_point)
    behind = F.struct(
        (point + 1).alias(START),
        F.coalesce(_BEHIND, end).cast("bigint").alias(UNTIL),
        F.col(_BEHIND).isNull().alias(OPEN),
        F.col(ROW).alias(PREVIOUS),
        F.col(NEXT).alias(NEXT),
        *aliased(bounded_sides(rows, settings)),
    )
    ahead = F.struct(
        first.cast("bigint").alias(START),
        point.alias(UNTIL),
        F.lit(True).alias(OPEN),
        nothing.alias(PREVIOUS),
        F.col(ROW).alias(NEXT),
        *aliased(bounded_sides(rows, settings, is_ahead=True)),
    )
    both = F.when(F.col(_IS_FIRST), F.array(ahead, behind)).otherwise(F.array(behind))
    found = rows.select(*keys, F.inline(both))
    never = never_there(rows, settings.keys, settings.expected_keys)
    if never is None:
        return in_range(found, settings)
    empty = no_sides(rows, settings, first - 1, behind=end)
    whole = never.select(
        *keys,
        first.cast("bigint").alias(START),
        end.cast("bigint").alias(UNTIL),
        F.lit(True).alias(OPEN),
        nothing.alias(PREVIOUS),
        nothing.alias(NEXT),
        *aliased(empty),
    )
    return in_range(found.unionByName(whole), settings)
