"""The page over time: for every output its last gate runs, their verdicts, failing windows and pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from rewindow.config import Config
from rewindow.pages.style import CSS, html_page, tag
from rewindow.quality.findings import Run, runs
from rewindow.storage.results import index_page

SHOWN_RUNS = 12
HISTORY_RUNS = 40
_CSS = """
.dots{display:flex;gap:3px;margin:10px 0 12px}.dots a,.dots span{width:12px;height:26px;border-radius:3px;display:block}
.d-passed{background:var(--ok)}.d-failed{background:var(--bad)}.d-warning{background:var(--warn)}
h2 .tag{margin-left:8px;vertical-align:2px}
"""


def write_index(config: Config, *, limit: int = 500, now: datetime | None = None) -> Path:
    """Builds the page from the findings table and returns where it lies; deleted pages are not linked."""
    path = index_page(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(index_html(runs(config, limit), path.parent, now or datetime.now(UTC)))
    return path


def index_html(found: Sequence[Run], folder: Path, now: datetime) -> str:
    """Returns the page for runs, newest first."""
    outputs: dict[tuple[str, str], list[Run]] = {}
    for run in found:
        outputs.setdefault((run.application, run.output), []).append(run)
    order = sorted(outputs.items(), key=lambda entry: (entry[1][0].verdict == "passed", entry[0]))
    failing = sum(entries[0].verdict == "failed" for entries in outputs.values())
    state = "Nothing has been checked yet." if not outputs else _state(len(outputs), failing)
    head = f'<h1>Checks over time</h1><p class="soft">{state} Built {_minute(now)}.</p>'
    return html_page("Checks over time", head + "".join(_output(entries, folder) for _, entries in order), CSS + _CSS)


def _state(outputs: int, failing: int) -> str:
    what = f"{outputs} output{'s' if outputs != 1 else ''}"
    return f"{what}; the newest run of {failing} failed." if failing else f"{what}; the newest run of each passed."


def _output(entries: Sequence[Run], folder: Path) -> str:
    newest = entries[0]
    dots = "".join(_dot(run, folder) for run in reversed(entries[:HISTORY_RUNS]))
    rows = "".join(_row(run, folder) for run in entries[:SHOWN_RUNS])
    titles = ("Checked", "Verdict", "Replay", "Windows", "What failed or warned", "Where")
    head = "<tr>" + "".join(f"<th>{title}</th>" for title in titles) + "</tr>"
    older = len(entries) - SHOWN_RUNS
    more = f'<p class="soft">{older} older runs are in the findings table.</p>' if older > 0 else ""
    name = f"{escape(newest.application)}.{escape(newest.output)}"
    return f"""<h2>{name} {tag(newest.verdict, newest.verdict)}</h2>
<div class="dots">{dots}</div><div class="scroll"><table>{head}{rows}</table></div>{more}"""


def _dot(run: Run, folder: Path) -> str:
    kind = "failed" if run.failed else "warning" if run.warned else "passed"
    title = f"{_minute(run.checked_at)} {run.replay_id}: {run.verdict}"
    link = _link(run, folder)
    inner = f'class="d-{kind}" title="{escape(title)}"'
    return f'<a href="{escape(link)}" {inner}></a>' if link else f"<span {inner}></span>"


def _row(run: Run, folder: Path) -> str:
    link = _link(run, folder)
    replay = f"<code>{escape(run.replay_id)}</code>"
    replay = f'<a href="{escape(link)}">{replay}</a>' if link else replay
    kinds = ((run.failed, "failed"), (run.warned, "warning"), (run.noted, "nothing"))
    wrong = [tag(name, kind) for names, kind in kinds for name in names]
    parts = [str(part.first) if len(part) == 1 else f"{part.first}–{part.last}" for part in run.failing[:3]]
    where = ", ".join(parts) + (" ..." if len(run.failing) > 3 else "")
    what = " ".join(wrong) or f'<span class="soft">{run.checks} checks passed</span>'
    return f"""<tr><td class="line">{_minute(run.checked_at)}</td><td>{tag(run.verdict, run.verdict)}</td>
<td>{replay}<br><span class="soft">{escape(run.mode.replace("_", " "))}</span></td>
<td class="mono line">{run.first}–{run.last}</td><td>{what}</td><td class="mono">{where}</td></tr>"""


def _link(run: Run, folder: Path) -> str:
    return os.path.relpath(run.docs, folder) if Path(run.docs).is_file() else ""


def _minute(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M") + "Z"
