"""Renders a page from values.

It is one self-contained HTML file that can be read without scripts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rewindow.pages.application_graph import draw_graph
from rewindow.pages.calendar import draw_calendar
from rewindow.pages.drawing import draw
from rewindow.pages.replay_report import Page, PublicationEvent, ReplayReport
from rewindow.pages.timeline import clock_seconds, draw_strips, draw_timeline, phases

STATUS_WORDS = {
    "passed": "passed",
    "warning": "warns",
    "failed": "failed",
    "not_run": "not run",
    "nothing_to_check": "nothing to check",
}
CLASSES = ("equal", "changed", "affected", "repeated", "lost")
FIGURES = (
    ("windows", "windows", "accounted for: sealed, or listed as lost"),
    ("tuples", "tuples out", "rows that readers see, all outputs"),
    ("redone", "redone", "windows computed again although partly committed"),
    ("lost", "lost", "windows given up in an output"),
    ("lost_tuples", "tuples lost", "input tuples that were not processed"),
    ("repeated", "repeated", "windows staged by two attempts"),
    ("repeated_tuples", "tuples repeated", "staged rows that readers never see"),
    ("affected", "affected", "windows computed from a state that lacks lost windows or is stale"),
)


def render_page(page: Page) -> str:
    """Returns the page as HTML."""
    shown_seconds = clock_seconds(page.stories)
    return draw(
        "page.html",
        page=page,
        live=page.live,
        range_words=page.grid.times(page.windows),
        calendar=draw_calendar(page.grid, page.windows, page.layers) if page.layers else None,
        recoveries=[
            (report, draw_timeline(report, shown_seconds), draw_strips(report))
            for report in page.stories
        ],
        phases=[(report, phases(report)) for report in page.stories],
        phase_seconds=shown_seconds,
        chapter_seconds=sum(chapter.seconds for chapter in page.chapters) or 1.0,
        figures=FIGURES,
        checks=_checks(page.stories),
        status_words=STATUS_WORDS,
        classes=CLASSES,
        acts=_acts(page.acts),
        graph=draw_graph(page.graph, alone=False) if page.graph else "",
    )


def _checks(stories: Iterable[ReplayReport]) -> list[dict[str, Any]]:
    """Returns the checks of each output, with the result of each check in each replay.

    `quiet` lists the checks that passed in all replays.
    """
    judged = list(stories)
    groups: dict[str, dict[str, Any]] = {}
    # First the outputs in the order of the plans, then those that only a gate has.
    for report in judged:
        for name in report.outputs:
            groups.setdefault(name, {})
    for index, report in enumerate(judged):
        for finding in report.gate.findings if report.gate else ():
            empty = {
                "description": finding.description,
                "cells": [None] * len(judged),
                "quiet": True,
            }
            row = groups.setdefault(finding.output, {}).setdefault(finding.check, empty)
            row["cells"][index] = finding
            row["quiet"] = row["quiet"] and finding.status in ("passed", "nothing_to_check")
    return [
        {
            "output": name,
            "rows": list(rows.values()),
            "quiet": sum(row["quiet"] for row in rows.values()),
        }
        for name, rows in groups.items()
        if rows
    ]


def _acts(acts: Iterable[PublicationEvent]) -> list[dict[str, Any]]:
    """Returns publications and whether each was undone or covered by a later one."""
    listed = list(acts)
    # An undo also undoes all earlier publications of the same replay.
    undone = set()
    for undo in listed:
        if undo.kind != "undo":
            continue
        for act in listed:
            if undo.replay_id == act.replay_id and (undo.undoes or 0) >= act.number:
                undone.add(act.number)
    found: list[dict[str, Any]] = []
    # From the newest to the oldest, so that the publications that can cover an action are known.
    standing: list[PublicationEvent] = []
    for act in reversed(listed):
        state = ""
        if act.number in undone:
            state = "undone"
        elif act.kind == "publish":
            is_covered = any(
                later.windows.overlap(act.windows) == act.windows for later in standing
            )
            state = "replaced" if is_covered else "stands"
            standing.append(act)
        found.append({"act": act, "state": state})
    return found[::-1]
