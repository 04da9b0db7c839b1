"""A stream for a sample: which column is the arrival, which is the key, how wide a window is, and why."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from rewindow.errors import InputError
from rewindow.names import COMPONENT, check_name, did_you_mean
from rewindow.new_project.columns import Column, describe_columns, sounds_like_time
from rewindow.new_project.sample import Sample
from rewindow.windows import parse_duration

LADDER = (
    "1 second", "5 seconds", "10 seconds", "30 seconds", "1 minute", "5 minutes", "10 minutes", "30 minutes", "1 hour",
    "6 hours", "1 day", "7 days", "30 days", "90 days",
)  # fmt: skip
"""Durations that are proposed."""
_WIDEST = "1 day"
TUPLES_PER_WINDOW, WINDOWS_MAX = 10, 50_000
"""A width is the least that gives so many tuples a window on average, and no more windows than that."""
_INTERVALS = 10
"""A key is called silent when it has sent nothing for so many times its usual distance."""
_ARRIVAL = ("arriv", "receive", "ingest", "record", "load", "insert", "logged", "created")
_KEY = re.compile(r"(^|_)(id|key|name|code|user|customer|device|sensor|station|host|page|account|symbol|origin)$")
_NO_MEASURE = re.compile(r"(^|_)(id|key|code|number|no|nr|zip|year|month|day|port|lat|lon|latitude|longitude)$")
_MEASURES = 3


@dataclass(frozen=True)
class NewStream:
    """A stream as it is proposed.

    Attributes:
        arrival: the column of the arrival timestamp.
        key: the column whose silence is a gap, None without one.
        measures: columns that a first application can add up.
        width, interval: durations as a person writes them; without an interval no silence is looked for.
        why: the reason for arrival, key, width and interval, by name.
    """

    name: str
    sample: Sample
    columns: Sequence[Column]
    arrival: Column
    key: Column | None
    measures: Sequence[Column]
    width: str
    interval: str | None
    why: dict[str, str]

    @property
    def application(self) -> str:
        """Name of its first application."""
        return f"count_{self.name}"


def propose_stream(sample: Sample, path: Path) -> NewStream:
    """Returns a stream for a sample.

    Raises:
        InputError: no column is a time.
    """
    columns = describe_columns(sample)
    arrival, why_arrival = _arrival(columns)
    key, why_key = _key(columns, arrival)
    proposed = NewStream(
        stream_name(path), sample, columns, arrival, key, _measures(columns, key), "", None,
        {"arrived_at": why_arrival, "keys": why_key},
    )  # fmt: skip
    return _with_durations(proposed)


def changed(
    stream: NewStream, *, name: str | None = None, arrival: str | None = None, key: str | None = None,
    width: str | None = None,
) -> NewStream:  # fmt: skip
    """Returns a stream with what somebody else has chosen; an empty key is none.

    Raises:
        InputError: there is no such column, it is no time, or the width is no duration.
    """
    if name is not None:
        stream = replace(stream, name=check_name("stream", name))
    if arrival is not None and arrival != stream.arrival.name:
        column = find_column(stream, arrival)
        if not column.instant:
            raise InputError(
                f'column "{arrival}" is not a time: {column.kind}, {column.why}', hint=_times(stream.columns)
            )
        stream = replace(stream, arrival=column, why={**stream.why, "arrived_at": "chosen"})
        stream = _with_durations(stream)
    if key is not None and key != (stream.key.name if stream.key else ""):
        column_or_none = find_column(stream, key) if key else None
        measures = _measures(stream.columns, column_or_none)
        stream = replace(stream, key=column_or_none, measures=measures, why={**stream.why, "keys": "chosen"})
        stream = _with_durations(stream)
    if width is not None and width != stream.width:
        if not 1000 <= parse_duration(width) <= parse_duration("5 days"):
            raise InputError(f'width "{width}" is out of range, allowed is 1 ms to 5 days')
        stream = replace(stream, width=width, why={**stream.why, "width": "chosen"})
    return stream


def find_column(stream: NewStream, name: str) -> Column:
    """Returns a column of a source.

    Raises:
        InputError: there is none of this name.
    """
    names = [column.name for column in stream.columns]
    if name not in names:
        raise InputError(
            f'column "{name}" is not in the source', hint=f"{did_you_mean(name, names)}{_times(stream.columns)}"
        )
    return stream.columns[names.index(name)]


def stream_name(path: Path) -> str:
    """Returns a name for the stream of a file.

    >>> stream_name(Path("data/2024 Web-Clicks.csv.gz")), stream_name(Path("trips/*.parquet"))
    ('web_clicks', 'trips')
    """
    stem = path.name.partition(".")[0]
    stem = stem if re.search("[A-Za-z]", stem) else path.parent.name
    plain = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_").lstrip("0123456789_")
    return plain if re.fullmatch(COMPONENT, plain) and plain != "quarantine" else f"{plain or 'my'}_stream"


def _times(columns: Sequence[Column]) -> str:
    return f"Columns that are times: {', '.join(column.name for column in columns if column.instant) or 'none'}."


def _arrival(columns: Sequence[Column]) -> tuple[Column, str]:
    candidates = [column for column in columns if column.instant]
    if not candidates:
        listed = ", ".join(f"{column.name} ({column.why})" for column in columns[:12])
        raise InputError(
            "no column of the source can be the arrival timestamp",
            detail=f"Looked at: {listed}.",
            hint="Write rewindow.toml by hand (README.md has one) with arrived_at as SQL over the columns.",
        )

    def rank(column: Column) -> tuple[bool, int, bool, bool, int]:
        named = any(word in column.name.lower() for word in _ARRIVAL)
        dates = column.kind == "DATE"
        return not named, column.missing, dates, not sounds_like_time(column.name), columns.index(column)

    best = min(candidates, key=rank)
    reasons = [
        "its name is that of an arrival" if any(word in best.name.lower() for word in _ARRIVAL) else "",
        "the only column that is a time"
        if len(candidates) == 1
        else f"the best of {len(candidates)} columns that are times",
        f"{best.missing:,} rows have none and go to quarantine" if best.missing else "",
    ]
    return best, "; ".join(filter(None, reasons))


def _key(columns: Sequence[Column], arrival: Column) -> tuple[Column | None, str]:
    """Returns the column whose values come again and again, by name if several do."""
    rows = len(arrival.values)

    def fits(column: Column) -> bool:
        is_key = column.kind in ("STRING", "BIGINT", "INT") and not column.instant and not column.missing
        return is_key and 1 < column.distinct <= max(2, rows // 3) and column is not arrival

    fitting = [column for column in columns if fits(column)]
    named = [column for column in fitting if _KEY.search(column.event.lower())]
    texts = [column for column in fitting if column.kind == "STRING"]
    for found, why in ((named, "named as a key"), (texts, "text")):
        if found:
            best = found[0]
            return best, f"{why}, {best.distinct:,} values in {rows:,} rows, never null"
    return None, "no column without nulls has values that come again"


def _measures(columns: Sequence[Column], key: Column | None) -> list[Column]:
    numbers = [c for c in columns if c.kind in ("BIGINT", "INT") or c.kind.startswith("DECIMAL")]
    fitting = [c for c in numbers if c is not key and not c.instant and not _NO_MEASURE.search(c.event.lower())]
    return fitting[:_MEASURES]


def _with_durations(stream: NewStream) -> NewStream:
    times = sorted(time for time in stream.arrival.times if time is not None)
    if len(times) < 2 or times[0] == times[-1]:
        why = {**stream.why, "width": "no rows to go by", "interval": "no rows to go by"}
        return replace(stream, width="1 minute", interval=None, why=why)
    span = times[-1] - times[0]
    step = 86_400_000_000 if all(time % 86_400_000_000 == 0 for time in times) else 1
    least = max(span * TUPLES_PER_WINDOW / len(times), span / WINDOWS_MAX, step)
    width = next((rung for rung in LADDER if parse_duration(rung) >= least or rung == _WIDEST), _WIDEST)
    tuples = len(times) * parse_duration(width) / span
    interval, distance = _interval(stream, times)
    why = {
        **stream.why,
        "width": f"{tuples:.0f} tuples a window on average, {span // parse_duration(width) + 1:,} windows in all",
        "interval": f"{_INTERVALS} times the usual distance of tuples{' of a key' if stream.key else ''}, {distance}",
    }
    return replace(stream, width=width, interval=interval, why=why)


def _interval(stream: NewStream, times: Sequence[int]) -> tuple[str, str]:
    groups: dict[object, list[int]] = {}
    keys = stream.key.values if stream.key else [None] * len(stream.arrival.times)
    for key, time in zip(keys, stream.arrival.times, strict=True):
        if time is not None:
            groups.setdefault(key, []).append(time)
    distances = [after - before for group in groups.values() for before, after in pairwise(sorted(group))]
    usual = statistics.median(distances) if distances else times[-1] - times[0]
    least = max(usual * _INTERVALS, 1_000_000)
    interval = next((rung for rung in LADDER if parse_duration(rung) >= least), LADDER[-1])
    return interval, f"{usual / 1e6:,.10g} s"
