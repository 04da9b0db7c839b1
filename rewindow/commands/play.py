"""`rewindow play`: sends a recorded stream again, at its recorded pace or another."""

from __future__ import annotations

import json
import signal
from typing import Annotated

import typer
from rich.markup import escape

from rewindow.commands.completion import streams
from rewindow.commands.project import load_project
from rewindow.commands.screen import First, From, JobScreen, Last, To, err
from rewindow.errors import InputError
from rewindow.playback import PlaybackReport, PlaybackStopped, on_port, to_stdout
from rewindow.playback import play as send
from rewindow.sequences import quantity
from rewindow.windows import describe_seconds

_FASTEST = "max"
_PIPE_CLOSED = 128 + signal.SIGPIPE
"""Exit code of a program that writes into a closed pipe."""


def play(
    stream: Annotated[
        str, typer.Argument(help="Name of a recorded or published stream.", autocompletion=streams)
    ],
    speed: Annotated[
        str,
        typer.Option(
            help="Speed relative to the recording, such as 60; or max, as fast as possible."
        ),
    ] = "1",
    port: Annotated[
        int | None,
        typer.Option(
            help="Send to a reader that connects to this port of 127.0.0.1, instead of standard "
            "output; 0 selects a free port."
        ),
    ] = None,
    from_time: From = None,
    to_time: To = None,
    first: First = None,
    last: Last = None,
    report: Annotated[
        typer.FileTextWrite | None,
        typer.Option(
            metavar="FILE",
            help="Write a report to this file, as JSON: the number of "
            "tuples sent, and their delays.",
        ),
    ] = None,
) -> None:
    """Send a recorded stream again as JSON lines, each tuple when it is due. Starts no JVM.

    A tuple is due as long after the first tuple as it was recorded; at speed 60, an hour takes a
    minute. This also applies to the timers of a published heartbeat_STREAM.ticks, which are
    ordinary tuples.

    Each line is a JSON object with window_id, offset, arrived_at and the event columns. Timestamps
    are ISO 8601 in UTC, always with microseconds, so that they sort as text. Decimals are texts
    with all digits.

    A port serves one reader, and the command ends when the stream ends. To continue after an
    interruption, use --from, or --first as shown in the error message: the interrupted window is
    sent again.

    At the end, the command prints the number of tuples sent and their delays to standard error. The
    report is written after ctrl-C too. If the reader of standard output closes it, as head does,
    the command exits with code 141 and prints nothing.

    Examples:

        rewindow play weather --from 2013-12-01 --to 2013-12-02 --speed 3600

        rewindow play flights --speed max > flights.jsonl

        rewindow play flights --speed 60 --port 9999
    """
    config = load_project()
    pace = None if speed == _FASTEST else _number(speed)
    try:
        with to_stdout() if port is None else on_port(port) as target:
            found = send(
                config,
                stream,
                target,
                speed=pace,
                first=first,
                last=last,
                from_time=from_time,
                to_time=to_time,
                listener=JobScreen(),
            )
    except PlaybackStopped as stopped:
        _write(report, stopped.report)
        if stopped.by_reader and port is None:
            raise typer.Exit(_PIPE_CLOSED) from None
        raise
    _write(report, found)
    _show(found)


def _write(report: typer.FileTextWrite | None, found: PlaybackReport) -> None:
    if report:
        json.dump(found.to_dict(), report, indent=2)
        report.write("\n")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f'speed "{text}" is not a number',
            hint=f"Use a number greater than 0, or {_FASTEST}.",
        ) from None


def _show(found: PlaybackReport) -> None:
    lasted = describe_seconds(found.recorded_s)
    err.print(
        escape(
            f"{found.stream}: {quantity(found.tuples, 'tuple')} of windows {found.windows} sent, "
            f"{lasted} of arrivals in {describe_seconds(found.seconds)}"
        )
    )
    if found.delay_s and found.tuples:
        median, p99, largest = (
            _milliseconds(found.delay_s[name]) for name in ("median", "p99", "largest")
        )
        err.print(
            f"delay after the due time: median {median}, 99th percentile {p99}, maximum {largest}"
        )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"
