"""Settings of event time: which column has the timestamps, and how the watermark follows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from rewindow.errors import InputError
from rewindow.operators.durations import NonNegativeUs, PositiveUs, duration_us
from rewindow.operators.setting_errors import HintedValueError, refusal
from rewindow.windows import format_duration

LAG_US_MAX = (2**31 - 1) * 1_000
"""The longest lag, in microseconds.

Rules: E18
"""


class StreamTime(BaseModel):
    """Settings for the event time of one stream.

    Attributes:
        event_at: the event timestamp: a column, or a SQL expression over the stream's columns. A
            TIMESTAMP, or a whole number in `unit`. Text is rejected: convert it with an expression,
            such as `to_timestamp(at, 'yyyyMMdd HH:mm')`.
        unit: unit of a whole number, counted from 1970-01-01 UTC.
        idle_timeout: a stream without tuples for longer than this does not hold the watermark back;
            None disables the timeout.
        max_ahead: a tuple whose timestamp is ahead of its arrival by more than this is an error
            tuple and does not move the clock, so that one wrong timestamp does not make later
            tuples late (see also `max_jump`). The same applies to a timestamp more than a year old
            that would be within a day of its arrival in a larger unit. None disables the check.
        max_jump: a tuple whose timestamp exceeds the largest earlier one of its stream by more than
            this is an error tuple and does not move the clock; None disables the check. Among
            tuples with the same arrival, the earliest timestamp comes first.

    Raises:
        InputError: a setting is wrong.

    Rules: E47, E50
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    event_at: str = Field(min_length=1)
    unit: Literal["us", "ms", "s"] = "us"
    idle_timeout_us: int | None = Field(None, alias="idle_timeout")
    max_ahead_us: int | None = Field(86_400_000_000, alias="max_ahead")
    max_jump_us: int | None = Field(None, alias="max_jump")

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("the event time of a stream", error, type(self)) from error

    @field_validator("idle_timeout_us", "max_ahead_us", "max_jump_us", mode="before")
    @classmethod
    def _check_wait(cls, value: object, info: ValidationInfo) -> int | None:
        try:
            return None if value is None else duration_us(value)
        except ValueError as error:
            name = str(info.field_name).removesuffix("_us")
            raise HintedValueError(str(error), hint=f"Set {name}=None to turn it off.") from error


class EventTime(BaseModel):
    """Event-time settings of one stream, or of several streams that share a watermark.

    Durations are seconds, or text such as "5 min". The constructor validates the settings and
    reports all invalid ones together.

    Attributes:
        streams: the declared streams by name. Each one holds the watermark back from the first tick
            on, even if it has not sent a tuple: the set of streams does not depend on the data.
        lag: how far the watermark trails the newest timestamp.
        watermark_interval: ticks are at its multiples on the arrival clock, counted from the grid's
            origin.
        arrived_at: column of the arrival, in every stream.
        tie: which one is processed first when a tuple arrives at the instant of a tick.
        on_unreadable: how to handle a tuple without a timestamp: as an error tuple with the reason
            `null_ts`, or by a failure of the query.

    Example:
        clicks = StreamTime(event_at="clicked_at")
        EventTime(streams={"clicks": clicks}, lag="5 s", watermark_interval="1 min")

    Raises:
        InputError: a setting is wrong.

    Rules: E2, E15, E23, E24, X35
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    streams: dict[str, StreamTime] = Field(min_length=1)
    lag_us: NonNegativeUs = Field(0, alias="lag")
    watermark_interval_us: PositiveUs = Field(1_000_000, alias="watermark_interval")
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

    @field_validator("lag_us")
    @classmethod
    def _check_lag(cls, value: int) -> int:
        if value > LAG_US_MAX:
            raise ValueError(
                f"lag must be at most {LAG_US_MAX // 1_000} ms, not {format_duration(value)}"
            )
        return value

    @property
    def may_idle(self) -> bool:
        """Whether a stream has an idle timeout.

        While an idle stream is ignored, the smallest timestamp of all streams can decrease.
        """
        return any(stream.idle_timeout_us is not None for stream in self.streams.values())


def _stream_time(name: str, given: object) -> object:
    if not isinstance(given, Mapping):
        return given
    try:
        return StreamTime(**given)
    except InputError as error:
        raise ValueError(f"stream {name}: {error.primary}") from error
