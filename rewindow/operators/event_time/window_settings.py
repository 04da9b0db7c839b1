"""Settings of windows over event time: how long they are, and where they begin (docs/rules/event_time.md)."""

from __future__ import annotations

from decimal import Decimal
from math import gcd
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from rewindow.operators.event_time.settings import refusal, seconds

OVERLAP_MAX = 10_000
"""A tuple lies in so many windows at most."""


class EventWindows(BaseModel):
    """Windows [begin, end) of one length that begin at the multiples of a slide since 1970-01-01 UTC (E63, X36).

    A slide as long as the windows makes them tumble; a shorter one makes them overlap, whether or not it divides them.

    Attributes:
        length: how long a window is, in seconds or as text such as "1 h".
        slide: how far one window begins after the other.
        sampling: a slide longer than the windows is meant; tuples between two windows are counted as such (E20).

    Example:
        EventWindows(length="1 h", slide="15 min")

    Raises:
        InputError: a setting is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    length: Decimal
    slide: Decimal
    sampling: bool = False

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("event-time windows", error) from error

    @field_validator("length", "slide", mode="before")
    @classmethod
    def _check_duration(cls, value: object) -> Decimal:
        duration = seconds(value)
        if duration == 0:
            raise ValueError("length and slide must be above 0")
        return duration

    @model_validator(mode="after")
    def _check_slide(self) -> EventWindows:
        if self.slide > self.length and not self.sampling:
            raise ValueError(
                f"slide {self.slide} s is longer than length {self.length} s: tuples between two windows would be in "
                "none; sampling = True says that this is meant"
            )
        if self.length_us > self.slide_us * OVERLAP_MAX:
            raise ValueError(
                f"length {self.length} s is more than {OVERLAP_MAX} times the slide {self.slide} s: "
                "each tuple would be in as many windows"
            )
        return self

    @property
    def length_us(self) -> int:
        """The length in microseconds."""
        return int(self.length * 1_000_000)

    @property
    def slide_us(self) -> int:
        """The slide in microseconds."""
        return int(self.slide * 1_000_000)

    @property
    def pane_us(self) -> int:
        """The longest stretch whose tuples are always in the same windows."""
        return gcd(self.length_us, self.slide_us)
