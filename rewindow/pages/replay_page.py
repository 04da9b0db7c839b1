"""The page of a replay with its windows.

It is rendered as HTML, or written to `config.results/pages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rewindow.errors import TableError
from rewindow.inspection.error_tuples import count_errors
from rewindow.inspection.failures import all_attempts, first_cause
from rewindow.inspection.next_steps import cause
from rewindow.inspection.replay_progress import replay_progress
from rewindow.ledger import Ledger
from rewindow.ledger.replays import RUNNABLE, ReplayState
from rewindow.location import Location
from rewindow.pages.layers import read_layers
from rewindow.pages.page import render_page
from rewindow.pages.replay_report import LiveParts, Page, ReplayReport
from rewindow.pages.report_data import pages_folder, read_acts, read_report
from rewindow.recovery import Plan
from rewindow.sequences import names_of
from rewindow.settings.config import Config
from rewindow.storage import Table
from rewindow.storage.layout import CHECKPOINTS, FACTS


def build_replay_page(config: Config, replay_id: str) -> Location:
    """Writes the page of a replay and returns its path. Starts no JVM.

    After a purge the page cannot be rendered again, so an existing page is kept unchanged.

    Raises:
        InputError: no replay has this id.
        TableError: its staged tables were deleted, for example by a purge, and no page exists.
    """
    purged = purged_tables(config, replay_id)
    if purged:
        return _drawn_before(config, replay_id, purged)
    return write_page(config, page_name(replay_id), _page(config, replay_id))


def draw_replay_page(config: Config, replay_id: str, live: LiveParts | None = None) -> str:
    """Returns the page of a replay in its current state, as HTML. Reads ledger and facts, writes
    nothing.

    Args:
        config: current settings.
        replay_id: the replay.
        live: parts that exist only if Airflow serves the page.

    Raises: see `build_replay_page`, whose existing page is returned after a purge.
    """
    Ledger.open(config.ledger_url, make=False).close()
    purged = purged_tables(config, replay_id)
    if purged:
        return _drawn_before(config, replay_id, purged).read_text()
    return render_page(replace(_page(config, replay_id), live=live))


def page_name(replay_id: str) -> str:
    """Returns the name of the file of a replay's page."""
    return f"{replay_id}.html"


def _page(config: Config, replay_id: str) -> Page:
    report = read_report(config, replay_id)
    ledger = Ledger.open(config.ledger_url)
    row = ledger.replays.get(replay_id)
    plan = row.read_plan()
    attempts = all_attempts(ledger, row)
    failed = first_cause(attempts) if row.state is ReplayState.FAILED else None
    reason = cause(row.message)
    is_shown = failed is not None and failed[1] == reason
    return Page(
        title=f"{report.application}, {report.title}",
        lead=f"Replay {replay_id}: {report.grid.times(report.windows)}."
        + (f" {report.reason}." if report.reason else "")
        + (f" Why it is {row.state.value}: {reason}" if reason and not is_shown else ""),
        grid=report.grid,
        windows=report.windows,
        stories=(report,),
        layers=read_layers(config, plan),
        made_at=datetime.now(UTC),
        facts=(*replay_facts(report), *_error_facts(config, plan)),
        acts=read_acts(config, report.application, report.windows),
        next_steps=(
            (f"rewindow status {replay_id}", "where it stands, and the next command"),
            *(
                [(f"rewindow errors {replay_id}", "its error tuples, by window and reason")]
                if plan.errors
                else []
            ),
        ),
        graph=plan.graph,
        failure=failed,
        attempts=tuple(attempts),
        progress=replay_progress(ledger, row) if row.state in RUNNABLE else None,
    )


def _error_facts(config: Config, plan: Plan) -> list[tuple[str, str]]:
    """Returns the number of error tuples and their ports, for an application with error ports.

    Rules: O65
    """
    counts = {error.name: count_errors(config, plan, error.name) for error in plan.errors}
    if not counts:
        return []
    where = ", ".join(f"{count:,} of {port}" for port, count in counts.items() if count)
    return [(f"{sum(counts.values()):,}", f"error tuples{': ' * bool(where)}{where}")]


def purged_tables(config: Config, replay_id: str) -> list[str]:
    """Returns the names of a replay's deleted staged tables.

    Raises:
        InputError: no replay has this id.
    """
    plan = Ledger.open(config.ledger_url).replays.get(replay_id).read_plan()
    root = config.replay_root(replay_id)
    names = (FACTS, CHECKPOINTS, *names_of(plan.outputs))
    return sorted(name for name in names if not Table.exists(root / name))


def _drawn_before(config: Config, replay_id: str, purged: Sequence[str]) -> Location:
    path = pages_folder(config) / page_name(replay_id)
    if not path.is_file():
        row = Ledger.open(config.ledger_url).replays.get(replay_id)
        raise TableError(
            f'page of replay "{replay_id}" cannot be drawn: its staged tables are gone',
            detail=f"Purged: {', '.join(purged)}. No page was drawn before.",
            hint=f"To see what the ledger has: rewindow status {replay_id}. To compute it again: "
            f"rewindow replay {row.application} --first {row.first} --last {row.last}",
        )
    return path


def write_page(config: Config, name: str, page: Page) -> Location:
    """Writes a page and returns its path. An older page with this name is replaced atomically."""
    path = pages_folder(config) / name
    path.write(render_page(page))
    return path


def replay_facts(report: ReplayReport) -> tuple[tuple[str, str], ...]:
    """Returns the key figures for a replay's page."""
    counts = report.counts
    gate = report.gate.verdict if report.gate else "not run"
    return (
        (f"{counts.windows:,} of {len(report.windows):,}", f"windows accounted for, {counts.fate}"),
        (f"{counts.tuples_in:,}", "tuples in"),
        (f"{counts.tuples:,}", "tuples out"),
        (f"{len(report.attempts)}", "attempts"),
        (gate, "gate"),
        (report.state, "state"),
    )
