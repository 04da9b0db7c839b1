"""`rewindow latency`: where the time of a live run went, from its recorded statistics; or the times
of a replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.markup import escape

from rewindow import latency as room
from rewindow.commands.completion import replays, streams
from rewindow.commands.project import load_project
from rewindow.commands.screen import AsJson, First, Last, out, print_facts, print_json, print_rows
from rewindow.errors import InputError
from rewindow.inspection.live_statistics import LiveStatistics, read_live_statistics
from rewindow.inspection.processing_times import NO_LATENCY, ReplayTimes, processing_times
from rewindow.settings.config import Config
from rewindow.storage.streams import sealed_streams
from rewindow.windows import parse_time

_SHOWN = 20


def _names(incomplete: str) -> list[str]:
    return [*streams(incomplete), *replays(incomplete)]


def latency(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STREAM|REPLAY",
            help="A stream with the statistics of a live run, or the id of a replay.",
            autocompletion=_names,
        ),
    ],
    first: First = None,
    last: Last = None,
    at: Annotated[
        str | None,
        typer.Option(help="What was known at this time, ISO 8601: the live view."),
    ] = None,
    faster: Annotated[
        list[str] | None,
        typer.Option(help="OPERATOR=2x: if the operator were twice as fast; may be repeated."),
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Draw a page, and print its path.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latency of each operator of a live run, and the critical path of each window.

    The latencies are computed from the statistics that the run recorded, in a stream with the
    setting `statistics_of`. Of a replay, the time of each commit group and the throughput of each
    port are shown. Starts no JVM.

    Examples:

        rewindow latency live_stats

        rewindow latency live_stats --first 1000 --last 2000 --page

        rewindow latency live_stats --faster count=2x

        rewindow latency live_stats --at 2013-01-01T05:00:00Z

        rewindow latency totals-377311-377400-1f2e3d
    """
    config = load_project()
    if name not in {*config.streams, *sealed_streams(config.state / "streams")}:
        if at or faster or first is not None or last is not None:
            raise InputError(
                "a replay is shown as a whole: --at, --faster, --first and --last are for streams",
                detail=NO_LATENCY,
            )
        _replay(config, processing_times(config, name), page, as_json)
    elif at is None:
        found = read_live_statistics(config, name, first, last)
        recorded = room.ended(found.rows, found.graph, config.latency, first, last)
        _ended(config, found, recorded, faster or [], page, as_json)
    else:
        if faster or page or first is not None or last is not None:
            raise InputError(
                "--at cannot be combined with --faster, --page, --first or --last",
                hint="Leave out --at for the windows of the whole run.",
            )
        moment_ms = parse_time(at) // 1000
        found = read_live_statistics(config, name)
        view = room.live(found.rows, found.graph, moment_ms, config.latency).summary()
        _live(name, view, as_json)


def _replay(config: Config, found: ReplayTimes, page: bool, as_json: bool) -> None:
    if page:
        from rewindow.pages.latency_page import write_replay_times

        _print_path(str(write_replay_times(config, found)), as_json)
    elif as_json:
        print_json(found.to_dict())
    else:
        out.print(f"[bold]{escape(found.replay_id)}[/bold]: {escape(found.application)}")
        out.print(f"{NO_LATENCY}\n")
        groups = []
        for group in found.groups:
            times = (group.compute_seconds, group.commit_seconds)
            groups.append((group.container, group.attempt, str(group.windows), *times))
        columns = ("container", "attempt", "windows", "computing s", "commits s")
        print_rows("commit groups", columns, groups[-_SHOWN:])
        if len(groups) > _SHOWN:
            out.print(f"the last {_SHOWN} of {len(groups):,}; --json has all")
        columns = ("container", "", "port", "tuples", "tuples/s")
        ports = []
        for port in [*found.ports, *found.totals]:
            rate = "" if port.per_second is None else f"{port.per_second:,.0f}"
            name = port.port or "all"
            ports.append((port.container, port.direction, name, port.tuples, rate))
        print_rows("\nports", columns, ports)


def _ended(
    config: Config,
    found: LiveStatistics,
    recorded: room.EndedLatency,
    faster: Sequence[str],
    page: bool,
    as_json: bool,
) -> None:
    factors = room.parse_faster(faster)
    changed = room.what_if(recorded, factors) if factors else None
    if page:
        from rewindow.pages.latency_page import write_latency_page

        path = write_latency_page(config, found, recorded, changed, ", ".join(faster))
        _print_path(str(path), as_json)
        return
    summary = recorded.summary()
    other = changed.summary() if changed else None
    if as_json:
        further = list(map(vars, found.further))
        print_json({"stream": found.stream, **summary, "further": further, "faster": other})
        return
    out.print(
        f"[bold]{escape(found.stream)}[/bold]: windows [{summary['first']}, {summary['last']}]"
    )
    _facts(summary)
    rows = []
    for row in summary["operators"]:
        share = f"{row['onCriticalPath'] / summary['windows']:.0%}"
        values = [row[key] for key in ("operator", "latencyMA", "median", "p95", "max")]
        unknown = row["origins"]["unknown"] + row["origins"]["own_end_missing"]
        rows.append((*values, unknown, share))
    columns = ("operator", "average", "median", "95 %", "most", "unknown", "on critical path")
    print_rows("\noperators, ms", columns, rows)
    paths = []
    for row in summary["paths"][:_SHOWN]:
        paths.append((row["windows"], " > ".join(row["criticalPath"])))
    print_rows("\ncritical paths", ("windows", "path"), paths)
    if other:
        out.print(f"\n[bold]with {escape(', '.join(faster))}[/bold]")
        _facts(other)


def _facts(summary: Mapping[str, Any]) -> None:
    application = summary["application"]
    print_facts(
        {
            "latency": f"{application['mean']:,.1f} ms on average, {application['median']:,.1f} "
            f"median, {application['p95']:,} in 95 %, {application['max']:,} at most",
            f"window {summary['window']}": _path(summary),
            "longest path": f"{summary['longestLatency']:,} ms, an upper bound: "
            + " > ".join(summary["longestPath"]),
            "incomplete": f"{summary['incompleteWindows']:,} windows, {summary['cutWindows']:,} "
            "cut",
            "negative": f"{summary['negativeDifferences']:,} differences count as 0",
            **_faults(summary),
        }
    )


def _path(summary: Mapping[str, Any]) -> str:
    marks = [word for word in ("cut", "incomplete") if summary[word]]
    words = f" ({', '.join(marks)})" if marks else ""
    return f"{summary['latency']:,} ms: {' > '.join(summary['criticalPath'])}{words}"


def _faults(summary: Mapping[str, Any]) -> dict[str, str]:
    words = {}
    for fault in summary["clockFaults"]:
        words[f"clock of {fault['container']}"] = (
            f"corrected by up to {fault['worst_ms']:,} ms in {fault['heartbeats']:,} heartbeats: "
            "it cannot be right"
        )
    return words


def _live(stream: str, view: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({"stream": stream, **view})
        return
    out.print(f"[bold]{escape(stream)}[/bold] at {view['at']}")
    print_facts({"latency": _path(view), **_faults(view)})
    rows = []
    for row in view["operators"]:
        window = "" if row["window"] is None else str(row["window"])
        values = [row[key] for key in ("latency", "latencyMA", "origin", "slowestUpstream")]
        rows.append((row["operator"], window, *values))
    columns = ("operator", "window", "latency", "average", "origin", "slowest upstream")
    print_rows("\noperators, ms", columns, rows)


def _print_path(path: str, as_json: bool) -> None:
    if as_json:
        print_json({"page": path})
    else:
        out.print(escape(path), soft_wrap=True)
