"""The page about a stream's time. It shows missing rows and when they are missing, and delays of
tuples.

Every picture is also available as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rewindow.inspection.event_gaps import EventGaps, StreamRows
from rewindow.inspection.filled import filled_stream
from rewindow.inspection.gap_rows import Gap
from rewindow.inspection.gaps import GapReport, gaps
from rewindow.inspection.lags import (
    LATER_THAN_US,
    KeyLateness,
    LagStep,
    lag_over_time,
    lateness_by_key,
)
from rewindow.inspection.unusable import describe_unusable
from rewindow.location import Location
from rewindow.pages.calendar import draw_calendar
from rewindow.pages.drawing import draw
from rewindow.pages.filled_plot import HEIGHT, draw_plots
from rewindow.pages.missing_rows import calendar_layers, missing_by_day, most_missing_first
from rewindow.pages.replay_report import LiveParts
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.streams import stored_grid
from rewindow.windows import format_duration, format_time, to_datetime

WIDTH = 1000
_LANE = 26
_CURVE = 160
LANES_MAX = 30
RECTANGLES_MAX = 3_000
ROWS_MAX = 200
"""Largest number of keys and of gaps in pictures, and of rows in a table, the worst ones first; the
CSV has all.
"""


@dataclass(frozen=True)
class GapLane:
    """The gaps of a key on the line of event time, each with x, width, kind and text."""

    y: int
    label: str
    gaps: tuple[tuple[float, float, str, str], ...]


@dataclass(frozen=True)
class Curve:
    """The lag over time.

    Each step has a bar from the smallest to the largest value, and the mean.
    """

    bars: tuple[tuple[float, float, float, float, float, str], ...]
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class HourGrid:
    """The share of late tuples by key and hour of the day, with one row per key and one cell per
    hour.

    Attributes:
        lag: the assumed lag, as text.
        rows: y, label, and for each cell x, its share relative to the largest one, and a text.
    """

    lag: str
    rows: tuple[tuple[int, str, tuple[tuple[float, float, str], ...]], ...]


def draw_time_page(
    config: Config,
    stream: str,
    *,
    found: GapReport | None = None,
    live: LiveParts | None = None,
) -> str:
    """Returns the page about a stream's time as HTML, computed from its tables only.

    Args:
        config: current settings.
        stream: a recorded or published stream.
        found: its report of gaps, if it was computed already.
        live: parts that exist only if Airflow serves the page.

    Raises:
        InputError: the stream is unknown or not recorded.
    """
    found = found or gaps(config, stream)
    grid = stored_grid(Table.open(config.windows_table(stream)))
    windows = found.windows
    event = found.event
    steps: list[LagStep] = []
    behind: list[KeyLateness] = []
    rows = StreamRows.open(config, stream, {})
    if rows.has_times and windows is not None:
        steps = lag_over_time(rows, windows, grid)
        behind = lateness_by_key(rows, windows)
    by_key = [row for row in behind if row.hour is None]
    by_hour = [row for row in behind if row.hour is not None]
    filled = filled_stream(config, stream, windows) if windows is not None else None
    calendar = (
        draw_calendar(grid, windows, calendar_layers(event, windows, grid))
        if event and windows
        else None
    )
    listed = found.by_length()
    return draw(
        "stream_time.html",
        stream=stream,
        live=live,
        report=found,
        event=event,
        page={"windows": windows},
        seconds=_words,
        lead=_lead(found),
        facts=_facts(found),
        calendar=calendar,
        missing_days=missing_by_day(event, ROWS_MAX) if event else None,
        unusable=describe_unusable(found.unusable, 5),
        unusable_rows=found.unusable[:ROWS_MAX],
        range_words=grid.times(windows) if windows else "",
        lanes=gap_lanes(event) if event else [],
        curve=draw_curve(steps),
        steps=steps,
        behind=by_key[:ROWS_MAX],
        behind_count=len(by_key),
        hour_grid=draw_hours(by_key, by_hour),
        behind_hours=by_hour[:ROWS_MAX],
        later_than=[format_duration(us) if us else "0" for us in LATER_THAN_US],
        gaps=list(map(Gap.row, listed[:ROWS_MAX])),
        gap_count=len(listed),
        rows_max=ROWS_MAX,
        width=WIDTH,
        totals=sorted(event.completeness, key=_worst)[:ROWS_MAX] if event else [],
        clock=to_datetime,
        filled=filled,
        plots=draw_plots(filled) if filled else [],
        height=HEIGHT,
    )


def write_time_page(config: Config, stream: str, found: GapReport) -> tuple[Location, Location]:
    """Writes the report as a page and as CSV to the folder of results, and returns their paths."""
    folder = config.results / "time"
    page = folder / f"{stream}.html"
    table = folder / f"{stream}.csv"
    table.write(found.to_csv())
    page.write(draw_time_page(config, stream, found=found))
    return page, table


def _worst(row: Any) -> tuple[float, str, str]:
    return (row.share if row.share is not None else 1.0, row.keys, row.column)


def _lead(found: GapReport) -> str:
    if found.windows is None:
        return "Nothing of the stream is sealed yet."
    if found.event_lack:
        return f"Event time was not examined: {found.event_lack}"
    if found.event is None:
        return (
            "The stream has no event time: what is missing is known on the clock of arrivals alone."
        )
    silent = found.event.silent_now
    names = ", ".join(gap.keys or "the stream" for gap in silent[:5]) + (
        ", ..." if len(silent) > 5 else ""
    )
    all_end_by_us = found.event.all_end_by_us
    if all_end_by_us is None:
        return (
            f"Silent at the end of what is sealed: {names}."
            if silent
            else "Every key sends up to the end."
        )
    end = f"All keys end by {format_time(all_end_by_us)}, before the end of what is sealed."
    return f"{end} Silent before that: {names}." if silent else end


def _facts(found: GapReport) -> list[tuple[str, str]]:
    counts = found.counts
    facts = [
        (f"{counts['windows_empty']:,}", "windows empty"),
        (f"{counts['windows_missing']:,}", "windows missing"),
    ]
    if found.event is not None:
        expected = 0
        present = 0
        # Totals with a column count the values of that column, not rows of the stream.
        for row in found.event.completeness:
            if not row.column:
                expected += row.expected
                present += row.present
        facts.insert(
            0,
            (f"{present / expected:.2%}" if expected else "–", "of the expected rows exist"),
        )
        facts.insert(1, (f"{counts['rows_missing']:,}", "rows missing"))
        facts.append((format_duration(found.event.cadence_us), _source(found.event)))
    return facts


def _source(event: EventGaps) -> str:
    if event.learned is None:
        return "between two rows of a key, as set"
    return (
        f"between two rows of a key, learned: so {event.learned[0] / event.learned[1]:.1%} of "
        "them are apart"
    )


def gap_lanes(event: EventGaps) -> list[GapLane]:
    """Returns the gaps of the keys with the most missing rows, one lane per key."""
    span = max(event.to_us - event.from_us, 1)
    longest = sorted(event.gaps, key=lambda gap: -gap.length_us)[:RECTANGLES_MAX]
    by_label: dict[str, list[Gap]] = {}
    for gap in longest:
        label = ", ".join(filter(None, (gap.keys, gap.column))) or "the stream"
        by_label.setdefault(label, []).append(gap)
    lanes = []
    for n, (label, of_label) in enumerate(most_missing_first(by_label)[:LANES_MAX]):
        rectangles = tuple(_rectangle(gap, event.from_us, span) for gap in of_label)
        lanes.append(GapLane(n * _LANE, label, rectangles))
    return lanes


def _rectangle(gap: Gap, begin_us: int, span_us: int) -> tuple[float, float, str, str]:
    x = (gap.from_us - begin_us) * WIDTH / span_us
    width = (gap.to_us - gap.from_us) * WIDTH / span_us
    words = (
        f"{gap.kind.replace('_', ' ')}: {format_time(gap.from_us)} to "
        f"{format_time(gap.to_us)}, {gap.count:,} rows"
    )
    return round(x, 2), round(max(width, 0.8), 2), gap.kind, words


def draw_curve(steps: Sequence[LagStep]) -> Curve | None:
    """Returns the lag over time; None if no tuple has a lag."""
    if not steps:
        return None
    top = max(step.most_us for step in steps)
    low = min(0, *(step.least_us for step in steps))
    span = max(top - low, 1)
    count = steps[-1].windows.first - steps[0].windows.first + len(steps[0].windows)
    wide = max(WIDTH * len(steps[0].windows) / count, 1.5)

    def height(value: float) -> float:
        return round(_CURVE * (top - value) / span, 1)

    bars = []
    for step in steps:
        x = round((step.windows.first - steps[0].windows.first) * WIDTH / count, 1)
        begin = format_time(step.begin_us)
        words = (_words(step.mean_us), _words(step.most_us))
        title = f"{begin}: {step.tuples:,} tuples, mean {words[0]}, most {words[1]}"
        y = height(step.most_us)
        tall = max(round(height(step.least_us) - y, 1), 1)
        bars.append((x, round(wide * 0.85, 1), y, tall, height(step.mean_us), title))
    return Curve(tuple(bars), tuple((height(us), _words(us)) for us in sorted({top, 0, low})))


def draw_hours(by_key: Sequence[KeyLateness], by_hour: Sequence[KeyLateness]) -> HourGrid | None:
    """Returns the picture of lateness by key and hour of the day; None if no tuple was late.

    The lag is the smallest one with which some tuples would be late, but less than half of all
    tuples.
    """
    total = sum(row.tuples for row in by_key)
    late = [0] * len(LATER_THAN_US)
    for row in by_key:
        for n, count in enumerate(row.behind):
            late[n] += count
    if not late[0]:
        return None
    some = [n for n, count in enumerate(late) if count]
    chosen = next((n for n in some if 2 * late[n] < total), some[-1])
    keys = [row.keys for row in by_key[:LANES_MAX]]
    cells: dict[str, list[tuple[float, float, str]]] = {key: [] for key in keys}
    shares = [row.behind[chosen] / row.tuples for row in by_hour if row.keys in cells]
    most = max(shares, default=0) or 1
    lag = format_duration(LATER_THAN_US[chosen]) if LATER_THAN_US[chosen] else "0"
    for row in by_hour:
        if row.keys in cells and row.hour is not None:
            share = row.behind[chosen] / row.tuples
            words = (
                f"{row.keys or 'all'}, {row.hour:02}:00: {row.behind[chosen]:,} of "
                f"{row.tuples:,} late, {share:.1%}"
            )
            cells[row.keys].append((round(row.hour * WIDTH / 24, 1), round(share / most, 3), words))
    rows = [(n * _LANE, key or "all", tuple(cells[key])) for n, key in enumerate(keys)]
    return HourGrid(f"{lag}; the darkest cell has {most:.1%}", tuple(rows))


def _words(us: float) -> str:
    """Returns a duration with three digits, in a suitable unit.

    >>> _words(5_400_000_000), _words(-30_000_000), _words(0), _words(20_456 * 86_400_000_000)
    ('1.5 h', '-30 s', '0 s', '20,456 days')
    """
    for unit_us, name in ((86_400_000_000, "days"), (3_600_000_000, "h"), (60_000_000, "min")):
        if abs(us) >= 1000 * unit_us:
            return f"{us / unit_us:,.0f} {name}"
        if abs(us) >= unit_us:
            return f"{us / unit_us:.3g} {name}"
    return f"{us / 1_000_000:.3g} s"
