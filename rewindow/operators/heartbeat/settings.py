"""Settings of the Heartbeat: validation, and options for cases that its rules leave open.

Rules: H15, H20 to H43
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from decimal import Decimal, DecimalException
from fractions import Fraction
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from rewindow.errors import InputError
from rewindow.operators.setting_errors import refusal
from rewindow.windows import DURATION_US_MAX, parse_duration

NOT_POSITIVE = "The Tuple Output Interval must be a numeric value greater than zero."
TOO_FINE = "The Tuple Output Interval you entered is too fine-grained to be guaranteed."
FINE_US = 10_000
SPEED_PARTS_MAX = 1_000
MAX_TIMERS = 1_000_000_000
"""Limits that, with `DURATION_US_MAX`, keep all arithmetic of the clock within 64 bits."""

_OPERATORS: dict[type[ast.AST], Callable[..., Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


class HeartbeatProperties(BaseModel):
    """Properties of a Heartbeat.

    Durations are seconds, or text with a unit such as "10 minutes". Invalid values raise an error,
    and unusual values cause a warning.

    Attributes:
        parameters: values of `${name}` in `interval` and `slack`, replaced once, at launch.
        interval: timers are emitted at its multiples.
        slack: how long a timer waits after its scheduled time.
        event_at: column of the event timestamp: TIMESTAMP, or BIGINT as microseconds on a relative
            clock.
        arrived_at: column of the arrival.
        order_by: columns that order tuples within a window, or in a frame without windows.
        key_by: columns with one clock for each of their values; without any there is one clock.
        crossing: emit all timers that a tuple's timestamp passes, or only the last one.
        slack_restart: start of the slack after a tuple that arrived within it: the scheduled time
            of the timer, or the arrival of the tuple.
        slack_after_timeout: the slack of a silence that starts after timeouts: the whole slack
            again, or none.
        first_on_multiple: whether a first tuple exactly on a multiple causes its timer.
        early_crossing: which of timer and tuple is emitted first when a tuple at or past the next
            timer arrives before the timer's scheduled time.
        answered_crossing: whether to emit a crossing timer whose tuple has exactly its timestamp,
            or to drop it because the tuple replaces it. A row of several timers (`on_too_many`) is
            always emitted.
        tie: which one is emitted first when a tuple arrives at the instant at which a timer is due.
        arrival_regression: handling of a machine clock that steps back. A clamped tuple passes as
            if it had arrived together with the latest one before it, and not before its window, and
            is reported. If a frame without windows is processed in pieces, the clock must not step
            back across the end of a piece.
        max_jump: a tuple whose timestamp is ahead of all earlier ones by more than this is
            quarantined; None disables the check. Among tuples with equal `order_by` values, which
            need not be unique, the earlier arrival comes first, then the earlier timestamp.
        max_timers: largest number of timers for one crossing or one silence.
        on_too_many: stop beyond `max_timers`, or write one summary row for the timers beyond it.
        speed: how many times faster the playback clock of `arrived_at` runs than the recorded one.

    Rules: H2, H7, H14, H15, H20 to H39, H40 to H43, H45, H46, H51, H53, H61, H62
    """

    model_config = ConfigDict(extra="forbid")

    parameters: dict[str, str] = Field(default_factory=dict)
    interval: Decimal
    slack: Decimal = Decimal(0)
    event_at: str
    arrived_at: str = "arrived_at"
    order_by: tuple[str, ...] = ("offset",)
    key_by: tuple[str, ...] = ()
    crossing: Literal["all", "last"] = "all"
    first_on_multiple: Literal["none", "timer"] = "none"
    early_crossing: Literal["timer_first", "data_first"] = "timer_first"
    slack_restart: Literal["scheduled", "arrival"] = "scheduled"
    slack_after_timeout: Literal["again", "none"] = "again"
    answered_crossing: Literal["emit", "drop"] = "emit"
    tie: Literal["timer_first", "tuple_first"] = "timer_first"
    arrival_regression: Literal["reject", "clamp"] = "reject"
    max_jump: Decimal | None = None
    max_timers: int = Field(default=1_000_000, ge=1, le=MAX_TIMERS)
    on_too_many: Literal["stop", "summary"] = "stop"
    speed: Decimal = Decimal(1)

    @field_validator("interval", mode="before")
    @classmethod
    def _check_interval(cls, value: object, info: ValidationInfo) -> Decimal:
        seconds = to_seconds(value, info.data.get("parameters", {}))
        if seconds is None or seconds <= 0:
            raise ValueError(NOT_POSITIVE)
        return _whole_us("interval", seconds)

    @field_validator("slack", "max_jump", mode="before")
    @classmethod
    def _check_wait(cls, value: object, info: ValidationInfo) -> Decimal | None:
        name = str(info.field_name)
        if value is None and name == "max_jump":
            return None
        seconds = to_seconds(value, info.data.get("parameters", {}))
        if seconds is None or seconds < 0:
            raise ValueError(f"{name} must be a number of seconds, zero or more, not {value!r}")
        return _whole_us(name, seconds)

    @field_validator("slack_after_timeout", mode="before")
    @classmethod
    def _check_slack_after_timeout(cls, value: object) -> object:
        if value == "not":
            raise ValueError(
                'slack_after_timeout must be "none", not "not", for no slack after timeouts'
            )
        return value

    @field_validator("speed", mode="before")
    @classmethod
    def _check_speed(cls, value: object) -> Decimal:
        speed = to_seconds(value, {})
        parts = Fraction(speed).as_integer_ratio() if speed is not None else (0, 1)
        if speed is None or speed <= 0 or max(parts) > SPEED_PARTS_MAX:
            raise ValueError(
                f"speed must be above 0 and a ratio of integers up to {SPEED_PARTS_MAX}, not "
                f"{value!r}"
            )
        return speed

    @property
    def interval_us(self) -> int:
        """The interval in microseconds."""
        return int(self.interval * 1_000_000)

    @property
    def slack_us(self) -> int:
        """The slack in microseconds."""
        return int(self.slack * 1_000_000)

    @property
    def slack_varies(self) -> bool:
        """Whether the slack of a silence depends on earlier tuples and timers.

        Rules: H31, H37
        """
        return self.slack_restart == "arrival" or self.slack_after_timeout == "none"

    @property
    def max_jump_us(self) -> int | None:
        """The largest accepted step forward in microseconds; None for no limit."""
        return None if self.max_jump is None else int(self.max_jump * 1_000_000)

    @property
    def speed_ratio(self) -> tuple[int, int]:
        """The speed as a numerator and a denominator."""
        return Fraction(self.speed).as_integer_ratio()

    def warnings(self) -> list[str]:
        """Returns warnings about values that are accepted but unusual.

        Rules: H21, H24
        """
        fine = [TOO_FINE] if self.interval_us < FINE_US else []
        if 0 < self.slack_us < FINE_US:
            fine.append(
                f"slack of {self.slack_us} us is below the smallest supported value of 10 ms"
            )
        return fine


class HeartbeatSettings(HeartbeatProperties):
    """The settings of `heartbeat`. The constructor validates them, and issues a Python warning for
    each unusual value.

    Raises:
        InputError: settings are wrong; the error names all of them.

    Rules: H21, H24
    """

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise refusal("the Heartbeat", error, type(self)) from error
        for text in self.warnings():
            warnings.warn(text, stacklevel=2)


def to_seconds(value: object, parameters: Mapping[str, str]) -> Decimal | None:
    """Converts a number, a duration text or an expression to seconds, as an exact decimal number;
    None if it is not a number.

    >>> to_seconds("${minutes} * 60 + .5", {"minutes": "2"})
    Decimal('120.5')
    >>> to_seconds("10 minutes", {})
    Decimal('600')

    Rules: H25
    """
    if value is None or isinstance(value, bool):
        return None
    text = re.sub(
        r"\$\{(\w+)\}",
        lambda match: _parameter(match[1], parameters),
        str(value),
    ).strip()
    try:
        seconds = _evaluate(ast.parse(text, mode="eval").body, text)
    except (SyntaxError, DecimalException):
        try:
            seconds = Decimal(parse_duration(text)) / 1_000_000
        except InputError:
            return None
    return seconds if seconds is not None and seconds.is_finite() else None


def _parameter(name: str, parameters: Mapping[str, str]) -> str:
    if name not in parameters:
        known = ", ".join(sorted(parameters)) or "none"
        raise ValueError(f"parameter ${{{name}}} is unknown; available parameters: {known}")
    return str(parameters[name])


def _evaluate(node: ast.AST, text: str) -> Decimal | None:
    """Returns the value of an arithmetic expression. Literals are read from the text, so that
    0.10 is exactly 0.10.
    """
    if isinstance(node, ast.Constant):
        literal = ast.get_source_segment(text, node) or ""
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return Decimal(literal) if is_number else None
    if isinstance(node, ast.UnaryOp | ast.BinOp) and type(node.op) in _OPERATORS:
        sides = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        values = [_evaluate(side, text) for side in sides]
        return None if None in values else _OPERATORS[type(node.op)](*values)
    return None


def _whole_us(name: str, seconds: Decimal) -> Decimal:
    if seconds > DURATION_US_MAX // 1_000_000:
        raise ValueError(f"{name} must be at most 100 years, not {seconds} s")
    if seconds * 1_000_000 != (seconds * 1_000_000).to_integral_value():
        raise ValueError(f"{name} must be a whole number of microseconds, not {seconds} s")
    return seconds
