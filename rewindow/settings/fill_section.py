"""The section `[streams.NAME.fill]` of `rewindow.toml`: how the rows that a stream lacks are
made.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from rewindow.settings.types import AheadUs, DurationUs, Section, zero_or_more


class FillConfig(Section):
    """How the rows that a stream lacks are made: they make the application `filled_<stream>`."""

    step: str | int | float | None = None
    """A row of each key is expected in each step of event time; by default the stream's `cadence`
    or `interval`."""
    origin: str = "1970-01-01T00:00:00Z"
    """From where the steps are counted."""
    columns: dict[str, Any] = Field(default_factory=dict)
    """Column to its method: `temp = "linear"`, or `temp = { method = "linear", max_gap = "6 h" }`.
    Others stay null."""
    from_time: str | None = Field(None, alias="from")
    """From when rows are expected; by default from the first row of each key."""
    to_time: str | None = Field(None, alias="to")
    """Until when rows are expected (exclusive): in its window open gaps are closed. By default only
    rows close gaps."""
    max_rows: int = Field(1_000_000, ge=1)
    """Of a longer gap one row is made in the place of all."""
    max_ahead_us: Annotated[AheadUs, AfterValidator(zero_or_more)] = Field(
        86_400_000_000,
        alias="max_ahead",
    )
    """A timestamp that runs ahead of its arrival by more closes no gap and is reported."""
    zone: str | None = None
    """A time zone: then `step` is so many days, weeks or months of its calendar, such as "1 month",
    or has `hours`."""
    hours: str | None = None
    weekdays: str | list[str] = Field(default_factory=list)
    closed: list[Any] = Field(default_factory=list)
    """Opening hours, "09:30-16:00", on days such as "mon-fri" that are not among the dates
    `closed`: see the docs."""
    look_back_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="look_back")
    """How far before a made row its sources may be, before `from` too; by default as far as `from`
    (G35, G36)."""
    suite: str | None = None
    """Suite that judges the filled rows; by default `filled`."""
