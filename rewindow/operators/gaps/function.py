"""Gap report of a DataFrame: lists the missing rows, values and arrivals, by key and column.

Example:
    settings = GapSettings(
        event_at="at", cadence="1 hour", from_time="2013-01-01", to_time="2014-01-01",
        keys=["origin"],
    )
    report = gap_report(weather, settings)
    report.gaps.show()
    report.completeness.show()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rewindow.errors import InputError
from rewindow.names import did_you_mean, quoted_column
from rewindow.operators.columns import floor_div
from rewindow.operators.event_time.lateness import timestamp_us
from rewindow.operators.gaps.settings import GapSettings
from rewindow.operators.gaps.sql import LULL, ROWS, RUN, GapSql
from rewindow.operators.schedule.expected_keys import expected_rows
from rewindow.sequences import excluding
from rewindow.spark.columns import bigint, null_of, renamed_columns
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

GAP = (
    "column",
    "kind",
    "from",
    "to",
    "length_us",
    "missing",
    "open_left",
    "open_right",
    "closed_by",
    "gap_id",
)
"""Columns of a gap in addition to its keys.

Rules: G9
"""


@dataclass(frozen=True)
class FrameGaps:
    """A gap report, as frames whose queries have not been run yet.

    Attributes:
        gaps: a row per gap. The keys; `column STRING`, null if whole rows are missing; `kind
            STRING` (missing_rows, recorded_nulls, lull, late_repaired, never_started, ended);
            `from`, `to TIMESTAMP`, start inclusive, end exclusive; `length_us BIGINT`, without
            closed hours; `missing BIGINT`, the number of missing rows or values; `open_left`,
            `open_right BOOLEAN`: the gap reaches that bound of the range and may continue beyond
            it; `closed_by STRING`, the window and offset of the tuple that ended it, if the frame
            has these columns; `gap_id STRING`, which does not depend on the division of the
            recording.
        completeness: a row per key, and per key and column. The keys; `column STRING`; `is_expected
            BOOLEAN`, null without expected keys; `expected BIGINT` rows, the sum of those that are
            `present`, those with a null in the column (`nulls`), those `missing` in the listed
            gaps, and those `tolerated` by the factor; `completeness DOUBLE`, the share of present
            rows.
        state: the runs of rows so far. Pass it as `state` of the next piece of the recording to
            include them in its report.
    """

    gaps: DataFrame
    completeness: DataFrame
    state: DataFrame


def gap_report(
    frame: DataFrame,
    settings: GapSettings,
    *,
    state: DataFrame | None = None,
) -> FrameGaps:
    """Returns the gaps of a frame between two times, by event time and by arrival time.

    The rows can be in any order, and rows with the same key and time count once. Rows without an
    event time are ignored. Rows before the range only show that their key had started. Rows after
    the range are ignored.

    Args:
        frame: the rows, with event time and keys; if it has `window_id` and `offset`, the report
            shows which tuple closed a gap.
        settings: the expected rows.
        state: `state` of the report on earlier pieces, created with the same settings.

    Raises:
        InputError: a column is missing, or has a wrong type.

    Rules: G1, G5
    """
    _check(frame, settings)
    sql = GapSql(settings, "div")
    session = frame.sparkSession
    runs = _ask(session, sql.runs("{rows}"), rows=_rows(frame, settings))
    names = [*sql.keys, "part", *RUN]
    # A report reads its runs, which are few, several times. The checkpoint computes them once.
    given = runs if state is None else runs.unionByName(state.toDF(*names))
    merged = (
        _ask(session, sql.merged("{runs}"), runs=given).select(*names).localCheckpoint(eager=False)
    )
    expected = ""
    more = {}
    if settings.expected_keys:
        expected = "select * from {expected}"
        expected_keys = expected_rows(frame, settings.keys, settings.expected_keys)
        more = {"expected": expected_keys.toDF(*sql.keys)}
    gaps = _ask(session, sql.gaps("{runs}", expected), runs=merged, **more)
    totals = _ask(
        session,
        sql.completeness("{runs}", expected),
        runs=merged,
        **more,
    )
    return FrameGaps(
        _shown_gaps(gaps, settings),
        _shown_totals(totals, settings),
        merged,
    )


@dataclass(frozen=True)
class Cadence:
    """How often a key sends, computed from its rows.

    Attributes:
        cadence_us: the most frequent distance between two times of a key, in microseconds.
        found: number of distances of this length.
        steps: number of all distances.
    """

    cadence_us: int
    found: int
    steps: int

    @property
    def share(self) -> float:
        """The share of all distances that have this length."""
        return self.found / self.steps


def learn_cadence(
    frame: DataFrame,
    event_at: str,
    keys: Sequence[str] = (),
    unit: Literal["us", "ms", "s"] = "us",
) -> Cadence:
    """Returns the most frequent time between two consecutive rows of a key.

    Runs a query. Check the result before you use it.

    Args:
        frame: the rows, with event time and keys.
        event_at: the event timestamp, a column or a SQL expression.
        keys: columns that identify the source of a row.
        unit: unit of a whole number in `event_at`.

    Raises:
        InputError: no key has two rows with different times, or a column is missing.
    """
    settings = GapSettings(
        event_at=event_at,
        cadence=1,
        from_time=0,
        to_time=1,
        keys=tuple(keys),
        unit=unit,
    )
    _check(frame, settings)
    sql = GapSql(settings, "div")
    found = _ask(frame.sparkSession, sql.cadences("{rows}"), rows=_rows(frame, settings)).first()
    if found is None:
        raise InputError(
            "cannot find a cadence: no key has two rows with different timestamps",
            hint="Pass the cadence.",
        )
    return Cadence(found["step"], found["found"], found["total"])


def _ask(session: SparkSession, sql: str, **frames: DataFrame) -> DataFrame:
    return session.sql(sql, **frames)


def _check(frame: DataFrame, settings: GapSettings) -> None:
    """Raises an error if a setting names a column that the frame lacks."""
    needed = [
        *settings.keys,
        *settings.columns,
        *([settings.arrived_at] if settings.needs_arrival else []),
    ]
    lacking = excluding(needed, frame.columns)
    if lacking:
        columns = ", ".join(frame.columns)
        hint = f"{did_you_mean(lacking[0], frame.columns)}Available columns: {columns}."
        raise InputError(f'frame has no column "{lacking[0]}"', hint=hint)


def _rows(frame: DataFrame, settings: GapSettings) -> DataFrame:
    """Returns the rows with the column names of the queries."""
    sql = GapSql(settings, "div")
    null = bigint(None)
    taken = renamed_columns(dict(zip(settings.keys, sql.keys, strict=True)))
    at = timestamp_us(frame, "frame", settings.event_at, unit=settings.unit)
    grid = settings.grid
    taken.append((at if grid is None else grid.clock(at)).alias("t"))
    arrived = timestamp_us(frame, "frame", settings.arrived_at) if settings.needs_arrival else null
    taken.append(arrived.alias("a"))
    for name, renamed in (("window_id", "window_id"), ("offset", "place")):
        taken.append((F.col(name).cast("bigint") if name in frame.columns else null).alias(renamed))
    for column, name in zip(settings.columns, sql.columns, strict=False):
        taken.append(F.col(quoted_column(column)).isNotNull().cast("int").alias(name))
    rows = frame.select(*taken)
    if settings.window_us is None:
        return rows
    return rows.withColumn(sql.columns[-1], F.expr(sql.in_time("t", sql.window("a"))))


def _names(settings: GapSettings) -> list[Column]:
    """Returns the keys with their original names, and the column that a part belongs to."""
    sql = GapSql(settings, "div")
    keys = renamed_columns(dict(zip(sql.keys, settings.keys, strict=True)))
    column = null_of("string")
    for number, name in enumerate(settings.columns):
        column = F.when(F.col("part") == number + 1, name).otherwise(column)
    return [*keys, column.alias("column")]


def _shown_gaps(gaps: DataFrame, settings: GapSettings) -> DataFrame:
    """Returns gaps with times and ids.

    An id is computed from values that are the same however a range is divided.

    Rules: G16
    """
    sql = GapSql(settings, "div")
    gaps = _in_time(gaps, settings)
    closed = F.concat("window_id", F.lit(":"), "place")
    # The id is a hash of the clock, the column, the key and the start of the silence, none of which
    # depends on the range. A null key is written as \N, which is not an empty text.
    texts = []
    for key in sql.keys:
        texts.append(F.coalesce(F.col(key).cast("string"), F.lit("\\N")))
    clock = F.when(F.col("kind") == LULL, "arrival").otherwise("event")
    name = F.coalesce(_names(settings)[-1], F.lit(""))
    gap_id = F.substring(
        F.md5(F.concat_ws("|", clock, name, *texts, F.col("since_us").cast("string"))),
        1,
        16,
    )
    return gaps.select(
        *_names(settings),
        "kind",
        F.timestamp_micros("from_us").alias("from"),
        F.timestamp_micros("to_us").alias("to"),
        "length_us",
        "missing",
        "open_left",
        "open_right",
        closed.alias("closed_by"),
        gap_id.alias("gap_id"),
    )


def _in_time(gaps: DataFrame, settings: GapSettings) -> DataFrame:
    """Adds the length of each gap.

    Times on the clock of opening hours are converted to instants.

    Rules: G8
    """
    grid = settings.grid
    step_us = settings.cadence_us
    gaps = gaps.withColumn("length_us", F.col("to_us") - F.col("from_us"))
    if grid is None:
        return gaps
    # Times of a lull are arrivals, so they are not converted. Those of other gaps are on the clock
    # of opening hours, and the grid converts them; the end of a gap is the end of its last step.
    times = {}
    for name in ("from_us", "to_us", "since_us"):
        point = floor_div(F.col(name), step_us)
        time = grid.end(point - 1) if name == "to_us" else grid.start(point)
        times[name] = F.when(F.col("kind") == LULL, F.col(name)).otherwise(time)
    return gaps.withColumns(times)


def _shown_totals(totals: DataFrame, settings: GapSettings) -> DataFrame:
    """Returns the completeness of each key.

    The query fails if the counts do not add up.

    Rules: G18
    """
    points = settings.end_point - settings.first_point
    total = F.col("present") + F.col("nulls") + F.col("missing") + F.col("tolerated")
    unbalanced = F.raise_error(
        F.concat(
            F.lit("counts of the gap report do not add up: "),
            F.to_json(F.struct("*")),
        )
    )
    expected = F.when(total == points, bigint(points)).otherwise(unbalanced.cast("bigint"))
    is_expected = (F.col("is_expected") == 1) if settings.expected_keys else null_of("boolean")
    nulls = F.when(F.col("part") != ROWS, F.col("nulls"))
    share = F.col("present") / F.lit(points) if points else null_of("double")
    return totals.select(
        *_names(settings),
        is_expected.alias("is_expected"),
        expected.alias("expected"),
        "present",
        nulls.alias("nulls"),
        "missing",
        "tolerated",
        share.alias("completeness"),
    )
