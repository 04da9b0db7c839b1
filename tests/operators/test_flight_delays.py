"""The example application: its operators on small streams, whole and in groups of windows."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from rewindow.application import Application, FrameOperator, OperatorContext
from rewindow.loading.catalog import load_application
from rewindow.operators import TupleOperator
from rewindow.settings.config import Config
from rewindow.spark.frames import conform, spark_schema
from rewindow.testing import check_grouping
from rewindow.windows import WindowRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


APP = load_application(
    Config(applications=[Path(__file__).parents[2] / "jobs" / "applications"]),
    "flight_delays",
).app
HOURS = 12
CARRIERS = ("AA", "B6", "UA")


def operator(name: str) -> FrameOperator:
    return APP.nodes[name].operator


def run(name: str, inputs: dict[str, DataFrame], spark: SparkSession, *ends: int) -> list[Row]:
    """Returns an operator's output over all hours, in groups of windows that end at `ends` and at
    the last hour.
    """
    one = operator(name)
    made = []
    first = 0
    state = (
        spark.createDataFrame([], spark_schema(one.state_columns())) if one.is_stateful else None
    )
    for last in (*ends, HOURS - 1):
        context = OperatorContext(APP.grid, WindowRange(first, last))
        part = {
            port: frame.where(f"window_id BETWEEN {first} AND {last}")
            for port, frame in inputs.items()
        }
        rows = conform(
            one.transform(part, state, context),
            one.output_ports()["out"].schema,
            name,
        ).collect()
        made += rows
        if state is not None:
            out = spark.createDataFrame(rows, "window_id BIGINT, " + ddl(one))
            after = one.next_state(part, {"out": out}, state, context)
            state = spark.createDataFrame(after.collect(), spark_schema(one.state_columns()))
        first = last + 1
    return sorted(made, key=lambda row: (row["window_id"], str(row[1])))


def ddl(one: FrameOperator) -> str:
    fields = spark_schema(one.output_ports()["out"].schema).fields
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)


def hour(count: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(hours=count)


def weather_of(
    spark: SparkSession,
    reports: list[tuple[str | None, int, float, float]],
) -> DataFrame:
    """Returns reports (station, hour, hour of arrival, temperature) as a recorded stream."""
    rows: list[tuple[Any, ...]] = []
    offsets: dict[int, int] = defaultdict(int)
    for origin, about, arrival, temp in sorted(reports, key=lambda report: report[2]):
        window = int(arrival)
        rows.append(
            (window, offsets[window], hour(arrival), origin, hour(about), temp, 5.5, 0.0, 10.0)
        )
        offsets[window] += 1
    return spark.createDataFrame(
        rows,
        "window_id BIGINT, offset BIGINT, arrived_at TIMESTAMP, origin STRING, time_hour "
        "TIMESTAMP, "
        "temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE",
    )


def flights_of(
    spark: SparkSession,
    flights: list[tuple[int, str | None, str, int | None]],
) -> DataFrame:
    """Returns flights (window, airport, carrier, delay) as a recorded stream, as far as the
    operators read it.
    """
    return spark.createDataFrame(
        flights,
        "window_id BIGINT, origin STRING, carrier STRING, dep_delay INT",
    )


def some_flights() -> list[tuple[int, str, str, int | None]]:
    """Returns flights of all hours but one; UA begins late."""
    random = Random(20130101)
    return [
        (
            window,
            random.choice(["EWR", "JFK"]),
            random.choice(CARRIERS[: 2 if window < 5 else 3]),
            _delay(random),
        )
        for window in range(HOURS)
        for _ in range(0 if window == 3 else 12)
    ]


def _delay(random: Random) -> int | None:
    return None if random.random() < 0.2 else random.randint(-10, 60)


@pytest.mark.parametrize(
    ("name", "given", "place", "text"),
    [
        (
            "hourly_weather",
            {"interval": 0},
            "interval",
            "must be a numeric value greater than zero",
        ),
        (
            "hourly_weather",
            {"interval": "soon"},
            "interval",
            "must be a numeric value greater than zero",
        ),
        ("hourly_weather", {"interval": 1, "slack": -1}, "slack", "zero or more"),
        ("hourly_weather", {"interval": "${hours}"}, "interval", "parameter ${hours} is unknown"),
        ("hourly_weather", {"interval": 1, "max_jump": 1}, "max_jump", "None"),
        ("delays", {"late_after_minutes": -1}, "late_after_minutes", "greater than or equal to 0"),
        ("delays", {"late_after_minutes": "soon"}, "late_after_minutes", "valid integer"),
    ],
)
def test_wrong_properties_are_reported_at_launch(
    name: str,
    given: dict[str, Any],
    place: str,
    text: str,
) -> None:
    # Rules: H15, H20, H23, H25
    (wrong,) = type(operator(name))(**given).wrong_properties()
    assert wrong.path == place and text in wrong.message


def test_warnings_about_very_short_intervals_are_stored_in_the_plan() -> None:
    # Rules: H21, H24
    app = Application("fine", window="1 hour")
    made = type(operator("hourly_weather"))(interval="0.005", slack="0.001")
    app.output("out", app.add("hourly", made, weather=app.input("weather")), key=["origin"])
    assert [
        ("too fine-grained" in text, "smallest supported value" in text) for text in app.warnings()
    ] == [
        (True, False),
        (False, True),
    ]


def test_hourly_weather_requires_the_order_and_arrival_columns() -> None:
    # Rules: O13, H53
    needed = operator("hourly_weather").input_ports()["weather"].schema
    assert {"offset", "arrived_at", "time_hour", "origin"} <= {*needed.names}


@pytest.mark.long
def test_hourly_weather_emits_a_row_for_silent_hours_in_any_grouping(spark: SparkSession) -> None:
    # Rules: R79
    # Reports that arrive later than interval - slack move rows of silent hours to a later window.
    on_time = [("EWR", about, about, 30.0 + about) for about in (0, 1, 4, 5)]
    late = [("JFK", 0, 0, 20.0), ("JFK", 1, 1.5, 21.0), ("JFK", 2, 2, 22.0)]
    nameless = [(None, 0, 0, 40.0), (None, 1, 0.8 + 1, 41.0)]
    too_late = [("LGA", 0, 0.85, 10.0)]
    inputs = {"weather": weather_of(spark, [*on_time, *late, *nameless, *too_late])}
    rows = run("hourly_weather", inputs, spark)
    shown = {
        (row["origin"], row["window_id"]): (row["_rw_is_timer"], row["age_hours"], row["temp"])
        for row in rows
    }
    assert len(rows) == len(shown) == 4 * HOURS - 1, "one row per station and window"
    everything = {
        (origin, window) for origin in ("EWR", "JFK", "LGA", None) for window in range(HOURS)
    }
    assert everything - {*shown} == {("LGA", 1)}
    assert shown["EWR", 1] == (False, 0, Decimal("31.00"))
    assert shown["EWR", 2] == (True, 1, Decimal("31.00"))
    assert shown["EWR", 3] == (True, 2, Decimal("31.00"))
    assert shown["EWR", 4] == (False, 0, Decimal("34.00"))
    assert shown["JFK", 1] == (False, 0, Decimal("21.00")), (
        "a report after its timer, in the same hour, replaces it"
    )
    assert shown["JFK", HOURS - 1] == (True, HOURS - 3, Decimal("22.00"))
    assert shown[None, HOURS - 1] == (True, HOURS - 2, Decimal("41.00"))
    assert run("hourly_weather", inputs, spark, 2) == rows


def test_hourly_weather_emits_nothing_for_skipped_hours(spark: SparkSession) -> None:
    # Rules: H58
    one = operator("hourly_weather")
    columns = one.state_columns().names
    values: dict[str, Any] = dict.fromkeys(columns) | {
        "origin": "EWR",
        "timer_index": 3,
        "clock_event_us": 1,
    }
    values |= {"temp": Decimal("31.00"), "reported_at": hour(1)}
    state = spark.createDataFrame(
        [tuple(values[name] for name in columns)],
        spark_schema(one.state_columns()),
    )
    after = one.state_after_skip(state, WindowRange(4, 6), {}).collect()[0].asDict()
    assert (after["clock_event_us"], after["timer_index"], after["temp"]) == (
        None,
        3,
        Decimal("31.00"),
    )


def test_delays_operator_counts_departed_and_cancelled_flights(spark: SparkSession) -> None:
    flights = some_flights()
    weather = [
        (window, "EWR", hour(window), window == 3, 1 if window == 3 else 0)
        for window in range(HOURS)
    ]
    measures = [
        (*row, hour(row[0]), Decimal("30.00"), Decimal("5.5"), Decimal("0.00"), Decimal("10.00"))
        for row in weather
    ]
    frame = spark.createDataFrame(measures, "window_id BIGINT, " + ddl(operator("hourly_weather")))
    rows = run("delays", {"flights": flights_of(spark, flights), "weather": frame}, spark)
    found = {(row["window_id"], row["origin"]): row for row in rows}
    groups = defaultdict(list)
    for window, origin, _, delay in flights:
        groups[window, origin].append(delay)
    assert set(found) == set(groups) | {(window, "EWR") for window in range(HOURS)}
    for key, delays in groups.items():
        left = sorted(delay for delay in delays if delay is not None)
        row = found[key]
        late = sum(delay > 15 for delay in left)
        assert (row["flights"], row["cancelled"]) == (len(delays), len(delays) - len(left))
        assert (row["departed"], row["delay_minutes"], row["late"]) == (len(left), sum(left), late)
        if left:
            enough = next(
                value for value in left if 10 * sum(one <= value for one in left) >= 9 * len(left)
            )
            assert row["delay_p90_minutes"] == enough
            assert abs(row["late_share"] - Decimal(late) / len(left)) <= Decimal("0.00005")
        assert row["weather_is_real"] == (None if key[1] == "JFK" else key[0] != 3)
    assert found[3, "EWR"]["flights"] == 0 and found[3, "EWR"]["late_share"] is None


def test_delays_with_a_null_airport_are_one_row_with_its_weather(spark: SparkSession) -> None:
    weather = (
        0,
        None,
        hour(0),
        False,
        0,
        hour(0),
        Decimal(30),
        Decimal("5.5"),
        Decimal(0),
        Decimal(10),
    )
    frame = spark.createDataFrame([weather], "window_id BIGINT, " + ddl(operator("hourly_weather")))
    rows = run(
        "delays",
        {"flights": flights_of(spark, [(0, None, "AA", 5)]), "weather": frame},
        spark,
    )
    assert [(row["origin"], row["flights"], row["temp"]) for row in rows] == [
        (None, 1, Decimal(30))
    ]


def test_ranks_accumulate_over_the_season_in_any_grouping(spark: SparkSession) -> None:
    flights = some_flights()
    inputs = {"flights": flights_of(spark, flights)}
    rows = run("ranks", inputs, spark)
    wanted: list[tuple[Any, ...]] = []
    totals: dict[str, tuple[int, int, int]] = {}
    for window in range(HOURS):
        for _, _, carrier, delay in (flight for flight in flights if flight[0] == window):
            count, departed, minutes = totals.get(carrier, (0, 0, 0))
            totals[carrier] = (count + 1, departed + (delay is not None), minutes + (delay or 0))
        order = sorted(
            totals,
            key=lambda carrier: (Decimal(totals[carrier][2]) / totals[carrier][1], carrier),
        )
        wanted += [
            (window, carrier, *totals[carrier], order.index(carrier) + 1)
            for carrier in sorted(totals)
        ]
    shown = ("window_id", "carrier", "flights", "departed", "delay_minutes", "rank")
    assert [tuple(row[name] for name in shown) for row in rows] == wanted
    assert run("ranks", inputs, spark, 2, 7) == rows


def test_ranks_of_the_tuple_operator_equal_ranks_of_the_frame_operator(spark: SparkSession) -> None:
    ranks = load_application(
        Config(applications=[Path(__file__).parents[2] / "jobs" / "applications"]),
        "flight_ranks",
    )
    operator_by_tuple = ranks.app.nodes["ranks"].operator
    assert isinstance(operator_by_tuple, TupleOperator)
    flights = [*some_flights(), (3, "EWR", "9E", None), (4, "JFK", "AA", None)]
    wanted = [tuple(row) for row in run("ranks", {"flights": flights_of(spark, flights)}, spark)]
    tuples: dict[int, list[Any]] = {window: [] for window in range(HOURS)}
    for window, _, carrier, delay in flights:
        tuples[window].append((carrier, delay))
    found = check_grouping(operator_by_tuple, {"flights": tuples}, windows=(0, HOURS - 1), runs=2)[
        "out"
    ]
    assert sorted(found, key=lambda row: row[:2]) == wanted


def test_ranks_break_ties_by_carrier_and_put_grounded_carriers_last(spark: SparkSession) -> None:
    flights = [
        (0, "EWR", "UA", 4),
        (0, "EWR", "AA", 4),
        (0, "EWR", "9E", None),
        (0, "EWR", "B6", -2),
    ]
    rows = run("ranks", {"flights": flights_of(spark, flights)}, spark)
    assert [(row["carrier"], row["rank"]) for row in rows if row["window_id"] == 0] == [
        ("9E", 4),
        ("AA", 2),
        ("B6", 1),
        ("UA", 3),
    ]
