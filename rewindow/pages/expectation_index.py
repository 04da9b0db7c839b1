"""The page with results over time.

For every output it shows the last gate runs, their verdicts, failing windows and pages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from rewindow.json_files import reading_json
from rewindow.location import Location, location
from rewindow.pages.drawing import draw
from rewindow.quality.findings import GateRun, runs
from rewindow.settings.config import Config
from rewindow.storage.results import index_page

SHOWN_RUNS = 12
HISTORY_RUNS = 40
READ_RUNS = 500


def write_index(config: Config) -> Location:
    """Creates the page from the findings table and returns its path.

    Deleted pages are not linked.
    """
    path = index_page(config)
    path.write(index_html(runs(config, READ_RUNS), path.parent, datetime.now(UTC)))
    return path


def index_html(found: Sequence[GateRun], folder: Location, now: datetime) -> str:
    """Returns the page for the given runs, newest first."""
    outputs: dict[tuple[str, str], list[GateRun]] = {}
    for run in found:
        outputs.setdefault((run.application, run.output), []).append(run)
    failing = sum(entries[0].verdict == "failed" for entries in outputs.values())
    return draw(
        "index.html",
        state=_state(len(outputs), failing) if outputs else "Nothing has been checked yet.",
        outputs=sorted(outputs.values(), key=_rank),
        link=lambda run: (
            os.path.relpath(run.docs, folder.uri) if location(run.docs).is_file() else ""
        ),
        strength=_strength,
        now=now,
        shown_runs=SHOWN_RUNS,
        history_runs=HISTORY_RUNS,
    )


def _rank(runs: Sequence[GateRun]) -> tuple[bool, str, str]:
    """Returns a sort key for outputs.

    Outputs whose newest run did not pass come first, then outputs are sorted by name.
    """
    newest = runs[0]
    return newest.verdict == "passed", newest.application, newest.output


def _state(outputs: int, failing: int) -> str:
    what = f"{outputs} output{'s' if outputs != 1 else ''}"
    return (
        f"{what}; the newest run of {failing} failed."
        if failing
        else f"{what}; the newest run of each passed."
    )


def _strength(found: Sequence[GateRun]) -> str:
    """Returns the newest result of testing an output's suite with planted damages, as text; empty
    if there is none.
    """
    files = [location(run.docs).parent / f"{run.output}.strength.json" for run in found]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return ""
    with reading_json(
        file,
        "strength of a suite",
        "Measure it again: rewindow check REPLAY --strength",
    ):
        known = json.loads(file.read_text())
        share = (
            f"{known['planted'] - known['unseen']} of {known['planted']} planted damages are "
            "noticed"
        )
        return f"{share}, {known['stopped']} stop the publication"
