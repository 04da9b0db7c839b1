"""Event time in the same year: late flights, and gaps of the weather stations filled in two
ways.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from rewindow.demo.console import DemoConsole
from rewindow.inspection.filled import RECORDED, filled_stream
from rewindow.operators.heartbeat.function import IS_TIMER
from rewindow.settings.config import FILLED, HEARTBEAT, Config
from rewindow.storage import Table, in_windows, query
from rewindow.windows import WindowRange

LATENESS = "flight_lateness"
WEATHER = "weather"
APPLICATIONS = (LATENESS, f"{HEARTBEAT}{WEATHER}", f"{FILLED}{WEATHER}")


def show_event_time(
    config: Config,
    demo_console: DemoConsole,
    windows: WindowRange,
) -> tuple[tuple[str, str], ...]:
    """Replays and publishes the applications about event time, prints results, and returns pages
    with their titles and paths.

    Raises:
        RewindowError: a command failed.
    """
    for application in APPLICATIONS:
        given = ("--last", str(windows.last), "--json")
        replay = json.loads(demo_console.run("replay", application, *given))["replay"]
        demo_console.run("check", replay, "--json")
        demo_console.run("publish", replay, "--json")
        lines = {LATENESS: late_flights, APPLICATIONS[1]: timers, APPLICATIONS[2]: made_values}[
            application
        ]
        for line in lines(config, windows):
            demo_console.say(line, style="green")
    pages = (
        ("time of the flights", "flights"),
        ("time of the weather, with its filled gaps", WEATHER),
    )
    return tuple(
        (words, demo_console.run("gaps", stream, "--page").strip()) for words, stream in pages
    )


def late_flights(config: Config, windows: WindowRange) -> list[str]:
    """Returns a line for each airport, with its late flights and the hour of the day with the
    largest share of them.
    """
    sql = f"""
    select origin, window_id % 24 as hour, sum(tuples) as flights,
           sum(case when outcome = 'late' then tuples else 0 end) as late
    from l where {in_windows(windows)} group by origin, window_id % 24"""
    rows = query(sql, l=Table.open(config.stream_table(f"{LATENESS}.lateness"))).to_pylist()
    lines = []
    for origin in sorted({row["origin"] for row in rows}):
        of_origin = [row for row in rows if row["origin"] == origin]
        late = sum(row["late"] for row in of_origin)
        flights = sum(row["flights"] for row in of_origin)
        # Hours with few flights could have the largest share by chance.
        busy = [row for row in of_origin if row["flights"] * 100 >= flights]
        worst = max(busy, key=lambda row: (row["late"] / row["flights"], row["hour"]))
        lines.append(
            f"{origin}: {late:,} of {flights:,} departures late for a report half an hour after "
            f"the scheduled time, {late / flights:.1%}; most from {worst['hour']:02}:00 UTC, "
            f"{worst['late'] / worst['flights']:.1%}"
        )
    return lines


def timers(config: Config, windows: WindowRange) -> list[str]:
    """Returns a line about the timers in gaps of the weather data."""
    sql = f"select count(*) as n from h where {IS_TIMER} and {in_windows(windows)}"
    ticks = Table.open(config.stream_table(f"{HEARTBEAT}{WEATHER}.ticks"))
    count = query(sql, h=ticks)["n"][0].as_py()
    return [
        f"filled with heartbeats: {count:,} timers, which show that time has passed and have no "
        "values"
    ]


def made_values(config: Config, windows: WindowRange) -> list[str]:
    """Returns a line for each filled column of the weather data, with the number of recorded values
    and of filled values by method.
    """
    filled = filled_stream(config, WEATHER, windows)
    if filled is None:
        return []
    by_column: dict[str, Counter[str]] = {}
    for (column, method), count in filled.counts.items():
        by_column.setdefault(column, Counter())[method] += count
    return [
        f"filled with values, {column}: {counts.pop(RECORDED, 0):,} recorded, "
        f"{_methods(list(counts.items()))}"
        for column, counts in by_column.items()
    ]


def _methods(counts: Sequence[tuple[str, int]]) -> str:
    words = {
        "none": "without a value, because their gap is too long",
        "expired": "without a value, because they are too far from a report",
    }
    return (
        ", ".join(f"{count:,} {words.get(method, method)}" for method, count in counts)
        or "none made"
    )
