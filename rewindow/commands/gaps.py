"""`rewindow gaps`: windows empty or missing, and the silent stretches of each key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.completion import streams
from rewindow.commands.project import load_project
from rewindow.commands.screen import First, From, Last, To, out, print_rows
from rewindow.inspection.gaps import EMPTY, MISSING, SILENT, Gap, GapReport
from rewindow.inspection.gaps import gaps as find_gaps
from rewindow.windows import format_duration

_MEANING = {
    MISSING: "not sealed: tuples may lie in them",
    SILENT: "without a tuple",
    EMPTY: "sealed without a tuple",
}


class Format(StrEnum):
    """How a report is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def gaps(
    stream: Annotated[str, typer.Argument(help="Name of a recorded or published stream.", autocompletion=streams)],
    from_time: From = None,
    to_time: To = None,
    first: First = None,
    last: Last = None,
    form: Annotated[Format, typer.Option("--format", help="table, csv or json.")] = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    limit: Annotated[int, typer.Option(help="Rows of each kind; csv and json have all, in order of time.", min=1)] = 15,
) -> None:
    """Report what is silent in a recorded stream. Starts no JVM.

    Missing windows come first, then silent keys, then empty windows; of each the longest first.

    A silence is counted from a key's last tuple. The timers of heartbeat_STREAM are not: they stand at multiples of the
    interval, so that a key may get one soon after a tuple, where this report names no silence.

    A window that is missing may hold tuples: a silence is open where missing windows begin, another begins behind them.

    Examples:

        rewindow gaps weather

        rewindow gaps weather --from 2013-12-01 --to 2014-01-01 --format csv
    """
    config = load_project()
    report = find_gaps(config, stream, first, last, from_time=from_time, to_time=to_time)
    if as_json or form is Format.JSON:
        typer.echo(report.to_json())
    elif form is Format.CSV:
        typer.echo(report.to_csv(), nl=False)
    else:
        _show(report, limit)


def _show(report: GapReport, limit: int) -> None:
    """Prints what may have lost data first, then the silent keys, then what is known to be empty; longest first."""
    if report.windows is None:
        out.print(escape(f"{report.stream}: nothing is sealed in this range"))
        return
    out.print(
        f"[bold]{escape(report.stream)}[/bold]: {escape(f'windows {report.windows}, {report.sealed:,} of them sealed')}"
    )
    if report.interval_us is None:
        out.print("silences were not looked for: the stream has no interval")
    for kind, meaning in _MEANING.items():
        gaps = report.longest(kind)
        _show_kind(kind, _heading(report, kind, gaps, meaning), gaps, limit)


def _heading(report: GapReport, kind: str, gaps: Sequence[Gap], meaning: str) -> str:
    counts = report.counts
    if not gaps:
        return f"{kind}: none"
    if kind == SILENT:
        keys = len({tuple(gap.key.values()) for gap in gaps})
        assert report.interval_us is not None, "without an interval nothing is called silent"
        longer = format_duration(report.interval_us)
        return f"{kind}: {len(gaps):,} stretches of {keys:,} keys, {meaning} for longer than {longer}"
    windows = counts[f"windows_{kind}"]
    return f"{kind}: {windows:,} windows in {len(gaps):,} stretches, {meaning}"


def _show_kind(kind: str, heading: str, gaps: Sequence[Gap], limit: int) -> None:
    shown = gaps[:limit]
    out.print(f"\n{escape(heading)}")
    if not shown:
        return
    columns = ("key", "from", "to", "lasts", "intervals", "closed by") if kind == SILENT else _OF_WINDOWS
    print_rows("", columns, map(_silence if kind == SILENT else _stretch, shown))
    if len(gaps) > limit:
        left = f"{len(gaps) - limit:,} {kind} stretches more, none longer than {_lasts(shown[-1])}"
        out.print(f"... {left}; all of them: --limit {len(gaps)}, or --format csv")


_OF_WINDOWS = ("first", "last", "from", "to", "lasts", "windows")


def _silence(gap: Gap) -> tuple[object, ...]:
    row = gap.row()
    return row["key"], row["from"], row["to"], _lasts(gap), gap.count, gap.closed_by


def _stretch(gap: Gap) -> tuple[object, ...]:
    row = gap.row()
    return str(gap.windows.first), str(gap.windows.last), row["from"], row["to"], _lasts(gap), gap.count


def _lasts(gap: Gap) -> str:
    """Returns how long a gap lasts, to the millisecond."""
    milliseconds = (gap.to_us - gap.from_us) // 1000
    return str(timedelta(milliseconds=milliseconds)).removesuffix("000")
