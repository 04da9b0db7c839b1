"""Settings of gap filling: where rows are expected, and how the values of columns are computed.

Rules: G19 to G24, G26, G27, G29 to G33
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rewindow.errors import InputError
from rewindow.names import did_you_mean
from rewindow.operators.durations import NonNegativeUs, PositiveUs, duration_us
from rewindow.operators.schedule.grids import EventGrid, FixedGrid, calendar_grid
from rewindow.operators.schedule.opening_hours import OpeningHours
from rewindow.operators.setting_errors import in_one_line, refusal
from rewindow.windows import format_duration, format_time, parse_time

METHODS = (
    "null",
    "constant",
    "forward",
    "backward",
    "nearest",
    "linear",
    "previous_of",
    "seasonal",
)
NEEDS = {"constant": "value", "previous_of": "column", "seasonal": "periods"}
"""Method to the further setting that it requires."""
CHOOSING = ("constant", "forward", "backward", "nearest", "linear", "seasonal")
"""Methods that can skip a row whose value cannot be used."""
POINTS_MAX = 1_000_000_000
ANY_POINT = 1 << 62
"""Above every grid point: the bound of an open range."""


class ColumnFill(BaseModel):
    """How the value of a column in a created row is computed.

    The sources of the value are the last row before the gap and the first row after it.

    Attributes:
        method: null; constant (`value`); forward, the row before; backward, the row after; nearest,
            the closer of both, the earlier one on a tie; linear, interpolation between both, by
            time; previous_of, the row before, but another `column` of it; seasonal, the row of the
            same key one of `periods` earlier, the first one that exists, otherwise the `fallback`
            method.
        max_gap: in a gap longer than this, the column is null in all created rows.
        max_carry: a row at a distance of more than this is not used as a source.
        extrapolate: if only one side of a gap has a row, linear uses the value of that row.
        treat_null_as_missing: a recorded null is not a source, and gets a value too, in a separate
            column. The sources are then the nearest rows with a value, and bounds count from these.
        min_value, max_value: a value below, above, or that is not a number is reported and is not a
            source, as if its row had none.

    Rules: G22, G27, G29, G30
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal[
        "null", "constant", "forward", "backward", "nearest", "linear", "previous_of", "seasonal"
    ]
    value: Any = None
    column: str | None = None
    periods_us: tuple[PositiveUs, ...] = Field((), alias="periods")
    fallback: Literal["null", "forward", "backward", "nearest", "linear"] = "null"
    max_gap_us: NonNegativeUs | None = Field(None, alias="max_gap")
    max_carry_us: NonNegativeUs | None = Field(None, alias="max_carry")
    extrapolate: bool = False
    treat_null_as_missing: bool = False
    min_value: float | None = Field(None, allow_inf_nan=False)
    max_value: float | None = Field(None, allow_inf_nan=False)

    @field_validator("periods_us", mode="before")
    @classmethod
    def _check_periods(cls, value: object) -> object:
        return value if isinstance(value, list | tuple) else (value,)

    @model_validator(mode="after")
    def _check_needs(self) -> Self:
        for method, name in NEEDS.items():
            given = bool({name, f"{name}_us"} & self.model_fields_set)
            if given != (self.method == method):
                words = (
                    f"method {method} needs {name}"
                    if not given
                    else f"{name} is only for method {method}, not for {self.method}"
                )
                raise ValueError(words)
        if self.extrapolate and "linear" not in (self.method, self.fallback):
            raise ValueError("extrapolate is only for linear, as the method or the fallback")
        if self.treat_null_as_missing and self.method not in CHOOSING:
            raise ValueError(
                f"treat_null_as_missing is only for {', '.join(CHOOSING)}, not for {self.method}"
            )
        if self.is_guarded and self.method not in CHOOSING[1:]:
            raise ValueError(
                f"min_value and max_value are only for {', '.join(CHOOSING[1:])}, not for "
                f"{self.method}"
            )
        if (
            self.min_value is not None
            and self.max_value is not None
            and self.min_value > self.max_value
        ):
            raise ValueError(f"min_value {self.min_value:g} is above max_value {self.max_value:g}")
        return self

    @property
    def is_guarded(self) -> bool:
        """Whether some values of the column cannot be sources."""
        return self.min_value is not None or self.max_value is not None

    @property
    def methods(self) -> set[str]:
        """The method and the fallback."""
        return {self.method, self.fallback} if self.method == "seasonal" else {self.method}


class FillRules(OpeningHours):
    """Rules for the expected rows and for the values of missing rows.

    `FillSettings` describes each setting.
    """

    event_at: str = Field(min_length=1)
    step: Any
    from_time: int | None = None
    to_time: int | None = None
    keys: tuple[str, ...] = ()
    columns: Mapping[str, ColumnFill] = Field(default_factory=dict)
    expected_keys: tuple[tuple[Any, ...], ...] = ()
    origin: int = 0
    max_rows: int = Field(1_000_000, ge=1)
    unit: Literal["us", "ms", "s"] = "us"
    look_back_us: NonNegativeUs | None = Field(None, alias="look_back")

    @field_validator("look_back_us")
    @classmethod
    def _check_look_back(cls, value: int | None) -> int | None:
        if value == 0:
            raise ValueError(
                "look_back must be above 0, not 0: a source is always before the row that it fills"
            )
        return value

    @model_validator(mode="after")
    def _check_periods_seen(self) -> Self:
        for name, fill in self.columns.items():
            if (
                self.look_back_us is not None
                and max(fill.periods_us, default=0) > self.look_back_us
            ):
                longest = format_duration(max(fill.periods_us))
                raise ValueError(
                    f"column {name} has a period of {longest}, which is longer than look_back, "
                    f"{format_duration(self.look_back_us)}"
                )
        return self

    @model_validator(mode="after")
    def _check_step(self) -> Self:
        if self.zone is None and "month" in str(self.step):
            raise ValueError(f'step "{self.step}" needs a zone for its calendar, such as "UTC"')
        if self.zone is None and not duration_us(self.step):
            raise ValueError(f"step must be above 0, not {self.step}")
        if self.hours is not None and self.origin:
            raise ValueError("origin cannot be used with hours: steps are counted from the opening")
        _ = self.grid
        return self

    @field_validator("from_time", "to_time", "origin", mode="before")
    @classmethod
    def _check_time(cls, value: object) -> object:
        try:
            return parse_time(value) if isinstance(value, str) else value
        except InputError as error:
            raise ValueError(in_one_line(error)) from error

    @field_validator("columns", mode="before")
    @classmethod
    def _check_columns(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        fills: dict[str, Any] = {}
        for name, given in value.items():
            fill = fills[name] = {"method": given} if isinstance(given, str) else given
            method = fill.get("method") if isinstance(fill, Mapping) else None
            if method is not None and method not in METHODS:
                hint = (
                    f"{did_you_mean(str(method), METHODS)}Available methods: {', '.join(METHODS)}"
                )
                raise ValueError(f'method "{method}" of column {name} is unknown. {hint}')
        return fills

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        if self.from_time is not None and self.to_time is not None:
            self._check_range(self.from_time, self.to_time)
        for key in self.expected_keys:
            if len(key) != len(self.keys) or None in key:
                raise ValueError(
                    f"expected key {list(key)} must have a non-null value for each of the keys "
                    f"{list(self.keys)}"
                )
        fixed = sorted({self.event_at, *self.keys} & set(self.columns))
        if fixed:
            raise ValueError(
                f"column {', '.join(fixed)} cannot be filled: it is the event timestamp or a key, "
                "which created rows always have"
            )
        return self

    def _check_range(self, from_time: int, to_time: int) -> None:
        if from_time >= to_time:
            ends = format_time(from_time), format_time(to_time)
            raise ValueError(f"time range is empty or reversed: from {ends[0]} to {ends[1]}")
        if (points := self.end_point - self.first_point) > POINTS_MAX:
            raise ValueError(
                f"step {self.step} is too short: the range would have {points:,} rows per key, but "
                f"at most {POINTS_MAX:,} are allowed"
            )

    @property
    def grid(self) -> EventGrid:
        """The points in time at which rows are expected."""
        if (inside := self.hours_of(self.step)) is not None:
            return inside
        if self.zone is not None:
            return calendar_grid(self.step, self.zone, self.origin)
        return FixedGrid(duration_us(self.step), self.origin)

    @property
    def step_us(self) -> int:
        """The step in microseconds; an approximation if the step is a calendar period."""
        return self.grid.step_us

    @property
    def nulls(self) -> dict[str, ColumnFill]:
        """Columns whose recorded nulls are filled.

        Rules: G27
        """
        return {name: fill for name, fill in self.columns.items() if fill.treat_null_as_missing}

    @property
    def source_columns(self) -> dict[str, ColumnFill]:
        """Columns for which some rows cannot be a source: columns whose nulls are filled, and
        columns with bounds.
        """
        return {**self.nulls, **self.bounded_columns}

    @property
    def bounded_columns(self) -> dict[str, ColumnFill]:
        """Columns with bounds on their values."""
        return {name: fill for name, fill in self.columns.items() if fill.is_guarded}

    @property
    def periods_us(self) -> list[int]:
        """All periods of seasonal columns, in microseconds."""
        periods: set[int] = set()
        for fill in self.columns.values():
            periods |= {*fill.periods_us}
        return sorted(periods)

    @property
    def first_point(self) -> int:
        """The number of the first grid point at or after the start, counted from the origin.

        If there is no start, it is below all points.
        """
        return -ANY_POINT if self.from_time is None else self.grid.first(self.from_time)

    @property
    def end_point(self) -> int:
        """The number of the first grid point after the range.

        If there is no end, it is above all points.
        """
        return ANY_POINT if self.to_time is None else self.grid.first(self.to_time)


class FillSettings(FillRules):
    """Settings for the expected rows and for the values of missing rows.

    Durations are seconds, or text such as "1 h". The constructor validates the settings and reports
    all invalid ones together.

    Attributes:
        event_at: column of the event timestamp: a TIMESTAMP, or a whole number in `unit`.
        step: a row of each key is expected in each [n * step, (n + 1) * step), counted from
            `origin`.
        zone: a time zone, such as "Europe/Vienna". The step is then a number of days, weeks (from
            Monday on) or months of its calendar, such as "1 month", and a row is at the first
            instant of the first day. With hours it is the zone of their clock.
        hours: rows are expected only from the opening to the close, such as "09:30-16:00", at every
            step from the opening on. A night is not a gap. Rows outside pass, do not replace an
            expected row, and are not a source.
        weekdays: with hours, the days on which they apply: "mon-fri", "sun-thu", or ["mon", "wed"];
            by default all.
        closed: with hours, dates without opening hours: ["2024-12-25"].
        from_time, to_time: the range to fill, [from, to): ISO 8601, or whole microseconds since
            1970-01-01 UTC.
        keys: columns that identify the source of a row; a row with a null key passes, and is not
            filled.
        columns: column to its method, by name only or with settings: "linear", or {"method":
            "linear", "max_gap": "6 h"}. Columns that are not named are null in created rows.
        expected_keys: keys that must appear, a list of values for each.
        max_rows: a gap with more rows gets one row, which has the number of rows that it
            represents.
        unit: unit of a whole number in `event_at`.
        look_back: rows before `from_time` are sources too, but only up to this far (inclusive)
            before the created row: its value is computed as if older rows did not exist. By default
            only rows of the range are sources, however old.

    Example:
        FillSettings(event_at="at", step="1 h", keys=["origin"],
                     from_time="2013-01-01", to_time="2014-01-01",
                     columns={"temp": {"method": "linear", "max_gap": "6 h"}, "visib": "forward"})

    Raises:
        InputError: a setting is wrong.

    Rules: G2 to G7, G33, G35, G36, X24
    """

    from_time: int
    to_time: int

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("gap filling", error, type(self)) from error


def refuse_later_rows(columns: Mapping[str, ColumnFill]) -> None:
    """Rejects methods that need rows after a gap, for columns whose recorded nulls a replay fills.

    Raises:
        ValueError: a column has such a method, or a bound on the whole gap.
    """
    for name, fill in columns.items():
        later = fill.methods & {"backward", "nearest", "linear"}
        later |= {"max_gap"} if fill.max_gap_us is not None else set()
        if later:
            raise ValueError(
                f"column {name} cannot have {', '.join(sorted(later))} with "
                "treat_null_as_missing, because a tuple with a null is emitted before later rows "
                "are known. Use constant, forward, or seasonal with null or forward as fallback, "
                "and max_carry as limit"
            )
