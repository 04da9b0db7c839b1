"""Settings of windows over event time: how long they are, and where they begin
(docs/rules/event_time.md).
"""

from __future__ import annotations

from decimal import Decimal
from math import gcd
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rewindow.operators.setting_errors import HintedValueError, refusal, seconds

TUPLES_MAX = 2**31 - 1
"""A window of so many tuples has so many at most."""
OVERLAP_MAX = 10_000
"""A tuple lies in so many windows at most."""


class _Repeating(BaseModel):
    """When windows fire beside on time, and what they show then."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_lateness: Decimal = Decimal(0)
    early: Decimal | None = None
    early_tuples: int | None = None
    late: Decimal | None = None
    late_tuples: int | None = None
    accumulation: Literal["discarding", "accumulating", "retracting"] = "retracting"
    only_updated_panes: bool = False

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("event-time windows", error, type(self)) from error

    @field_validator("allowed_lateness", mode="before")
    @classmethod
    def _check_allowed(cls, value: object) -> Decimal:
        return seconds(value)

    @field_validator("early", "late", mode="before")
    @classmethod
    def _check_every(cls, value: object, info: ValidationInfo) -> Decimal | None:
        every = None if value is None else seconds(value)
        if every == 0:
            never = "never" if info.field_name == "early" else "every tick"
            raise ValueError(f"{info.field_name} is 0, it must be above 0, or None for {never}")
        return every

    @field_validator("early_tuples", "late_tuples")
    @classmethod
    def _check_tuples(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < 1:
            raise ValueError(
                f"{info.field_name} is {value}, it must be 1 or more, or None for never"
            )
        return value

    @model_validator(mode="after")
    def _check_late(self) -> Self:
        if self.allowed_us == 0 and (self.late is not None or self.late_tuples is not None):
            raise ValueError(
                "late and late_tuples say when windows show late tuples, and these let none in: "
                "set allowed_lateness"
            )
        return self

    @model_validator(mode="after")
    def _check_updated(self) -> Self:
        if self.only_updated_panes and (self.fires_once or self.accumulation == "discarding"):
            what = (
                "which have nothing to compare"
                if self.accumulation == "discarding"
                else "which fire once"
            )
            raise ValueError(f"only_updated_panes is not for these windows, {what}")
        return self

    @property
    def is_early(self) -> bool:
        """Whether windows show before they fire on time."""
        return self.early is not None or self.early_tuples is not None

    @property
    def fires_once(self) -> bool:
        """Whether each window is shown once, when it fires on time."""
        return self.allowed_lateness == 0 and not self.is_early

    @property
    def allowed_us(self) -> int:
        """The allowed lateness in microseconds."""
        return int(self.allowed_lateness * 1_000_000)

    @property
    def behind_us(self) -> int:
        """How far behind a window's end the watermark must be to fire it."""
        return 0


class EventWindows(_Repeating):
    """Windows [begin, end) of one length that begin at the multiples of a slide since 1970-01-01
    UTC (E63, X36).

    A slide as long as the windows makes them tumble; a shorter one makes them overlap, whether or
    not it divides them.

    Attributes:
        length: how long a window is, in seconds or as text such as "1 h".
        slide: how far one window begins after the other.
        sampling: a slide longer than the windows is meant; tuples between two windows are counted
            as such (E20).
        allowed_lateness: a late tuple that lies behind the watermark by so much at most corrects
            the windows that have fired, and enters those that have not (E49).
        early: windows that have not fired yet show what they have at the multiples of so long on
            the arrival clock, each if there is something new (E58); never unless set.
        early_tuples: windows that have not fired yet show what they have when the number of their
            tuples of a key reaches a multiple of it (E57); never unless set. Tuples that arrive at
            one instant are ordered by stream and by what they add.
        late: windows that have fired show late tuples at the multiples of so long on the arrival
            clock, together (E56, E58). With neither this nor `late_tuples`, at the next tick.
        late_tuples: windows that have fired show late tuples, together, at the first tick that sees
            that the number of their tuples of a key, those on time too, has reached another
            multiple of it (E57). Where `late` is set too, both act. What is left shows at the tick
            that removes the window: when the watermark has passed its end by `allowed_lateness`; or
            where the recording ends.
        accumulation: what a window shows that fires again: `discarding`, what is new (E59);
            `accumulating`, the whole (E60); `retracting`, the whole, and before it what was shown
            last as a row of the kind `retraction` (E61).
        only_updated_panes: a firing whose values are those that were shown last is left out, also
            the one on time (E62).

    Example:
        EventWindows(length="1 h", slide="15 min")

    Raises:
        InputError: a setting is wrong.
    """

    length: Decimal
    slide: Decimal
    sampling: bool = False

    @field_validator("length", "slide", mode="before")
    @classmethod
    def _check_duration(cls, value: object) -> Decimal:
        duration = seconds(value)
        if duration == 0:
            raise ValueError("length and slide must be above 0")
        return duration

    @model_validator(mode="after")
    def _check_sampling(self) -> EventWindows:
        if self.slide > self.length and not self.fires_once:
            raise ValueError(
                "windows with gaps between them have neither allowed_lateness nor early"
            )
        return self

    @model_validator(mode="after")
    def _check_slide(self) -> EventWindows:
        if self.slide > self.length and not self.sampling:
            raise HintedValueError(
                f"slide {self.slide} s is longer than length {self.length} s: tuples between two "
                "windows would be in "
                "none",
                hint="sampling=True says that this is meant.",
            )
        if self.length_us > self.slide_us * OVERLAP_MAX:
            raise ValueError(
                f"length {self.length} s is more than {OVERLAP_MAX} times the slide {self.slide} "
                "s: "
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


class ApexWindows(EventWindows):
    """Windows as Apache Apex fires them, to compare with: when the watermark is beyond their end,
    not at it (E53).

    Apex moves its watermark at the end of a streaming window only (E51, E55): give `EventTime` the
    width of the streaming windows as watermark_interval, the fixed difference as lag, and
    tie="tick_first". What is late by more than the lateness is no part of any window, and is kept
    as a late tuple (E54).

    Attributes:
        length, slide, early, early_tuples, late, late_tuples, accumulation, only_updated_panes: see
            `EventWindows`.
        lateness: a tuple may lie so far behind the watermark; None, as in Apex, lets all tuples in,
            and removes no window, so that the state grows with the number of windows (E52).

    Example:
        ApexWindows(length="1 h", slide="1 h", lateness="10 min")

    Raises:
        InputError: a setting is wrong.
    """

    lateness: Decimal | None = None

    @field_validator("lateness", mode="before")
    @classmethod
    def _check_lateness(cls, value: object) -> Decimal | None:
        return None if value is None else seconds(value)

    @model_validator(mode="after")
    def _check_allowed_lateness(self) -> ApexWindows:
        if self.allowed_lateness:
            raise ValueError("windows of Apex have lateness, and no allowed_lateness")
        return self

    @property
    def fires_once(self) -> bool:
        """False: a late tuple shows in its windows, whatever has fired."""
        return False

    @property
    def allowed_us(self) -> int:
        """The lateness in microseconds; longer than any, where all tuples are let in."""
        return 1 << 61 if self.lateness is None else int(self.lateness * 1_000_000)

    @property
    def behind_us(self) -> int:
        """A microsecond: a watermark that is equal to the end does not fire the window."""
        return 1


class GlobalWindow(_Repeating):
    """One window of all tuples of a key; only the end of the recording closes it (E64).

    Before, it shows what it has by its triggers: `early` and `early_tuples`, and with
    `accumulation`, as for `EventWindows`. As it has not fired, late tuples within
    `allowed_lateness` enter it like others.

    Example:
        GlobalWindow(early="1 h", accumulation="accumulating")

    Raises:
        InputError: a setting is wrong.
    """

    @model_validator(mode="after")
    def _check_late(self) -> Self:
        if self.late is not None or self.late_tuples is not None:
            raise ValueError(
                "the global window has no late and no late_tuples: only the end of the recording "
                "fires it"
            )
        return self

    @property
    def fires_once(self) -> bool:
        """False: it is computed like windows that show more than once."""
        return False

    @property
    def begin_us(self) -> int:
        """A begin before all timestamps."""
        return -(1 << 62)

    @property
    def length_us(self) -> int:
        """A length that ends it behind all timestamps."""
        return (1 << 63) - 1

    @property
    def slide_us(self) -> int:
        """As long: there is no next one."""
        return self.length_us

    @property
    def pane_us(self) -> int:
        """As long: all tuples are in it."""
        return self.length_us


class CountWindows(BaseModel):
    """Windows of so many tuples of a key, in the order of event time: each ends with the last of a
    slide (E13, E14).

    The window that ends with the slide's n-th repetition holds the last `length` tuples up to
    there; the first ones are shorter, where the slide is.

    Attributes:
        length: how many tuples.
        slide: after how many tuples the next window ends; by default `length`, so that they tumble
            (E19).

    Example:
        CountWindows(length=100, slide=10)

    Raises:
        InputError: a setting is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    length: int
    slide: int = 0

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**{"slide": settings.get("length"), **settings})
        except ValidationError as error:
            raise refusal("windows of so many tuples", error, type(self)) from error

    @field_validator("length", "slide")
    @classmethod
    def _check_count(cls, value: int) -> int:
        if not 1 <= value <= TUPLES_MAX:
            raise ValueError(f"{value} tuples are out of range, it may be from 1 to {TUPLES_MAX}")
        return value

    @model_validator(mode="after")
    def _check_overlap(self) -> CountWindows:
        if self.slide > self.length:
            raise ValueError(
                f"slide {self.slide} is longer than length {self.length}: tuples between two "
                "windows would be in none"
            )
        if self.length > self.slide * OVERLAP_MAX:
            raise ValueError(
                f"length {self.length} is more than {OVERLAP_MAX} times the slide {self.slide}: "
                "each tuple would be in as many windows"
            )
        return self

    @property
    def pane(self) -> int:
        """The longest run of tuples that are always in the same windows."""
        return gcd(self.length, self.slide)


class SessionWindows(BaseModel):
    """Windows that begin with a tuple of a key and end a gap after their last one (E67).

    Attributes:
        gap: a tuple that comes so long after the one before it, or longer, begins a new session.
        gap_inclusive: one that comes exactly so long after it belongs to the same session, as in
            Spark (E68).
        allowed_lateness: a late tuple that lies behind the watermark by so much at most makes a
            session longer, joins two, or makes one of its own. One that has fired is taken back
            then, with a row of the kind `retraction`, and the new one fires (E49, E69).

    Example:
        SessionWindows(gap="30 min")

    Raises:
        InputError: a setting is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    gap: Decimal
    gap_inclusive: bool = False
    allowed_lateness: Decimal = Decimal(0)

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("session windows", error, type(self)) from error

    @field_validator("gap", mode="before")
    @classmethod
    def _check_gap(cls, value: object) -> Decimal:
        gap = seconds(value)
        if gap == 0:
            raise ValueError("gap is 0, it must be above 0")
        return gap

    @field_validator("allowed_lateness", mode="before")
    @classmethod
    def _check_allowed(cls, value: object) -> Decimal:
        return seconds(value)

    @property
    def gap_us(self) -> int:
        """The gap in microseconds."""
        return int(self.gap * 1_000_000)

    @property
    def behind_us(self) -> int:
        """How far behind a session's last tuple the watermark must be to fire it; no tuple as far
        behind joins it.
        """
        return self.gap_us + int(self.gap_inclusive)

    @property
    def allowed_us(self) -> int:
        """The allowed lateness in microseconds."""
        return int(self.allowed_lateness * 1_000_000)


AnyWindows = EventWindows | SessionWindows | CountWindows | GlobalWindow
