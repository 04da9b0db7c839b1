"""`gaps`: missing windows, rows and values of a stream, in arrival time and in event time, without
starting a JVM.

In arrival time, the report has three kinds of rows: empty windows (sealed, no tuple), missing
windows (not sealed), and per key the stretches of time without an arrival that are longer than
interval plus slack. A tuple that arrives exactly that long after the previous one leaves no gap.

A missing window may have tuples, so its time does not count as silent. A stretch stays open where
missing windows start, and another stretch starts after them. Each of these stretches must be longer
than interval plus slack.

`event_gaps` reports gaps in event time.

Rules: G1, G12, W40
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewindow.errors import InputError, RangeError
from rewindow.facts.seals import sealed_range
from rewindow.inspection.event_gaps import EventGaps, StreamRows, event_gaps
from rewindow.inspection.gap_rows import COLUMNS, EMPTY, MISSING, OPEN, SILENT, Gap, with_nulls
from rewindow.inspection.unusable import Unusable, unusable_tuples
from rewindow.operators.gaps.sql import LATE_REPAIRED, RECORDED_NULLS
from rewindow.sequences import excluding
from rewindow.settings.config import Config, StreamConfig
from rewindow.storage import Table, query, quoted
from rewindow.storage.stream_settings import check_recorded_settings
from rewindow.storage.streams import stored_grid
from rewindow.windows import Grid, WindowRange, check_order, format_time, parse_time


@dataclass(frozen=True)
class GapReport:
    """Missing windows, rows and values of a stream in a window range.

    Attributes:
        windows: the examined range; None if no window of the stream is sealed.
        sealed: number of sealed windows in it.
        interval_us: expected period between arrivals of a key; None if silences were not reported.
        slack_us: allowed delay in addition to the interval; a silence longer than both is a gap.
        gaps: the rows: empty, missing, then silent by key and time, then those in event time.
        event: the expectation in event time, and the completeness of each key; None if unknown.
        event_lack: the reason why it is unknown; empty if the stream has no event time.
        unusable: tuples with an impossible event time, by key and reason. They count in no gap in
            event time.

    Rules: G12
    """

    stream: str
    windows: WindowRange | None
    sealed: int
    interval_us: int | None
    gaps: Sequence[Gap]
    event: EventGaps | None = None
    event_lack: str = ""
    slack_us: int = 0
    unusable: Sequence[Unusable] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Counts of empty windows, missing windows, and intervals without a tuple (open ones
        separately). In event time, counts of rows and values.

        Late rows exist, but were missing when their window was computed.
        """
        counted = ("windows_empty", "windows_missing", "intervals_missing", "intervals_open")
        found = Counter(dict.fromkeys((*counted, "rows_missing", "values_null", "rows_late"), 0))
        names = {EMPTY: "windows_empty", MISSING: "windows_missing", RECORDED_NULLS: "values_null"}
        names[LATE_REPAIRED] = "rows_late"
        for gap in self.gaps:
            name = names.get(gap.kind, "rows_missing")
            if gap.kind == SILENT:
                name = "intervals_open" if gap.closed_by == OPEN else "intervals_missing"
            found[name] += gap.count
        return dict(found)

    def rows(self) -> list[dict[str, Any]]:
        """Returns the report as rows with the columns of `COLUMNS`."""
        return list(map(Gap.row, self.gaps))

    def to_csv(self) -> str:
        """Returns the report as CSV with a header."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return text.getvalue()

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Returns column names and rows of text for a log, the longest gap first."""
        rows = []
        for gap in self.by_length():
            rows.append(["" if value is None else str(value) for value in gap.row().values()])
        return list(COLUMNS), rows

    def by_length(self) -> list[Gap]:
        """Returns all gaps, the longest gap first. Gaps of the same length are sorted by time."""
        return sorted(self.gaps, key=lambda gap: (-gap.length_us, gap.from_us, gap.keys))

    def longest(self, kind: str) -> list[Gap]:
        """Returns the gaps of a kind, the longest gap first.

        Gaps of the same length are sorted by time.
        """
        return sorted(
            (gap for gap in self.gaps if gap.kind == kind),
            key=lambda gap: (-gap.length_us, gap.from_us),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        span = self.windows
        return {
            "stream": self.stream,
            "first": span.first if span else None,
            "last": span.last if span else None,
            "sealed": self.sealed,
            "interval_us": self.interval_us,
            "slack_us": self.slack_us,
            **self.counts,
            "event_time": self.event.to_dict() if self.event else None,
            "event_time_lack": self.event_lack or None,
            "unusable": list(map(Unusable.row, self.unusable)),
            "gaps": list(map(with_nulls, self.rows())),
        }

    def to_json(self) -> str:
        """Returns the report as JSON."""
        return json.dumps(self.to_dict(), indent=2)


def gaps(  # noqa: PLR0913 - each is an option of the verb
    config: Config,
    stream: str,
    first: int | None = None,
    last: int | None = None,
    *,
    from_time: str | None = None,
    to_time: str | None = None,
    interval_us: int | None = None,
    cadence_us: int | None = None,
    columns: Sequence[str] = (),
    keys: Mapping[str, str] | None = None,
) -> GapReport:
    """Returns the gaps of a recorded or published stream in a window range, including its last
    window.

    In event time, the report covers the time of the range, with the tuples that had arrived by its
    end.

    Args:
        config: current settings; keys, interval and slack are those of the stream.
        stream: its name.
        first, last: the range, window ids, closed; by default all sealed windows.
        from_time, to_time: the range as times in ISO 8601, half-open; they override window ids.
        interval_us: replaces the stream's interval and slack; if neither is set, silences are not
            reported.
        cadence_us: replaces the stream's cadence in event time; if neither is set, it is learned
            from the tuples.
        columns: columns whose nulls are reported; "*" means all.
        keys: restricts the keys to these values, by column.

    Raises:
        InputError: the stream was never recorded, or has no arrival timestamp to find silences
            with; the interval is not greater than zero; a column, a key or a cadence is invalid.
        RangeError: the range is empty or reversed; or it has only one end, and no sealed window is
            in it.

    Rules: H20
    """
    if not Table.exists(config.windows_table(stream)):
        config.stream(stream)
        raise InputError(
            f'stream "{stream}" is not recorded yet',
            hint=f"Run: rewindow record {stream}",
        )
    windows = Table.open(config.windows_table(stream))
    check_recorded_settings(config, stream, windows)
    grid = stored_grid(windows)
    settings = config.streams.get(stream)
    if from_time and to_time:
        check_order(parse_time(from_time), parse_time(to_time))
    first = grid.window(parse_time(from_time)) if from_time else first
    last = grid.window(parse_time(to_time) - 1) if to_time else last
    interval_us, slack_us = _expected(settings, interval_us)
    sealed, tuples = _seals(windows, first, last)
    if not len(sealed) and (first is None or last is None):
        _refuse_beside(stream, windows, first, last=last)
        return GapReport(stream, None, 0, interval_us=interval_us, gaps=[], slack_us=slack_us)
    span = WindowRange(
        int(sealed[0]) if first is None else first,
        int(sealed[-1]) if last is None else last,
    )
    found = _ranges(EMPTY, sealed[tuples == 0], grid)
    found += _ranges(MISSING, _missing(sealed, span), grid)
    has_event_time = settings is not None and settings.event_at is not None
    looks_at_tuples = (
        interval_us is not None or has_event_time or keys or columns or cadence_us is not None
    )
    if not looks_at_tuples or not len(sealed) or int(sealed[-1]) < span.first:
        return GapReport(
            stream, span, len(sealed), interval_us=interval_us, gaps=found, slack_us=slack_us
        )
    seen = WindowRange(span.first, min(span.last, int(sealed[-1])))
    rows = StreamRows.open(config, stream, keys or {})
    if interval_us is not None:
        stretches = _stretches(rows, seen, grid, interval_us + slack_us)
        holes = _holes(windows, stretches, seen, grid)
        found += _silences(
            stretches,
            rows.keys,
            seen,
            grid=grid,
            interval_us=interval_us,
            slack_us=slack_us,
            holes=holes,
        )
    lack = ""
    wrong = unusable_tuples(rows, seen)
    try:
        in_event_time = event_gaps(rows, seen, grid, cadence_us=cadence_us, columns=columns)
    except InputError as error:
        if keys or columns or cadence_us is not None:
            raise
        # The caller did not request event time explicitly, so the report omits it.
        in_event_time = None
        lack = f"{error.primary}. {error.hint}".strip()
    found += in_event_time.gaps if in_event_time else []
    return GapReport(
        stream,
        span,
        len(sealed),
        interval_us=interval_us,
        gaps=found,
        event=in_event_time,
        event_lack=lack,
        slack_us=slack_us,
        unusable=wrong,
    )


def _expected(settings: StreamConfig | None, interval_us: int | None) -> tuple[int | None, int]:
    """Returns the expected interval of a key, and how much later a tuple can arrive."""
    if interval_us is None:
        return (settings.interval_us, settings.slack_us) if settings else (None, 0)
    if interval_us <= 0:
        raise InputError(f"interval must be greater than zero, not {interval_us} us")
    return interval_us, 0


def _refuse_beside(stream: str, windows: Table, first: int | None, last: int | None) -> None:
    """Rejects a range with only one end and no sealed window.

    The other end would be computed from the sealed windows.
    """
    sealed = sealed_range(windows)
    grid = stored_grid(windows)
    if sealed is None:
        return
    asked = f"up to {last}"
    word = "before"
    if first is not None:
        asked = f"from {first} on"
        word = "after"
    raise RangeError(
        f'window range {asked} of stream "{stream}" is {word} what is sealed, {sealed}',
        detail=f"Sealed is {format_time(grid.start_us(sealed.first))} to "
        f"{format_time(grid.end_us(sealed.last))}.",
        hint="Choose a range that overlaps it, or set both ends, so that windows outside are "
        "listed as missing.",
    )


def _seals(windows: Table, first: int | None, last: int | None) -> tuple[Any, Any]:
    """Returns the sealed windows of a range in ascending order, and their numbers of tuples."""
    where = "window_id is not null"
    if first is not None:
        where += f" and window_id >= {first}"
    if last is not None:
        where += f" and window_id <= {last}"
    found = query(f"select window_id, tuples from w where {where}", w=windows)
    ids = found["window_id"].to_numpy()
    tuples = found["tuples"].to_numpy()
    if len(ids) > 1 and not (ids[1:] > ids[:-1]).all():
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        tuples = tuples[order]
    return ids, tuples


def _missing(sealed: Any, span: WindowRange) -> Any:
    """Returns the first and last window of each run of windows that are not sealed, as two
    columns.
    """
    framed = np.concatenate(([span.first - 1], sealed, [span.last + 1]))
    holes = np.flatnonzero(framed[1:] > framed[:-1] + 1)
    return np.stack([framed[holes] + 1, framed[holes + 1] - 1], axis=1)


def _ranges(kind: str, found: Any, grid: Grid) -> list[Gap]:
    """Returns one row for each run of consecutive windows. `found` contains windows, or runs."""
    if found.ndim == 1:
        cuts = np.flatnonzero(np.diff(found) > 1)
        firsts = np.concatenate((found[:1], found[cuts + 1]))
        lasts = np.concatenate((found[cuts], found[-1:]))
        found = np.stack([firsts, lasts], axis=1)
    return [
        Gap(
            kind,
            WindowRange(first, last),
            grid.start_us(first),
            to_us=grid.end_us(last),
            count=last - first + 1,
        )
        for first, last in found.tolist()
    ]


def _stretches(
    stream: StreamRows,
    span: WindowRange,
    grid: Grid,
    longer_than_us: int,
) -> list[dict[str, Any]]:
    """Returns each key's stretches without a tuple that overlap a range.

    A stretch includes any missing windows in it. A key is known from its first tuple on, which can
    be before the range. The last stretch is open at the end of the range.
    """
    names = stream.table.schema.names
    keys = stream.keys
    lacking = excluding(("arrived_at", *keys), names)
    if lacking:
        raise InputError(f'stream "{stream.name}" has no column "{lacking[0]}"for keys')
    end_us = grid.end_us(span.last)
    # The stream's columns are renamed first, because their names could clash with other names in
    # the query.
    given = "".join(
        f"{quoted(key)} as {name}, " for key, name in zip(keys, stream.key_names, strict=True)
    )
    columns = stream.listed_keys
    ordered = (
        f"over ({'partition by ' + columns.rstrip(', ') if keys else ''} order by arrived, place)"
    )
    place = "offset" if "offset" in names else "window_id"
    # `lead` pairs each tuple of a key with the next one, in order of arrival. The last tuple has no
    # next one: its stretch lasts until the end of the range.
    sql = f"""
    select {columns} since, coalesce(until, {end_us}) as until, by_window, by_offset
    from (select {columns} arrived as since, lead(arrived) {ordered} as until,
                 lead(in_window) {ordered} as by_window, lead(place) {ordered} as by_offset
          from (select {given} window_id as in_window, "{place}" as place, arrow_cast(arrived_at,
              'Int64') as arrived
                from s where window_id <= {span.last}{stream.of_keys}))
    where coalesce(until, {end_us}) - since > {longer_than_us}
      and coalesce(until, {end_us}) > {grid.start_us(span.first)}
    order by {columns} since"""
    rows: list[dict[str, Any]] = query(sql, s=stream.table).to_pylist()
    return rows


def _holes(
    windows: Table,
    stretches: Sequence[Mapping[str, Any]],
    span: WindowRange,
    grid: Grid,
) -> Any:
    """Returns start and end of each run of missing windows, from the start of the first stretch on,
    as two columns.
    """
    first = min((grid.window(row["since"]) for row in stretches), default=span.first)
    sealed, _ = _seals(windows, first, span.last)
    runs = _missing(sealed, WindowRange(first, span.last))
    return np.stack([grid.start_us(runs[:, 0]), grid.end_us(runs[:, 1])], axis=1)


def _outside(holes: Any, since_us: int, until_us: int) -> list[tuple[int, int]]:
    """Returns the parts of a period that are outside of holes."""
    first = np.searchsorted(holes[:, 1], since_us, side="right")
    last = np.searchsorted(holes[:, 0], until_us, side="left")
    borders = [since_us, *holes[first:last].ravel().tolist(), until_us]
    return [
        (begin, end) for begin, end in zip(borders[::2], borders[1::2], strict=True) if begin < end
    ]


def _silences(
    stretches: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    span: WindowRange,
    grid: Grid,
    interval_us: int,
    slack_us: int,
    holes: Any,
) -> list[Gap]:
    """Returns one row for each part of a stretch outside of holes that is a gap and overlaps a
    range.

    The slack is counted once per silence, as by a heartbeat, so a gap is at least one interval
    long.

    Rules: H7
    """
    found = []
    start_us = grid.start_us(span.first)
    for row in stretches:
        key = {name: row[f"key_{n}"] for n, name in enumerate(keys)}
        for begin, end in _outside(holes, row["since"], row["until"]):
            if end - begin <= interval_us + slack_us or end <= start_us:
                continue
            closed = row["by_window"] is not None and end == row["until"]
            windows = WindowRange(
                grid.window(begin),
                row["by_window"] if closed else grid.window(end - 1),
            )
            closed_by = f"tuple {row['by_window']}:{row['by_offset']}" if closed else OPEN
            count = -((begin + slack_us - end) // interval_us) - 1
            found.append(
                Gap(SILENT, windows, begin, to_us=end, count=count, key=key, closed_by=closed_by)
            )
    return found
