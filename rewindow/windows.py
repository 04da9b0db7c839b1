"""Window ids, ranges of windows, times and durations (docs/rules/windows_and_checkpoints.md).

A window id is the index of a window on the grid. All times are integer microseconds since
1970-01-01 UTC, widths and origins integer milliseconds. Comparisons never use floating-point times.

Rules: W3, W4, W5, W10
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation, Overflow

from rewindow.errors import InputError, RangeError

WIDTH_MS_MAX = 503_079_487
WIDTHS = f"from 1 ms to {WIDTH_MS_MAX} ms (5.8 days)"
"""The allowed widths of a window, in words."""
WINDOWS_MAX = 20_000_000
"""Largest number of windows in one operation: arrays with one number per window still fit into the
memory of a small machine."""
DURATION_US_MAX = 100 * 366 * 86_400_000_000
"""The longest duration, about 100 years."""
_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_NAMES = {
    "us": "us",
    "microsecond": "us",
    "ms": "ms",
    "millisecond": "ms",
    "s": "s",
    "sec": "s",
    "second": "s",
    "m": "m",
    "min": "m",
    "minute": "m",
    "h": "h",
    "hour": "h",
    "d": "d",
    "day": "d",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CALENDAR_CYCLE_US = 146_097 * _UNITS_US["d"]
"""400 years."""


def parse_duration(text: str | int | float | timedelta) -> int:
    """Converts a duration to whole microseconds. A number without a unit means seconds.

    >>> parse_duration("1 hour"), parse_duration("0.10"), parse_duration("250 ms")
    (3600000000, 100000, 250000)

    Raises:
        InputError: the text is not a duration, longer than 100 years, or not a whole number of
            microseconds.

    Rules: H26
    """
    if isinstance(text, timedelta):
        return text // timedelta(microseconds=1)
    match = re.fullmatch(r"\s*([+-]?[0-9.]+(?:e[+-]?\d+)?)\s*([a-z]*)\s*", str(text).lower())
    unit = (
        _NAMES.get(match[2] if match[2] in _NAMES else match[2].removesuffix("s"), "")
        if match and match[2]
        else "s"
    )
    try:
        amount = Decimal(match[1]) * _UNITS_US[unit] if match else None
    except Overflow:
        amount = Decimal("Infinity")
    except (InvalidOperation, KeyError):
        amount = None
    if amount is None:
        raise InputError(
            f'duration "{text}" cannot be read',
            hint='Write a number and a unit, such as "10 minutes".',
        )
    if abs(amount) > DURATION_US_MAX:
        raise InputError(f'duration must be at most 100 years, not "{text}"')
    if amount != amount.to_integral_value():
        raise InputError(f'duration "{text}" is not a whole number of microseconds')
    return int(amount)


def format_duration(duration_us: int) -> str:
    """Returns a duration as a number of the largest unit that divides it.

    >>> format_duration(3_600_000_000), format_duration(1_500_000)
    ('1 h', '1500 ms')
    """
    for unit in ("d", "h", "m", "s", "ms"):
        if duration_us % _UNITS_US[unit] == 0:
            return f"{duration_us // _UNITS_US[unit]} {'min' if unit == 'm' else unit}"
    return f"{duration_us} us"


def describe_duration(duration_us: int) -> str:
    """Returns a duration in its two largest units, rounded down.

    >>> describe_duration(19_064_000_000), describe_duration(90_000_000), describe_duration(0)
    ('5 h 17 min', '1 min 30 s', '0 s')
    """
    words = []
    rest = duration_us
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, left = divmod(rest, _UNITS_US[unit])
        if count:
            words.append(f"{count} {'min' if unit == 'm' else unit}")
            rest = left
        elif words:
            break
    return " ".join(words[:2]) or "0 s"


def describe_seconds(seconds: float) -> str:
    """Returns a duration in seconds as text. From 100 seconds on, it is in its two largest units.

    >>> describe_seconds(8.62), describe_seconds(8), describe_seconds(7_384)
    ('8.6 s', '8 s', '2 h 3 min')
    """
    if seconds >= 100:
        return describe_duration(int(seconds) * 1_000_000)
    return f"{seconds} s" if isinstance(seconds, int) else f"{seconds:.1f} s"


def parse_time(text: str) -> int:
    """Converts a point in time to microseconds since the epoch. It is in UTC unless the text has a
    time zone.

    >>> parse_time("2013-01-01T05:00Z")
    1357016400000000

    Raises:
        InputError: the text is not an ISO 8601 time.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InputError(
            f'time "{text}" cannot be read',
            hint="Write ISO 8601, such as 2013-01-01T05:00Z.",
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_datetime(t_us: int) -> datetime:
    """Returns microseconds since the epoch as an aware UTC datetime."""
    return _EPOCH + timedelta(microseconds=t_us)


def format_time(t_us: int) -> str:
    """Returns a time as ISO 8601 in UTC. Years outside of 0 to 9999 have a sign.

    >>> format_time(1357016400000000), format_time(1 << 59)
    ('2013-01-01T05:00:00Z', '+20237-04-25T10:45:03.423488Z')
    """
    # Python supports only the years 1 to 9999. The calendar repeats every 400 years.
    cycles, within_cycle_us = divmod(t_us, _CALENDAR_CYCLE_US)
    moment = to_datetime(within_cycle_us)
    year = moment.year + 400 * cycles
    text = moment.isoformat()[4:].replace("+00:00", "Z")
    return f"{year:04d}{text}" if 0 <= year <= 9999 else f"{year:+05d}{text}"


def check_order(from_us: int, to_us: int) -> None:
    """Checks that a half-open range of time is neither empty nor reversed.

    Raises:
        RangeError: it is empty or reversed; the hint of a reversed range exchanges its ends.
    """
    begin = format_time(from_us)
    end = format_time(to_us)
    if from_us == to_us:
        raise RangeError(
            f"time range is empty: from {begin} to {end}",
            hint="The end is not included: use a later one.",
        )
    if from_us > to_us:
        raise RangeError(
            f"time range is reversed: from {begin} to {end}",
            hint=f"Swap the two ends: --from {end} --to {begin}",
        )


@dataclass(frozen=True, order=True)
class WindowRange:
    """A range of window ids that includes its first and its last window."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise RangeError(
                f"window range is empty: first {self.first} is after last {self.last}",
                hint=f"Swap the two ends: --first {self.last} --last {self.first}",
            )

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __contains__(self, window: object) -> bool:
        return isinstance(window, int) and self.first <= window <= self.last

    def __str__(self) -> str:
        return f"[{self.first}, {self.last}]"

    def checked(self, what: str) -> WindowRange:
        """Checks that the range is not too large for one operation, and returns the range.

        Args:
            what: owner of the range, for the message.

        Raises:
            RangeError: it has more than WINDOWS_MAX windows.
        """
        windows = self.last - self.first + 1  # len() overflows for a very large range.
        if windows > WINDOWS_MAX:
            raise RangeError(
                f"range {self} of {what} has {windows:,} windows, but at most {WINDOWS_MAX:,} are "
                "allowed",
                hint="Check both ends of the range; if they are correct, divide it into parts.",
            )
        return self

    def overlap(self, other: WindowRange) -> WindowRange | None:
        """Returns the windows that are in both ranges; None if there are none."""
        first = max(self.first, other.first)
        last = min(self.last, other.last)
        return WindowRange(first, last) if first <= last else None


def to_ranges(windows: Iterable[int]) -> list[WindowRange]:
    """Returns window ids as ascending, disjoint ranges of consecutive ids.

    >>> [str(r) for r in to_ranges([5, 1, 2, 3])]
    ['[1, 3]', '[5, 5]']
    """
    import numpy as np  # Imported here, so that importing the library stays fast.

    ids = np.unique(windows if isinstance(windows, np.ndarray) else np.fromiter(windows, np.int64))
    parts = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1) if len(ids) else []
    return [WindowRange(int(part[0]), int(part[-1])) for part in parts]


def without(windows: WindowRange, taken: list[WindowRange]) -> list[WindowRange]:
    """Returns the parts of a range that are not in any of the other ranges, in ascending order.

    >>> taken = [WindowRange(7, 20), WindowRange(0, 2), WindowRange(1, 4)]
    >>> [str(part) for part in without(WindowRange(0, 9), taken)]
    ['[5, 6]']
    """
    left = []
    begin = windows.first
    for part in sorted(taken):
        if part.first > windows.last:
            break
        if part.first > begin:
            left.append(WindowRange(begin, part.first - 1))
        begin = max(begin, part.last + 1)
    return [*left, WindowRange(begin, windows.last)] if begin <= windows.last else left


@dataclass(frozen=True)
class Grid:
    """Consecutive windows of equal width, starting at an origin. Streams of equal grid share window
    ids.

    Rules: W3 to W5

    >>> Grid(width_ms=3_600_000).window(1357016400000000)
    376949
    """

    width_ms: int
    origin_ms: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.width_ms <= WIDTH_MS_MAX:
            width = format_duration(self.width_us)
            raise InputError(f"window width of {width} is out of range: it must be {WIDTHS}")

    def __str__(self) -> str:
        origin = f" from {format_time(self.origin_us)} on" if self.origin_ms else ""
        return f"{self.width}{origin}"

    @property
    def width(self) -> str:
        """The width of a window as text, such as "1 h"."""
        return format_duration(self.width_us)

    @property
    def width_us(self) -> int:
        """The width of a window in microseconds."""
        return self.width_ms * 1000

    @property
    def origin_us(self) -> int:
        """The origin of the grid in microseconds since the epoch."""
        return self.origin_ms * 1000

    def window(self, t_us: int) -> int:
        """Returns the id of the window that contains a time.

        Raises:
            RangeError: the time is before the origin.

        Rules: W5
        """
        if t_us < self.origin_us:
            raise RangeError(
                f"time {format_time(t_us)} is before the grid's origin "
                f"{format_time(self.origin_us)}"
            )
        return (t_us - self.origin_us) // self.width_us

    def start_us(self, window: int) -> int:
        """Returns the start of a window in microseconds. The start is part of the window."""
        return self.origin_us + window * self.width_us

    def end_us(self, window: int) -> int:
        """Returns the end of a window in microseconds. The end is not part of the window."""
        return self.start_us(window + 1)

    def aligned_range(self, from_us: int, to_us: int) -> WindowRange:
        """Returns the windows of a half-open range of time.

        Raises:
            RangeError: the range is empty or reversed, or an end is not on a window border.
        """
        check_order(from_us, to_us)
        for name, t_us in (("from", from_us), ("to", to_us)):
            offset = (t_us - self.origin_us) % self.width_us
            if offset:
                below = format_time(t_us - offset)
                raise RangeError(
                    f'range end "{name}" {format_time(t_us)} is not on a window border',
                    hint=f"Windows are {format_duration(self.width_us)} wide; the border before it "
                    f"is {below}.",
                )
        return WindowRange(self.window(from_us), self.window(to_us) - 1)

    def times(self, windows: WindowRange | int) -> str:
        """Returns the times of a window range as text; of a single window, its start."""
        if not isinstance(windows, WindowRange):
            return format_time(self.start_us(windows))
        begin = format_time(self.start_us(windows.first))
        return f"{begin} to {format_time(self.end_us(windows.last))}"

    def describe(self, windows: WindowRange | int) -> str:
        """Returns the ids of a window range, or of a window, with their times.

        >>> Grid(width_ms=3_600_000).describe(WindowRange(376949, 376950))
        '[376949, 376950] (2013-01-01T05:00:00Z to 2013-01-01T07:00:00Z)'
        >>> Grid(width_ms=3_600_000).describe(376949)
        '376949 (2013-01-01T05:00:00Z)'
        """
        return f"{windows} ({self.times(windows)})"
