"""Gap filling of a DataFrame (docs/rules/heartbeat.md part 2): rows where a key was silent, and their sources.

    filled = fill_gaps(weather, FillSettings(event_at="at", step="1 h", ..., columns={"temp": "linear"}))

How it scales: one sort of the rows by key and time finds every gap with the rows on both of its sides; only the missing
rows are made, from their gap alone. There is no series of all expected rows, and no join with one; seasonal values
alone are joined, with the rows of their period.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewindow.errors import InputError
from rewindow.names import quoted_column
from rewindow.operators.filling.settings import ColumnFill, FillSettings
from rewindow.operators.heartbeat.clock import floor_div

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

IS_MADE, ROWS, GAP, IS_OPEN, METHODS, BEFORE, AFTER = PROVENANCE = (
    "_rw_is_made", "_rw_made_rows", "_rw_gap_id", "_rw_gap_is_open", "_rw_methods", "_rw_before_us", "_rw_after_us",
)  # fmt: skip
"""Columns that `fill_gaps` adds (G39); see there."""
NONE, EXPIRED = "none", "expired"
"""In the place of a method: the gap is too long; the source is too far away."""
_TS, _POINT, _ROW, _NEXT, _PREVIOUS = "_rw_ts", "_rw_point", "_rw_row", "next", "previous"
_FROM, _UNTIL, _OPEN = "_rw_from", "_rw_until", "_rw_open"
_OWN = {_NEXT, _PREVIOUS, _TS, _POINT, _ROW, _FROM, _UNTIL, _OPEN}
_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def fill_gaps(frame: DataFrame, settings: FillSettings) -> DataFrame:
    """Returns all rows of a frame, and a row for each that is missing of a key in the range (G4, G5, G10).

    Nothing runs here. Rows of the frame are unchanged, also those off the grid, twice, outside the range, or with a
    null as key or timestamp: without the rows that were made, and the columns below, the result is the frame (G40).
    Rows that an earlier filling made are made anew and never a source (G26, G43, G44).

    Args:
        frame: the rows.
        settings: grid, range, keys, methods.

    Returns:
        The frame's columns, then `_rw_is_made BOOLEAN`, and of a made row `_rw_made_rows BIGINT` (rows that it stands
        for: 1, more where a gap has more than `max_rows`), `_rw_gap_id STRING` (the same for all rows of a gap),
        `_rw_gap_is_open BOOLEAN` (it reaches the begin or end of the range), `_rw_methods MAP<STRING, STRING>` (column
        to method; `none` where the gap is longer than `max_gap`, `expired` where a source is further away than
        `max_carry`), `_rw_before_us` and `_rw_after_us BIGINT` (timestamps of the rows around the gap).

    Raises:
        InputError: a column is not there or has a type that its method cannot fill.
    """
    from pyspark.sql import functions as F

    if IS_MADE in frame.columns:
        frame = frame.where(~F.coalesce(F.col(IS_MADE), F.lit(False))).drop(*PROVENANCE)
    _check(frame, settings)
    columns = frame.columns
    gaps = _gaps(frame, settings)
    summed = F.col(_UNTIL) - F.col(_FROM) > settings.max_rows
    points = F.when(summed, F.array(_FROM)).otherwise(F.sequence(F.col(_FROM), F.col(_UNTIL) - 1))
    made = gaps.select("*", F.explode(points).alias(_POINT))
    made = made.withColumns({
        ROWS: F.when(summed, F.col(_UNTIL) - F.col(_FROM)).otherwise(1).cast("bigint"),
        _TS: F.col(_POINT) * settings.step_us + settings.origin,
    })  # fmt: skip
    for period in sorted({period for fill in settings.columns.values() for period in fill.periods}):
        made = _with_season(made, frame, settings, int(period * 1_000_000))
    rows = _made(made, frame, settings)
    none = {
        IS_MADE: F.lit(False), ROWS: F.lit(None).cast("bigint"), GAP: F.lit(None).cast("string"),
        IS_OPEN: F.lit(None).cast("boolean"), METHODS: F.lit(None).cast("map<string,string>"),
        BEFORE: F.lit(None).cast("bigint"), AFTER: F.lit(None).cast("bigint"),
    }  # fmt: skip
    return frame.withColumns(none).select(*map(quoted_column, columns), *PROVENANCE).unionByName(rows)


def _check(frame: DataFrame, settings: FillSettings) -> None:
    types = dict(frame.dtypes)
    absent = [name for name in (settings.event_at, *settings.keys, *settings.columns) if name not in types]
    absent += [fill.column for fill in settings.columns.values() if fill.column and fill.column not in types]
    if absent:
        raise InputError(f"frame has no column {', '.join(absent)}", hint=f"It has {', '.join(types)}.")
    taken = [name for name in settings.keys if name.lower() in _OWN]
    taken += [name for name in types if name.lower() in _OWN - {_NEXT, _PREVIOUS}]
    if taken:
        raise InputError(
            f"column {', '.join(taken)} has a name that filling needs for itself", hint="Rename it before."
        )
    kind = types[settings.event_at]
    if kind not in ("timestamp", "timestamp_ntz", "bigint", "int"):
        raise InputError(
            f'timestamp "{settings.event_at}" is {kind}, not a timestamp or a whole number',
            hint="Read it first, such as by to_timestamp.",
        )
    for name, fill in settings.columns.items():
        is_line = fill.method == "linear" or fill.fallback == "linear"
        if is_line and not types[name].startswith(_NUMBERS):
            raise InputError(
                f'column "{name}" is {types[name]}, which has no line between two values',
                hint="Take nearest, forward or another method.",
            )
        if fill.method == "previous_of" and types[name] != types[str(fill.column)]:
            raise InputError(f'column "{name}" is {types[name]}, "{fill.column}" is {types[str(fill.column)]}')


def _ts(frame: DataFrame, settings: FillSettings) -> Column:
    from pyspark.sql import functions as F

    column = F.col(quoted_column(settings.event_at))
    if dict(frame.dtypes)[settings.event_at].startswith("timestamp"):
        return F.unix_micros(column.cast("timestamp"))
    return column.cast("bigint") * _UNIT_US[settings.unit]


def _inside(frame: DataFrame, settings: FillSettings) -> DataFrame:
    """Returns the rows that count, with timestamp and grid point."""
    from pyspark.sql import functions as F

    placed = frame.withColumn(_TS, _ts(frame, settings))
    placed = placed.withColumn(_POINT, floor_div(F.col(_TS) - settings.origin, settings.step_us))
    counts = F.col(_POINT).between(settings.first_point, settings.end_point - 1)
    for key in settings.keys:
        counts = counts & F.col(quoted_column(key)).isNotNull()
    return placed.where(counts)


def _gaps(frame: DataFrame, settings: FillSettings) -> DataFrame:
    """Returns a row per gap (G8): keys, first point, the point behind it, if it is open, and the rows around it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = [F.col(quoted_column(key)) for key in settings.keys]
    row = F.struct(F.col(_TS), *(F.col(quoted_column(name)) for name in _sources(frame, settings))).alias(_ROW)
    rows = _inside(frame, settings).select(*keys, _TS, _POINT, row)
    # Rows of one instant are told apart by what they are a source of, so that it is always the same one.
    order = Window.partitionBy(*keys).orderBy(_TS, F.xxhash64(*_hashable(rows)))
    rows = rows.withColumns({
        "_rw_behind": F.lead(_POINT).over(order), _NEXT: F.lead(_ROW).over(order),
        "_rw_is_first": F.lag(_POINT).over(order).isNull(),
    })  # fmt: skip
    nothing = F.lit(None).cast(rows.schema[_ROW].dataType)
    point, end, first = F.col(_POINT), F.lit(settings.end_point), F.lit(settings.first_point)
    behind = F.struct(
        (point + 1).alias(_FROM), F.coalesce("_rw_behind", end).cast("bigint").alias(_UNTIL),
        F.col("_rw_behind").isNull().alias(_OPEN), F.col(_ROW).alias(_PREVIOUS), F.col(_NEXT).alias(_NEXT),
    )  # fmt: skip
    ahead = F.struct(
        first.cast("bigint").alias(_FROM), point.alias(_UNTIL), F.lit(True).alias(_OPEN),
        nothing.alias(_PREVIOUS), F.col(_ROW).alias(_NEXT),
    )  # fmt: skip
    both = F.when(F.col("_rw_is_first"), F.array(ahead, behind)).otherwise(F.array(behind))
    found = rows.select(*keys, F.inline(both)).where(F.col(_FROM) < F.col(_UNTIL))
    never = _never_there(rows, settings, frame)
    if never is None:
        return found
    whole = never.select(
        *keys, first.cast("bigint").alias(_FROM), end.cast("bigint").alias(_UNTIL), F.lit(True).alias(_OPEN),
        nothing.alias(_PREVIOUS), nothing.alias(_NEXT),
    )  # fmt: skip
    return found.unionByName(whole.where(F.col(_FROM) < F.col(_UNTIL)))


def _sources(frame: DataFrame, settings: FillSettings) -> list[str]:
    """Returns the columns that values are made from; an expression may name any."""
    fills = settings.columns
    if any(fill.method == "expression" for fill in fills.values()):
        return frame.columns
    named = {fill.column or name for name, fill in fills.items()}
    return [name for name in frame.columns if name in named]


def _hashable(rows: DataFrame) -> list[Column]:
    """Returns the columns of a source of which a hash can be taken: all but maps."""
    from pyspark.sql import functions as F

    kinds = rows.select(f"{_ROW}.*").dtypes
    return [F.col(f"{_ROW}.{quoted_column(name)}") for name, kind in kinds if "map<" not in kind]


def _never_there(rows: DataFrame, settings: FillSettings, frame: DataFrame) -> DataFrame | None:
    """Returns the expected keys without a row in the range (G7)."""
    from pyspark.sql.types import StructType

    if not settings.expected_keys:
        return None
    schema = StructType([frame.schema[key] for key in settings.keys])
    expected = frame.sparkSession.createDataFrame(sorted(set(settings.expected_keys)), schema)
    return expected.join(rows.select(*map(quoted_column, settings.keys)), list(settings.keys), "left_anti")


def _season(name: str, period_us: int) -> str:
    return f"_rw_season_{period_us}_{name}"


def _with_season(made: DataFrame, frame: DataFrame, settings: FillSettings, period_us: int) -> DataFrame:
    """Adds the row of the same key one period earlier: the first one in the grid point there (G24).

    Of several rows of that instant it is always the same one, told by what it holds.
    """
    from pyspark.sql import functions as F

    names = [name for name, fill in settings.columns.items() if period_us in {int(p * 1_000_000) for p in fill.periods}]
    keys = [F.col(quoted_column(key)) for key in settings.keys]
    values = F.struct(F.col(_TS), *(F.col(quoted_column(name)) for name in names))
    rows = _inside(frame, settings).withColumn(_ROW, values)
    first = F.min_by(_ROW, F.struct(_TS, F.xxhash64(*_hashable(rows))))
    rows = rows.groupBy(*keys, _POINT).agg(first.alias(_season("", period_us)))
    same = {key: f"_rw_key_{number}" for number, key in enumerate((*settings.keys, _POINT))}
    rows = rows.withColumnsRenamed(same)
    at = floor_div(F.col(_TS) - period_us - settings.origin, settings.step_us)
    on = [F.col(quoted_column(key)) == F.col(same[key]) for key in settings.keys] + [at == F.col(same[_POINT])]
    return made.join(rows, on, "left").drop(*same.values())


def _made(made: DataFrame, frame: DataFrame, settings: FillSettings) -> DataFrame:
    """Returns the made rows, with all columns."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegralType

    types = {field.name: field.dataType for field in frame.schema}
    at = types[settings.event_at]
    stamp = F.timestamp_micros(_TS) if at.typeName().startswith("timestamp") else _div(F.col(_TS), settings.unit)
    values: dict[str, Column] = {settings.event_at: stamp}
    values |= {key: F.col(quoted_column(key)) for key in settings.keys}
    methods = []
    for name, fill in settings.columns.items():
        value, word = _filled(name, fill, settings)
        is_whole = isinstance(types[name], IntegralType) and "linear" in (fill.method, fill.fallback)
        values[name] = F.round(value) if is_whole else value
        methods += [F.lit(name), word]
    gap_id = F.sha2(F.to_json(F.struct(*(F.col(quoted_column(key)) for key in settings.keys), _FROM)), 256)
    return made.select(
        *(values.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in types.items()),
        F.lit(True).alias(IS_MADE),
        F.col(ROWS),
        F.substring(gap_id, 1, 16).alias(GAP),
        F.col(_OPEN).alias(IS_OPEN),
        (F.create_map(*methods) if methods else F.create_map()).cast("map<string,string>").alias(METHODS),
        F.col(f"{_PREVIOUS}.{_TS}").alias(BEFORE),
        F.col(f"{_NEXT}.{_TS}").alias(AFTER),
    )


def _div(value: Column, unit: str) -> Column:
    return floor_div(value, _UNIT_US[unit])


def _of(side: str, name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(side).getField(name)


def _filled(name: str, fill: ColumnFill, settings: FillSettings) -> tuple[Column, Column]:
    """Returns value and method of a column in a made row; `max_gap` is asked first (G31)."""
    from pyspark.sql import functions as F

    value, word, near = _value(name, fill, fill.method, settings)
    if fill.max_carry is not None:
        word = F.when(near, word).otherwise(EXPIRED)
        value = F.when(near, value)
    if fill.max_gap is not None:
        length_us = (F.col(_UNTIL) - F.col(_FROM)) * settings.step_us
        short = length_us <= int(fill.max_gap * 1_000_000)
        value, word = F.when(short, value), F.when(short, word).otherwise(NONE)
    return value, word


def _value(name: str, fill: ColumnFill, method: str, settings: FillSettings) -> tuple[Column, Column, Column]:
    """Returns value, method, and whether its sources are near enough: one that is not there is not far (G30)."""
    from pyspark.sql import functions as F

    carry_us = None if fill.max_carry is None else int(fill.max_carry * 1_000_000)
    since, until = F.col(_TS) - _of(_PREVIOUS, _TS), _of(_NEXT, _TS) - F.col(_TS)
    yes, word = F.lit(True), F.lit(method)
    early = yes if carry_us is None else F.coalesce(since <= carry_us, yes)
    later = yes if carry_us is None else F.coalesce(until <= carry_us, yes)
    before, behind = _of(_PREVIOUS, name), _of(_NEXT, name)
    if method == "constant":
        return F.lit(fill.value), word, yes
    if method == "forward":
        return before, word, early
    if method == "backward":
        return behind, word, later
    if method == "nearest":
        is_before = _of(_NEXT, _TS).isNull() | F.coalesce(since <= until, F.lit(False))
        return F.when(is_before, before).otherwise(behind), word, F.when(is_before, early).otherwise(later)
    if method == "linear":
        share = since / (since + until)
        line = before.cast("double") + (behind.cast("double") - before.cast("double")) * share
        return line, word, early & later
    if method == "previous_of":
        return _of(_PREVIOUS, str(fill.column)), word, early
    if method == "expression":
        return F.expr(str(fill.sql)), word, early & later
    if method == "seasonal":
        return _seasonal(name, fill, settings)
    return F.lit(None), word, yes


def _seasonal(name: str, fill: ColumnFill, settings: FillSettings) -> tuple[Column, Column, Column]:
    from pyspark.sql import functions as F

    value, word, near = _value(name, fill, fill.fallback, settings)
    for period in reversed(fill.periods):
        period_us = int(period * 1_000_000)
        season = F.col(_season("", period_us))
        is_there = season.isNotNull()
        carried = F.lit(fill.max_carry is None or period <= fill.max_carry)
        value = F.when(is_there, season.getField(name)).otherwise(value)
        word = F.when(is_there, F.lit("seasonal")).otherwise(word)
        near = F.when(is_there, carried).otherwise(near)
    return value, word, near
