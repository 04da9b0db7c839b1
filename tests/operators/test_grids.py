"""Days, weeks and months of a zone, against Python's calendar (G3)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from rewindow.errors import InputError
from rewindow.operators import FillSettings, fill_gaps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FROM = datetime(2017, 1, 15, 10, tzinfo=UTC)
TO = datetime(2018, 12, 20, 3, tzinfo=UTC)
GRIDS = [("1 day", "America/Sao_Paulo"), ("2 weeks", "Europe/Vienna"), ("month", "America/Havana")]
"""In Sao Paulo clocks were put forward at midnight, in Havana midnight came twice."""


def days(zone: str) -> Iterator[tuple[date, datetime]]:
    """Gives each local day with its first instant, found by looking at every half hour."""
    at = datetime(2016, 12, 1, tzinfo=UTC)
    last = None
    while at < TO + timedelta(days=70):
        day = at.astimezone(ZoneInfo(zone)).date()
        if last is not None and day > last:
            yield day, at
        last = day if last is None else max(day, last)
        at += timedelta(minutes=30)


def starts(step: str, zone: str) -> list[datetime]:
    """Returns where steps begin: days, every second Monday from the first one of 1970 on, or firsts
    of months.
    """
    every = list(days(zone))
    if "month" in step:
        return [at for day, at in every if day.day == 1]
    if "week" in step:
        return [at for day, at in every if (day - date(1970, 1, 5)).days % 14 == 0]
    return [at for _, at in every]


@pytest.mark.parametrize(("step", "zone"), GRIDS)
def test_calendar_steps_equal_the_dates_of_the_python_calendar(
    spark: SparkSession,
    step: str,
    zone: str,
) -> None:
    # The year contains both changes of the clocks.
    random = Random(7)
    grid = starts(step, zone)
    known = sorted({FROM + (TO - FROM) * random.random() for _ in range(len(grid) // 2)})
    frame = spark.createDataFrame([(at, 1.0) for at in known], "at timestamp, x double")
    settings = FillSettings(
        event_at="at",
        step=step,
        zone=zone,
        from_time=FROM.isoformat(),
        to_time=TO.isoformat(),
        columns={"x": {"method": "forward", "max_gap": "2 days"}},
    )
    made = (
        fill_gaps(frame, settings)
        .where("_rw_is_made")
        .selectExpr("unix_micros(at) as us")
        .collect()
    )
    wanted = [
        begin
        for begin, end in pairwise(grid)
        if begin >= FROM
        and end <= grid[-1]
        and begin < TO
        and not any(begin <= at < end for at in known)
    ]
    assert (
        sorted(datetime.fromtimestamp(row.us / 1e6, UTC) for row in made) == wanted
        and len(wanted) > 5
    )


@pytest.mark.parametrize(
    ("zone", "missing"),
    [
        ("Pacific/Apia", date(2011, 12, 30)),
        ("Pacific/Kwajalein", date(1993, 8, 21)),
        ("Pacific/Kiritimati", date(1994, 12, 31)),
    ],
)
@pytest.mark.parametrize("max_rows", [1_000, 1])
def test_day_skipped_by_a_time_zone_is_not_in_any_step(
    spark: SparkSession,
    zone: str,
    missing: date,
    max_rows: int,
) -> None:
    # Rules: G3, G8, G33
    clock = ZoneInfo(zone)
    days = [missing + timedelta(days=number) for number in range(-9, 10) if number]
    begins = [datetime(day.year, day.month, day.day, tzinfo=clock) for day in days]
    recorded = [begins[place] + timedelta(hours=5) for place in (1, 8, 9, 14)]
    rows = [(at.astimezone(UTC), float(place)) for place, at in enumerate(recorded)]
    about = FillSettings(
        event_at="at",
        step="1 day",
        zone=zone,
        from_time=begins[0].isoformat(),
        to_time=begins[-1].isoformat(),
        columns={"x": {"method": "forward", "max_gap": "6 days"}},
        max_rows=max_rows,
    )
    filled = fill_gaps(spark.createDataFrame(rows, "at timestamp, x double"), about)
    made = filled.where("_rw_is_made").selectExpr("unix_micros(at) us", "_rw_made_rows n", "x")
    found = [(row.us // 1_000_000, row.n, row.x) for row in made.orderBy("us").collect()]
    # The gap from 2 to 7 is as long as six days, the one from 10 to 13 as four.
    gaps = [(0, 0, None), (2, 7, 0.0), (10, 13, 2.0), (15, 16, 3.0)]
    wanted = []
    for first, last, value in gaps:
        places = range(first, last + 1)
        if max_rows == 1:
            wanted.append((begins[first].timestamp(), len(places), value))
        else:
            wanted += [(begins[place].timestamp(), 1, value) for place in places]
    assert found == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"step": "1 month"}, 'step "1 month" needs a zone'),
        (
            {"step": "1 h", "zone": "UTC"},
            'step with a zone must be days, weeks or months, such as "1 month", not "1 h"',
        ),
        ({"step": "0 days", "zone": "UTC"}, "must be days, weeks or months"),
        ({"step": "1 day", "zone": "Europe/Wien"}, 'zone "Europe/Wien" is unknown.'),
    ],
)
def test_invalid_calendar_steps_are_rejected(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        FillSettings(event_at="at", from_time="2017-01-01", to_time="2018-01-01", **given)
    assert words in str(error.value)
