"""The content of created rows: keys, timestamp, values by the method of each column, and the
sources of these values.

A gap is a row with its keys, `FROM` and `UNTIL` (grid points; `UNTIL` is the first one after the
gap), `OPEN`, and the rows on both sides, `PREVIOUS` and `NEXT`, each a struct of its timestamp and
its source values.

Rules: G19 to G24, G26, G27
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING, NamedTuple

from rewindow.names import quoted_column
from rewindow.operators.columns import floor_div, instant_us
from rewindow.operators.filling.settings import ColumnFill, FillRules
from rewindow.sequences import numbered_names
from rewindow.spark.columns import bigint, column_types, named_columns, null_of, or_false
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

IS_MADE = "_rw_is_made"
ROWS = "_rw_made_rows"
GAP = "_rw_gap_id"
IS_OPEN = "_rw_gap_is_open"
METHODS = "_rw_methods"
BEFORE = "_rw_before_us"
AFTER = "_rw_after_us"
SOURCES = "_rw_sources"
PROVENANCE = (
    IS_MADE,
    ROWS,
    GAP,
    IS_OPEN,
    METHODS,
    BEFORE,
    AFTER,
    SOURCES,
)
"""Columns that `fill_gaps` adds; its docstring describes them.

Rules: G39
"""
FILLED_PREFIX = "_rw_filled_"
"""Prefix of the name of a column with the values for another column's recorded nulls."""
NONE = "none"
EXPIRED = "expired"
EXTRAPOLATED = "extrapolated"
"""Values of `_rw_methods` when no fill method applied: gap too long, source too far away,
interpolation with a row on one side only.
"""
OUTLIERS = "_rw_outliers"
"""Names of the columns of a recorded row whose values are out of bounds."""
TS = "_rw_ts"
POINT = "_rw_point"
ROW = "_rw_row"
NEXT = "_rw_next"
PREVIOUS = "_rw_previous"
FROM = "_rw_from"
UNTIL = "_rw_until"
OPEN = "_rw_open"
COUNTS = "_rw_counts"
HASH = "_rw_hash"
"""Whether a row counts as a source; a hash that distinguishes it from others with the same
timestamp, see `row_hash`.
"""
START = "_rw_start"
"""First point of the whole gap. `FROM` may be the first point of a part of it: the part with the
same sources, or in the range.
"""
AT = "_rw_arrived_us"
"""Arrival of a row, or of the row that closes a gap."""
OWN = {NEXT, PREVIOUS, TS, POINT, ROW, FROM, UNTIL, OPEN, COUNTS}
UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
_WHOLE_DIGITS = 18
"""Digits up to which Spark computes exactly with a decimal as a whole number."""


def place_rows(
    frame: DataFrame,
    settings: FillRules,
    names: list[str] | None = None,
) -> DataFrame:
    """Returns the rows that can be sources: their keys are not null, and their timestamp is in the
    range.

    Adds the timestamp, the grid point, and the source values as one struct, limited to the columns
    `names`.
    """
    return with_places(frame, settings, names).where(COUNTS).drop(COUNTS)


def with_places(
    frame: DataFrame,
    settings: FillRules,
    names: list[str] | None = None,
) -> DataFrame:
    """Returns all rows with the columns of `place_rows`, and whether they can be sources."""
    placed = frame.withColumn(TS, timestamp(frame, settings))
    placed = placed.withColumn(POINT, settings.grid.point(F.col(TS)))
    counts = F.col(POINT).between(settings.first_point, settings.end_point - 1)
    if settings.look_back_us is not None and settings.from_time is not None:
        is_seen = F.col(TS) >= settings.from_time - settings.look_back_us
        counts = is_seen & (F.col(POINT) < settings.end_point)
    for key in settings.keys:
        counts = counts & F.col(quoted_column(key)).isNotNull()
    row = F.struct(
        F.col(TS),
        *named_columns(sources(names or frame.columns, settings)),
    )
    return placed.withColumns({ROW: row, COUNTS: or_false(counts)})


def timestamp(frame: DataFrame, settings: FillRules) -> Column:
    """Returns the event timestamp in microseconds."""
    kind = frame.schema[settings.event_at].dataType
    column = F.col(quoted_column(settings.event_at))
    return instant_us(column, kind, UNIT_US[settings.unit])


def event_value(frame: DataFrame, settings: FillRules) -> Column:
    """Returns `TS` in the unit of the timestamp column, before it is cast to the type of that
    column.
    """
    is_time = dict(frame.dtypes)[settings.event_at].startswith("timestamp")
    return F.timestamp_micros(TS) if is_time else _div(F.col(TS), settings.unit)


def sources(names: list[str], settings: FillRules) -> list[str]:
    """Returns the columns from which values are computed."""
    wanted = set()
    for name, fill in settings.columns.items():
        wanted.add(fill.column or name)
    return [name for name in names if name in wanted]


def row_hash(rows: DataFrame) -> Column:
    """Returns a hash of a row's source values without maps.

    The hash distinguishes rows with the same timestamp.
    """
    columns = []
    for name, kind in rows.select(f"{ROW}.*").dtypes:
        if "map<" not in kind:
            columns.append(F.col(f"{ROW}.{quoted_column(name)}"))
    return F.xxhash64(*columns)


def in_range(gaps: DataFrame, settings: FillRules) -> DataFrame:
    """Returns the gaps that overlap the range, with `FROM` set to their first point in the
    range.
    """
    inside = F.greatest(START, F.lit(settings.first_point)).cast("bigint")
    return gaps.withColumn(FROM, inside).where(F.col(FROM) < F.col(UNTIL))


def make_rows(
    gaps: DataFrame,
    rows: DataFrame,
    frame: DataFrame,
    settings: FillRules,
    given: Mapping[str, Column] | None = None,
) -> DataFrame:
    """Returns the created rows of gaps, with all columns of the frame and `PROVENANCE`.

    Args:
        gaps: a row for each gap.
        rows: rows for seasonal values, as returned by `place_rows`.
        frame: the frame that has the columns of the result.
        settings: the fill methods.
        given: columns of the frame whose values are expressions over the columns of gaps, `POINT`
            and `TS`.
    """
    # The rows of a gap are created from the gap only, as a sequence of its points. A gap with too
    # many points becomes one row, which represents all of them.
    count = F.col(UNTIL) - F.col(FROM)
    is_long = count > settings.max_rows
    points = F.when(is_long, F.array(FROM)).otherwise(F.sequence(F.col(FROM), F.col(UNTIL) - 1))
    rows_each = F.when(is_long, count).otherwise(1).cast("bigint")
    made = gaps.select("*", rows_each.alias(ROWS), F.explode(points).alias(POINT))
    made = made.withColumn(TS, settings.grid.start(F.col(POINT)))
    for period_us in settings.periods_us:
        made = with_season(made, rows, settings, period_us=period_us)
    return _filled_rows(made, frame, settings, given=given or {})


def with_provenance(frame: DataFrame) -> DataFrame:
    """Adds the provenance columns of created rows to recorded rows, as null or false.

    Existing methods and sources are kept.
    """
    return frame.withColumns(
        {
            IS_MADE: F.lit(False),
            ROWS: bigint(None),
            GAP: null_of("string"),
            IS_OPEN: null_of("boolean"),
            BEFORE: bigint(None),
            AFTER: bigint(None),
            METHODS: F.col(METHODS) if METHODS in frame.columns else null_of("map<string,string>"),
            SOURCES: F.col(SOURCES)
            if SOURCES in frame.columns
            else null_of("map<string,array<bigint>>"),
        }
    )


def previous_side(name: str) -> str:
    """Returns the name of the column with the previous usable row, for a column with separate
    sources; see `with_sides`.
    """
    return f"_rw_previous_{name}"


def next_side(name: str) -> str:
    """Returns the name of the column with the next usable row, for a column with separate
    sources.
    """
    return f"_rw_next_{name}"


def filled_column(name: str) -> str:
    """Returns the name of the column that has the values for a column's recorded nulls."""
    return f"{FILLED_PREFIX}{name}"


def is_outlier(value: Column, fill: ColumnFill) -> Column:
    """Returns whether a value is outside the bounds of its column. Null counts as inside."""
    beyond = F.isnan(value.cast("double"))
    if fill.min_value is not None:
        beyond = beyond | (value < fill.min_value)
    if fill.max_value is not None:
        beyond = beyond | (value > fill.max_value)
    return or_false(beyond)


def is_within_bounds(value: Column, fill: ColumnFill) -> Column:
    """Returns whether a value can be a source.

    Rules: G27
    """
    is_there = value.isNotNull() if fill.treat_null_as_missing else F.lit(True)
    return is_there & ~is_outlier(value, fill) if fill.is_guarded else is_there


def outliers(settings: FillRules) -> Column:
    """Returns an array with the names of the columns whose values in a row are NaN or out of
    bounds; null if there are none. A null value is within its bounds.
    """
    names = []
    for name, fill in settings.bounded_columns.items():
        names.append(F.when(is_outlier(F.col(quoted_column(name)), fill), F.lit(name)))
    outlying = F.array_compact(F.array(*names))
    return F.when(F.size(outlying) > 0, outlying)


def _season(period_us: int) -> str:
    return f"_rw_season_{period_us}"


def with_season(
    made: DataFrame,
    rows: DataFrame,
    settings: FillRules,
    period_us: int,
) -> DataFrame:
    """Adds the row of the same key one period earlier: the first row at the grid point of that
    time.

    If several rows have the same instant, a hash of their content selects one, so the choice is the
    same in every run.

    Rules: G24
    """
    keys = named_columns(settings.keys)
    first = F.min_by(ROW, F.struct(TS, row_hash(rows)))
    rows = rows.groupBy(*keys, POINT).agg(first.alias(_season(period_us)))
    same = numbered_names((*settings.keys, POINT), "_rw_key_")
    rows = rows.withColumnsRenamed(same)
    at = settings.grid.point(F.col(TS) - period_us)
    on = []
    for key in settings.keys:
        on.append(F.col(quoted_column(key)) == F.col(same[key]))
    on.append(at == F.col(same[POINT]))
    return made.join(rows, on, "left").drop(*same.values())


def _filled_rows(
    made: DataFrame,
    frame: DataFrame,
    settings: FillRules,
    given: Mapping[str, Column],
) -> DataFrame:
    types = column_types(frame.schema)
    values: dict[str, Column] = {**given, settings.event_at: event_value(frame, settings)}
    key_columns = named_columns(settings.keys)
    values |= dict(zip(settings.keys, key_columns, strict=True))
    methods = []
    rows_used = []
    made = looking_back(
        made.withColumn(BEFORE, F.col(PREVIOUS).getField(TS)),
        settings,
        PREVIOUS,
    )
    for name in settings.columns:
        values[name], word, rows = filled_value(name, types[name], settings)
        methods += [F.lit(name), word]
        rows_used += [F.lit(name), rows]
    # The id depends on the key and the start of the whole gap, not on the part of it in this range
    # or group. So all rows of a gap have the same id, however the recording is divided.
    gap_id = F.sha2(F.to_json(F.struct(*key_columns, F.col(START).alias(FROM))), 256)
    columns = []
    for name, kind in types.items():
        columns.append(values.get(name, F.lit(None)).cast(kind).alias(name))
    return made.select(
        *columns,
        F.lit(True).alias(IS_MADE),
        F.col(ROWS),
        F.substring(gap_id, 1, 16).alias(GAP),
        F.col(OPEN).alias(IS_OPEN),
        F.create_map(*methods).cast("map<string,string>").alias(METHODS),
        F.col(BEFORE),
        F.col(f"{NEXT}.{TS}").alias(AFTER),
        F.create_map(*rows_used).cast("map<string,array<bigint>>").alias(SOURCES),
    )


def looking_back(made: DataFrame, settings: FillRules, *rows: str) -> DataFrame:
    """Removes from created rows or recorded nulls the sources that are more than `look_back` before
    them.

    The sources are the rows of earlier periods, the sides of columns with separate sources, and the
    columns `rows`.

    Rules: G35
    """
    if (look_back_us := settings.look_back_us) is None:
        return made
    values = {}
    for side in (*rows, *map(_season, settings.periods_us)):
        is_near = F.col(TS) - _of(side, TS) <= look_back_us
        values[side] = F.when(is_near, F.col(side))
    for name in settings.source_columns:
        side = previous_side(name)
        is_near = F.col(TS) - _of(side, TS) <= look_back_us
        # The point at which the gap starts is kept, because it is not a source.
        values[side] = F.struct(
            F.when(is_near, _of(side, TS)).alias(TS),
            _of(side, POINT).alias(POINT),
            F.when(is_near, _of(side, name)).alias(name),
        )
    return made.withColumns(values)


def _div(value: Column, unit: str) -> Column:
    return floor_div(value, UNIT_US[unit])


def _of(side: str, name: str) -> Column:
    return F.col(quoted_column(side)).getField(name)


class _Choice(NamedTuple):
    """Value of a column in a created row, before bounds are applied.

    Attributes:
        value: of any type that can be cast to that of the column.
        word: the method.
        near: whether its sources are near enough; true if there is no source.
        rows: timestamps of the rows from which the value is computed, null without any.

    Rules: G30, G39
    """

    value: Column
    word: Column
    near: Column
    rows: Column


def filled_value(
    name: str,
    kind: DataType,
    settings: FillRules,
) -> tuple[Column, Column, Column]:
    """Returns value, method and sources of a column of the type `kind`.

    `max_gap` is applied after the other bounds, so it has precedence.

    Rules: G31
    """
    fill = settings.columns[name]
    value, word, near, rows = _choice(name, fill, fill.method, settings=settings, kind=kind)
    if fill.max_carry_us is not None:
        word = F.when(near, word).otherwise(EXPIRED)
        value = F.when(near, value)
        rows = F.when(near, rows)
    if fill.max_gap_us is not None:
        first = F.col(START)
        end = F.col(UNTIL)
        if name in settings.source_columns:
            first = _of(previous_side(name), POINT) + 1
            end = _of(next_side(name), POINT)
        length_us = settings.grid.length(first, end)
        short = length_us <= fill.max_gap_us
        value = F.when(short, value)
        word = F.when(short, word).otherwise(NONE)
        rows = F.when(short, rows)
    return value, word, rows


def _choice(
    name: str,
    fill: ColumnFill,
    method: str,
    settings: FillRules,
    kind: DataType,
) -> _Choice:
    carry_us = fill.max_carry_us
    before_at = PREVIOUS
    behind_at = NEXT
    if name in settings.source_columns:
        before_at = previous_side(name)
        behind_at = next_side(name)
    before_ts = _of(before_at, TS)
    behind_ts = _of(behind_at, TS)
    since = F.col(TS) - before_ts
    until = behind_ts - F.col(TS)
    yes = F.lit(True)
    word = F.lit(method)
    early = yes if carry_us is None else F.coalesce(since <= carry_us, yes)
    later = yes if carry_us is None else F.coalesce(until <= carry_us, yes)
    before = _of(before_at, name)
    behind = _of(behind_at, name)
    if method == "constant":
        return _Choice(F.lit(fill.value), word, yes, rows=F.lit(None))
    if method == "forward":
        return _Choice(before, word, early, rows=_one(before_ts))
    if method == "backward":
        return _Choice(behind, word, later, rows=_one(behind_ts))
    if method == "nearest":
        is_before = behind_ts.isNull() | or_false(since <= until)
        near = F.when(is_before, early).otherwise(later)
        ts = F.when(is_before, before_ts).otherwise(behind_ts)
        return _Choice(
            F.when(is_before, before).otherwise(behind),
            word,
            near,
            rows=_one(ts),
        )
    if method == "linear":
        both = F.when(before_ts.isNotNull() & behind_ts.isNotNull(), F.array(before_ts, behind_ts))
        # A recorded null may be between two values with its own timestamp.
        line = _line(before, behind, since, F.greatest(since + until, F.lit(1)), kind)
        if not fill.extrapolate:
            return _Choice(line, word, early & later, rows=both)
        one_side = (before_ts.isNull() | behind_ts.isNull()) & F.coalesce(since, until).isNotNull()
        line = F.when(one_side, F.coalesce(before, behind)).otherwise(line)
        word = F.when(one_side, EXTRAPOLATED).otherwise(word)
        return _Choice(
            line,
            word,
            early & later,
            rows=F.coalesce(both, _one(F.coalesce(before_ts, behind_ts))),
        )
    if method == "previous_of":
        return _Choice(
            _of(PREVIOUS, str(fill.column)),
            word,
            early,
            rows=_one(before_ts),
        )
    if method == "seasonal":
        return _seasonal(name, fill, settings, kind=kind)
    return _Choice(F.lit(None), word, yes, rows=F.lit(None))


def _line(
    first: Column,
    last: Column,
    since: Column,
    span: Column,
    kind: DataType,
) -> Column:
    """Interpolates linearly between two values.

    For whole numbers and decimals the result is exact, and the last digit is rounded half away from
    zero.

    Args:
        first, last: the values at the start and the end of the line.
        since: microseconds from the start to the value on the line, up to `span`.
        span: microseconds from the start to the end, above zero.
        kind: type of the values.
    """
    from pyspark.sql.types import DecimalType, IntegralType

    if isinstance(kind, IntegralType):
        return _whole_line(first, last, since, span)
    if not isinstance(kind, DecimalType):
        first = first.cast("double")
        last = last.cast("double")
        share = since / span
        line = first + (last - first) * share
        # The difference of two doubles may be infinite, but not the difference of their halves.
        halves = (first / 2 + (last / 2 - first / 2) * share) * 2
        return F.when(F.abs(last - first) == float("inf"), halves).otherwise(line)
    if kind.precision > _WHOLE_DIGITS:
        on_line = F.udf(_decimal_line(kind.precision, kind.scale), kind, useArrow=False)
        return on_line(first, last, since, span)
    # A decimal is converted to a whole number of units of its last digit.
    digits = DecimalType(_WHOLE_DIGITS, 0)
    units = F.lit(Decimal(10) ** kind.scale)
    unit = F.lit(Decimal(1).scaleb(-kind.scale))
    first = (first * units).cast(digits)
    last = (last * units).cast(digits)
    return _whole_line(first, last, since, span).cast(digits) * unit


def _whole_line(before: Column, behind: Column, since: Column, span: Column) -> Column:
    """Interpolates linearly between two whole numbers and returns a BIGINT."""
    # A product of a BIGINT and a time within `FARTHEST_US` has at most 38 digits, and so does the
    # weighted sum. `div` and `%` truncate towards zero.
    whole = "decimal(19,0)"
    weighted = before.cast(whole) * (span - since).cast(whole) + behind.cast(whole) * since.cast(
        whole
    )
    cut = F.call_function("div", weighted, span.cast(whole))
    rest = (weighted % span.cast(whole)).cast("bigint")
    is_up = F.abs(rest) >= span - F.abs(rest)
    return F.when(is_up, cut + F.signum(rest).cast("bigint")).otherwise(cut)


def _decimal_line(precision: int, scale: int) -> Callable[..., Decimal | None]:
    """Returns `_line` as a Python function, for decimals with more digits than Spark's arithmetic
    supports.
    """

    def on_line(
        before: Decimal | None,
        behind: Decimal | None,
        since: int | None,
        span: int | None,
    ) -> Decimal | None:
        if before is None or behind is None or since is None or span is None:
            return None
        with localcontext(prec=4 * precision, rounding=ROUND_HALF_UP):
            weighted = before * (span - since) + behind * since
            return (weighted / span).quantize(Decimal(1).scaleb(-scale))

    return on_line


def _one(ts: Column) -> Column:
    """Returns an array with only a row's timestamp; null if the timestamp is null."""
    return F.when(ts.isNotNull(), F.array(ts))


def _seasonal(
    name: str,
    fill: ColumnFill,
    settings: FillRules,
    kind: DataType,
) -> _Choice:
    # The expression is built from the inside out: the fallback first, the first period last. So the
    # first period with a row decides.
    value, word, near, rows = _choice(
        name,
        fill,
        fill.fallback,
        settings=settings,
        kind=kind,
    )
    for period_us in reversed(fill.periods_us):
        season = F.col(_season(period_us))
        is_there = season.isNotNull()
        if name in settings.source_columns:
            is_there = is_there & is_within_bounds(season.getField(name), fill)
        carried = F.lit(fill.max_carry_us is None or period_us <= fill.max_carry_us)
        value = F.when(is_there, season.getField(name)).otherwise(value)
        word = F.when(is_there, F.lit("seasonal")).otherwise(word)
        near = F.when(is_there, carried).otherwise(near)
        rows = F.when(is_there, F.array(season.getField(TS))).otherwise(rows)
    return _Choice(value, word, near, rows=rows)
