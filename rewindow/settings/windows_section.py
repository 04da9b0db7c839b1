"""The section `[streams.NAME.windows]` of `rewindow.toml`: windows over a stream's event time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rewindow.settings.types import AheadUs, DurationUs, Length, Section, zero_or_more


class WindowsConfig(Section):
    """Windows over a stream's event time, grouped by its keys: they make the application
    `windows_<stream>`.
    """

    length: Length | None = None
    """How long a window is, from a multiple of `slide` since 1970-01-01 UTC on; or "100 tuples", or
    "global"."""
    slide: Length | None = None
    """How far one window begins after the other, at most `length`; by default `length`, so that
    they tumble."""
    aggregates: dict[str, str] = Field(default_factory=lambda: {"tuples": "count(*)"}, min_length=1)
    """Name to aggregate: avg, count, max, min or sum over a column, as in `spent =
    "sum(price)"`."""
    lag_us: Annotated[DurationUs, AfterValidator(zero_or_more)] = Field(0, alias="lag")
    """How far the watermark stays behind the newest timestamp: a tuple older than the watermark is
    late."""
    watermark_interval_us: Annotated[DurationUs, Field(gt=0)] = Field(
        1_000_000,
        alias="watermark_interval",
    )
    """The watermark rises at the multiples of it on the arrival clock."""
    max_ahead_us: Annotated[AheadUs, AfterValidator(zero_or_more)] = Field(
        86_400_000_000,
        alias="max_ahead",
    )
    """A timestamp that runs ahead of its arrival by more is an error tuple and moves no
    watermark."""
    allowed_lateness_us: Annotated[DurationUs, AfterValidator(zero_or_more)] = Field(
        0,
        alias="allowed_lateness",
    )
    """A late tuple that is not further behind the watermark corrects the windows that have
    fired."""
    early_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="early")
    """Windows show what they have at the multiples of it on the arrival clock, also before they
    fire."""
    early_tuples: Annotated[int, Field(ge=1)] | None = None
    """Windows show what they have when so many tuples of a key are in them, twice so many, and so
    on."""
    late_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="late")
    """Windows that have fired show late tuples at the multiples of it on the arrival clock; else at
    the next tick."""
    late_tuples: Annotated[int, Field(ge=1)] | None = None
    """They do so when the number of their tuples of a key has reached another multiple of it."""
    accumulation: Literal["discarding", "accumulating", "retracting"] = "retracting"
    """What a window shows that fires again: what is new, the whole, or the whole and what was shown
    before."""
    only_updated_panes: bool = False
    """Whether a window that fires again leaves out firings that would show the same values as the
    last one (E62)."""
    gap_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="gap")
    """In the place of a length: windows are sessions, and a tuple so long after the last one begins
    a new one."""
    gap_inclusive: bool = False
    """Whether a tuple exactly so long after the last one is in its session still (E68)."""
    suite: str | None = None
    """Suite that judges the windows that have fired; by default `windows`."""
