"""Flight delays and the weather at three airports of New York, hour by hour: the example to copy.

    weather --> hourly_weather --+--> output hourly_weather  a row per station and hour
                                 |                           (also for silent hours)
                                 +--> delays                 a row per airport and hour
    flights --+------------------^
              +--> ranks                                     a row per carrier and hour, of the
                                                             season so far

The streams have the same windows of one hour, so they are joined on the window id. All numbers that
are not whole are decimals: sums of doubles would depend on the order in which they are added, and
digests would differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field

from rewindow.application import Application, FrameOperator, InputPort, OperatorContext, OutputPort
from rewindow.operators.heartbeat.function import (
    EMISSION,
    IS_TIMER,
    STATE_FIELDS,
    HeartbeatResult,
    heartbeat,
    without_clock,
)
from rewindow.operators.heartbeat.settings import HeartbeatProperties
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIME = pa.timestamp("us", tz="UTC")
RECORDED = [("offset", pa.int64()), ("arrived_at", TIME)]
"""Columns that every recorded stream has in addition to its data: the position in its window and
the arrival.
"""
MEASURES = {
    "temp": pa.decimal128(5, 2),
    "wind_speed": pa.decimal128(9, 5),
    "precip": pa.decimal128(5, 2),
    "visib": pa.decimal128(5, 2),
}
"""Columns of a weather report: degrees Fahrenheit, miles per hour, inches, miles."""
TOTALS = [("flights", pa.int64()), ("departed", pa.int64()), ("delay_minutes", pa.int64())]
"""Totals of each carrier over the season."""
REPORT = [("reported_at", TIME), *MEASURES.items()]


class HourlyWeather(HeartbeatProperties, FrameOperator):
    """One row per station and window: its report, or, if the station is silent, a heartbeat's timer
    with the last report.

    A timer only shows that the hour has started. `_rw_is_timer` marks it, and `age_hours` is the
    age of its report at the start of the hour. If a report and a timer have the same hour, the row
    is the report.

    Reports must arrive less than interval - slack after their hour, here 50 minutes. After a later
    report, the timer of a silent hour is due only when the hour is over: the hour has no row, and
    the timer is in a later window.

    Its properties are those of a heartbeat, checked at launch. Without an error port it cannot
    quarantine tuples.
    """

    inputs = {
        "weather": InputPort(
            pa.schema(
                [
                    *RECORDED,
                    ("origin", pa.string()),
                    ("time_hour", TIME),
                    *((name, pa.float64()) for name in MEASURES),
                ]
            )
        )
    }
    outputs = {
        "out": OutputPort(
            pa.schema(
                [
                    ("origin", pa.string()),
                    ("hour", TIME),
                    (IS_TIMER, pa.bool_()),
                    ("age_hours", pa.int64()),
                    *REPORT,
                ]
            )
        )
    }
    state_schema = pa.schema([("origin", pa.string()), *STATE_FIELDS, *REPORT])

    event_at: str = "time_hour"
    key_by: tuple[str, ...] = ("origin",)
    max_jump: None = None

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns `origin, hour, _rw_is_timer, age_hours, reported_at` and the measures, a row
        per station and window.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        assert state is not None, "HourlyWeather is stateful"
        beats = self._beat(inputs["weather"], state, context).tuples
        report_first = F.struct(~F.col(IS_TIMER), EMISSION)
        report = F.struct(
            F.col("time_hour").alias("reported_at"),
            *(to_decimal(name) for name in MEASURES),
        )
        one = F.max_by(F.struct(IS_TIMER, report.alias("report")), report_first).alias("one")
        rows = (
            beats.groupBy("window_id", *self.key_by)
            .agg(one)
            .select("window_id", *self.key_by, "one.*")
        )

        so_far = Window.partitionBy(*self.key_by).orderBy("window_id")
        newest = F.last(F.when(~F.col(IS_TIMER), F.col("report")), ignorenulls=True).over(so_far)
        carried = state.select(
            *self.key_by,
            F.struct(*(name for name, _ in REPORT)).alias("carried"),
        )
        rows = join_by(self.key_by, rows.withColumn("newest", newest), carried, "left")
        hour = F.timestamp_micros(
            F.col("window_id") * context.grid.width_us + context.grid.origin_us
        ).alias("hour")
        shown = F.coalesce("newest", "carried").alias("report")
        rows = rows.select("window_id", *self.key_by, hour, IS_TIMER, shown)
        age_seconds = F.unix_seconds("hour") - F.unix_seconds("report.reported_at")
        return rows.withColumn(
            "age_hours",
            F.call_function("div", age_seconds, F.lit(3600)),
        ).select("*", "report.*")

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns each station's clock and last report."""
        from pyspark.sql import functions as F

        names = [name for name, _ in REPORT]
        clocks = self._beat(inputs["weather"], state, context).state
        shown = outputs["out"].select("window_id", *self.key_by, *names)
        before = state.select(F.lit(context.first - 1).alias("window_id"), *self.key_by, *names)
        newest = F.max_by(F.struct(*names), "window_id").alias("report")
        last = shown.unionByName(before).groupBy(*self.key_by).agg(newest)
        return join_by(self.key_by, clocks, last, "left").select(*clocks.columns, "report.*")

    def state_after_skip(
        self,
        state: DataFrame,
        windows: WindowRange,
        outputs: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Returns the state without its clocks, so that skipped hours get no timers later.

        Rules: H58
        """
        return without_clock(state)

    def _beat(
        self,
        weather: DataFrame,
        state: DataFrame,
        context: OperatorContext,
    ) -> HeartbeatResult:
        return heartbeat(
            weather,
            self,
            state=state,
            end_us=context.end_us,
            end_included=False,
            grid=context.grid,
        )


class DelaysByAirport(FrameOperator):
    """Departures of each airport and window, with the weather of that hour and whether it was
    actually reported.

    A flight belongs to the window in which it departed, a cancelled one to the window of its
    schedule. Airports have a row in every window that has flights or weather.
    """

    inputs = {
        "flights": InputPort(pa.schema([("origin", pa.string()), ("dep_delay", pa.int32())])),
        "weather": InputPort(HourlyWeather.outputs["out"].schema),
    }
    outputs = {
        "out": OutputPort(
            pa.schema(
                [
                    ("origin", pa.string()),
                    ("flights", pa.int64()),
                    ("cancelled", pa.int64()),
                    ("departed", pa.int64()),
                    ("delay_minutes", pa.int64()),
                    ("delay_p90_minutes", pa.int32()),
                    ("late", pa.int64()),
                    ("late_share", pa.decimal128(5, 4)),
                    ("weather_is_real", pa.bool_()),
                    ("weather_age_hours", pa.int64()),
                    *MEASURES.items(),
                ]
            )
        )
    }

    late_after_minutes: int = Field(15, ge=0)

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns a row per airport and window; durations are in whole minutes."""
        from pyspark.sql import functions as F

        counts = ("flights", "cancelled", "departed", "delay_minutes", "late")
        weather = inputs["weather"].withColumns(
            {"weather_is_real": ~F.col(IS_TIMER), "weather_age_hours": F.col("age_hours")}
        )
        rows = join_by(
            ("window_id", "origin"),
            self._departures(inputs["flights"]),
            weather,
            "full",
        )
        rows = rows.withColumns(
            {name: F.coalesce(name, F.lit(0).cast("bigint")) for name in counts}
        )
        return rows.withColumn("late_share", quotient("late", "departed").cast("decimal(5,4)"))

    def _departures(self, flights: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        delay = F.col("dep_delay")
        return flights.groupBy("window_id", "origin").agg(
            F.count("*").alias("flights"),
            F.count_if(delay.isNull()).alias("cancelled"),
            F.count(delay).alias("departed"),
            F.sum(delay).alias("delay_minutes"),
            nearest_rank(delay, percent=90).alias("delay_p90_minutes"),
            F.count_if(delay > self.late_after_minutes).alias("late"),
        )


class CarrierRanks(FrameOperator):
    """The season so far: each carrier's flights, delay and rank by mean delay after every window.

    Rank 1 has the smallest mean. Equal means rank by carrier code, and carriers without a departure
    are last. A carrier has a row in every window from its first flight on.
    """

    inputs = {
        "flights": InputPort(pa.schema([("carrier", pa.string()), ("dep_delay", pa.int32())]))
    }
    outputs = {
        "out": OutputPort(
            pa.schema(
                [
                    ("carrier", pa.string()),
                    *TOTALS,
                    ("mean_delay", pa.decimal128(9, 4)),
                    ("rank", pa.int32()),
                ]
            )
        )
    }
    state_schema = pa.schema([("carrier", pa.string()), *TOTALS])

    def transform(
        self,
        inputs: Mapping[str, DataFrame],
        state: DataFrame | None,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns `carrier, flights, departed, delay_minutes, mean_delay, rank`, a row per
        window and carrier with a flight so far.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        assert state is not None, "CarrierRanks is stateful"
        totals = [name for name, _ in TOTALS]
        counts = (
            F.lit(1),
            F.nvl2("dep_delay", F.lit(1), F.lit(0)),
            F.coalesce("dep_delay", F.lit(0)),
        )
        new = inputs["flights"].select(
            "window_id",
            "carrier",
            *(count.cast("bigint") for count in counts),
        )
        before = state.select(F.lit(context.first - 1), "carrier", *totals)
        carriers = new.union(before).select("carrier").distinct()
        nothing = (
            context.frame(state.sparkSession)
            .crossJoin(carriers)
            .select("*", *(F.lit(0) for _ in totals))
        )
        rows = new.union(before).union(nothing).toDF("window_id", "carrier", *totals)

        season = Window.partitionBy("carrier").orderBy("window_id")
        rows = rows.groupBy("window_id", "carrier").agg(
            *(F.sum(name).alias(name) for name in totals)
        )
        rows = rows.select(
            "window_id",
            "carrier",
            *(F.sum(name).over(season).alias(name) for name in totals),
        )
        rows = rows.where((F.col("window_id") >= context.first) & (F.col("flights") > 0))

        by_mean = Window.partitionBy("window_id").orderBy(F.asc_nulls_last("mean"), "carrier")
        rows = rows.withColumn("mean", quotient("delay_minutes", "departed"))
        rank = F.row_number().over(by_mean)
        mean = F.col("mean").cast("decimal(9,4)")
        return rows.withColumns({"rank": rank, "mean_delay": mean})

    def next_state(
        self,
        inputs: Mapping[str, DataFrame],
        outputs: Mapping[str, DataFrame],
        state: DataFrame,
        context: OperatorContext,
    ) -> DataFrame:
        """Returns the totals after the last window."""
        from pyspark.sql import functions as F

        return (
            outputs["out"]
            .where(F.col("window_id") == context.last)
            .select(*self.state_schema.names)
        )


def join_by(keys: Sequence[str], left: DataFrame, right: DataFrame, how: str) -> DataFrame:
    """Returns a join in which null is a key like any other, as in `groupBy`. Otherwise the
    result would depend on the borders of commit groups.
    """
    from pyspark.sql import functions as F

    other = {key: f"_{key}" for key in keys}
    same = [F.col(key).eqNullSafe(F.col(renamed)) for key, renamed in other.items()]
    joined = left.join(right.withColumnsRenamed(other), same, how)
    return joined.withColumns(
        {key: F.coalesce(key, renamed) for key, renamed in other.items()}
    ).drop(*other.values())


def to_decimal(name: str) -> Column:
    """Returns a measure as a decimal with the precision of its column."""
    from pyspark.sql import functions as F

    kind = MEASURES[name]
    return F.col(name).cast(f"decimal({kind.precision},{kind.scale})").alias(name)


def quotient(count: str, of: str) -> Column:
    """Returns a quotient of two whole numbers to 19 decimal places, null if the divisor is 0."""
    from pyspark.sql import functions as F

    return F.col(count).cast("decimal(18,0)") / F.nullif(F.col(of).cast("decimal(18,0)"), F.lit(0))


def nearest_rank(value: Column, *, percent: int) -> Column:
    """Returns a percentile by nearest rank: the smallest value such that at least `percent`
    percent of the values do not exceed it.
    """
    from pyspark.sql import functions as F

    rank = F.call_function("div", F.count(value) * percent + 99, F.lit(100))
    return F.get(F.sort_array(F.collect_list(value)), (rank - 1).cast("int"))


app = Application("flight_delays", window="1 hour")
flights = app.input("flights")
weather = app.input("weather")

hourly = app.add(
    "hourly_weather",
    HourlyWeather(key_by=["origin"], interval="1 hour", slack="10 minutes"),
    weather=weather,
)
delays = app.add("delays", DelaysByAirport(late_after_minutes=15), flights=flights, weather=hourly)
ranks = app.add("ranks", CarrierRanks(), flights=flights)

app.output("hourly_weather", hourly, key=["origin"], suite="hourly_weather")
app.output("delays", delays, key=["origin"], suite="delays")
app.output("ranks", ranks, key=["carrier"], suite="ranks")
