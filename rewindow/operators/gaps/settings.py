"""Settings of a gap report: which rows are expected, and when.

Rules: G2, G4, G7
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from rewindow.errors import InputError
from rewindow.operators.durations import PositiveUs
from rewindow.operators.schedule.hours_grid import HoursGrid
from rewindow.operators.schedule.opening_hours import OpeningHours
from rewindow.operators.setting_errors import in_one_line, refusal
from rewindow.windows import format_duration, format_time, parse_time

POINTS_MAX = 1_000_000_000
"""Largest number of expected rows of a key in a range: a year with one row every 32 ms. A larger
number indicates a wrong cadence.
"""


class GapSettings(OpeningHours):
    """The expected rows: one row of every key in each stretch of one cadence, in a range of time.

    A stretch starts at a multiple of the cadence from the origin. Its start is inclusive, its end
    exclusive. The constructor validates the settings and reports all invalid ones together.

    Attributes:
        event_at: the event timestamp, a column or a SQL expression: a TIMESTAMP, or a whole number
            in `unit`.
        cadence: how often a row of a key is expected, in seconds or as text such as "1 hour".
        from_time, to_time: the range of the report, [from, to): ISO 8601, or whole microseconds
            since 1970-01-01 UTC.
        keys: columns that identify the source of a row. A null key is a key like any other.
        columns: columns whose nulls are reported.
        expected_keys: keys that must appear, a list of values for each; other keys are also
            reported.
        factor: a silence is a gap if the rows around it are further apart than this number of
            cadences. With 1, every stretch without a row is in a gap; a larger factor tolerates
            rows that arrive slightly early or late.
        origin: instant from which the stretches are counted.
        unit: unit of a whole number in `event_at`.
        arrived_at: column of the arrival; only lulls and `window` need it.
        zone, hours, weekdays, closed: with `hours` such as "09:30-16:00", on the clock of the zone,
            rows are expected only from the opening to the close, on weekdays such as "mon-fri" (by
            default all) that are not among the dates `closed`. A night is not a gap, and a gap over
            a night is one gap. Rows outside the hours are ignored.
        lull: two arrivals of a key that are further apart than this have a lull between them: the
            interval at which the key should send, plus the tolerated delay. None disables the
            search for lulls.
        window: width of the windows of arrival time in which rows are processed together, from
            `window_origin` on. If set, the report lists stretches whose rows all arrived later than
            the window in which they end: they were missing when that window was first computed. Not
            with `hours`.

    Example:
        GapSettings(event_at="at", cadence="1 hour", keys=["origin"],
                    from_time="2013-01-01", to_time="2014-01-01")

    Raises:
        InputError: a setting is wrong.

    Rules: G2 to G4, G7, G12, G13, X24
    """

    event_at: str = Field(min_length=1)
    cadence_us: PositiveUs = Field(alias="cadence")
    from_time: int
    to_time: int
    keys: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    expected_keys: tuple[tuple[Any, ...], ...] = ()
    factor: Decimal = Field(Decimal(1), ge=1, le=1_000)
    origin: int = 0
    unit: Literal["us", "ms", "s"] = "us"
    arrived_at: str = "arrived_at"
    lull_us: PositiveUs | None = Field(None, alias="lull")
    window_us: PositiveUs | None = Field(None, alias="window")
    window_origin: int = 0

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("a gap report", error, type(self)) from error

    @field_validator("from_time", "to_time", "origin", mode="before")
    @classmethod
    def _check_time(cls, value: object) -> object:
        try:
            return parse_time(value) if isinstance(value, str) else value
        except InputError as error:
            raise ValueError(in_one_line(error)) from error

    @model_validator(mode="after")
    def _check_hours_alone(self) -> GapSettings:
        if self.zone is not None and self.hours is None:
            raise ValueError('zone can only be used with hours, such as hours = "09:30-16:00"')
        if self.hours is not None and self.window_us is not None:
            raise ValueError("window cannot be used with hours")
        if self.hours is not None and self.origin:
            raise ValueError(
                "origin cannot be used with hours: the cadence is counted from the opening"
            )
        _ = self.grid
        return self

    @model_validator(mode="after")
    def _check_whole(self) -> GapSettings:
        if self.from_time >= self.to_time:
            ends = format_time(self.from_time), format_time(self.to_time)
            raise ValueError(f"time range is empty or reversed: from {ends[0]} to {ends[1]}")
        if self.end_point - self.first_point > POINTS_MAX:
            points = self.end_point - self.first_point
            raise ValueError(
                f"cadence {format_duration(self.cadence_us)} is too short: the range would have "
                f"{points:,} rows per key, but at most {POINTS_MAX:,} are allowed"
            )
        for key in self.expected_keys:
            if len(key) != len(self.keys) or None in key:
                raise ValueError(
                    f"expected key {list(key)} must have a non-null value for each of the keys "
                    f"{list(self.keys)}"
                )
        twice = set(self.keys) & set(self.columns)
        twice |= {name for name in self.keys if self.keys.count(name) > 1}
        if twice:
            raise ValueError(f"column {', '.join(sorted(twice))} is named twice as a key or column")
        return self

    @property
    def grid(self) -> HoursGrid | None:
        """The points inside opening hours; None if rows are expected at all times.

        With a grid, the times of rows are measured on its clock. On this clock, points are one
        cadence apart, counted from 0.
        """
        return self.hours_of(format_duration(self.cadence_us), "cadence")

    @property
    def tolerance_us(self) -> int:
        """The largest distance in microseconds between two rows that is not a gap."""
        return int(self.cadence_us * self.factor)

    @property
    def needs_arrival(self) -> bool:
        """Whether the report needs arrival times."""
        return self.lull_us is not None or self.window_us is not None

    @property
    def first_point(self) -> int:
        """The number of the first grid point at or after the start, counted from the origin."""
        return self._first(self.from_time)

    @property
    def end_point(self) -> int:
        """The number of the first grid point after the range.

        Points from `first_point` to this one (exclusive) are expected.
        """
        return self._first(self.to_time)

    def _first(self, at_us: int) -> int:
        grid = self.grid
        return -((self.origin - at_us) // self.cadence_us) if grid is None else grid.first(at_us)

    def at_us(self, point: int) -> int:
        """Returns the start of a grid point. With opening hours, it is a time on their clock."""
        return self.origin + point * self.cadence_us
