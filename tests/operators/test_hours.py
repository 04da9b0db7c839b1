"""Opening hours: their points and filling inside of them, against a look at every five minutes
(G3).
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from rewindow.application import OperatorContext
from rewindow.errors import InputError
from rewindow.operators import FillGaps, FillSettings, fill_gaps
from rewindow.operators.schedule.hours_grid import hours_grid
from rewindow.operators.schedule.opening_hours import DAYS
from rewindow.spark.frames import conform, to_arrow, to_frame
from rewindow.windows import Grid, WindowRange
from tests.operators.hours_reference import Bounds, Clock, Hours, Made, Row, fill, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S = 1_000_000
DAY = 86_400
WIDTH = 6 * 3600
CASES = 25
CHANGES = {
    "America/New_York": ["2024-03-10", "2024-11-03"], "Europe/Vienna": ["2024-03-31", "2024-10-27"],
    "America/Sao_Paulo": ["2018-02-18", "2018-11-04"],
    "Australia/Lord_Howe": ["2024-04-07", "2024-10-06"],
    "America/Havana": ["2024-03-10", "2024-11-03"], "Africa/Cairo": ["2024-04-26", "2024-11-01"],
    "Pacific/Apia": ["2011-12-30"], "Asia/Kolkata": ["2024-01-01"],
}  # fmt: skip
"""Days on which clocks are changed; Lord Howe's by half an hour, Sao Paulo's and Havana's at
midnight."""
MARKET = Hours(
    "America/New_York",
    570,
    960,
    (0, 1, 2, 3, 4),
    (date(2024, 3, 12), date(2024, 11, 1)),
    1800,
)
GIVEN = [
    (MARKET, "2024-03-10"),
    (MARKET, "2024-11-03"),
    (Hours("America/New_York", 0, 1440, tuple(range(7)), (), 3600), "2024-11-03"),
    (Hours("Australia/Lord_Howe", 30, 1410, tuple(range(7)), (), 3600), "2024-10-06"),
    (
        Hours("America/Sao_Paulo", 0, 1440, (0, 1, 2, 3, 6), (date(2018, 11, 5),), 1800),
        "2018-11-04",
    ),
    (Hours("Europe/Vienna", 60, 300, (4, 5, 6), (), 7200), "2024-03-31"),
]
"""Hours, and a day on which clocks are changed."""


def second(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def settings_of(hours: Hours) -> dict[str, Any]:
    opens, closes = (
        f"{minute // 60:02}:{minute % 60:02}" for minute in (hours.opens, hours.closes)
    )
    return {
        "zone": hours.zone,
        "hours": f"{opens}-{closes}",
        "weekdays": [DAYS[day] for day in hours.weekdays],
        "closed": [str(day) for day in hours.closed],
        "step": hours.step,
    }


def make_hours(random: Random) -> tuple[Hours, int]:
    """Returns hours and the second in which a day begins (UTC) near which their clocks are
    changed.
    """
    zone = random.choice([*CHANGES])
    change = date.fromisoformat(random.choice(CHANGES[zone]))
    step = random.choice([5, 15, 30, 45, 60, 90, 120, 240]) * 60
    count = random.choice([DAY // step, random.randint(1, DAY // step)])
    opens = random.randint(0, (DAY - count * step) // 300) * 5
    weekdays = tuple(sorted(random.sample(range(7), random.choice([4, 6, 7, 7]))))
    closed = [
        change + timedelta(days=day)
        for day in random.sample(range(-4, 5), random.choice([0, 0, 1, 2]))
    ]
    return Hours(
        zone,
        opens,
        opens + count * step // 60,
        weekdays,
        tuple(sorted(closed)),
        step,
    ), second(change)


def test_fill_points_follow_local_time_across_dst_changes_and_closing_hours() -> None:
    random = Random(11)
    lengths = set()
    for _ in range(80):
        hours, change = make_hours(random)
        clock = walk(hours, change - 9 * DAY, change + 4 * DAY)
        grid = hours_grid(
            hours.step * S,
            hours.zone,
            hours.opens * 60 * S,
            hours.closes * 60 * S,
            hours.weekdays,
            hours.closed,
        )
        since = grid.first(change * S) - sum(start < change for start in clock.starts)
        for number, (start, end) in enumerate(zip(clock.starts, clock.ends, strict=True)):
            if start < change - 7 * DAY:
                continue
            places = [grid.first(start * S + more) - since for more in (0, 1)]
            assert places == [number, number + 1], (hours, datetime.fromtimestamp(start, UTC))
            assert grid.end_us(number + since) == end * S, (
                hours,
                datetime.fromtimestamp(start, UTC),
            )
            lengths.add((end - start) / hours.step)
    assert min(lengths) < 1 < max(lengths), "changes of clocks make steps shorter and longer"


def make_rows(random: Random, clock: Clock, begin: int, end: int) -> list[Row]:
    """Returns rows of a key inside of the hours, outside of them, some later than they could."""
    count = random.choice([0, 1, 2, 5, 12, 40])
    places = random.sample(range(len(clock.starts)), min(count, len(clock.starts)))
    times = {
        clock.starts[place] + random.choice([0, 0, 60, clock.ends[place] - clock.starts[place] - 1])
        for place in places
    }
    times |= {clock.ends[place] for place in places[:2]} | set(
        random.sample(range(begin, end), min(count, 4))
    )
    delays = (0, 0, 1, 900, 5000, 40_000)
    return [
        Row(ts + random.choice(delays), ts, float(random.randrange(100))) for ts in sorted(times)
    ]


def cases_of(number: int) -> tuple[Hours, Clock, list[list[Row]], int, int]:
    """Returns hours, what was seen of their clock, rows of some keys, begin and end."""
    hours = GIVEN[number][0]
    change = second(date.fromisoformat(GIVEN[number][1]))
    begin = change - 3 * DAY - 1234
    end = change + 5 * DAY + 4321
    seen = walk(hours, begin - 9 * DAY, end)
    first = next(place for place, start in enumerate(seen.starts) if start >= begin)
    lies_in = {tick: place - first for tick, place in seen.lies_in.items() if place >= first}
    clock = Clock(seen.starts[first:], lies_in, seen.ends[first:])
    random = Random(number)
    return (
        hours,
        clock,
        [make_rows(random, clock, begin - DAY, end + DAY) for _ in range(CASES)],
        begin,
        end,
    )


def bounds_of(hours: Hours) -> Bounds:
    return Bounds(max_gap=3 * hours.step, max_carry=5 * hours.step + 70, period=DAY)


NAMES = ("back", "before", "line", "season")


def columns_of(hours: Hours) -> dict[str, Any]:
    bounds = bounds_of(hours)
    return {
        "back": {"method": "backward"},
        "before": {"method": "forward", "max_carry": bounds.max_carry},
        "line": {"method": "linear", "max_gap": bounds.max_gap},
        "season": {"method": "seasonal", "periods": [bounds.period]},
    }


def frame_of(spark: SparkSession, cases: list[list[Row]]) -> DataFrame:
    rows = [
        (row.at // WIDTH, row.at * S, case, row.ts, *[row.a] * len(NAMES))
        for case, listed in enumerate(cases)
        for row in listed
    ]
    kinds = ", ".join(f"{name} double" for name in NAMES)
    return spark.createDataFrame(
        rows,
        f"window_id bigint, arrived_at bigint, case int, ts bigint, {kinds}",
    )


def united(frames: list[DataFrame]) -> DataFrame:
    numbered = [frame.withColumn("grid", F.lit(number)) for number, frame in enumerate(frames)]
    return reduce(lambda one, other: one.unionByName(other), numbered)


def made_of(rows: list[Any]) -> dict[tuple[int, int], list[Made]]:
    found: dict[tuple[int, int], list[Made]] = {}
    for row in rows:
        values = tuple(row[name] for name in NAMES)
        found.setdefault((row["grid"], row["case"]), []).append(
            Made(row["ts"], row["_rw_gap_is_open"], values)
        )
    return {place: sorted(made, key=lambda one: one.ts) for place, made in found.items()}


def wanted_of(hours: Hours, clock: Clock, rows: list[Row]) -> list[Made]:
    """Returns the rows that the reference makes; a key without a row inside of the hours is not
    known.
    """
    if all(clock.point(row.ts) is None for row in rows):
        return []
    return fill(rows, clock, bounds_of(hours), hours.step)


def is_same(mine: list[Made], wanted: list[Made]) -> bool:
    """Returns whether rows are the same but for the last digits of a line."""

    def close(one: float | None, other: float | None) -> bool:
        return one == other or (
            one is not None and other is not None and math.isclose(one, other, abs_tol=1e-9)
        )

    return [one[:2] for one in mine] == [want[:2] for want in wanted] and all(
        all(map(close, one.values, want.values)) for one, want in zip(mine, wanted, strict=True)
    )


@pytest.mark.parametrize(
    "numbers",
    [[1, 4], pytest.param([0, 2, 3, 5], marks=pytest.mark.long)],
    ids=str,
)
def test_filling_in_opening_hours_equals_the_reference(
    spark: SparkSession,
    numbers: list[int],
) -> None:
    # Rules: G3, G5, G8, G29
    given = [cases_of(number) for number in numbers]
    frames = []
    for hours, _, cases, begin, end in given:
        settings = FillSettings(
            event_at="ts",
            unit="s",
            from_time=begin * S,
            to_time=end * S,
            keys=["case"],
            columns=columns_of(hours),
            **settings_of(hours),
        )
        frames.append(fill_gaps(frame_of(spark, cases), settings))
    rows = united(frames).drop("_rw_methods", "_rw_sources").collect()
    found = made_of([row for row in rows if row["_rw_is_made"]])
    total = 0
    for number, (hours, clock, cases, _, _) in enumerate(given):
        for case, recorded in enumerate(cases):
            mine = found.get((number, case), [])
            wanted = wanted_of(hours, clock, recorded)
            assert is_same(mine, wanted), f"{hours}, case {case}: {recorded}"
            total += len(mine)
    assert total > 1_500 * len(numbers)
    kept = sorted((row["grid"], row["case"], row["ts"]) for row in rows if not row["_rw_is_made"])
    assert kept == sorted(
        (n, case, row.ts)
        for n, one in enumerate(given)
        for case, listed in enumerate(one[2])
        for row in listed
    )


def run(spark: SparkSession, fills: FillGaps, frame: DataFrame, cuts: list[int]) -> list[Any]:
    rows: list[Any] = []
    state = to_frame(spark, fills.initial_state())
    for first, end in pairwise(cuts):
        context = OperatorContext(Grid(WIDTH * 1000), WindowRange(first, end - 1))
        stream = frame.where(f"window_id >= {first} and window_id < {end}")
        out = conform(
            fills.transform({"stream": stream}, state, context)["out"],
            fills.output_ports()["out"].schema,
            "o",
        )
        rows += out.where("_rw_is_made").withColumn("grid", F.lit(0)).collect()
        if end != cuts[-1]:
            after = fills.next_state({"stream": stream}, {}, state, context)
            state = to_frame(spark, to_arrow(after, fills.state_columns(), "state"))
    return rows


@pytest.mark.exhaustive
def test_filling_in_groups_of_windows_equals_one_pass(spark: SparkSession) -> None:
    # Rules: G38
    hours, clock, cases, begin, end = cases_of(0)
    # Rows that come in order close every gap behind them.
    cases = [[row._replace(at=row.ts) for row in listed] for listed in cases]
    schema = pa.schema(
        [
            ("arrived_at", pa.int64()),
            ("case", pa.int32()),
            ("ts", pa.int64()),
            *((name, pa.float64()) for name in NAMES),
        ]
    )
    fills = FillGaps(
        columns=schema,
        event_at="ts",
        unit="s",
        keys=("case",),
        fill=columns_of(hours),
        from_time=begin * S,
        to_time=end * S,
        **settings_of(hours) | {"closed": hours.closed},
    )
    first = (begin - DAY) // WIDTH
    last = (end + 3 * DAY) // WIDTH
    cuts = [first, first + 9, first + 17, first + 18, last]
    found = made_of(run(spark, fills, frame_of(spark, cases), cuts))
    total = 0
    for case, recorded in enumerate(cases):
        mine = found.get((0, case), [])
        wanted = wanted_of(hours, clock, recorded)
        assert is_same(mine, wanted), f"{hours}, case {case}: {recorded}"
        total += len(mine)
    assert total > 900


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"zone": None}, 'hours "09:30-16:00" need a time zone: set zone'),
    ({"hours": None}, "weekdays can only be used with hours"),
    ({"hours": None, "weekdays": ()}, "closed can only be used with hours"),
    ({"hours": "16:00-09:30"}, 'hours "16:00-09:30" end before they start. They must be on one '
                               'day'),
    ({"hours": "9 to 5"}, 'hours "9 to 5" are invalid. Use a format such as "09:30-16:00", within '
                          '00:00-24:00'),
    ({"hours": "09:30-24:30"}, "are invalid"),
    ({"weekdays": "mon-fry"}, 'weekday "mon-fry" is unknown. Did you mean "fri"? '
                              'Available weekdays: mon, tue, wed, thu, fri'),
    ({"zone": "America/NewYork"}, 'zone "America/NewYork" is unknown. Did you mean '
                                  '"America/New_York"'),
    ({"closed": ["2024-02-30"]}, 'closed must have dates such as "2024-12-25", not "2024-02-30"'),
    ({"step": "1 hour"}, 'step "1 hour" does not divide hours "09:30-16:00" (390 min) '
                         'evenly. '
     "These numbers of minutes do: 1, 2, 3, 5, 6, 10, 13, 15, 26, 30"),
    ({"step": 0}, "step must be above 0, not 0"),
    ({"origin": 5}, "origin cannot be used with hours"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[words[:30] for _, words in WRONG])
def test_invalid_opening_hours_are_rejected_immediately(change: dict[str, Any], words: str) -> None:
    # Rules: G3
    given = {
        "event_at": "at",
        "step": "15 min",
        "zone": "America/New_York",
        "hours": "09:30-16:00",
        "weekdays": "mon-fri",
        "closed": ["2024-12-25"],
        "from_time": 0,
        "to_time": 10,
    }
    with pytest.raises(InputError) as error:
        FillSettings(**{**given, **change})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("given", "days"),
    [
        ("mon-fri", [0, 1, 2, 3, 4]),
        ("sun-thu", [0, 1, 2, 3, 6]),
        ("Sat, mon", [0, 5]),
        (["fri", "mon-tue"], [0, 1, 4]),
        ((), []),
    ],
)
def test_weekday_ranges_can_wrap_around_the_end_of_the_week(given: Any, days: list[int]) -> None:
    settings = FillSettings(
        event_at="at",
        step=60,
        zone="UTC",
        hours="00:00-24:00",
        weekdays=given,
        from_time=0,
        to_time=10,
    )
    assert list(settings.weekdays) == days
