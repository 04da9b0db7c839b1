"""What the columns of a sample are: type, time, and why it is taken for that."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from rewindow.names import BOOKKEEPING, quoted_column
from rewindow.new_project.sample import Sample

NULLS = ("NA", "N/A", "NULL", "null", "None", "nan", "NaN", "\\N", "-")
"""Texts that mean null in a column whose other values are no text."""
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
_FIXED = re.compile(r"[+-]?\d{1,14}\.(\d{1,4})")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?")
_FORMATS = {
    "%Y/%m/%d": "yyyy/M/d", "%d.%m.%Y": "d.M.yyyy", "%d/%m/%Y": "d/M/yyyy", "%m/%d/%Y": "M/d/yyyy",
    "%d-%m-%Y": "d-M-yyyy",
}  # fmt: skip
_CLOCKS = {"": "", " %H:%M": " H:m", " %H:%M:%S": " H:m:s"}
_EPOCHS = {"timestamp_seconds": 1, "timestamp_millis": 10**3, "timestamp_micros": 10**6}
_SINCE, _UNTIL = 946_684_800, 4_102_444_800  # 2000 and 2100.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MISFITS_MAX = 0.01
"""The share of texts that may be otherwise than a column's type; their rows go to quarantine, which allows as many."""


@dataclass(frozen=True)
class Column:
    """A column of a source.

    Attributes:
        name: in the source.
        event: its name as an event column.
        kind: its type as DDL.
        why: the reason, for a reader.
        values: of the sample.
        instant: SQL over the source's columns that gives it as a timestamp; empty if it is no time.
        times: then, of each row, microseconds since the epoch or None.
        nulls: texts that mean null in it.
    """

    name: str
    event: str
    kind: str
    why: str
    values: Sequence[Any]
    instant: str = ""
    times: Sequence[int | None] = ()
    nulls: frozenset[str] = frozenset()

    @property
    def sql(self) -> str:
        """Its name in an expression or in DDL."""
        return self.name if _PLAIN.fullmatch(self.name) else quoted_column(self.name)

    @property
    def missing(self) -> int:
        """Rows of the sample in which it is null."""
        return sum(value is None or value in self.nulls for value in self.values if not isinstance(value, dict | list))

    @property
    def distinct(self) -> int:
        """Different values of the sample."""
        return len({str(value) for value in self.values if value is not None})


def describe_columns(sample: Sample) -> list[Column]:
    """Returns the columns of a sample, in its order."""
    taken: set[str] = set()
    found = []
    for name, values in sample.values.items():
        event = _event_name(name, taken)
        taken.add(event.lower())
        if sample.kind == "csv":
            found.append(_of_most_texts(name, event, values))
        else:
            found.append(_of_values(name, event, values, sample.types.get(name)))
    return found


def _event_name(name: str, taken: set[str]) -> str:
    """Returns a name that can be recorded: the column's own where that is possible."""
    plain = name if _PLAIN.fullmatch(name) else re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
    plain = plain if _PLAIN.fullmatch(plain) else f"column_{plain}".rstrip("_")
    if plain.lower() in BOOKKEEPING or plain.lower().startswith("_rw_"):
        plain = f"source_{plain.lstrip('_')}"
    while plain.lower() in taken:
        plain += "_2"
    return plain


def _of_most_texts(name: str, event: str, values: Sequence[str | None]) -> Column:
    """Returns a column of texts, with the type of nearly all of them: single malformed ones do not make it text."""
    column = _of_texts(name, event, values)
    if column.kind != "STRING" or column.instant:
        return column
    meant = [(row, value) for row, value in enumerate(values, 1) if value is not None and value not in NULLS]
    for fits in (_ISO.fullmatch, _NUMBER.fullmatch, re.compile(r"\d+[-./:].*").match):
        misfits = [(row, value) for row, value in meant if not fits(value)]
        if not 0 < len(misfits) <= _MISFITS_MAX * len(meant):
            continue
        wrong = {value for _, value in misfits}
        most = _of_texts(name, event, [None if value in wrong else value for value in values])
        if most.kind != "STRING" or most.instant:
            row, value = misfits[0]
            words = f'{len(misfits):,} do not fit and go to quarantine, such as "{value[:40]}" in row {row:,}'
            return replace(most, values=values, why=f"{most.why}; {words}")
    return column


def _of_texts(name: str, event: str, values: Sequence[str | None]) -> Column:
    """Returns a column of texts: the narrowest type that all of them have."""
    there = [value for value in values if value is not None]
    meant = [value for value in there if value not in NULLS]
    if not meant:
        return _empty(name, event, values)
    nulls = frozenset(value for value in there if value in NULLS)
    also = f"; {', '.join(sorted(nulls))} means null" if nulls else ""
    time = _text_times(name, values, meant)
    if time is not None:
        kind, instant, times, why = time
        return Column(name, event, kind, why + also, values, instant, times, nulls)
    kind, why = _number(meant)
    if kind == "STRING":
        return Column(name, event, kind, why, values)
    numbers = (
        [None if value is None or value in nulls else float(value) for value in values] if kind != "BOOLEAN" else []
    )
    instant, times, words = _epoch(name, numbers)
    return Column(name, event, kind, (words or why) + also, values, instant, times, nulls)


def _empty(name: str, event: str, values: Sequence[Any]) -> Column:
    """Returns a column without a value: its name is all that there is to go by."""
    if sounds_like_time(name):
        quoted = name if _PLAIN.fullmatch(name) else quoted_column(name)
        return Column(name, event, "TIMESTAMP", "no value to look at; its name is that of a time", values, quoted)
    return Column(name, event, "STRING", "no value to look at", values)


def _number(texts: Sequence[str]) -> tuple[str, str]:
    if all(text.lower() in ("true", "false") for text in texts):
        return "BOOLEAN", "true or false"
    if all(map(_INTEGER.fullmatch, texts)):
        return "BIGINT", "whole numbers"
    fixed = [_FIXED.fullmatch(text) for text in texts]
    scales = {len(match[1]) for match in fixed if match}
    if all(fixed) and len(scales) == 1:
        scale = scales.pop()
        return f"DECIMAL(18,{scale})", f"numbers, all with {scale} digits behind the point"
    if all(map(_NUMBER.fullmatch, texts)) and not any(re.match(r"[+-]?0\d", text) for text in texts):
        return "DOUBLE", "numbers"
    return "STRING", "text"


def _text_times(
    name: str, values: Sequence[str | None], meant: Sequence[str]
) -> tuple[str, str, list[int | None], str] | None:
    """Returns type, expression, times and reason of a column whose texts are times."""
    quoted = name if _PLAIN.fullmatch(name) else quoted_column(name)
    if all(map(_ISO.fullmatch, meant)):
        times = _read(values, datetime.fromisoformat)
        if times is None:
            return None
        dates = all(len(text) == 10 for text in meant)
        zone = (
            ""
            if any(text[-1] == "Z" or text[-6:-5] in "+-" for text in meant) or dates
            else ", without a zone: taken as UTC"
        )
        return ("DATE" if dates else "TIMESTAMP"), quoted, times, f"{'dates' if dates else 'times'} in ISO 8601{zone}"
    if not meant[0][:1].isdigit():
        return None
    fitting = []
    for day, spark_day in _FORMATS.items():
        for clock, spark_clock in _CLOCKS.items():
            times = _read(values, partial(_parse, form=day + clock))
            if times is not None:
                fitting.append((spark_day + spark_clock, times))
    if not fitting:
        return None
    fitting.sort(key=lambda form: _span(form[1]))  # With day and month exchanged, days that follow lie months apart.
    pattern, times = fitting[0]
    doubt = f"; could be {fitting[1][0]} as well, look at it" if len(fitting) > 1 else ""
    why = f"text that is a time as {pattern}, taken as UTC{doubt}"
    return "STRING", f"try_to_timestamp({quoted}, '{pattern}')", times, why


def _read(values: Sequence[str | None], parse: Callable[[str], datetime]) -> list[int | None] | None:
    """Returns texts as microseconds since the epoch, None if one of them is no such time."""
    found: list[int | None] = []
    for value in values:
        if value is None or value in NULLS:
            found.append(None)
            continue
        try:
            found.append(_micros(parse(value)))
        except ValueError:
            return None
    return found


def _span(times: Sequence[int | None]) -> int:
    there = [time for time in times if time is not None]
    return max(there) - min(there)


def _parse(text: str, form: str) -> datetime:
    return datetime.strptime(text, form)


def _micros(moment: datetime | date) -> int:
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


def _epoch(name: str, numbers: Sequence[float | None]) -> tuple[str, list[int | None], str]:
    """Returns expression, times and reason of numbers that count time since 1970; empty where they do not."""
    there = [number for number in numbers if number is not None]
    if not there or not sounds_like_time(name):
        return "", [], ""
    quoted = name if _PLAIN.fullmatch(name) else quoted_column(name)
    for function, units in _EPOCHS.items():
        if all(_SINCE * units <= number < _UNTIL * units for number in there):
            times = [None if number is None else int(number * (10**6 // units)) for number in numbers]
            word = function.removeprefix("timestamp_")
            return f"{function}({quoted})", times, f"{word} since 1970, from 2000 to 2100, and named as a time"
    return "", [], ""


def sounds_like_time(name: str) -> bool:
    """Returns whether a column is named as times are.

    >>> [sounds_like_time(name) for name in ("createdAt", "event_ts", "Order Date", "category", "state")]
    [True, True, True, False, False]
    """
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    return any(word in TIME_WORDS for word in re.split(r"[^a-z]+", words)) or words.endswith(("time", "timestamp"))


TIME_WORDS = frozenset({"at", "ts", "time", "date", "day", "datetime", "timestamp", "when", "epoch", "millis", "on"})


def _of_values(name: str, event: str, values: Sequence[Any], own: str | None) -> Column:
    """Returns a column of values that have types: JSON's, or those of a Parquet file, which keep their own type."""
    there = [value for value in values if value is not None]
    if own is None and not there:
        return _empty(name, event, values)
    if there and all(isinstance(value, str) for value in there):
        time = _text_times(name, values, [value for value in there if value])
        if time is not None and own is None:
            kind, instant, times, why = time
            return Column(name, event, kind, why, values, instant, times)
        return Column(name, event, "STRING" if own is None else own, "text", values)
    if there and all(isinstance(value, datetime | date) for value in there):
        times = [None if value is None else _micros(value) for value in values]
        quoted = name if _PLAIN.fullmatch(name) else quoted_column(name)
        return Column(name, event, own or "TIMESTAMP", "times, as the file says", values, quoted, times)
    kind = own or json_type(there)
    numbers = [float(v) if v is not None else None for v in values] if all(map(_is_number, there)) else []
    instant, times, words = _epoch(name, numbers)
    return Column(
        name, event, kind, words or ("as the file says" if own else _json_words(kind)), values, instant, times
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json_words(kind: str) -> str:
    head = kind.partition("<")[0]
    words = {"BIGINT": "whole numbers", "DOUBLE": "numbers", "BOOLEAN": "true or false", "STRUCT": "nested objects"}
    return words.get(head, "lists" if head == "ARRAY" else "values of several types, kept as text")


def json_type(values: Sequence[Any]) -> str:
    """Returns the DDL of the type that all of some JSON values have; text where they have none in common.

    >>> json_type([{"a": 1, "b": [1.5]}, {"a": None}])
    'STRUCT<`a`: BIGINT, `b`: ARRAY<DOUBLE>>'
    >>> json_type([1, "x"]), json_type([1, 2.5]), json_type([])
    ('STRING', 'DOUBLE', 'STRING')
    """
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, bool) for value in there):
        return "BOOLEAN"
    if there and all(map(_is_number, there)):
        whole = all(isinstance(value, int) and abs(value) < 2**63 for value in there)
        return "BIGINT" if whole else "DOUBLE"
    if there and all(isinstance(value, list) for value in there):
        return f"ARRAY<{json_type([item for value in there for item in value])}>"
    names = list(dict.fromkeys(name for value in there if isinstance(value, dict) for name in value))
    if names and all(isinstance(value, dict) for value in there):
        fields = (f"{quoted_column(name)}: {json_type([value.get(name) for value in there])}" for name in names)
        return f"STRUCT<{', '.join(fields)}>"
    return "STRING"
