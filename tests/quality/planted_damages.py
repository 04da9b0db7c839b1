"""96 kinds of damage in the outputs of the example, as an operator could do them that computes
something wrong.

Each is planted in real rows (`planted_rows`) and judged by the output's suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

from rewindow.quality.planting import Damage, Row, Rows

Change = Callable[[Row], dict[str, Any] | None]
HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
OTHER_CAUSE = {"crossing": "timeout", "timeout": "crossing"}
TIMER = "_rw_is_timer"
REAL = "weather_is_real"


def value(kind: str, change: Change, reach: int = 0) -> Damage:
    """Returns a damage: other values in one row, the first that the change takes."""

    def plant(rows: Rows, window: int, random: Random) -> bool:
        return _update(random.sample(rows[window], len(rows[window])), change)

    return Damage(kind, plant, reach=reach)


def values(kind: str, change: Change, reach: int | None = 0) -> Damage:
    """Returns a damage: other values in all rows of a window, or of all windows."""

    def plant(rows: Rows, window: int, random: Random) -> bool:
        parts = rows.values() if reach is None else [rows[window]]
        return bool([row for part in parts for row in part if _update([row], change)])

    return Damage(kind, plant, reach=reach)


def put(**given: Any) -> Change:
    return lambda row: given


def when(condition: Callable[[Row], Any], **given: Any) -> Change:
    return lambda row: given if condition(row) else None


def add(column: str, amount: Any, **others: Any) -> Change:
    """Returns a change: an amount added to a column, where it has a value, and others set."""
    return lambda row: None if row[column] is None else {column: row[column] + amount, **others}


def dropped(kind: str, condition: Callable[[Row], Any] = lambda row: True) -> Damage:
    return Damage(kind, lambda rows, window, random: _take(rows[window], condition, random, 0))


def doubled(kind: str, condition: Callable[[Row], Any] = lambda row: True, **others: Any) -> Damage:
    """Returns a damage: a row twice, the second one with other values."""
    return Damage(
        kind,
        lambda rows, window, random: _take(rows[window], condition, random, 2, **others),
    )


def moved(kind: str, one: bool) -> Damage:
    """Returns a damage: a row, or all rows of a window, that belong to the next window, and the
    other way round.
    """

    def plant(rows: Rows, window: int, random: Random) -> bool:
        if not rows[window] or window + 1 not in rows:
            return False
        mine = rows[window]
        other = [] if one else rows[window + 1]
        taken = [random.choice(mine)] if one else list(mine)
        rows[window] = [row for row in mine if row not in taken] + other
        rows[window + 1] = (rows[window + 1] if one else []) + taken
        for place in (window, window + 1):
            for row in rows[place]:
                row["window_id"] = place
        return True

    return Damage(kind, plant, reach=1)


def exchanged(kind: str, column: str) -> Damage:
    """Returns a damage: two rows of a window that have each other's value."""

    def plant(rows: Rows, window: int, random: Random) -> bool:
        if len(rows[window]) < 2:
            return False
        first, second = random.sample(rows[window], 2)
        rest = {name for name in first if name != column}
        first[column], second[column] = second[column], first[column]
        return any(first[name] != second[name] for name in rest)

    return Damage(kind, plant)


def reversed_ranks(kind: str) -> Damage:
    """Returns a damage: two carriers with the same mean delay that have each other's rank."""

    def plant(rows: Rows, window: int, random: Random) -> bool:
        by_rank = sorted(rows[window], key=lambda row: row["rank"])
        for first, second in pairwise(by_rank):
            if (
                first["departed"]
                and first["delay_minutes"] * second["departed"]
                == second["delay_minutes"] * first["departed"]
            ):
                first["rank"], second["rank"] = second["rank"], first["rank"]
                return True
        return False

    return Damage(kind, plant)


def shifted(kind: str, key: str, between: Iterable[str]) -> Damage:
    """Returns a damage: counts of one row that belong to another row of the window, a flight of one
    minute each.
    """

    def plant(rows: Rows, window: int, random: Random) -> bool:
        able = [row for row in rows[window] if row["departed"]]
        if len(rows[window]) < 2 or not able:
            return False
        first = random.choice(able)
        second = random.choice([row for row in rows[window] if row[key] != first[key]])
        for name in between:
            first[name], second[name] = first[name] - 1, second[name] + 1
        for row in (first, second):
            _mend(row)
        return True

    return Damage(kind, plant)


def _mend(row: Row) -> None:
    """Makes quotients fit again, as an operator would that has counted wrong."""
    if "mean_delay" in row:
        mean = Decimal(row["delay_minutes"]) / row["departed"] if row["departed"] else None
        row["mean_delay"] = None if mean is None else mean.quantize(Decimal("0.0001"))
    if "late_share" in row:
        share = Decimal(row["late"]) / row["departed"] if row["departed"] else None
        row["late_share"] = None if share is None else share.quantize(Decimal("0.0001"))


def _update(rows: Iterable[Row], change: Change) -> bool:
    for row in rows:
        given = change(row)
        if given is not None:
            row.update(given)
            return True
    return False


def _take(
    rows: list[Row],
    condition: Callable[[Row], Any],
    random: Random,
    times: int,
    **others: Any,
) -> bool:
    able = [row for row in rows if condition(row)]
    if not able:
        return False
    row = random.choice(able)
    rows.remove(row)
    rows += [dict(row)] * min(times, 1) + [{**row, **others}] * (times - 1)
    return True


def is_timer(row: Row) -> bool:
    return bool(row[TIMER])


def is_data(row: Row) -> bool:
    return not row[TIMER]


COMMON = (
    dropped("row dropped"),
    doubled("row doubled"),
    moved("a row moved to the next window", one=True),
    moved("a window's rows exchanged with the next one's", one=False),
)

HOURLY_WEATHER = (
    *COMMON,
    value("null key", put(origin=None)),
    value("station unknown", put(origin="BOS")),
    exchanged("stations exchanged", "origin"),
    value("hour one later", add("hour", HOUR)),
    value("is_timer null on a report", when(is_data, **{TIMER: None})),
    value("a report made up", when(is_timer, **{TIMER: False, "age_hours": 0})),
    value("a report called a timer of age 1", when(is_data, **{TIMER: True, "age_hours": 1})),
    value("age of a report 3", when(is_data, age_hours=3)),
    value("timer without an age", when(is_timer, age_hours=None)),
    value(
        "age of a timer 7 instead of 1",
        lambda row: {"age_hours": 7} if row["age_hours"] == 1 else None,
        reach=1,
    ),
    value("reported_at one hour later", add("reported_at", HOUR)),
    value("reported_at null", put(reported_at=None)),
    value("temperature 500", put(temp=Decimal(500))),
    value("temperature -300", put(temp=Decimal(-300))),
    value("temperature null", when(lambda row: row["temp"] is not None, temp=None)),
    value("temperature 10 more", add("temp", 10)),
    value("wind 1000", put(wind_speed=Decimal(1000))),
    value("wind -5", put(wind_speed=Decimal(-5))),
    value("precipitation -1", put(precip=Decimal(-1))),
    value("visibility 999", put(visib=Decimal(999))),
)

DELAYS = (
    *COMMON,
    value("null key", put(origin=None)),
    Damage("EWR renamed XXX", lambda rows, window, random: _rename(rows[window])),
    exchanged("airports exchanged", "origin"),
    shifted("a flight moved between airports", "origin", ("flights", "departed")),
    value("flights one more", add("flights", 1)),
    value("flights null", put(flights=None)),
    value("flights negative", lambda row: {"flights": -row["flights"]} if row["flights"] else None),
    value("cancelled one more", add("cancelled", 1)),
    value(
        "cancelled -1 with departed one more",
        lambda row: _recount(row, cancelled=-1, departed=row["flights"] + 1),
    ),
    value("late beyond departed", lambda row: {"late": row["departed"] + 1}),
    value("late one more with its right share", lambda row: _late_more(row)),
    value(
        "late share wrong",
        lambda row: {"late_share": Decimal("0.5")} if row["late_share"] == 0 else None,
    ),
    value(
        "late share 0 where nothing departed",
        when(lambda row: row["departed"] == 0, late_share=Decimal(0)),
    ),
    value("delay without departure", when(lambda row: row["departed"] == 0, delay_minutes=30)),
    value(
        "delay 1,000 minutes more",
        lambda row: {"delay_minutes": row["delay_minutes"] + 1000} if row["departed"] else None,
    ),
    value("delay null", put(delay_minutes=None)),
    value(
        "p90 null",
        when(lambda row: row["delay_p90_minutes"] is not None, delay_p90_minutes=None),
    ),
    value("p90 -999", when(lambda row: row["departed"], delay_p90_minutes=-999)),
    value("p90 5,000", when(lambda row: row["departed"], delay_p90_minutes=5000)),
    value("weather_is_real null", put(**{REAL: None})),
    value("weather_is_real false", when(lambda row: row[REAL], **{REAL: False})),
    value("weather age 99", put(weather_age_hours=99)),
    value("temperature 500", put(temp=Decimal(500))),
)

RANKS = (
    *COMMON,
    value("null key", put(carrier=None)),
    value("carrier renamed", put(carrier="XX")),
    shifted("a flight moved between carriers", "carrier", ("flights", "departed")),
    value("flights one more", add("flights", 1)),
    value("flights null", put(flights=None)),
    value("flights fewer", add("flights", -3)),
    value("departed beyond flights", lambda row: {"departed": row["flights"] + 1}),
    value("departed negative", put(departed=-1)),
    value(
        "delay 1,000 minutes more or negative",
        lambda row: {"delay_minutes": row["delay_minutes"] + 1000},
    ),
    value("mean null", when(lambda row: row["mean_delay"] is not None, mean_delay=None)),
    value("mean 0.0001 more", add("mean_delay", Decimal("0.0001"))),
    values("all means 100 more", add("mean_delay", 100)),
    value("rank repeated", lambda row: {"rank": row["rank"] + 1} if row["rank"] == 2 else None),
    values("ranks one later", add("rank", 1)),
    exchanged("ranks exchanged", "rank"),
    value(
        "rank after a gap",
        lambda row: {"rank": row["rank"] + 1} if row["rank"] == 16 else {"rank": 99},
    ),
    values(
        "a start state wrong by 1,000 flights a carrier",
        lambda row: _more_flights(row),
        reach=None,
    ),
)

HEARTBEAT = (
    moved("a row moved to the next window", one=True),
    moved("a window's rows exchanged with the next one's", one=False),
    dropped("a data tuple dropped", is_data),
    doubled("a data tuple doubled", is_data),
    value("null key", put(_rw_emission=None)),
    value("key repeated", when(lambda row: row["_rw_emission"] == 1, _rw_emission=0)),
    dropped("a timer dropped", is_timer),
    Damage("all timers dropped", lambda rows, window, random: _drop_all(rows), reach=None),
    doubled("a timer twice", is_timer, _rw_emission=99),
    value(
        "a timer off its multiple",
        lambda row: {"time_hour": row["time_hour"] - HOUR / 2} if row[TIMER] else None,
    ),
    value("a timer's timestamp null", when(is_timer, time_hour=None)),
    value("a timer without a cause", when(is_timer, _rw_cause=None)),
    value(
        "cause of a timer exchanged",
        lambda row: {"_rw_cause": OTHER_CAUSE[row["_rw_cause"]]} if row[TIMER] else None,
    ),
    value(
        "a timer emitted a microsecond early",
        lambda row: {"arrived_at": row["arrived_at"] - MICROSECOND} if row[TIMER] else None,
    ),
    value("a timer that counts two", when(is_timer, _rw_timer_count=2)),
    value("unknown cause", when(is_timer, _rw_cause="boredom")),
    value("a data tuple with a cause", when(is_data, _rw_cause="timeout")),
    value("payload in a timer", when(is_timer, temp=50.0)),
    value(
        "payload of a data tuple changed",
        lambda row: None if row[TIMER] else {"humid": row["humid"] + 1},
    ),
    value(
        "timestamp of a data tuple changed",
        lambda row: None if row[TIMER] else {"time_hour": row["time_hour"] - HOUR},
    ),
    value("arrival outside of the window", add("arrived_at", HOUR)),
    value("is_timer null on data", when(is_data, **{TIMER: None})),
    value("a timer called data", when(is_timer, **{TIMER: False})),
    value("a data tuple called a timer", when(is_data, **{TIMER: True, "_rw_cause": "timeout"})),
)

DAMAGES: dict[str, tuple[Damage, ...]] = {
    "hourly_weather": HOURLY_WEATHER,
    "delays": DELAYS,
    "ranks": RANKS,
    "ticks": HEARTBEAT,
}


def _rename(rows: list[Row]) -> bool:
    return _update(rows, when(lambda row: row["origin"] == "EWR", origin="XXX"))


def _recount(row: Row, **given: Any) -> dict[str, Any]:
    made = {**row, **given}
    _mend(made)
    return made


def _late_more(row: Row) -> dict[str, Any] | None:
    return _recount(row, late=row["late"] + 1) if row["departed"] > row["late"] else None


def _more_flights(row: Row) -> dict[str, Any]:
    return {"flights": row["flights"] + 1000}


def _drop_all(rows: Rows) -> bool:
    for window, part in rows.items():
        rows[window] = [row for row in part if not row[TIMER]]
    return True
