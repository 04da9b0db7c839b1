"""Settings of event time: where timestamps are, and how the watermark follows them
(docs/rules/event_time.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from rewindow.errors import InputError
from rewindow.operators.setting_errors import HintedValueError, refusal, seconds

LAG_US_MAX = (2**31 - 1) * 1_000
"""The longest lag (E18)."""


class StreamTime(BaseModel):
    """How one stream tells event time.

    Attributes:
        event_at: the event timestamp: a column, or a SQL expression over the stream's columns. A
            TIMESTAMP, or a whole number in `unit`. Text is refused: read it by an expression, such
            as `to_timestamp(at, 'yyyyMMdd HH:mm')`.
        unit: what a whole number counts since 1970-01-01 UTC.
        idle_timeout: a stream that has sent nothing for longer does not hold the watermark back;
            off unless set (E47).
        max_ahead: a tuple whose timestamp runs ahead of its own arrival by more is an error tuple
            and moves no clock, so that one wrong timestamp does not make the rest late (see also
            `max_jump`). So is one more than a year old that lies within a day of its arrival in a
            larger unit. None believes every timestamp.
        max_jump: a tuple whose timestamp exceeds the largest one of its stream before it by more is
            an error tuple and moves no clock; off unless set (E50). Of tuples of one arrival the
            earliest timestamp comes first.

    Raises:
        InputError: a setting is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    event_at: str = Field(min_length=1)
    unit: Literal["us", "ms", "s"] = "us"
    idle_timeout: Decimal | None = None
    max_ahead: Decimal | None = Decimal(86_400)
    max_jump: Decimal | None = None

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("a stream's time", error, type(self)) from error

    @field_validator("idle_timeout", "max_ahead", "max_jump", mode="before")
    @classmethod
    def _check_wait(cls, value: object, info: ValidationInfo) -> Decimal | None:
        try:
            return None if value is None else seconds(value)
        except ValueError as error:
            raise HintedValueError(
                str(error),
                hint=f"{info.field_name}=None turns it off.",
            ) from error

    @property
    def idle_timeout_us(self) -> int | None:
        """The idle timeout, None for never."""
        return None if self.idle_timeout is None else int(self.idle_timeout * 1_000_000)

    @property
    def max_ahead_us(self) -> int | None:
        """How far a timestamp may run ahead of its arrival, None for any distance."""
        return None if self.max_ahead is None else int(self.max_ahead * 1_000_000)

    @property
    def max_jump_us(self) -> int | None:
        """How far a timestamp may exceed the largest one before it, None for any distance."""
        return None if self.max_jump is None else int(self.max_jump * 1_000_000)


class EventTime(BaseModel):
    """Event time of one stream, or of several that share a watermark. Durations are seconds, or
    text such as "5 min".

    Wrong settings are refused at once, and all of them are named.

    Attributes:
        streams: the declared streams by name. Each holds the watermark back from the first tick on,
            whether or not it has sent anything: the data do not decide which streams there are
            (E24).
        lag: how far the watermark trails the newest timestamp (E2).
        watermark_interval: ticks stand at its multiples on the arrival clock, counted from the
            grid's origin (X35).
        arrived_at: column of the arrival, in every stream.
        tie: what goes first when a tuple arrives at the instant of a tick (E15).
        on_unreadable: what becomes of a tuple without a timestamp: an error tuple with the reason
            `null_ts`, or the query fails (E23).

    Example:
        clicks = StreamTime(event_at="clicked_at")
        EventTime(streams={"clicks": clicks}, lag="5 s", watermark_interval="1 min")

    Raises:
        InputError: a setting is wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    streams: dict[str, StreamTime] = Field(min_length=1)
    lag: Decimal = Decimal(0)
    watermark_interval: Decimal = Decimal(1)
    arrived_at: str = "arrived_at"
    tie: Literal["tuple_first", "tick_first"] = "tuple_first"
    on_unreadable: Literal["error", "fail"] = "error"

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("event time", error, type(self)) from error

    @field_validator("streams", mode="before")
    @classmethod
    def _check_streams(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {name: _stream_time(name, given) for name, given in value.items()}

    @field_validator("lag", mode="before")
    @classmethod
    def _check_lag(cls, value: object) -> Decimal:
        lag = seconds(value)
        if lag * 1_000_000 > LAG_US_MAX:
            raise ValueError(
                f"lag of {lag} s is out of range, it may be {LAG_US_MAX // 1_000} ms at most"
            )
        return lag

    @field_validator("watermark_interval", mode="before")
    @classmethod
    def _check_interval(cls, value: object) -> Decimal:
        interval = seconds(value)
        if interval == 0:
            raise ValueError("watermark_interval is 0, it must be above 0")
        return interval

    @property
    def lag_us(self) -> int:
        """The lag in microseconds."""
        return int(self.lag * 1_000_000)

    @property
    def interval_us(self) -> int:
        """The interval between two ticks in microseconds."""
        return int(self.watermark_interval * 1_000_000)

    @property
    def may_idle(self) -> bool:
        """Whether a silent stream may be left out, so that the smallest timestamp of all streams
        can fall again.
        """
        return any(stream.idle_timeout is not None for stream in self.streams.values())


def _stream_time(name: str, given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    try:
        return StreamTime(**given)
    except InputError as error:
        raise ValueError(f"stream {name}: {error.primary}") from error
