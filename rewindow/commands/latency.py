"""`rewindow latency`: shows the latencies of a live run from its recorded statistics, or the times
of a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.markup import escape

from rewindow import latency as room
from rewindow.commands.completion import replays, streams
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, First, Last, out, print_facts, print_json, print_rows
from rewindow.errors import InputError
from rewindow.inspection.live_statistics import read_live_statistics
from rewindow.inspection.processing_times import NO_LATENCY, processing_times
from rewindow.location import Location
from rewindow.names import did_you_mean
from rewindow.pages.latency_page import write_latency_page, write_replay_times
from rewindow.storage.streams import sealed_streams
from rewindow.windows import WindowRange, parse_time

_SHOWN = 20
_HEADINGS = {
    "latencyMA": "average",
    "p95": "95th percentile",
    "max": "maximum",
    "onCriticalPath": "windows on critical path",
    "slowestUpstream": "slowest upstream",
    "compute_seconds": "computing s",
    "commit_seconds": "commits s",
    "tuplesPerSecond": "tuples/s",
    "criticalPath": "path",
}
"""Headings of columns that have another name in the JSON."""
_IDS = ("window", "first", "last")


def _names(incomplete: str) -> list[str]:
    return [*streams(incomplete), *replays(incomplete)]


def latency(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STREAM|REPLAY",
            help="Stream with the statistics of a live run, or the id of a replay.",
            autocompletion=_names,
        ),
    ],
    first: First = None,
    last: Last = None,
    at: Annotated[
        str | None,
        typer.Option(help="Show the latencies as of this time (ISO 8601)."),
    ] = None,
    faster: Annotated[
        list[str] | None,
        typer.Option(help="OPERATOR=2x: estimate the effect of a faster operator; repeatable."),
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Write an HTML page, and print its path.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latency of each operator of a live run, and the critical path of each window.

    The latencies are computed from the statistics that the run recorded, in a stream with the
    setting `statistics_of`. For a replay, the command shows the time of each commit group and the
    throughput of each port. Starts no JVM.

    Examples:

        rewindow latency live_stats

        rewindow latency live_stats --first 1000 --last 2000 --page

        rewindow latency live_stats --faster count=2x

        rewindow latency live_stats --at 2013-01-01T05:00:00Z

        rewindow latency totals-377311-377400-1f2e3d
    """
    config = load_project()
    known = {*config.streams, *sealed_streams(config.state / "streams")}
    has_range = first is not None or last is not None
    if name not in known:
        try:
            times = processing_times(config, name)
        except InputError as error:
            hint = f"{did_you_mean(name, known)}{error.hint}"
            raise InputError(
                error.primary,
                detail=error.detail,
                hint=hint,
            ) from error
        if at or faster or has_range:
            raise InputError(
                "--at, --faster, --first and --last cannot be used for a replay",
                detail=NO_LATENCY,
            )
        _show(
            times,
            _replay,
            as_json,
            partial(
                write_replay_times,
                config,
                times,
            )
            if page
            else None,
        )
        return
    if at and (faster or page or has_range):
        raise InputError(
            "--at cannot be combined with --faster, --page, --first or --last",
            hint="Leave out --at to see the windows of the whole run.",
        )
    if first is not None and last is not None:
        WindowRange(first, last)  # Rejects a range that is reversed.
    found = read_live_statistics(
        config,
        name,
        first,
        last,
    )
    if at:
        moment_ms = parse_time(at) // 1000
        view = room.live(
            found.rows,
            found.graph,
            moment_ms,
            config.latency,
        )
        _show({"stream": name, **view}, _live, as_json)
        return
    recorded = room.ended(
        found.rows,
        found.graph,
        config.latency,
        first,
        last,
    )
    factors = room.parse_faster(faster or [])
    changed = room.what_if(recorded, factors).summary() if factors else None
    report = {
        "stream": name,
        **recorded.summary(),
        "further": found.further,
        "question": ", ".join(faster or []),
        "faster": changed,
    }
    draw = (
        partial(
            write_latency_page,
            config,
            report,
            recorded,
        )
        if page
        else None
    )
    _show(report, _ended, as_json, draw)


def _show(
    found: Mapping[str, Any],
    print_words: Callable[[Mapping[str, Any]], None],
    as_json: bool,
    draw: Callable[[], Location] | None = None,
) -> None:
    if draw is not None:
        path = str(draw())
        if as_json:
            print_json({"page": path})
        else:
            out.print(escape(path), soft_wrap=True)
    elif as_json:
        print_json(found)
    else:
        print_words(found)


def _replay(found: Mapping[str, Any]) -> None:
    out.print(f"[bold]{escape(found['replay'])}[/bold]: {escape(found['application'])}")
    out.print(NO_LATENCY)
    groups = found["groups"]
    steps = "container attempt first last compute_seconds commit_seconds"
    _table("commit groups", groups[-_SHOWN:], steps)
    if len(groups) > _SHOWN:
        out.print(f"shown are the last {_SHOWN} of {len(groups):,}; --json prints all")
    _table(
        "ports", found["ports"] + found["totals"], "container direction port tuples tuplesPerSecond"
    )


def _ended(found: Mapping[str, Any]) -> None:
    windows = f"windows [{found['first']}, {found['last']}]"
    out.print(f"[bold]{escape(found['stream'])}[/bold]: {windows}")
    _facts(found)
    figures = "operator latencyMA median p95 max onCriticalPath"
    _table("operators, ms", found["operators"], figures)
    _table(
        "critical paths",
        found["paths"][:_SHOWN],
        "windows criticalPath",
    )
    if found["faster"]:
        out.print(f"\n[bold]with {escape(found['question'])}[/bold]")
        _facts(found["faster"])


def _table(title: str, rows: Sequence[Mapping[str, Any]], keys: str) -> None:
    """Prints the values of some keys of each row."""
    columns = keys.split()
    body = []
    for row in rows:
        cells = []
        for key in columns:
            value = row[key]
            if isinstance(value, list):
                value = " > ".join(value)
            elif isinstance(value, float):
                value = round(value, 1)
            elif key in _IDS and value is not None:
                value = str(value)
            cells.append(value)
        body.append(cells)
    print_rows(
        f"\n{title}",
        [_HEADINGS.get(key, key) for key in columns],
        body,
    )


def _facts(found: Mapping[str, Any]) -> None:
    total = found["application"]
    print_facts(
        {
            "latency": f"{total['mean']:,.1f} ms on average, {total['median']:,.1f} median, "
            f"{total['p95']:,} 95th percentile, {total['max']:,} maximum",
            f"window {found['window']}": _path(found),
            "longest path": f"{found['longestLatency']:,} ms, an upper bound: "
            + " > ".join(found["longestPath"]),
            "incomplete": f"{found['incompleteWindows']:,} windows, {found['cutWindows']:,} cut",
            "negative": f"{found['negativeDifferences']:,} differences were negative and count as "
            "0",
            **_faults(found),
        }
    )


def _path(found: Mapping[str, Any]) -> str:
    words = f"{found['latency']:,} ms: {' > '.join(found['criticalPath'])}"
    for mark in ("cut", "incomplete"):
        words += f", {mark}" if found[mark] else ""
    return words


def _faults(found: Mapping[str, Any]) -> dict[str, str]:
    words = {}
    for fault in found["clockFaults"]:
        words[f"clock of {fault['container']}"] = (
            f"corrected by up to {fault['worst_ms']:,} ms in {fault['heartbeats']:,} heartbeats: "
            "it cannot be right"
        )
    return words


def _live(view: Mapping[str, Any]) -> None:
    out.print(f"[bold]{escape(view['stream'])}[/bold] at {view['at']}")
    print_facts({"latency": _path(view), **_faults(view)})
    _table(
        "operators, ms",
        view["operators"],
        "operator window latency latencyMA origin slowestUpstream",
    )
