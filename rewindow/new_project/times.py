"""Detects values that are times, and creates SQL that converts them to timestamps: ISO 8601, other
formats of text, epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import product

from rewindow.sequences import present

NULLS = ("NA", "N/A", "n/a", "nil", "NULL", "null", "None", "nan", "NaN", "\\N", "-")
"""Texts that mean null in a column whose other values are not text."""
ISO = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?( ?(Z|UTC|GMT|[+-]\d\d(:?\d\d)?))?)?)?"
)
MISFITS_MAX = 0.01
"""Share of values that may not fit a column's type. Their rows go to quarantine, which has the same
limit.
"""
_ZONE = re.compile(r" ?(Z|UTC|GMT|[+-]\d\d(:?\d\d)?)$")
_DAYS = {
    "%Y/%m/%d": "yyyy/M/d",
    "%d.%m.%Y": "d.M.yyyy",
    "%d/%m/%Y": "d/M/yyyy",
    "%m/%d/%Y": "M/d/yyyy",
    "%d-%m-%Y": "d-M-yyyy",
    "%m-%d-%Y": "M-d-yyyy",
    "%Y-%m-%d": "yyyy-M-d",
    "%d.%m.%y": "d.M.yy",
    "%d/%m/%y": "d/M/yy",
    "%m/%d/%y": "M/d/yy",
    "%d-%b-%Y": "d-MMM-yyyy",
    "%d %b %Y": "d MMM yyyy",
    "%b %d, %Y": "MMM d, yyyy",
    "%d/%b/%Y": "d/MMM/yyyy",
}
_CLOCKS = {
    "": "",
    " %H:%M": " H:m",
    " %H:%M:%S": " H:m:s",
    " %H:%M:%S.%f": " H:m:s.SSSSSS",
    " %I:%M %p": " h:m a",
    " %I:%M:%S %p": " h:m:s a",
    " %H:%M:%S %z": " H:m:s Z",
    ":%H:%M:%S %z": ":H:m:s Z",
    "T%H:%M:%S": "'T'H:m:s",
    "T%H:%M%z": "'T'H:mXXX",
}
ZONELESS = "without a zone, read as UTC"
_COMPACT = {14: ("%Y%m%d%H%M%S", "yyyyMMddHHmmss"), 8: ("%Y%m%d", "yyyyMMdd")}
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d{1,6})?)?")
_EPOCHS = {"timestamp_seconds": 1, "timestamp_millis": 10**3, "timestamp_micros": 10**6}
_SINCE = 946_684_800  # The year 2000.
_UNTIL = 4_102_444_800  # The year 2100.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_WORDS = frozenset(
    {
        "at",
        "ts",
        "time",
        "date",
        "day",
        "datetime",
        "timestamp",
        "when",
        "epoch",
        "millis",
        "on",
        "created",
        "updated",
        "modified",
        "received",
        "arrived",
        "recorded",
        "logged",
        "sent",
        "seen",
        "started",
        "ended",
        "occurred",
        "zeit",
        "zeitpunkt",
        "datum",
        "fecha",
        "hora",
        "heure",
    }
)


@dataclass(frozen=True)
class Times:
    """A column that is interpreted as times.

    Attributes:
        kind: type under which it is read, as DDL.
        instant: SQL over the source's columns that computes a timestamp.
        micros: microseconds since the epoch of each row, or None.
        why: the reason, for the user.
        pattern: Spark's pattern of the text, empty if none is needed.
        other: the same column with day and month exchanged, if its values allow both.
    """

    kind: str
    instant: str
    micros: Sequence[int | None]
    why: str
    pattern: str = ""
    other: Times | None = None


def sounds_like_time(name: str) -> bool:
    """Returns whether the name of a column suggests a time.

    >>> names = ("createdAt", "event_ts", "Order Date", "category", "state")
    >>> [sounds_like_time(name) for name in names]
    [True, True, True, False, False]
    """
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    is_time = not TIME_WORDS.isdisjoint(re.split(r"[^a-z]+", words))
    return is_time or words.endswith(("time", "timestamp"))


def text_times(
    name: str,
    quoted: str,
    values: Sequence[str | None],
    meant: Sequence[str],
) -> Times | None:
    """Parses a column of text as times; returns None if it has other values.

    Args:
        name: name of the column.
        quoted: the name in SQL.
        values: values of all rows.
        meant: the values that are not null.
    """
    if all(map(ISO.fullmatch, meant)):
        return _iso(quoted, values, meant)
    compact = _COMPACT.get(len(meant[0])) if meant[0].isdigit() else None
    if compact is not None:
        is_time = len({*map(len, meant)}) == 1 and (len(meant[0]) == 14 or sounds_like_time(name))
        micros = _read(values, partial(_parse, compact[0])) if is_time else None
        # Text of digits only may be a number. As times they must be in this century.
        if micros is None or not all(_SINCE <= t // 10**6 < _UNTIL for t in present(micros)):
            return None
        return _by_pattern(quoted, compact[1], micros)
    return _by_form(quoted, values, meant)


def _iso(quoted: str, values: Sequence[str | None], meant: Sequence[str]) -> Times | None:
    micros = _read(values, _parse_iso)
    if micros is None:
        return None
    if {*map(len, meant)} == {10}:
        return Times("DATE", quoted, micros, why="dates in ISO 8601")
    has_zone = any(_ZONE.search(text[11:]) for text in meant)
    zone = "" if has_zone else f", {ZONELESS}"
    return Times("TIMESTAMP", quoted, micros, why=f"times in ISO 8601{zone}")


def _by_form(quoted: str, values: Sequence[str | None], meant: Sequence[str]) -> Times | None:
    """Returns texts in one of the known formats. If several fit, it is the one with the smallest
    span of times.
    """
    fitting = []
    for (day, spark_day), (clock, spark_clock) in product(_DAYS.items(), _CLOCKS.items()):
        if not _parses(day + clock, meant[0]):
            continue
        micros = _read(values, partial(_parse, day + clock))
        if micros is not None:
            fitting.append(_by_pattern(quoted, spark_day + spark_clock, micros))
    if not fitting:
        return None
    # With day and month exchanged, the times are months apart.
    fitting.sort(key=lambda times: _span(times.micros))
    if len(fitting) == 1:
        return fitting[0]
    best, other = fitting[:2]
    why = f"{best.why}; could be {other.pattern} as well: please check"
    return replace(best, why=why, other=other)


def forms_of(text: str) -> list[Callable[[str], bool]]:
    """Returns a test for each time format that a text matches.

    The test accepts texts in that format.
    """
    forms = [""]
    for day, clock in product(_DAYS, _CLOCKS):
        forms.append(day + clock)
    tests: list[Callable[[str], bool]] = []
    for form in forms:
        if _parses(form, text):
            tests.append(partial(_parses, form))
    return tests


def _by_pattern(quoted: str, pattern: str, micros: Sequence[int | None]) -> Times:
    escaped = pattern.replace("'", "\\'")
    zone = "" if pattern.endswith(("Z", "XXX")) else f", {ZONELESS}"
    why = f"text that is a time as {pattern}{zone}"
    return Times(
        "STRING", f"try_to_timestamp({quoted}, '{escaped}')", micros, why=why, pattern=pattern
    )


def clock_micros(values: Sequence[str | None]) -> list[int | None] | None:
    """Converts texts such as 14:05:07 to microseconds since midnight; returns None if one of them
    is not a time of day.
    """
    found: list[int | None] = []
    for value in values:
        if value is None:
            found.append(None)
            continue
        if not _CLOCK.fullmatch(value):
            return None
        parts = map(float, value.split(":"))
        # Hours, minutes and seconds have the factors 60**2, 60 and 1; the seconds may be missing.
        found.append(sum(int(part * 10**6) * 60 ** (2 - i) for i, part in enumerate(parts)))
    return found if present(found) else None


def epoch_times(quoted: str, kind: str, numbers: Sequence[float | None]) -> Times | None:
    """Converts numbers that count time since 1970 to times; returns None if more than a few of them
    are not from 2000 to 2100.
    """
    there = present(numbers)
    for function, units in _EPOCHS.items():
        first, last = _SINCE * units, _UNTIL * units
        others = [n for n in there if not first <= n < last]
        if not there or len(others) > MISFITS_MAX * len(there):
            continue
        micros: list[int | None] = []
        for number in numbers:
            if number is not None and first <= number < last:
                micros.append(int(number * (10**6 // units)))
            else:
                micros.append(None)
        why = f"{function.removeprefix('timestamp_')} since 1970, from 2000 to 2100"
        if others:
            why += f", without {len(others):,} of {len(there):,} values such as {others[0]:.16g}"
        instant = f"{function}({quoted})"
        if units > 1 and kind not in ("BIGINT", "INT"):
            # Spark counts fractions of seconds only.
            instant = f"timestamp_micros(try_cast({quoted} * {10**6 // units} as bigint))"
        return Times(kind, instant, micros, why=why)
    return None


def micros_of(moment: datetime | date) -> int:
    """Converts a time to microseconds since the epoch. A time without a zone is in UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(
        microseconds=1
    )


def _read(
    values: Sequence[str | None],
    parse: Callable[[str], datetime],
) -> list[int | None] | None:
    """Converts texts to microseconds since the epoch; returns None if one of them is not such a
    time.
    """
    found: list[int | None] = []
    for value in values:
        if value is None or value in NULLS:
            found.append(None)
            continue
        try:
            found.append(micros_of(parse(value)))
        except ValueError:
            return None
    return found


def _parse_iso(text: str) -> datetime:
    return datetime.fromisoformat(
        _ZONE.sub(lambda zone: zone[1].replace("UTC", "Z").replace("GMT", "Z"), text)
    )


def _parse(form: str, text: str) -> datetime:
    return datetime.strptime(text, form) if form else _parse_iso(text)


def _parses(form: str, text: str) -> bool:
    try:
        _parse(form, text)
    except ValueError:
        return False
    return True


def _span(times: Sequence[int | None]) -> int:
    there = present(times)
    return max(there) - min(there)
