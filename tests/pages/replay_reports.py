"""Values for pages, made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rewindow.pages import replay_report as report
from rewindow.windows import Grid, WindowRange

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
WINDOWS = WindowRange(376_954, 385_709)
GRID = Grid(3_600_000)
SIZE = 1_495


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def group(number: int, ended: float) -> report.Group:
    """Returns a group of six seconds with a checkpoint."""
    first = WINDOWS.first + (number - 1) * SIZE
    windows = WindowRange(first, min(first + SIZE - 1, WINDOWS.last))
    return report.Group(number, windows, at(ended), 5.4, 0.6, True)


def killed(mode: str = "exactly_once", **changes: Any) -> report.ReplayReport:
    """Returns a replay killed in its third group, which went on after 14 seconds and redid it."""
    attempts = (
        report.DrawnAttempt(1, at(0), at(37), "lost", "", (group(1, 18), group(2, 24))),
        report.DrawnAttempt(
            2,
            at(37),
            at(75),
            "done",
            "",
            tuple(group(n, 49 + 6 * (n - 3)) for n in (3, 4, 5, 6)),
        ),
    )
    third = group(3, 0).windows
    kinds = {"exactly_once": "committed", "at_least_once": "repeated", "at_most_once": "lost"}
    parts = (
        report.WindowRun(WindowRange(WINDOWS.first, third.first - 1), "committed", 1),
        report.WindowRun(third, kinds[mode], 0 if mode == "at_most_once" else 2),
        report.WindowRun(
            WindowRange(third.last + 1, WINDOWS.last),
            "affected" if mode == "at_most_once" else "committed",
            2,
        ),
    )
    findings = (
        report.CheckResult(
            "delays",
            "three-airports",
            "Each window has a row for each airport.",
            "passed",
            0,
        ),
        report.CheckResult(
            "ranks",
            "no-loss",
            "No window was given up.",
            "warning",
            SIZE,
            (third,),
        ),
    )
    values: dict[str, Any] = {
        "replay_id": f"made-{mode}",
        "title": mode.replace("_", " ").capitalize(),
        "application": "flight_delays",
        "mode": mode,
        "state": "checked",
        "grid": GRID,
        "windows": WINDOWS,
        "reason": "to see the page",
        "guarantees": {"delays": "a promise", "ranks": "a promise"},
        "attempts": attempts,
        "outputs": {"delays": parts, "ranks": parts},
        "checkpoints": tuple(group(n, 0).windows.last for n in range(1, 7)),
        "counts": report.ReplayCounts(8_756, 191_855, 362_879, redone=SIZE),
        "kills": (report.KillEvent(1, at(35), "after_outputs", 3),),
        "gate": report.Gate("passed", at(80), findings),
        "comparison": report.CertificateSummary(
            "calm",
            f"made-{mode}",
            "equal",
            "0123456789abcdef",
            (report.ComparedOutput("delays", {"equal": 8_756}, {}),),
            False,
            0.12,
        ),
    }
    return report.ReplayReport(**{**values, **changes})


def page(*stories: report.ReplayReport, **changes: Any) -> report.Page:
    hours = [(window - WINDOWS.first) % 24 for window in WINDOWS]
    layers = (
        report.Layer("tuples", "Tuples", "tuples", tuple(float(hour * 3) for hour in hours)),
        report.Layer(
            "delay",
            "Delay",
            "minutes",
            tuple(None if h < 5 else h * 2.5 - 20 for h in hours),
            False,
            "amber",
        ),
        report.Layer(
            "gaps",
            "Gaps",
            "silent",
            tuple(float(hour == 3) for hour in hours),
            hue="plum",
        ),
        report.Layer(
            "heartbeats",
            "Heartbeats",
            "timers",
            tuple(float(hour == 7) for hour in hours),
            hue="green",
        ),
    )
    values: dict[str, Any] = {
        "title": "A page",
        "lead": "What it is about.",
        "grid": GRID,
        "windows": WINDOWS,
        "stories": stories,
        "layers": layers,
        "made_at": at(100),
        "facts": (("8,756", "windows"),),
        "acts": (
            report.PublicationEvent(
                1,
                "publish",
                "made",
                WINDOWS,
                ("flight_delays.delays",),
                None,
                at(90),
                at(92),
            ),
            report.PublicationEvent(
                2,
                "undo",
                "made",
                WINDOWS,
                ("flight_delays.delays",),
                1,
                at(93),
                at(95),
            ),
            report.PublicationEvent(
                3,
                "publish",
                "made",
                WINDOWS,
                ("flight_delays.delays",),
                None,
                at(96),
                at(98),
            ),
        ),
        "chapters": (report.ReportSection("record", 31.0), report.ReportSection("replay", 75.0)),
    }
    return report.Page(**{**values, **changes})
