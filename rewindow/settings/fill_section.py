"""The section `[streams.NAME.fill]` of `rewindow.toml`: how missing rows of a stream are filled."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from rewindow.settings.types import AheadUs, DurationUs, Section, zero_or_more


class FillConfig(Section):
    """How missing rows of a stream are filled; defines the application `filled_<stream>`."""

    step: str | int | float | None = None
    """A row of each key is expected in each step of event time; by default the stream's `cadence`
    or `interval`.
    """
    origin: str = "1970-01-01T00:00:00Z"
    """Time from which the steps are counted."""
    columns: dict[str, Any] = Field(default_factory=dict)
    """Column to its method: `temp = "linear"`, or `temp = { method = "linear", max_gap = "6 h" }`.
    Other columns are null in filled rows.
    """
    from_time: str | None = Field(None, alias="from")
    """Time from which rows are expected; by default from the first row of each key."""
    to_time: str | None = Field(None, alias="to")
    """Time until which rows are expected (exclusive): open gaps end in its window. By default only
    rows end gaps.
    """
    max_rows: int = Field(1_000_000, ge=1)
    """For a longer gap, one row represents all missing rows."""
    max_ahead_us: Annotated[AheadUs, AfterValidator(zero_or_more)] = Field(
        86_400_000_000,
        alias="max_ahead",
    )
    """A timestamp that is further ahead of its arrival ends no gap and is reported."""
    zone: str | None = None
    """A time zone. With it, `step` is a number of days, weeks or months of its calendar, such as "1
    month", or `hours` can be set.
    """
    hours: str | None = None
    weekdays: str | list[str] = Field(default_factory=list)
    closed: list[Any] = Field(default_factory=list)
    """Opening hours, "09:30-16:00", on days such as "mon-fri", except on the dates in `closed`: see
    the docs.
    """
    look_back_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="look_back")
    """How far before a filled row its sources may be, which may be before `from`; by default up to
    `from`.

    Rules: G35, G36
    """
    suite: str | None = None
    """Suite that checks the filled rows; by default `filled`."""
