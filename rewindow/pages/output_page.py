"""The page of one output: its verdict, the range as a strip, descriptions of checks with their
windows, and sections of Data Docs.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from rewindow.windows import WindowRange

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
_COUNTS = (
    "output_rows",
    "sealed_rows",
    "tuples_in",
    "unaccounted_tuples",
    "lost",
    "undeclared_lost",
    "repeated",
    "repeated_keys",
    "null_keys",
    "missing_inputs",
    "heartbeats",
    "late",
    "gaps",
    "attempts",
)
"""Columns of the window report that are shown where they are not zero."""
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


def output_page(
    plan: Plan,
    verdict: OutputVerdict,
    checked_at: datetime,
) -> str:
    """Returns the page of an output. It can be read offline."""
    report = verdict.table
    grid = plan.grid
    failing = _failing(plan.range, verdict)
    levels = np.where(
        report["output_rows"].to_numpy() > 0,
        OK,
        EMPTY,
    )
    # Failures are written after warnings, so that they win if a window has both.
    levels[failing.any(axis=0)] = WARN
    levels[failing[: len(verdict.failed)].any(axis=0)] = BAD
    stretches = _stretches(
        plan.first,
        verdict,
        failing,
    )
    return draw(
        "output.html",
        title=f"{plan.application}.{verdict.output}: {verdict.verdict}",
        plan=plan,
        verdict=verdict,
        checked_at=checked_at,
        grid=grid,
        facts=_facts(verdict, report),
        stripes=min(STRIP_MAX, len(levels)),
        bars=_bars(plan.first, levels),
        key=_KEY,
        checks=sorted(
            verdict.checks,
            key=lambda check: (
                not check.blocks,
                check.status != "failed",
                check.status == "passed",
            ),
        ),
        outcome=_outcome,
        name_windows=name_windows,
        stretches=stretches,
        columns=_shown_columns(stretches),
        rows_max=ROWS_MAX,
        sections=nh3.clean(
            "\n".join(verdict.sections),
            tags=_TAGS,
            attributes=_ATTRIBUTES,
        ),
    )


def _failing(windows: WindowRange, verdict: OutputVerdict) -> npt.NDArray[np.bool_]:
    """Returns for each failed check, then for each warning, in which windows it fails."""
    checks = (*verdict.failed, *verdict.warnings)
    failing = np.zeros((len(checks), len(windows)), dtype=bool)
    for row, check in zip(
        failing,
        checks,
        strict=True,
    ):
        for part in check.failing:
            start = part.first - windows.first
            row[start : start + len(part)] = True
    return failing


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
                    "windows": WindowRange(
                        first + int(edges[start]),
                        first + int(edges[position]) - 1,
                    ),
                }
            )
            start = position
    return bars


def _outcome(check: CheckOutcome) -> tuple[str, str]:
    """Returns the outcome of a check as a word, and its kind."""
    if check.status == "failed" and not check.blocks:
        return check.severity, "warning" if check.severity == "warning" else "nothing"
    return {
        "passed": ("passed", "passed"),
        "failed": ("failed", "failed"),
        "not_run": ("not run", "failed"),
        "nothing_to_check": ("nothing to check", "nothing"),
    }[check.status]


def _stretches(
    first: int,
    verdict: OutputVerdict,
    failing: npt.NDArray[np.bool_],
) -> list[dict[str, Any]]:
    """Returns the first stretches of windows in which the same checks fail."""
    checks = (*verdict.failed, *verdict.warnings)
    # A stretch starts wherever the set of failing checks differs from that of the window before.
    differs = failing[:, 1:] != failing[:, :-1]
    changed = np.flatnonzero(differs.any(axis=0)) + 1
    starts = np.concatenate([[0], changed])
    ends = np.concatenate([changed, [failing.shape[1]]])
    listed = failing[:, starts].any(axis=0)
    stretches = []
    spans = np.stack([starts, ends], axis=1)[listed]
    for start, end in spans[:ROWS_MAX].tolist():
        part = verdict.table.slice(start, end - start)
        findings = []
        for index in np.flatnonzero(failing[:, start]).tolist():
            check = checks[index]
            columns = check.column.split(" and ")
            findings.append((check, _extents(part, columns)))
        stretches.append(
            {
                "windows": WindowRange(first + start, first + end - 1),
                "findings": findings,
                "counts": _extents(part, _COUNTS),
            }
        )
    return stretches


def _extents(part: pa.Table, columns: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Returns the smallest and the largest value of each column; None where all are null."""
    extents = {}
    for name in columns:
        if name in part.column_names:
            extent = pc.min_max(part[name]).as_py()
            extents[name] = (extent["min"], extent["max"])
    return extents


def _shown_columns(stretches: Iterable[dict[str, Any]]) -> list[str]:
    """Returns the counts that are not zero in at least one of the shown stretches."""
    shown = []
    for name in _COUNTS:
        extents = {stretch["counts"][name] for stretch in stretches}
        if extents - {(0, 0)}:
            shown.append(name)
    return shown
