"""Detects the types of the columns in a sample, and columns that contain times.

The reasons are returned too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import chain
from types import UnionType
from typing import Any

from rewindow.names import BOOKKEEPING, quoted_column
from rewindow.new_project.sample import GROUPED, SourceSample
from rewindow.new_project.times import (
    MISFITS_MAX,
    NULLS,
    ZONELESS,
    Times,
    clock_micros,
    epoch_times,
    forms_of,
    micros_of,
    sounds_like_time,
    text_times,
)
from rewindow.sequences import excluding, present

_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,99})")
_FIXED = re.compile(r"[+-]?\d{1,14}\.(\d{1,4})")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PADDED = re.compile(r"[+-]?0\d")
DAY_US = 86_400_000_000
_DEPTH = 3
"""Largest depth at which fields of nested objects are proposed."""
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_Field = tuple[tuple[str, ...], Sequence[Any]]
"""Path and values of a column, or of a field of nested objects."""


@dataclass(frozen=True)
class Column:
    """A column of a source.

    Attributes:
        name: name in the source.
        event: name as an event column.
        kind: its type as DDL.
        why: the reason, for the user.
        values: values in the sample.
        instant: SQL over the source's columns that computes it as a timestamp; empty if it is not a
            time.
        times: for a time, microseconds since the epoch or None for each row.
        nulls: texts that mean null in it.
        pattern: Spark's pattern for texts that are times, empty if none is needed.
        other: the same column with day and month exchanged, if its values allow both.
        parts: the columns that it is composed of; empty for a column of the source.
        path: for a field of nested objects, the names from the source's column to the field.
    """

    name: str
    event: str
    kind: str
    why: str
    values: Sequence[Any]
    instant: str = ""
    times: Sequence[int | None] = ()
    nulls: frozenset[str] = frozenset()
    pattern: str = ""
    other: Column | None = None
    parts: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """The name of the column in an expression or in DDL."""
        return _sql(self.path or (self.name,))

    @property
    def missing(self) -> int:
        """The number of rows in the sample in which the column is null."""
        return sum(
            value is None or value in self.nulls
            for value in self.values
            if not isinstance(value, dict | list)
        )

    @property
    def distinct(self) -> int:
        """The number of different values in the sample."""
        return len(set(map(str, present(self.values))))

    @property
    def has_clock(self) -> bool:
        """Whether any of its times is not midnight."""
        return any(time % DAY_US for time in present(self.times))


def describe_columns(sample: SourceSample) -> list[Column]:
    """Returns the columns of a sample in their order. The fields of a nested column follow it."""
    taken: set[str] = set()
    found = []
    waiting: list[_Field] = [((name,), values) for name, values in sample.values.items()]
    while waiting:
        path, values = waiting.pop(0)
        event = _event_name(".".join(path), taken)
        taken.add(event.lower())
        own = sample.types.get(path[0]) if len(path) == 1 else None
        column = _of_most(path, event, values, own, sample)
        found.append(column)
        if len(path) < _DEPTH and _are(present(values), dict):
            waiting[:0] = _fields(path, values)
    nulls = frozenset(chain.from_iterable(column.nulls for column in found))
    if sample.kind != "csv":
        return found
    return [_with_nulls(column, nulls) for column in found]


def _with_nulls(column: Column, nulls: frozenset[str]) -> Column:
    """Returns a column in which the given texts also mean null.

    Texts that mean null are a setting of the whole source.
    """
    shared = nulls.intersection(column.values) - column.nulls
    if not shared:
        return column
    words = f"; {', '.join(sorted(shared))} means null, as in other columns"
    return replace(
        column,
        nulls=column.nulls | shared,
        why=column.why + words,
    )


def _fields(path: tuple[str, ...], values: Sequence[Any]) -> list[_Field]:
    """Returns the paths and values of the fields of nested objects."""
    names = dict.fromkeys(chain.from_iterable(present(values)))
    return [((*path, name), [value and value.get(name) for value in values]) for name in names]


def _event_name(name: str, taken: set[str]) -> str:
    """Returns a name that can be recorded: the column's name if possible."""
    plain = (
        name
        if _PLAIN.fullmatch(name)
        else re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
    )
    plain = plain if _PLAIN.fullmatch(plain) else f"column_{plain}".rstrip("_")
    if plain.lower() in BOOKKEEPING or plain.lower().startswith("_rw_"):
        plain = f"source_{plain.lstrip('_')}"
    while plain.lower() in taken:
        plain += "_2"
    return plain


def _of_most(
    path: tuple[str, ...],
    event: str,
    values: Sequence[Any],
    own: str | None,
    sample: SourceSample,
) -> Column:
    """Returns a column with the type of nearly all of its values, so that a few malformed ones do
    not make it text.
    """

    def described(some: Sequence[Any]) -> Column:
        if sample.kind == "csv":
            return _of_texts(path[0], event, some)
        return _of_values(path, event, some, own)

    column = described(values)
    if column.kind != "STRING" or column.instant:
        return column
    positions = sample.positions or [f"row {number:,}" for number in range(1, len(values) + 1)]
    nulls = NULLS if sample.kind == "csv" else ()
    rows = zip(positions, values, strict=True)
    meant = [(at, value) for at, value in rows if value is not None and value not in nulls]
    # Each form is tried on all values. The first one that nearly all of them have is chosen:
    # without the values that do not have it, the others may have a type.
    some = [value for _, value in meant[:: len(meant) // 3 + 1] if isinstance(value, str)]
    times = chain.from_iterable(map(forms_of, some))
    for fits in chain(map(_of_text, times), _FORMS):
        misfits = [(at, value) for at, value in meant if not fits(value)]
        if not 0 < len(misfits) <= MISFITS_MAX * len(meant):
            continue
        wrong = {id(value) for _, value in misfits}
        most = described([None if id(value) in wrong else value for value in values])
        if most.kind != "STRING" or most.instant:
            at, value = misfits[0]
            words = (
                f"{len(misfits):,} of {len(meant):,} values do not fit and go to quarantine, such "
                f'as "{str(value)[:40]}" in {at}'
            )
            return replace(most, values=values, why=f"{most.why}; {words}")
    return column


def _of_text(test: Callable[[str], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and test(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_bigint(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _loses_digits(value: float) -> bool:
    """Returns whether a whole number would be rounded as a DOUBLE, which has 53 binary digits."""
    if not isinstance(value, int):
        return False
    lost_bits = max(0, value.bit_length() - 53)
    return value % 2**lost_bits != 0


_FORMS: tuple[Callable[[Any], bool], ...] = (
    _of_text(lambda text: _NUMBER.fullmatch(text.strip()) is not None),
    _is_bigint,
    _is_number,
    lambda value: isinstance(value, bool),
    lambda value: isinstance(value, dict),
    lambda value: isinstance(value, list),
)
"""Forms that nearly all values of a column may have."""


def _of_texts(name: str, event: str, values: Sequence[str | None]) -> Column:
    """Returns a column of texts with the narrowest type that fits all of them."""
    texts = present(values)
    meant = excluding(texts, NULLS)
    if not meant:
        return _empty((name,), event, values)
    nulls = frozenset(NULLS).intersection(texts)
    also = f"; {', '.join(sorted(nulls))} means null" if nulls else ""
    time = text_times(name, _quoted(name), values, meant=meant)
    if time is not None:
        return _as_time(
            Column(name, event, time.kind, why="", values=values, nulls=nulls), time, also
        )
    kind, why = _number(list(map(str.strip, meant)))
    plain = Column(
        name,
        event,
        kind,
        why=why + also * (kind != "STRING"),
        values=values,
        nulls=nulls if kind != "STRING" else frozenset(),
    )
    if kind in ("STRING", "BOOLEAN") or not sounds_like_time(name):
        return plain
    return read_as_epoch(plain, "and the name suggests a time" + also) or plain


def read_as_epoch(column: Column, why: str) -> Column | None:
    """Converts a column of numbers to times; returns None if the numbers are too small or too large
    for that.
    """
    numbers = [_as_number(value, column.nulls) for value in column.values]
    time = epoch_times(column.sql, column.kind, numbers)
    return None if time is None else _as_time(column, time, f", {why}")


def _as_number(value: Any, nulls: frozenset[str]) -> float | None:
    """Converts a value to a number: None for a null, NaN for a value that is not a number."""
    try:
        if value is None or value in nulls:
            return None
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _as_time(column: Column, time: Times, also: str) -> Column:
    other = None if time.other is None else _as_time(column, time.other, also)
    return replace(
        column,
        kind=time.kind,
        why=time.why + also,
        instant=time.instant,
        times=time.micros,
        pattern=time.pattern,
        other=other,
    )


def combined_times(columns: Sequence[Column]) -> list[Column]:
    """Returns times that are composed of a column with days and a column with times of day."""
    found = []
    for day in columns:
        if not day.instant or day.has_clock:
            continue
        for clock in columns:
            if clock.kind != "STRING" or clock.instant or not sounds_like_time(clock.name):
                continue
            micros = clock_micros(clock.values)
            if micros is not None and not ("%" in day.pattern or " " in day.pattern):
                found.append(_combined(day, clock, micros))
    return found


def _combined(day: Column, clock: Column, micros: Sequence[int | None]) -> Column:
    both = zip(day.times, micros, strict=True)
    times = [None if left is None or right is None else left + right for left, right in both]
    text = f"concat(cast({day.sql} as string), ' ', {clock.sql})"
    seconds = max((value.count(":") for value in clock.values if value), default=1) > 1
    pattern = f"{day.pattern} {'H:m:s' if seconds else 'H:m'}"
    instant = (
        f"try_to_timestamp({text}, '{pattern}')"
        if day.pattern
        else f"try_cast({text} as timestamp)"
    )
    names = (day.name, clock.name)
    taken = f"{day.event}_{clock.event}"
    why = f"the day of {day.name} and the time of {clock.name}, {ZONELESS}"
    return Column(
        " + ".join(names),
        taken,
        "TIMESTAMP",
        why=why,
        values=times,
        instant=instant,
        times=times,
        parts=names,
    )


def _empty(path: tuple[str, ...], event: str, values: Sequence[Any]) -> Column:
    """Returns a column without values, whose type can only be guessed from its name."""
    name = ".".join(path)
    column = Column(name, event, "STRING", why="no values in the sample", values=values)
    column = replace(column, path=path if len(path) > 1 else ())
    if sounds_like_time(path[-1]):
        why = "no values in the sample; the name suggests a time"
        return replace(column, kind="TIMESTAMP", why=why, instant=column.sql)
    return column


def _number(texts: Sequence[str]) -> tuple[str, str]:
    if {*map(str.lower, texts)} <= {"true", "false"}:
        return "BOOLEAN", "true or false"
    whole = list(map(int, filter(_INTEGER.fullmatch, texts)))
    if len(whole) == len(texts) and all(map(_is_bigint, whole)):
        return "BIGINT", "whole numbers"
    fixed = list(map(_FIXED.fullmatch, texts))
    scales = {len(match[1]) for match in fixed if match}
    if all(fixed) and len(scales) == 1:
        scale = scales.pop()
        return (
            f"DECIMAL(18,{scale})",
            f"numbers, all with {scale} digit{'s' * (scale > 1)} after the decimal point",
        )
    # A number with leading zeros is a code, such as a postal code, and would lose the zeros as a
    # number.
    if all(map(_NUMBER.fullmatch, texts)) and not any(map(_PADDED.match, texts)):
        return "STRING" if any(map(_loses_digits, whole)) else "DOUBLE", "numbers"
    if any(map(GROUPED.fullmatch, texts)):
        return "STRING", "text; a comma in it may group thousands"
    return "STRING", "text"


def _of_values(
    path: tuple[str, ...],
    event: str,
    values: Sequence[Any],
    own: str | None,
) -> Column:
    """Returns the description of a column with typed values, from JSON or Parquet; it keeps
    its type.
    """
    there = present(values)
    if own is None and not there:
        return _empty(path, event, values)
    kind = own or json_type(there)
    plain = Column(
        ".".join(path),
        event,
        kind,
        why="type declared in the file" if own else _json_words(kind),
        values=values,
        path=path if len(path) > 1 else (),
    )
    name, sql = path[-1], plain.sql
    if _are(there, str):
        plain = replace(plain, why="text")
        meant = list(filter(None, there))
        time = text_times(name, sql, values, meant=meant) if meant else None
        if time is None:
            return plain
        # A column that is not declared as a time is read as text.
        if (own or plain.path) and not time.pattern:
            time = replace(time, instant=f"try_cast({sql} as timestamp)")
        return _as_time(plain, replace(time, kind=own or time.kind), "")
    if _are(there, datetime | date):
        times = [None if value is None else micros_of(value) for value in values]
        return replace(
            plain,
            kind=own or "TIMESTAMP",
            why="times, as declared in the file",
            instant=sql,
            times=times,
        )
    if all(map(_is_number, there)) and sounds_like_time(name):
        return read_as_epoch(plain, "and the name suggests a time") or plain
    return plain


def _sql(path: Sequence[str]) -> str:
    return ".".join(map(_quoted, path))


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted_column(name)


def _are(values: Sequence[Any], types: type | UnionType) -> bool:
    """Returns whether there are values and all of them have one of the given types."""
    return bool(values) and all(isinstance(value, types) for value in values)


def _json_words(kind: str) -> str:
    head = kind.partition("<")[0]
    words = {
        "BIGINT": "whole numbers",
        "DOUBLE": "numbers",
        "BOOLEAN": "true or false",
        "STRUCT": "nested objects",
    }
    return words.get(
        head,
        "lists" if head == "ARRAY" else "values of several types or too many digits, kept as text",
    )


def json_type(values: Sequence[Any]) -> str:
    """Returns the DDL of the common type of JSON values. If they have none, returns text.

    >>> json_type([{"a": 1, "b": [1.5]}, {"a": None}])
    'STRUCT<`a`: BIGINT, `b`: ARRAY<DOUBLE>>'
    >>> json_type([1, "x"]), json_type([1, 2.5]), json_type([])
    ('STRING', 'DOUBLE', 'STRING')
    """
    there = present(values)
    # In Python a boolean is an integer too, so booleans come first.
    if _are(there, bool):
        return "BOOLEAN"
    if there and all(map(_is_number, there)):
        if all(map(_is_bigint, there)):
            return "BIGINT"
        return "STRING" if any(map(_loses_digits, there)) else "DOUBLE"
    if _are(there, list):
        return f"ARRAY<{json_type(list(chain.from_iterable(there)))}>"
    fields = []
    if _are(there, dict):
        for name in dict.fromkeys(chain.from_iterable(there)):
            kind = json_type([value.get(name) for value in there])
            fields.append(f"{quoted_column(name)}: {kind}")
    return f"STRUCT<{', '.join(fields)}>" if fields else "STRING"
