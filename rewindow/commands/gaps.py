"""`rewindow gaps`: reports empty and missing windows, silent periods of each key, and gaps in event
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.completion import streams
from rewindow.commands.project import load_project
from rewindow.commands.screen import First, From, Last, To, out, print_rows
from rewindow.errors import InputError
from rewindow.inspection.event_gaps import EventGaps
from rewindow.inspection.gap_rows import EMPTY, MISSING, SILENT, Gap
from rewindow.inspection.gaps import GapReport
from rewindow.inspection.gaps import gaps as find_gaps
from rewindow.inspection.unusable import describe_unusable
from rewindow.sequences import excluding
from rewindow.windows import format_duration, format_time, parse_duration

_MEANING = {
    MISSING: "not sealed, may contain tuples",
    SILENT: "without tuples",
    EMPTY: "sealed without tuples",
}


class Format(StrEnum):
    """Output format of a report."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def gaps(
    stream: Annotated[
        str, typer.Argument(help="Name of a recorded or published stream.", autocompletion=streams)
    ],
    from_time: From = None,
    to_time: To = None,
    first: First = None,
    last: Last = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Report only this key, as COLUMN=VALUE; repeatable.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help='Also report nulls of this column, or "*" for all columns; repeatable.'),
    ] = None,
    cadence: Annotated[
        str | None,
        typer.Option(
            help='Expected time between two tuples of a key in event time, such as "1 hour".'
        ),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Output format: table, csv or json.")
    ] = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    page: Annotated[
        bool,
        typer.Option(
            "--page",
            help="Write an HTML page with calendar, gaps, lag and lateness, and print its path.",
        ),
    ] = False,
    limit: Annotated[
        int,
        typer.Option(
            help="Maximum number of rows of each kind in the table; csv and json "
            "contain all, in order of time.",
            min=1,
        ),
    ] = 15,
) -> None:
    """Report missing windows, silent keys and empty windows of a recorded stream, and its gaps in
    event time. Starts no JVM.

    The report lists missing windows, then silent keys, then empty windows; the longest of each kind
    first.

    In event time, each key is expected to have one row per cadence: the setting `cadence`, or
    `interval`, or otherwise the most frequent time between two rows of a key. For each key, the
    report shows its completeness and its gaps.

    A key is silent if more time than the stream's `interval` plus `slack` passes after its last
    tuple. The timers of heartbeat_STREAM follow another rule: they are at multiples of the
    interval, so a key may get a timer soon after a tuple although it is not silent. See
    docs/gaps_and_timers.md.

    A missing window may contain tuples. So missing windows split a silence: it is open before them,
    and another one starts after them.

    Examples:

        rewindow gaps weather

        rewindow gaps weather --from 2013-12-01 --to 2014-01-01 --format csv

        rewindow gaps weather --key origin=JFK --column pressure

        rewindow gaps weather --page
    """
    config = load_project()
    report = find_gaps(
        config,
        stream,
        first,
        last,
        from_time=from_time,
        to_time=to_time,
        columns=column or (),
        keys=_pairs(key or ()),
        cadence_us=None if cadence is None else parse_duration(cadence),
    )
    if page:
        from rewindow.pages.time_page import write_time_page

        typer.echo(str(write_time_page(config, stream, report)[0]))
    elif as_json or form is Format.JSON:
        typer.echo(report.to_json())
    elif form is Format.CSV:
        typer.echo(report.to_csv(), nl=False)
    else:
        _show(report, limit)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    """Returns the columns and values of the requested keys."""
    for text in texts:
        if "=" not in text:
            raise InputError(
                f'key "{text}" is not in the form COLUMN=VALUE',
                hint="Write it like this: --key origin=JFK",
            )
    return dict(text.split("=", 1) for text in texts)


def _show(report: GapReport, limit: int) -> None:
    """Prints possible losses first, then silent keys, then empty windows; each longest first."""
    if report.windows is None:
        out.print(escape(f"{report.stream}: no window of this range is sealed"))
        return
    out.print(
        f"[bold]{escape(report.stream)}[/bold]: "
        f"{escape(f'windows {report.windows}, {report.sealed:,} of them sealed')}"
    )
    if report.interval_us is None:
        out.print("silences are not reported: the stream has no interval")
    for kind, meaning in _MEANING.items():
        gaps = report.longest(kind)
        _show_kind(kind, _heading(report, kind, gaps, meaning), gaps, limit=limit)
    if report.unusable:
        out.print(f"\n{escape(describe_unusable(report.unusable, limit))}")
    if report.event is not None:
        _show_event_time(report.event, limit)
    elif report.event_lack:
        out.print(escape(f"\ngaps in event time are not reported: {report.event_lack}"))


def _show_event_time(event: EventGaps, limit: int) -> None:
    """Prints the expectation and its origin, the completeness of each key, and the longest gaps."""
    words = f"a row of each key every {format_duration(event.cadence_us)}"
    if event.learned is not None:
        found, steps = event.learned
        words += (
            f", derived from the rows: {found / steps:.1%} of {steps:,} intervals between rows of "
            "a key have this length"
        )
    if event.hours is not None:
        words += f" during opening hours ({event.hours.zone})"
    ends = f"{format_time(event.from_us)} to {format_time(event.to_us)}"
    out.print(f"\n[bold]in event time[/bold]: {escape(f'{words}, {ends}')}")
    rows = [
        row.row() | {"completeness": "" if row.share is None else f"{row.share:.2%}"}
        for row in event.completeness
    ]
    if rows:
        names = excluding(rows[0], _unused(rows))
        print_rows("", names, [list(map(row.__getitem__, names)) for row in rows])
    gaps = sorted(event.gaps, key=lambda gap: (-gap.length_us, gap.from_us))
    out.print(f"\n{len(gaps):,} gaps in event time" if gaps else "\nno gaps in event time")
    if gaps:
        columns = ("kind", "key", "column", "from", "to", "lasts", "missing", "closed by")
        print_rows("", columns, list(map(_event_gap, gaps[:limit])))
    if len(gaps) > limit:
        out.print(
            f"... {len(gaps) - limit:,} more gaps; to see all, use --limit {len(gaps)} or "
            "--format csv"
        )
    silent = [
        f"{gap.keys or 'the stream'} since {format_time(gap.from_us)}" for gap in event.silent_now
    ]
    ends = (
        ""
        if event.all_end_by_us is None
        else f"; all keys end by {format_time(event.all_end_by_us)}"
    )
    more = f"; {len(silent) - limit:,} more" if len(silent) > limit else ""
    out.print(escape(f"\nsilent at the end: {'; '.join(silent[:limit]) or 'none'}{more}{ends}"))


def _unused(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Returns the columns of the completeness that have no value in any row."""
    names = ("key", "column", "is_expected", "nulls", "tolerated")
    return [name for name in names if all(row[name] in (None, "", 0) for row in rows)]


def _event_gap(gap: Gap) -> tuple[object, ...]:
    row = gap.row()
    return (
        gap.kind,
        gap.keys,
        gap.column,
        row["from"],
        row["to"],
        _lasts(gap),
        gap.count,
        gap.closed_by,
    )


def _heading(report: GapReport, kind: str, gaps: Sequence[Gap], meaning: str) -> str:
    counts = report.counts
    if not gaps:
        return f"{kind}: none"
    if kind == SILENT:
        keys = len({tuple(gap.key.values()) for gap in gaps})
        assert report.interval_us is not None, "without an interval nothing is called silent"
        slack = f" and a slack of {format_duration(report.slack_us)}" if report.slack_us else ""
        longer = f"{format_duration(report.interval_us)}{slack}"
        return f"{kind}: {len(gaps):,} periods of {keys:,} keys, {meaning} for longer than {longer}"
    windows = counts[f"windows_{kind}"]
    return f"{kind}: {windows:,} windows in {len(gaps):,} periods, {meaning}"


def _show_kind(kind: str, heading: str, gaps: Sequence[Gap], limit: int) -> None:
    shown = gaps[:limit]
    out.print(f"\n{escape(heading)}")
    if not shown:
        return
    columns = (
        ("key", "from", "to", "lasts", "intervals", "closed by") if kind == SILENT else _OF_WINDOWS
    )
    print_rows("", columns, map(_silence if kind == SILENT else _stretch, shown))
    if len(gaps) > limit:
        left = f"{len(gaps) - limit:,} more {kind} periods, none longer than {_lasts(shown[-1])}"
        out.print(f"... {left}; to see all, use --limit {len(gaps)} or --format csv")


_OF_WINDOWS = ("first", "last", "from", "to", "lasts", "windows")


def _silence(gap: Gap) -> tuple[object, ...]:
    row = gap.row()
    return row["key"], row["from"], row["to"], _lasts(gap), gap.count, gap.closed_by


def _stretch(gap: Gap) -> tuple[object, ...]:
    row = gap.row()
    return str(row["first"]), str(row["last"]), row["from"], row["to"], _lasts(gap), gap.count


def _lasts(gap: Gap) -> str:
    """Returns the duration of a gap, to the millisecond."""
    milliseconds = gap.length_us // 1000
    return str(timedelta(milliseconds=milliseconds)).removesuffix("000")
