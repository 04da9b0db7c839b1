"""Settings of opening hours, during which rows are expected.

Rules: G3
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from rewindow.names import did_you_mean
from rewindow.operators.durations import duration_us
from rewindow.operators.schedule.hours_grid import HoursGrid, hours_grid

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"\s*(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d)\s*")
_MINUTE_US = 60_000_000


class OpeningHours(BaseModel):
    """Base class of settings that have opening hours.

    Attributes:
        zone: a time zone, such as "America/New_York".
        hours: from the opening to the close on its clock, such as "09:30-16:00"; the end is
            exclusive.
        weekdays: days with opening hours, such as "mon-fri" or ["mon", "wed"]; by default all.
        closed: dates without opening hours, such as ["2024-12-25"].
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    zone: str | None = None
    hours: str | None = None
    weekdays: tuple[int, ...] = ()
    closed: tuple[date, ...] = ()

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        if value is not None and value not in (known := available_timezones()):
            raise ValueError(
                f'zone "{value}" is unknown. {did_you_mean(value, known)}Use a name such as '
                '"Europe/Vienna"'
            )
        return value

    @field_validator("hours")
    @classmethod
    def _check_hours(cls, value: str | None) -> str | None:
        if value is not None:
            open_close(value)
        return value

    @field_validator("weekdays", mode="before")
    @classmethod
    def _check_weekdays(cls, value: object) -> tuple[int, ...]:
        given = value if isinstance(value, list | tuple) else (value,)
        days: set[int] = set()
        for part in given:
            for text in str(part).split(","):
                days.update(_days(text))
        return tuple(sorted(days))

    @field_validator("closed", mode="before")
    @classmethod
    def _check_closed(cls, value: Any) -> tuple[date, ...]:
        given = value if isinstance(value, list | tuple) else (value,)
        return tuple(sorted({*map(_date, given)}))

    @model_validator(mode="after")
    def _check_alone(self) -> OpeningHours:
        if self.hours is None and (self.weekdays or self.closed):
            name = "weekdays" if self.weekdays else "closed"
            raise ValueError(f'{name} can only be used with hours, such as hours = "09:30-16:00"')
        if self.hours is not None and self.zone is None:
            raise ValueError(
                f'hours "{self.hours}" need a time zone: set zone, such as "America/New_York"'
            )
        return self

    def hours_of(self, step: object, what: str = "step") -> HoursGrid | None:
        """Returns the grid for a step inside the hours; None without hours.

        Raises:
            ValueError: the length of the hours is not a multiple of the step.
        """
        if self.hours is None or self.zone is None:
            return None
        opens, closes = open_close(self.hours)
        step_us = duration_us(step)
        minutes = (closes - opens) // _MINUTE_US
        if step_us == 0:
            raise ValueError(f"{what} must be above 0, not {step}")
        if (closes - opens) % step_us:
            fits = [str(n) for n in range(1, minutes + 1) if minutes % n == 0]
            raise ValueError(
                f'{what} "{step}" does not divide hours "{self.hours}" ({minutes} min) evenly. '
                f"These numbers of minutes do: {', '.join(fits)}"
            )
        return hours_grid(
            step_us,
            self.zone,
            opens,
            close_us=closes,
            weekdays=self.weekdays or tuple(range(7)),
            closed=self.closed,
        )


def open_close(hours: str) -> tuple[int, int]:
    """Returns opening and closing time in microseconds since midnight.

    >>> open_close("09:30-16:00")
    (34200000000, 57600000000)

    Raises:
        ValueError: the text is malformed, or is not a range of time within a day.
    """
    found = _HOURS.fullmatch(hours)
    opens, opens_min, closes, closes_min = map(int, found.groups() if found else "0000")
    first = opens * 60 + opens_min
    last = closes * 60 + closes_min
    if found is None or last > 1440 or opens_min > 59 or closes_min > 59:
        raise ValueError(
            f'hours "{hours}" are invalid. Use a format such as "09:30-16:00", within 00:00-24:00'
        )
    if first >= last:
        raise ValueError(
            f'hours "{hours}" end before they start. They must be on one day, within 00:00-24:00'
        )
    return first * _MINUTE_US, last * _MINUTE_US


def _days(text: str) -> Iterator[int]:
    """Yields the numbers of weekdays. 0 is Monday, and a range such as "sat-tue" extends over the
    end of the week.
    """
    ends = list(map(str.strip, text.lower().split("-")))
    for name in ends:
        if name not in DAYS or len(ends) > 2:
            hint = (
                f"{did_you_mean(name, DAYS)}Available weekdays: {', '.join(DAYS)}, and ranges such "
                'as "mon-fri"'
            )
            raise ValueError(f'weekday "{text.strip()}" is unknown. {hint}')
    first = DAYS.index(ends[0])
    last = DAYS.index(ends[-1])
    for number in range(first, first + (last - first) % 7 + 1):
        yield number % 7


def _date(value: object) -> date:
    try:
        return date.fromisoformat(str(value))
    except ValueError as error:
        raise ValueError(f'closed must have dates such as "2024-12-25", not "{value}"') from error
