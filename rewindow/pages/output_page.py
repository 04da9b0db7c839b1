"""The page of one output: its verdict, the range as a strip, descriptions of checks with their
windows, and sections of Data Docs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import nh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.pages.drawing import draw
from rewindow.quality.outcome import CheckOutcome, OutputVerdict, name_windows
from rewindow.recovery import Plan
from rewindow.windows import WindowRange, format_duration, format_time, to_datetime

STRIP_MAX = 560
ROWS_MAX = 200
_TAGS = {
    *(
        "a",
        "b",
        "br",
        "code",
        "div",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "i",
        "li",
        "ol",
        "p",
        "pre",
        "span",
    ),
    *("strong", "table", "tbody", "td", "th", "thead", "tr", "u", "ul"),
}
_ATTRIBUTES = {"*": {"class", "id", "colspan", "rowspan", "data-toggle"}}
"""Allowed elements of Data Docs' sections. Great Expectations does not escape descriptions and
values, which come from data.
"""
_NOTEWORTHY = (
    "unaccounted_tuples",
    "lost",
    "undeclared_lost",
    "repeated",
    "repeated_keys",
    "null_keys",
    "missing_inputs",
)
_SHOWN = (
    "window_id",
    "starts_at",
    "output_rows",
    "sealed_rows",
    "tuples_in",
    *_NOTEWORTHY,
    "heartbeats",
    "late",
    "gaps",
    "attempts",
)
OK = 0
EMPTY = 1
WARN = 2
BAD = 3
_KEY = (
    ("s-ok", "nothing wrong"),
    ("s-none", "no output"),
    ("s-warn", "warning"),
    ("s-bad", "stops publication"),
)


def output_page(plan: Plan, verdict: OutputVerdict, checked_at: datetime) -> str:
    """Returns the page of an output. It can be read offline."""
    report = verdict.table
    grid = plan.grid
    levels = window_levels(plan.range, verdict, report)
    rows, count = _noteworthy(report, levels)
    return draw(
        "output.html",
        title=f"{plan.application}.{verdict.output}: {verdict.verdict}",
        plan=plan,
        verdict=verdict,
        checked_at=checked_at,
        width=format_duration(grid.width_us),
        begins=format_time(grid.start_us(plan.first)),
        ends=format_time(grid.end_us(plan.last)),
        facts=_facts(verdict, report),
        stripes=min(STRIP_MAX, len(levels)),
        bars=_bars(plan.first, levels),
        key=_KEY,
        checks=_checks(plan, verdict),
        name_windows=name_windows,
        rows=rows,
        count=count,
        sections=nh3.clean("\n".join(verdict.sections), tags=_TAGS, attributes=_ATTRIBUTES),
    )


def window_levels(
    windows: WindowRange,
    verdict: OutputVerdict,
    report: pa.Table,
) -> npt.NDArray[np.int64]:
    """Returns the level of each window: OK, EMPTY (no output), WARN or BAD."""
    levels = np.where(report["output_rows"].to_numpy() > 0, OK, EMPTY)
    # Failures are written after warnings, so that they win if a window has both.
    for checks, level in ((verdict.warnings, WARN), (verdict.failed, BAD)):
        for check in checks:
            for part in check.failing:
                levels[part.first - windows.first : part.last - windows.first + 1] = level
    return levels


def _facts(verdict: OutputVerdict, report: pa.Table) -> list[tuple[str, str]]:
    def total(name: str) -> str:
        return f"{pc.sum(report[name]).as_py():,}"

    passed = sum(check.status == "passed" for check in verdict.checks)
    return [
        (f"{verdict.windows:,}", "windows"),
        (total("tuples_in"), "tuples in"),
        (total("output_rows"), "tuples out"),
        (f"{passed} of {len(verdict.checks)}", "checks passed"),
        (total("lost"), "windows lost"),
        (total("repeated"), "tuples repeated"),
        (total("heartbeats"), "heartbeats"),
        (total("late"), "late tuples"),
    ]


def _bars(first: int, levels: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """Returns the range as a strip of bars.

    If several windows share a bar, the worst one is shown.
    """
    stripes = np.array_split(levels, min(STRIP_MAX, len(levels)))
    worst = [int(stripe.max()) if stripe.max() >= WARN else int(stripe.min()) for stripe in stripes]
    edges = np.concatenate([[0], np.cumsum(list(map(len, stripes)))])
    bars = []
    start = 0
    for position in range(1, len(worst) + 1):
        if position == len(worst) or worst[position] != worst[start]:
            bars.append(
                {
                    "x": start,
                    "width": position - start,
                    "kind": _KEY[worst[start]][0],
                    "first": first + edges[start],
                    "last": first + edges[position] - 1,
                }
            )
            start = position
    return bars


def _checks(
    plan: Plan,
    verdict: OutputVerdict,
) -> list[tuple[CheckOutcome, tuple[str, str], datetime | None]]:
    """Returns the checks, the worst first.

    Each has its outcome as a word and a kind, and the time of its first failure.
    """
    order = sorted(
        verdict.checks,
        key=lambda check: (not check.blocks, check.status != "failed", check.status == "passed"),
    )
    return [
        (
            check,
            _outcome(check),
            to_datetime(plan.grid.start_us(check.failing[0].first)) if check.failing else None,
        )
        for check in order
    ]


def _outcome(check: CheckOutcome) -> tuple[str, str]:
    if check.status == "failed" and not check.blocks:
        return check.severity, "warning" if check.severity == "warning" else "nothing"
    return {
        "passed": ("passed", "passed"),
        "failed": ("failed", "failed"),
        "not_run": ("not run", "failed"),
        "nothing_to_check": ("nothing to check", "nothing"),
    }[check.status]


def _noteworthy(
    report: pa.Table,
    levels: npt.NDArray[np.int64],
) -> tuple[list[dict[str, Any]], int]:
    """Returns the first windows that have a failed check, a loss or a repeat, and the number of all
    such windows.
    """
    wanted = levels >= WARN
    for name in _NOTEWORTHY:
        wanted |= report[name].to_numpy() != 0
    return report.select(_SHOWN).filter(pa.array(wanted)).slice(0, ROWS_MAX).to_pylist(), int(
        wanted.sum()
    )
