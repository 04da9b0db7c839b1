"""Grids of expected times: in steps of one length, or in days, weeks and months of a time zone.

The module `hours_grid` has the steps inside opening hours.

A point is a number. Its step extends to the start of the next step. A day starts at its first
instant. If the clocks of a zone skip midnight, that is 1 o'clock, and if midnight occurs twice, it
is the first one.

Rules: G2, G3
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

from rewindow.operators.columns import floor_div
from rewindow.operators.schedule.hours_grid import clock_changes
from rewindow.spark.functions import F

if TYPE_CHECKING:
    from pyspark.sql import Column

_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)
_MONDAY = 4
_CALENDAR = re.compile(r"\s*(\d+)?\s*(day|week|month)s?\s*")


class EventGrid(Protocol):
    """Numbered points in time, each with a step that starts there."""

    @property
    def step_us(self) -> int:
        """The length of a step; the average length if steps differ."""

    def point(self, at: Column) -> Column:
        """Returns the point whose step contains an instant; null if no step does.

        Instants are BIGINT, microseconds since 1970-01-01 UTC.
        """

    def start(self, point: Column) -> Column:
        """Returns the instant at which the step of a point starts."""

    def length(self, first: Column, end: Column) -> Column:
        """Returns the total length of the steps from one point to another (exclusive), in
        microseconds.

        Rules: G8
        """

    def first(self, at_us: int) -> int:
        """Returns the first point whose step starts at or after an instant."""

    def points_in(self, period_us: int) -> int:
        """Returns the largest number of points that a period can contain."""


class TouchingSteps:
    """Base class of grids in which every step ends at the next point."""

    def length(self: EventGrid, first: Column, end: Column) -> Column:
        """See EventGrid."""
        return self.start(end) - self.start(first)


@dataclass(frozen=True)
class FixedGrid(TouchingSteps):
    """Steps of one length, counted from an origin."""

    step_us: int
    origin_us: int = 0

    def point(self, at: Column) -> Column:
        """See EventGrid."""
        return floor_div(at - self.origin_us, self.step_us)

    def start(self, point: Column) -> Column:
        """See EventGrid."""
        return point * self.step_us + self.origin_us

    def first(self, at_us: int) -> int:
        """See EventGrid."""
        return -((self.origin_us - at_us) // self.step_us)

    def points_in(self, period_us: int) -> int:
        """See EventGrid."""
        return -(-period_us // self.step_us)


@dataclass(frozen=True)
class CalendarGrid(TouchingSteps):
    """Steps of a number of days, weeks or months in a time zone.

    Weeks start on Monday. Steps are counted from 1970-01-01 or from the day of an origin.
    """

    count: int
    unit: str
    zone: str
    origin_us: int = 0

    @property
    def step_us(self) -> int:
        """See EventGrid."""
        return round(
            self.count * _DAY_US * {"day": 1, "week": 7, "month": 365.2425 / 12}[self.unit]
        )

    def points_in(self, period_us: int) -> int:
        """See EventGrid. The result allows for days that are shorter by a few hours."""
        least_us = (
            self.count * _DAY_US * {"day": 1, "week": 7, "month": 28}[self.unit] - _DAY_US // 8
        )
        return -(-period_us // least_us)

    def point(self, at: Column) -> Column:
        """See EventGrid."""
        utc = F.timestamp_add("MICROSECOND", at, _epoch())
        day = F.to_date(F.convert_timezone(F.lit("UTC"), F.lit(self.zone), utc))
        number = F.year(day) * 12 + F.month(day) - 1 if self.unit == "month" else F.unix_date(day)
        for missing in self._missing:
            number = number - F.when(F.unix_date(day) > missing, 1).otherwise(0)
        return floor_div(number.cast("bigint") - self._offset, self._days)

    def start(self, point: Column) -> Column:
        """See EventGrid."""
        number = point * self._days + self._offset
        if self.unit == "month":
            day = F.make_date(
                floor_div(number, 12).cast("int"),
                (F.pmod(number, F.lit(12)) + 1).cast("int"),
                F.lit(1),
            )
        else:
            for missing in self._missing:
                number = F.when(number >= missing, number + 1).otherwise(number)
            day = F.date_from_unix_date(number.cast("int"))
        utc = F.convert_timezone(
            F.lit(self.zone),
            F.lit("UTC"),
            day.cast("timestamp_ntz"),
        )
        return F.timestamp_diff("MICROSECOND", _epoch(), utc)

    def first(self, at_us: int) -> int:
        """See EventGrid."""
        at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_us)
        point = (
            self._number(at.astimezone(ZoneInfo(self.zone)).date()) - self._offset
        ) // self._days
        return point if self._start(point) >= at else point + 1

    @property
    def _days(self) -> int:
        return self.count * 7 if self.unit == "week" else self.count

    @property
    def _offset(self) -> int:
        """The number of the day or month from which steps are counted."""
        at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.origin_us)
        if self.origin_us:
            return self._number(at.astimezone(ZoneInfo(self.zone)).date())
        return _MONDAY if self.unit == "week" else self._number(_EPOCH)

    @property
    def _missing(self) -> tuple[int, ...]:
        """Days that are not counted, because a step that contains only such a day would have no
        length.
        """
        return missing_days(self.zone) if (self.count, self.unit) == (1, "day") else ()

    def _number(self, day: date) -> int:
        if self.unit == "month":
            return day.year * 12 + day.month - 1
        days = (day - _EPOCH).days
        return days - sum(missing < days for missing in self._missing)

    def _start(self, point: int) -> datetime:
        number = point * self._days + self._offset
        if self.unit == "month":
            return first_instant(date(number // 12, number % 12 + 1, 1), self.zone)
        for missing in self._missing:
            number += number >= missing
        return first_instant(_EPOCH + timedelta(days=number), self.zone)


@lru_cache(maxsize=8)
def missing_days(zone: str) -> tuple[int, ...]:
    """Returns the days, counted from 1970-01-01, that the clocks of a zone skip entirely.

    >>> [str(_EPOCH + timedelta(days=day)) for day in missing_days("Pacific/Apia")]
    ['2011-12-30']
    """
    days: list[int] = []
    for (_, before), (at, offset) in pairwise(clock_changes(zone)):
        first = -(-(at + before) // _DAY_US)
        days += range(first, (at + offset) // _DAY_US)
    return tuple(days)


def _epoch() -> Column:
    """Returns 1970-01-01 as a time without a zone, so that the result does not depend on the
    session's zone.
    """
    return F.lit("1970-01-01").cast("timestamp_ntz")


def first_instant(day: date, zone: str) -> datetime:
    """Returns the UTC instant at which a day starts in a zone."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def calendar_grid(step: object, zone: str, origin_us: int) -> CalendarGrid:
    """Returns the grid for a step such as "1 month".

    Raises:
        ValueError: the step is not a number of days, weeks or months.
    """
    found = _CALENDAR.fullmatch(str(step))
    if found is None or not int(found[1] or 1):
        raise ValueError(
            f'step with a zone must be days, weeks or months, such as "1 month", not "{step}"; for '
            "a shorter step, set hours"
        )
    return CalendarGrid(int(found[1] or 1), found[2], zone, origin_us)
