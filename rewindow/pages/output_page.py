"""The page of one output: verdict, the range as a strip, checks in words with their windows, Data Docs' sections."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from html import escape

import nh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rewindow.pages.style import CSS, DOCS_CSS, html_page, tag
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
"""What Data Docs' sections are made of. The library does not escape descriptions and values, which come from data."""
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
OK, EMPTY, WARN, BAD = 0, 1, 2, 3
_CLASSES = ("s-ok", "s-none", "s-warn", "s-bad")


def output_page(plan: Plan, verdict: OutputVerdict, checked_at: datetime) -> str:
    """Returns the page of an output, readable without a network."""
    report = verdict.table
    title = f"{plan.application}.{verdict.output}: {verdict.verdict}"
    levels = window_levels(plan.range, verdict, report)
    body = "\n".join(
        [
            _head(plan, verdict, checked_at),
            _facts(plan, verdict, report),
            _strip(plan, levels),
            _checks(plan, verdict),
            _windows(plan, report, levels),
            _docs(verdict.sections),
        ]
    )
    return html_page(title, body, CSS + DOCS_CSS)


def window_levels(windows: WindowRange, verdict: OutputVerdict, report: pa.Table) -> npt.NDArray[np.int64]:
    """Returns per window how it stands: OK, EMPTY (no output), WARN or BAD."""
    levels = np.where(report["output_rows"].to_numpy() > 0, OK, EMPTY)
    for checks, level in ((verdict.warnings, WARN), (verdict.failed, BAD)):
        for part in (part for check in checks for part in check.failing):
            levels[part.first - windows.first : part.last - windows.first + 1] = level
    return levels


def _head(plan: Plan, verdict: OutputVerdict, checked_at: datetime) -> str:
    grid = plan.grid
    span = f"{format_time(grid.start_us(plan.first))} to {format_time(grid.end_us(plan.last))}"
    width, mode = format_duration(grid.width_us), plan.mode.words
    return f"""<p class="soft"><a href="../../index.html">All checks</a></p>
<h1>{escape(plan.application)}.{escape(verdict.output)} {tag(verdict.verdict, verdict.verdict)}</h1>
<p class="soft">Replay <code>{escape(plan.replay_id)}</code>, {escape(mode)}.
Windows {plan.first} to {plan.last} of {width}, {span}.
Suite <code>{escape(verdict.suite)}</code>, checked at {format_minute(checked_at)}.
The report of all windows: <a href="{escape(verdict.report.name)}">{escape(verdict.report.name)}</a>.</p>"""


def _facts(plan: Plan, verdict: OutputVerdict, report: pa.Table) -> str:
    total = {
        name: pc.sum(report[name]).as_py()
        for name in ("output_rows", "tuples_in", "lost", "repeated", "heartbeats", "late")
    }
    passed = sum(check.status == "passed" for check in verdict.checks)
    entries = [
        (f"{verdict.windows:,}", "windows"),
        (f"{total['tuples_in']:,}", "tuples in"),
        (f"{total['output_rows']:,}", "tuples out"),
        (f"{passed} of {len(verdict.checks)}", "checks passed"),
        (f"{total['lost']:,}", "windows lost"),
        (f"{total['repeated']:,}", "tuples repeated"),
        (f"{total['heartbeats']:,}", "heartbeats"),
        (f"{total['late']:,}", "late tuples"),
    ]
    return (
        '<div class="facts">'
        + "".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in entries)
        + "</div>"
    )


def _strip(plan: Plan, levels: npt.NDArray[np.int64]) -> str:
    """Returns the range as a strip; where windows share a stripe, the worst one shows."""
    stripes = np.array_split(levels, min(STRIP_MAX, len(levels)))
    worst = [int(stripe.max()) if stripe.max() >= WARN else int(stripe.min()) for stripe in stripes]
    edges = np.concatenate([[0], np.cumsum([len(stripe) for stripe in stripes])])
    bars, start = [], 0
    for position in range(1, len(worst) + 1):
        if position == len(worst) or worst[position] != worst[start]:
            title = f"windows {plan.first + edges[start]} to {plan.first + edges[position] - 1}"
            place = f'x="{start}" width="{position - start}" height="34" class="{_CLASSES[worst[start]]}"'
            bars.append(f"<rect {place}><title>{title}</title></rect>")
            start = position
    key = "".join(
        f'<span><i style="background:var(--{colour})"></i>{word}</span>'
        for colour, word in (
            ("ok", "nothing wrong"),
            ("none", "no output"),
            ("warn", "warning"),
            ("bad", "stops publication"),
        )
    )
    shape = f'viewBox="0 0 {len(worst)} 34" preserveAspectRatio="none" role="img" aria-label="windows of the range"'
    return f'<svg class="strip" {shape}>{"".join(bars)}</svg><div class="key">{key}</div>'


def _checks(plan: Plan, verdict: OutputVerdict) -> str:
    order = sorted(
        verdict.checks, key=lambda check: (not check.blocks, check.status != "failed", check.status == "passed")
    )
    rows = "".join(_check_row(plan, check) for check in order)
    head = "<tr><th>Outcome</th><th>What should hold</th><th>Windows</th><th>Seen</th></tr>"
    return f'<h2>Checks</h2><div class="scroll"><table>{head}{rows}</table></div>'


def _check_row(plan: Plan, check: CheckOutcome) -> str:
    if check.status == "not_run":
        outcome = tag("not run", "failed")
    elif check.status == "failed":
        outcome = _failed(check)
    else:
        outcome = tag("passed", "passed") if check.status == "passed" else tag("nothing to check", "nothing")
    windows = ""
    if check.failing:
        since = format_minute(to_datetime(plan.grid.start_us(check.failing[0].first)))
        windows = f'{escape(name_windows(check))}<br><span class="soft line">from {since}</span>'
    seen = escape(check.observed) if check.status != "passed" or not check.column else ""
    note = f'<br><span class="soft">{escape(check.note)}</span>' if check.note else ""
    what = f'{escape(check.description)}<br><span class="soft mono">{escape(check.check)}</span>{note}'
    return f'<tr><td>{outcome}</td><td>{what}</td><td class="mono">{windows}</td><td class="mono">{seen}</td></tr>'


def _failed(check: CheckOutcome) -> str:
    if check.blocks:
        return tag("failed", "failed")
    return tag(check.severity, "warning" if check.severity == "warning" else "nothing")


def _windows(plan: Plan, report: pa.Table, levels: npt.NDArray[np.int64]) -> str:
    """Returns the windows that need a look: those of a failed check and those with a loss or a repeat."""
    wanted = levels >= WARN
    for name in _NOTEWORTHY:
        wanted |= report[name].to_numpy() != 0
    count = int(wanted.sum())
    if not count:
        return "<h2>Windows that need a look</h2><p>None.</p>"
    rows = report.select(_SHOWN).filter(pa.array(wanted)).slice(0, ROWS_MAX).to_pylist()
    head = "".join(f'<th class="num">{name.replace("_", " ")}</th>' for name in _SHOWN)
    lines = "".join(
        "<tr>" + "".join(f'<td class="num line">{_cell(row[name])}</td>' for name in _SHOWN) + "</tr>" for row in rows
    )
    more = f'<p class="soft">The first {ROWS_MAX} of {count:,}; the rest is in the CSV.</p>' if count > ROWS_MAX else ""
    return f'<h2>Windows that need a look</h2><div class="scroll"><table><tr>{head}</tr>{lines}</table></div>{more}'


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return format_minute(value)
    return f'<span class="soft">{value}</span>' if value == 0 else str(value)


def _docs(sections: Iterable[str]) -> str:
    html = nh3.clean("\n".join(sections), tags=_TAGS, attributes=_ATTRIBUTES)
    return f'<details class="docs"><summary>Data Docs: every expectation with its values</summary>{html}</details>'


def format_minute(moment: datetime) -> str:
    """Returns a UTC time to the minute, as pages show it."""
    return moment.strftime("%Y-%m-%d %H:%M") + "Z"
