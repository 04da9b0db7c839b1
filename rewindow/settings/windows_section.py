"""The section `[streams.NAME.windows]` of `rewindow.toml`: windows over a stream's event time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rewindow.settings.types import AheadUs, DurationUs, Length, Section, zero_or_more


class WindowsConfig(Section):
    """Windows over a stream's event time, grouped by its keys; defines the application
    `windows_<stream>`.
    """

    length: Length | None = None
    """Length of a window, aligned to multiples of `slide` since 1970-01-01 UTC; or "100 tuples", or
    "global".
    """
    slide: Length | None = None
    """Distance between the starts of two windows, at most `length`; by default `length`, so that
    windows are tumbling.
    """
    aggregates: dict[str, str] = Field(default_factory=lambda: {"tuples": "count(*)"}, min_length=1)
    """Name to aggregate: avg, count, max, min or sum over a column, as in `spent =
    "sum(price)"`."""
    lag_us: Annotated[DurationUs, AfterValidator(zero_or_more)] = Field(0, alias="lag")
    """How far the watermark is behind the newest timestamp: a tuple older than the watermark is
    late.
    """
    watermark_interval_us: Annotated[DurationUs, Field(gt=0)] = Field(
        1_000_000,
        alias="watermark_interval",
    )
    """The watermark advances at multiples of this on the arrival clock."""
    max_ahead_us: Annotated[AheadUs, AfterValidator(zero_or_more)] = Field(
        86_400_000_000,
        alias="max_ahead",
    )
    """A timestamp that is further ahead of its arrival is an error tuple and does not advance the
    watermark.
    """
    allowed_lateness_us: Annotated[DurationUs, AfterValidator(zero_or_more)] = Field(
        0,
        alias="allowed_lateness",
    )
    """A late tuple that is at most this far behind the watermark corrects the windows that have
    fired.
    """
    early_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="early")
    """Windows emit early results at multiples of this on the arrival clock, before they fire."""
    early_tuples: Annotated[int, Field(ge=1)] | None = None
    """Windows emit early results each time they have another multiple of this number of tuples of a
    key.
    """
    late_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="late")
    """Windows that have fired emit late tuples at multiples of this on the arrival clock; otherwise
    at the next tick.
    """
    late_tuples: Annotated[int, Field(ge=1)] | None = None
    """Windows that have fired emit when the number of their tuples of a key reaches another
    multiple of this.
    """
    accumulation: Literal["discarding", "accumulating", "retracting"] = "retracting"
    """Result of a window that fires again: only new tuples, all tuples, or all tuples and a
    retraction of the previous result.
    """
    only_updated_panes: bool = False
    """Whether a window that fires again omits firings that would show the same values as the last
    one.

    Rules: E62
    """
    gap_us: Annotated[DurationUs, Field(gt=0)] | None = Field(None, alias="gap")
    """Instead of a length: windows are sessions, and a tuple this long after the last one starts a
    new session.
    """
    gap_inclusive: bool = False
    """Whether a tuple exactly this long after the last one still belongs to its session.

    Rules: E68
    """
    suite: str | None = None
    """Suite that checks the windows that have fired; by default `windows`."""
