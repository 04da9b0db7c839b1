"""Proposes a stream for a sample: the columns of arrival and key, the width of windows, and the
reasons.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

from rewindow.errors import InputError
from rewindow.names import COMPONENT, check_name, did_you_mean
from rewindow.new_project.columns import (
    DAY_US,
    Column,
    combined_times,
    describe_columns,
    read_as_epoch,
)
from rewindow.new_project.sample import SourceSample
from rewindow.new_project.times import MISFITS_MAX, ZONELESS, sounds_like_time
from rewindow.sequences import find_named, names_of, present
from rewindow.windows import describe_duration, parse_duration

LADDER = (
    "1 second",
    "5 seconds",
    "10 seconds",
    "30 seconds",
    "1 minute",
    "5 minutes",
    "10 minutes",
    "30 minutes",
    "1 hour",
    "6 hours",
    "1 day",
    "7 days",
    "30 days",
    "90 days",
)
"""Durations that are proposed."""
_WIDEST = "1 day"
TUPLES_PER_WINDOW = 10
WINDOWS_MAX = 10_000
"""A width is the smallest for which a window has at least this number of tuples on average, and for
which there are no more windows than the limit.
"""
_INTERVALS = 10
"""A key counts as silent after this multiple of its usual distance between tuples."""
_PRESENT_MIN = 0.5
"""A column can name senders if this share of its values occurs during half of the time."""
_SILENT_MAX = 0.001
"""Maximum share of distances that an interval may report as silences."""
_OUTLIERS = 0.001
"""Share of the earliest and of the latest times that is ignored for the span of a sample."""
_ARRIVAL = re.compile("arriv|receive|ingest|record|load|insert|logged|created")
_FUTURE = re.compile("due|expir|valid|until|deadline|planned|scheduled|(^|_)(eta|end|to)$")
"""Names of times that may be in the future when a row is written."""
_ORDERED_MIN = 0.95
"""The rows of a source are in the order of a time if this share of neighbouring rows is."""
_KEY = re.compile(
    r"(^|_)(id|key|name|code|user|customer|device|sensor|station|host|page|account|symbol|origin|"
    r"sender|client|meter|machine|vehicle|node|author|channel|topic|site|location|carrier)$"
)
_NO_MEASURE = re.compile(
    r"(^|_)(id|key|code|number|no|nr|zip|year|month|day|port|lat|lon|latitude|longitude)$"
)
_MEASURES = 3
_SHOWN = 30
_EARLIER_MIN = 0.9
"""A time can be the event timestamp if this share of rows has one that is not later than the
arrival.
"""


@dataclass(frozen=True)
class NewStream:
    """A proposed stream.

    Attributes:
        arrival: the column of the arrival timestamp, or a column composed of two.
        event_at: the column of the event timestamp.
        key: the column whose silence is a gap; None if there is none.
        measures: columns that a first application can add up.
        width, interval: durations as text; without an interval silences are not reported.
        why: the reasons for arrival, key, width and interval, by name.
        zone: zone of times without a zone.
    """

    name: str
    sample: SourceSample
    columns: Sequence[Column]
    arrival: Column
    event_at: Column
    key: Column | None
    measures: Sequence[Column]
    width: str
    interval: str | None
    why: dict[str, str]
    zone: str = "UTC"

    @property
    def patterns(self) -> list[str]:
        """The possible formats of the arrival's texts; empty if there is only one format."""
        return (
            [self.arrival.pattern, self.arrival.other.pattern]
            if self.arrival.other is not None
            else []
        )

    @property
    def zones(self) -> list[str]:
        """Examples of time zones that the arrival can be in; empty if its values have a zone."""
        return (
            ["UTC", "Europe/Berlin", "America/New_York", "..."]
            if ZONELESS in self.arrival.why
            else []
        )

    @property
    def application(self) -> str:
        """Name of its first application."""
        return f"count_{self.name}"

    @property
    def times(self) -> list[Column]:
        """The columns that contain times, and times composed of a day and a time of day."""
        return [
            column for column in [*self.columns, *combined_times(self.columns)] if column.instant
        ]

    @property
    def keys(self) -> list[Column]:
        """The columns that can be the key."""
        return [column for column in self.columns if not no_key(column)]


def propose_stream(sample: SourceSample, path: Path) -> NewStream:
    """Returns a stream for a sample.

    Raises:
        InputError: no column is a time.
    """
    columns = _with_epochs(describe_columns(sample))
    arrival, why_arrival = _arrival(sample, [*columns, *combined_times(columns)])
    event_at, why_event = _event_at(columns, arrival)
    key, why_key = _key(columns, arrival)
    proposed = NewStream(
        stream_name(path),
        sample,
        columns,
        arrival=arrival,
        event_at=event_at,
        key=key,
        measures=_measures(columns, key),
        width="",
        interval=None,
        why={"arrived_at": why_arrival, "event_at": why_event, "keys": why_key},
    )
    return _with_durations(proposed)


def _with_epochs(columns: Sequence[Column]) -> list[Column]:
    """Returns the columns, with times in place of numbers that are probably epochs.

    A column whose name does not suggest a time is read as one if its values overlap with those of
    another time column, or if there is no other time column.
    """
    times = [column for column in columns if present(column.times)]
    why = "although the name does not suggest it: "
    why += "the values are close to another time" if times else "no other column is a time"
    found = []
    for column in columns:
        is_named = column.instant or not _is_numeric(column)
        epoch = None if is_named else read_as_epoch(column, why)
        is_near = epoch is not None and any(_overlap(epoch, time) for time in times)
        found.append(epoch if epoch is not None and (is_near or not times) else column)
    return found


def _overlap(a: Column, b: Column) -> bool:
    """Returns whether the time ranges of two columns overlap, without outliers."""
    a_first, a_last = _span(present(a.times))
    b_first, b_last = _span(present(b.times))
    return a_first <= b_last and b_first <= a_last


def _span(times: Sequence[int]) -> tuple[int, int]:
    """Returns the first and the last time without outliers."""
    ordered = sorted(times)
    cut = int(len(ordered) * _OUTLIERS)
    return ordered[cut], ordered[len(ordered) - 1 - cut]


def changed(  # noqa: PLR0913 - each is an answer
    stream: NewStream,
    *,
    name: str | None = None,
    arrival: str | None = None,
    event_at: str | None = None,
    key: str | None = None,
    width: str | None = None,
    pattern: str | None = None,
    zone: str | None = None,
    interval: str | None = None,
) -> NewStream:
    """Returns a stream with the user's choices.

    An empty key means that there is no key.

    Raises:
        InputError: a column does not exist or cannot be used for its purpose, or the width is not a
            duration; the hint lists the possible columns.
    """
    if name is not None:
        stream = replace(stream, name=check_name("stream", name))
    if arrival is not None and arrival != stream.arrival.name:
        column = _time(stream, arrival)
        event, why = _event_at(stream.columns, column)
        words = {**stream.why, "arrived_at": "chosen", "event_at": why}
        stream = _with_durations(replace(stream, arrival=column, event_at=event, why=words))
    if pattern is not None and pattern != stream.arrival.pattern:
        stream = _with_durations(_read_as(stream, pattern))
    if zone is not None and zone != stream.zone:
        stream = replace(stream, zone=_known_zone(zone))
    if event_at is not None and event_at != stream.event_at.name:
        column = _time(stream, event_at)
        stream = _chosen(stream, "event_at", event_at=column)
    if key is not None and key != (stream.key.name if stream.key else ""):
        column_or_none = _key_of(stream, key) if key else None
        measures = _measures(stream.columns, column_or_none)
        stream = _with_durations(_chosen(stream, "keys", key=column_or_none, measures=measures))
    if width is not None and width != stream.width:
        if not 1000 <= parse_duration(width) <= parse_duration("5 days"):
            raise InputError(f'width "{width}" is out of range: it must be 1 ms to 5 days')
        stream = _chosen(stream, "width", width=width)
    if interval is not None and interval != stream.interval:
        parse_duration(interval)
        stream = _chosen(stream, "interval", interval=interval)
    return stream


def _chosen(stream: NewStream, setting: str, **values: Any) -> NewStream:
    return replace(stream, why={**stream.why, setting: "chosen"}, **values)


def _read_as(stream: NewStream, pattern: str) -> NewStream:
    """Returns a stream whose arrival is read in the other format that its texts allow.

    Raises:
        InputError: the pattern is none of the possible formats.
    """
    before = stream.arrival
    other = stream.arrival.other
    if other is None or pattern != other.pattern:
        raise InputError(
            f'column "{before.name}" cannot be read as {pattern}',
            hint=f"Possible formats: {', '.join(stream.patterns)}.",
        )
    other = replace(other, other=replace(before, other=None))
    columns = [other if column is before else column for column in stream.columns]
    event_at = other if stream.event_at is before else stream.event_at
    return replace(stream, arrival=other, event_at=event_at, columns=columns)


def _known_zone(name: str) -> str:
    """Checks the name of a time zone and returns it.

    Raises:
        InputError: the zone is unknown.
    """
    if name not in available_timezones():
        meant = did_you_mean(name, available_timezones())
        raise InputError(
            f'zone "{name}" is unknown',
            hint=f'{meant}Use a name such as "Europe/Berlin", or "UTC".',
        )
    return name


def _time(stream: NewStream, name: str) -> Column:
    """Returns the column with a given name, which contains times.

    Raises:
        InputError: the column does not exist, or is not a time.
    """
    times = stream.times
    time = find_named(times, name)
    if time is not None:
        return time
    names = names_of(times)
    hint = f"{did_you_mean(name, names)}Columns with times: {', '.join(names)}."
    column = find_named(stream.columns, name)
    if column is None:
        raise InputError(f'column "{name}" is not in the source', hint=hint)
    raise InputError(f'column "{name}" is not a time: {column.kind}, {column.why}', hint=hint)


def _key_of(stream: NewStream, name: str) -> Column:
    """Returns the column with a given name, which can be the key.

    Raises:
        InputError: the column does not exist, or cannot be the key.
    """
    names = names_of(stream.keys)
    hint = (
        f"{did_you_mean(name, names)}Columns that can be the key: "
        f"{', '.join(names) or 'none'}; or none."
    )
    column = find_named(stream.columns, name)
    if column is None:
        raise InputError(f'column "{name}" is not in the source', hint=hint)
    if why := no_key(column):
        raise InputError(f'column "{name}" cannot be the key: {why}', hint=hint)
    return column


def no_key(column: Column) -> str:
    """Returns the reason why a column cannot be the key; empty if it can."""
    if column.instant:
        return "it is a time"
    if column.kind not in ("STRING", "BIGINT", "INT"):
        return f"its type is {column.kind}, and a key is text or a whole number"
    return ""


def stream_name(path: Path) -> str:
    """Returns a name for the stream of a file.

    >>> stream_name(Path("data/2024 Web-Clicks.csv.gz")), stream_name(Path("trips/*.parquet"))
    ('web_clicks', 'trips')
    """
    stem = path.name.partition(".")[0]
    stem = stem if re.search("[A-Za-z]", stem) else path.parent.name
    plain = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_").lstrip("0123456789_")
    return (
        plain
        if re.fullmatch(COMPONENT, plain) and plain != "quarantine"
        else f"{plain or 'my'}_stream"
    )


def _is_numeric(column: Column) -> bool:
    return column.kind in ("BIGINT", "INT", "DOUBLE") or column.kind.startswith("DECIMAL")


def _arrival(sample: SourceSample, columns: Sequence[Column]) -> tuple[Column, str]:
    candidates = [column for column in columns if column.instant]
    if not candidates:
        listed = "; ".join(
            f"{column.name}{_first(column)} ({column.why})" for column in columns[:12]
        )
        is_titled = sample.misshapen > sample.rows
        title = (
            f" {sample.misshapen:,} of {sample.rows + sample.misshapen:,} rows have other columns "
            "than line 1, which may be a title."
        )
        raise InputError(
            "no column can be the arrival timestamp: no column of the source contains times",
            detail=f"Columns: {listed}.{title * is_titled}",
            hint="Remove the lines above the names of the columns."
            if is_titled
            else "Write rewindow.toml by hand, as in docs/tutorial.md, with arrived_at as SQL "
            "over the columns, such as try_to_timestamp(COLUMN, 'd.M.yyyy H:m:s'), or "
            "timestamp_seconds(COLUMN) of a number.",
        )

    ranked = sorted(candidates, key=lambda column: _rank(column, candidates))
    best = ranked[0]
    ordered = _ordered(best, sample.head)
    later = _not_earlier(best, candidates)
    reasons = [
        "the name suggests an arrival" if _ARRIVAL.search(best.name.lower()) else "",
        "the only column with times" if len(candidates) == 1 else "",
        f"the rows are sorted by it ({ordered:.0%})" if ordered >= _ORDERED_MIN else "",
        f"not earlier than {', '.join(later)}" if later else "",
        f"{best.missing:,} rows have none and go to quarantine" if best.missing else "",
        f"next best: {ranked[1].name}" if len(ranked) > 1 else "",
    ]
    return best, "; ".join(filter(None, reasons))


def _rank(column: Column, candidates: Sequence[Column]) -> tuple[object, ...]:
    """Returns a sort key for the times of a source: the smallest is the arrival.

    A name that suggests arrivals counts most, then that few rows lack the time, then the order of
    the rows, then that it is not earlier than the other times.
    """
    times = present(column.times)
    return (
        not _ARRIVAL.search(column.name.lower()),
        bool(_FUTURE.search(column.name.lower())) or any(time > _now_us() for time in times),
        column.missing > MISFITS_MAX * len(column.values),
        not column.has_clock,
        _ordered(column, 0) < _ORDERED_MIN,
        -len(_not_earlier(column, candidates)),
        column.missing,
        not sounds_like_time(column.name),
        candidates.index(column),
    )


def _now_us() -> int:
    return time.time_ns() // 1000


def _ordered(column: Column, head: int) -> float:
    """Returns the share of neighbouring rows that are in the order of a time, ascending or
    descending.
    """
    times = present(column.times[:head] if head else column.times)
    steps = [after - before for before, after in pairwise(times)]
    ascending = sum(step >= 0 for step in steps)
    descending = sum(step <= 0 for step in steps)
    return max(ascending, descending) / len(steps) if steps else 0.0


def _not_earlier(column: Column, candidates: Sequence[Column]) -> list[str]:
    """Returns the names of the other times that are hardly ever later than this one, and close to
    it.
    """
    found = []
    for other in candidates:
        if other is not column and _not_later(other, column):
            found.append(other.name)
    return found


def _not_later(column: Column, arrival: Column) -> tuple[int, int] | None:
    """Returns the number of rows in which a time is not later than the arrival, and the number of
    rows that have both.

    None if it is later in more than a few rows, if the two are always equal, or if their distance
    is larger than the span of the arrivals, as for a date of birth.
    """
    both = zip(column.times, arrival.times, strict=True)
    waits = [arrived - at for at, arrived in both if at is not None and arrived is not None]
    if not waits or not any(waits):
        return None
    first, last = _span(present(arrival.times))
    earlier = sum(wait >= 0 for wait in waits)
    is_near = statistics.median(waits) <= last - first
    return (earlier, len(waits)) if is_near and earlier >= _EARLIER_MIN * len(waits) else None


def _first(column: Column) -> str:
    values = present(column.values)
    return f", such as {str(values[0])[:_SHOWN]}" if values else ""


def _event_at(columns: Sequence[Column], arrival: Column) -> tuple[Column, str]:
    """Returns the column of the event timestamp: another time with any name, hardly ever later than
    the arrival, and close to it.
    """
    found = []
    for column in columns:
        if not column.instant or column is arrival or column.name in arrival.parts:
            continue
        few_lack_it = column.missing <= MISFITS_MAX * len(column.values)
        is_as_fine = column.has_clock or not arrival.has_clock
        if few_lack_it and is_as_fine and (counts := _not_later(column, arrival)):
            share = round(counts[0] / counts[1], 2)
            found.append((-share, not sounds_like_time(column.name), column, counts))
    found.sort(key=lambda entry: entry[:2])
    if not found:
        return arrival, (
            "same as the arrival; use another column if tuples arrive later than they happen"
        )
    _, _, best, (earlier, rows) = found[0]
    why = f"a time that is not later than the arrival in {earlier:,} of {rows:,} rows"
    return best, why + (f"; next best: {found[1][2].name}" if len(found) > 1 else "")


def _key(columns: Sequence[Column], arrival: Column) -> tuple[Column | None, str]:
    """Returns the column that names a sender: its values are repeated, most of them during the
    whole time.
    """
    rows = len(arrival.values)
    found = []
    for column in columns:
        fits = not no_key(column) and column.name not in arrival.parts and not column.missing
        if not fits or not 1 < column.distinct <= max(2, rows // 3):
            continue
        present_share = _present_share(column, arrival)
        is_named = bool(_KEY.search(column.event.lower()))
        if is_named or column.kind == "STRING":
            found.append((not is_named, present_share < _PRESENT_MIN, column, present_share))
    found.sort(key=lambda entry: entry[:2])
    if not found:
        return None, "no column without nulls has repeated values"
    is_text, _, best, share = found[0]
    why = (
        f"{'text' if is_text else 'named as a key'}, {best.distinct:,} values in {rows:,} rows, "
        f"never null; {share:.0%} of them occur during at least half of the time"
    )
    return best, why + (f"; next best: {found[1][2].name}" if len(found) > 1 else "")


def _present_share(column: Column, arrival: Column) -> float:
    """Returns the share of a column's values that occur during at least half of the sample's
    time.
    """
    ends: dict[str, tuple[int, int]] = {}
    for value, at in zip(column.values, arrival.times, strict=True):
        if value is not None and at is not None:
            first, last = ends.get(str(value), (at, at))
            ends[str(value)] = min(first, at), max(last, at)
    if not ends:
        return 0.0
    first, last = _span(present(arrival.times))
    return sum(2 * (b - a) >= last - first for a, b in ends.values()) / len(ends)


def _measures(columns: Sequence[Column], key: Column | None) -> list[Column]:
    """Returns the columns with numbers that can be added up.

    Ids and numbers that are the same for all tuples of a key are left out.
    """
    fitting = []
    for column in columns:
        if (
            column is key
            or column.instant
            or column.path
            or _NO_MEASURE.search(column.event.lower())
        ):
            continue
        # Sums of DOUBLE depend on the order of rows, so that digests of a window would differ.
        is_exact = column.kind in ("BIGINT", "INT") or column.kind.startswith("DECIMAL")
        if is_exact and not _follows(column, key):
            fitting.append(column)
    return fitting[:_MEASURES]


def _follows(column: Column, key: Column | None) -> bool:
    """Returns whether a column has one value per key.

    Then it describes the sender, not the event.
    """
    if key is None or column.distinct < 2:
        return False
    pairs = {
        (str(k), str(v)) for k, v in zip(key.values, column.values, strict=True) if v is not None
    }
    return len(pairs) <= key.distinct < len(column.values)


def _with_durations(stream: NewStream) -> NewStream:
    times = present(stream.arrival.times)
    first, last = _span(times) if times else (0, 0)
    span = last - first
    if not span:
        why = {**stream.why, "width": "no rows in the sample", "interval": "no rows in the sample"}
        return replace(stream, width="1 minute", interval=None, why=why)
    # Arrivals that are dates all fall on midnight, so narrower windows than a day would be empty.
    step = 1 if stream.arrival.has_clock else DAY_US
    rows = stream.sample.all_rows
    least = max(span * TUPLES_PER_WINDOW / rows, span / WINDOWS_MAX, step)
    width = _rung(least, _WIDEST)
    tuples = rows * parse_duration(width) / span
    about = "" if stream.sample.whole else "about "
    interval, distance = _interval(stream, span)
    why = {
        **stream.why,
        "width": f"{tuples:,.0f} tuples a window on average, {about}"
        f"{span // parse_duration(width) + 1:,} windows in all",
        "interval": distance,
    }
    return replace(stream, width=width, interval=interval, why=why)


def _interval(stream: NewStream, span: int) -> tuple[str, str]:
    """Returns the distance above which a key counts as silent, and the reason.

    The distance is increased until only a few gaps between the rows of a key are longer. Only the
    first rows of the sample are used, because only they are consecutive in the source.
    """
    head = stream.sample.head or len(stream.arrival.times)
    groups: dict[object, list[int]] = {}
    keys = stream.key.values[:head] if stream.key else [None] * head
    for key, at in zip(keys, stream.arrival.times[:head], strict=False):
        if at is not None:
            groups.setdefault(key, []).append(at)
    usual = []
    distances = []
    for group in groups.values():
        own = [after - before for before, after in pairwise(sorted(group))]
        distances += own
        if own:
            usual.append(statistics.median(own))
    # Most keys, not only half of them, must send within the interval.
    usual.sort()
    typical = usual[int(0.9 * (len(usual) - 1))] if usual else span
    interval = _rung(max(typical * _INTERVALS, 1_000_000), LADDER[-1])
    silences = _silences(distances, interval)
    while silences > _SILENT_MAX * len(distances) and interval != LADDER[-1]:
        interval = LADDER[LADDER.index(interval) + 1]
        silences = _silences(distances, interval)
    whose = " of a key" if stream.key else ""
    return interval, (
        f"90 % of the keys send every {describe_duration(round(typical))} or more often; "
        if stream.key
        else f"tuples arrive every {describe_duration(round(typical))}; "
    ) + (
        f"longer than this are {silences:,} of {len(distances):,} distances of tuples{whose} in "
        f"the first {min(head, len(stream.arrival.times)):,} rows"
    )


def _silences(distances: Sequence[int], interval: str) -> int:
    return sum(distance > parse_duration(interval) for distance in distances)


def _rung(least: float, widest: str) -> str:
    """Returns the shortest proposed duration that is long enough.

    If there is none, returns the longest one allowed.
    """
    return next(rung for rung in LADDER if parse_duration(rung) >= least or rung == widest)
