"""Settings of windows over event time: their length, their start, and their triggers."""

from __future__ import annotations

from math import gcd
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rewindow.operators.durations import NonNegativeUs, PositiveUs
from rewindow.operators.setting_errors import HintedValueError, refusal
from rewindow.windows import format_duration

TUPLES_MAX = 2**31 - 1
"""Largest length of a window that counts tuples."""
OVERLAP_MAX = 10_000
"""Largest number of windows that a tuple may be in."""


class _Repeating(BaseModel):
    """Triggers of windows that fire more than once, and the content of these firings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_lateness_us: NonNegativeUs = Field(0, alias="allowed_lateness")
    early_us: NonNegativeUs | None = Field(None, alias="early")
    early_tuples: int | None = None
    late_us: NonNegativeUs | None = Field(None, alias="late")
    late_tuples: int | None = None
    accumulation: Literal["discarding", "accumulating", "retracting"] = "retracting"
    only_updated_panes: bool = False

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("event-time windows", error, type(self)) from error

    @field_validator("early_us", "late_us")
    @classmethod
    def _check_every(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value == 0:
            name = str(info.field_name).removesuffix("_us")
            never = "never" if name == "early" else "every tick"
            raise ValueError(f"{name} must be above 0, or None for {never}, not 0")
        return value

    @field_validator("early_tuples", "late_tuples")
    @classmethod
    def _check_tuples(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < 1:
            raise ValueError(f"{info.field_name} must be 1 or more, or None for never, not {value}")
        return value

    @model_validator(mode="after")
    def _check_late(self) -> Self:
        if self.allowed_us == 0 and (self.late_us is not None or self.late_tuples is not None):
            raise ValueError(
                "late and late_tuples have no effect, because the windows do not accept late "
                "tuples: set allowed_lateness"
            )
        return self

    @model_validator(mode="after")
    def _check_updated(self) -> Self:
        if self.only_updated_panes and (self.fires_once or self.accumulation == "discarding"):
            reason = (
                "discarding panes cannot be compared"
                if self.accumulation == "discarding"
                else "each window fires once"
            )
            raise ValueError(f"only_updated_panes cannot be used: {reason}")
        return self

    @property
    def is_early(self) -> bool:
        """Whether windows are emitted before they fire on time."""
        return self.early_us is not None or self.early_tuples is not None

    @property
    def fires_once(self) -> bool:
        """Whether each window is emitted once, when it fires on time."""
        return self.allowed_lateness_us == 0 and not self.is_early

    @property
    def allowed_us(self) -> int:
        """The allowed lateness in microseconds."""
        return self.allowed_lateness_us

    @property
    def behind_us(self) -> int:
        """The time in microseconds by which the watermark must exceed a window's end before the
        window fires.
        """
        return 0


class EventWindows(_Repeating):
    """Windows of one length, [begin, end), that start at the multiples of a slide since 1970-01-01
    UTC.

    If the slide equals the length, the windows tumble. If it is shorter, they overlap. The slide
    need not divide the length.

    Attributes:
        length: length of a window, in seconds or as text such as "1 h".
        slide: distance of the starts of consecutive windows.
        sampling: confirms that the slide is longer than the windows; tuples between two windows are
            then counted as such.
        allowed_lateness: a late tuple that is at most this far below the watermark corrects the
            windows that have fired, and enters those that have not.
        early: windows that have not fired yet emit their present content at the multiples of this
            duration on the arrival clock, if a tuple was added; None disables it.
        early_tuples: windows that have not fired yet emit their present content when the number of
            their tuples of a key reaches a multiple of this number; None disables it. Tuples with
            the same arrival are ordered by stream and by their contribution to the aggregates.
        late: windows that have fired emit late tuples together at the multiples of this duration on
            the arrival clock. If neither this nor `late_tuples` is set, they do so at the next
            tick.
        late_tuples: windows that have fired emit late tuples together at the first tick after the
            number of their tuples of a key, including those on time, has reached another multiple
            of this number. If `late` is set too, both are triggers. The remaining late tuples are
            emitted at the tick that removes the window, when the watermark has passed its end by
            `allowed_lateness`, or at the end of the recording.
        accumulation: content of a window that fires again: `discarding`, the new tuples only;
            `accumulating`, all tuples; `retracting`, all tuples, after a row of the kind
            `retraction` with the previous content.
        only_updated_panes: leaves out a firing whose values equal the previous ones, also the one
            on time.

    Example:
        EventWindows(length="1 h", slide="15 min")

    Raises:
        InputError: a setting is wrong.

    Rules: E20, E49, E56 to E63, X36
    """

    length_us: PositiveUs = Field(alias="length")
    slide_us: PositiveUs = Field(alias="slide")
    sampling: bool = False

    @model_validator(mode="after")
    def _check_sampling(self) -> EventWindows:
        if self.slide_us > self.length_us and not self.fires_once:
            raise ValueError(
                "windows with gaps between them (slide is longer than length) cannot have "
                "allowed_lateness or early"
            )
        return self

    @model_validator(mode="after")
    def _check_slide(self) -> EventWindows:
        if self.slide_us > self.length_us and not self.sampling:
            raise HintedValueError(
                f"slide {format_duration(self.slide_us)} is longer than length "
                f"{format_duration(self.length_us)}: tuples between two "
                "windows would be in no window",
                hint="Set sampling=True if this is intended.",
            )
        if self.length_us > self.slide_us * OVERLAP_MAX:
            raise ValueError(
                f"length {format_duration(self.length_us)} is more than {OVERLAP_MAX} times slide "
                f"{format_duration(self.slide_us)}: "
                f"each tuple would be in more than {OVERLAP_MAX} windows"
            )
        return self

    @property
    def pane_us(self) -> int:
        """The longest stretch of event time whose tuples are always in the same windows, in
        microseconds.
        """
        return gcd(self.length_us, self.slide_us)


class ApexWindows(EventWindows):
    """Windows that fire as in Apache Apex, for comparison: when the watermark is after their end,
    not at it.

    Apex moves its watermark only at the end of a streaming window. To reproduce that, configure
    `EventTime` with the width of the streaming windows as watermark_interval, the fixed difference
    as lag, and tie="tick_first". A tuple that is late by more than the lateness is in no window,
    and is kept as a late tuple.

    Attributes:
        length, slide, early, early_tuples, late, late_tuples, accumulation, only_updated_panes: see
            `EventWindows`.
        lateness: how far a tuple may be below the watermark. None accepts all tuples, as in Apex,
            and removes no window, so the state grows with the number of windows.

    Example:
        ApexWindows(length="1 h", slide="1 h", lateness="10 min")

    Raises:
        InputError: a setting is wrong.

    Rules: E51 to E55
    """

    lateness_us: NonNegativeUs | None = Field(None, alias="lateness")

    @model_validator(mode="after")
    def _check_allowed_lateness(self) -> ApexWindows:
        if self.allowed_lateness_us:
            raise ValueError("ApexWindows cannot have allowed_lateness: set lateness instead")
        return self

    @property
    def fires_once(self) -> bool:
        """False, because a late tuple is emitted in its windows even after they have fired."""
        return False

    @property
    def allowed_us(self) -> int:
        """The lateness in microseconds.

        If all tuples are accepted, it is larger than any other value.
        """
        return 1 << 61 if self.lateness_us is None else self.lateness_us

    @property
    def behind_us(self) -> int:
        """One microsecond, because a watermark that equals the end does not fire the window."""
        return 1


class GlobalWindow(_Repeating):
    """One window with all tuples of a key, which fires on time only at the end of the recording.

    Until then, the triggers `early` and `early_tuples` emit its present content, with
    `accumulation` as in `EventWindows`. Because the window has not fired, late tuples within
    `allowed_lateness` are added to it like all others.

    Example:
        GlobalWindow(early="1 h", accumulation="accumulating")

    Raises:
        InputError: a setting is wrong.

    Rules: E64
    """

    @model_validator(mode="after")
    def _check_late(self) -> Self:
        if self.late_us is not None or self.late_tuples is not None:
            raise ValueError(
                "the global window cannot have late or late_tuples: it fires only at the end of "
                "the recording"
            )
        return self

    @property
    def fires_once(self) -> bool:
        """False, because it is computed like windows that fire more than once."""
        return False

    @property
    def begin_us(self) -> int:
        """The start of the window, before all timestamps."""
        return -(1 << 62)

    @property
    def length_us(self) -> int:
        """The length of the window, so that it ends after all timestamps."""
        return (1 << 63) - 1

    @property
    def slide_us(self) -> int:
        """The length of the window, because there is only one."""
        return self.length_us

    @property
    def pane_us(self) -> int:
        """The length, because all tuples are in the window."""
        return self.length_us


class CountWindows(BaseModel):
    """Windows with a fixed number of tuples of a key, in the order of event time. A window ends
    after every `slide` tuples.

    The n-th window contains the last `length` tuples up to tuple number n * `slide`. If the slide
    is shorter than the length, the first windows are shorter.

    Attributes:
        length: number of tuples in a window.
        slide: number of tuples from the end of a window to the end of the next one; by default
            `length`, so that the windows tumble.

    Example:
        CountWindows(length=100, slide=10)

    Raises:
        InputError: a setting is wrong.

    Rules: E13, E14, E19
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    length: int
    slide: int = 0

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**{"slide": settings.get("length"), **settings})
        except ValidationError as error:
            raise refusal("count windows", error, type(self)) from error

    @field_validator("length", "slide")
    @classmethod
    def _check_count(cls, value: int) -> int:
        if not 1 <= value <= TUPLES_MAX:
            raise ValueError(f"a count of tuples must be from 1 to {TUPLES_MAX}, not {value}")
        return value

    @model_validator(mode="after")
    def _check_overlap(self) -> CountWindows:
        if self.slide > self.length:
            raise ValueError(
                f"slide {self.slide} is longer than length {self.length}: tuples between two "
                "windows would be in no window"
            )
        if self.length > self.slide * OVERLAP_MAX:
            raise ValueError(
                f"length {self.length} is more than {OVERLAP_MAX} times slide {self.slide}: "
                f"each tuple would be in more than {OVERLAP_MAX} windows"
            )
        return self

    @property
    def pane(self) -> int:
        """The largest number of consecutive tuples that are always in the same windows."""
        return gcd(self.length, self.slide)


class SessionWindows(BaseModel):
    """Windows that start with a tuple of a key and end after a gap without tuples.

    Attributes:
        gap: a tuple that follows the previous one after this duration or later starts a new
            session.
        gap_inclusive: whether a tuple that follows after exactly this duration belongs to the same
            session, as in Spark.
        allowed_lateness: a late tuple that is at most this far below the watermark extends a
            session, joins two, or starts one. If a changed session has fired, it is retracted by a
            row of the kind `retraction`, and the new one fires.

    Example:
        SessionWindows(gap="30 min")

    Raises:
        InputError: a setting is wrong.

    Rules: E49, E67 to E69
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    gap_us: PositiveUs = Field(alias="gap")
    gap_inclusive: bool = False
    allowed_us: NonNegativeUs = Field(0, alias="allowed_lateness")

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("session windows", error, type(self)) from error

    @property
    def behind_us(self) -> int:
        """The time in microseconds by which the watermark must exceed a session's last tuple before
        the session fires.

        A tuple this far after the last one does not join the session.
        """
        return self.gap_us + int(self.gap_inclusive)


AnyWindows = EventWindows | SessionWindows | CountWindows | GlobalWindow
