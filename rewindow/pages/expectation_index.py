"""The page with results over time.

For every output it shows the last gate runs, their verdicts, failing windows and pages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rewindow.json_files import reading_json
from rewindow.ledger import Ledger, Replay
from rewindow.ledger.replays import ReplayState
from rewindow.location import Location, location
from rewindow.pages.drawing import draw
from rewindow.quality.findings import GateRun, runs
from rewindow.settings.config import Config
from rewindow.storage.names import data_name
from rewindow.storage.results import index_page
from rewindow.windows import Grid, WindowRange, without

SHOWN_RUNS = 12
HISTORY_RUNS = 40
READ_RUNS = 500


@dataclass(frozen=True)
class RunLine:
    """A gate run of an output, and what is known about its replay.

    Attributes:
        grid: grid of its windows; None if it is unknown.
        state: state of the replay; empty if the ledger does not have it.
        parts: its windows that no later run has judged. A verdict on an abandoned replay or on a
            candidate does not matter, so it has none.
        is_older: whether newer data had been checked before.
    """

    run: GateRun
    windows: WindowRange
    grid: Grid | None
    state: str
    parts: list[WindowRange]
    is_older: bool


def write_index(config: Config) -> Location:
    """Creates the page from the findings table and the ledger, and returns its path.

    Deleted pages are not linked.
    """
    path = index_page(config)
    path.write(draw_index(config, Ledger.open(config.ledger_url)))
    return path


def draw_index(config: Config, ledger: Ledger) -> str:
    """Returns the page for the newest runs as HTML."""
    found = runs(config, READ_RUNS)
    ids = set()
    for run in found:
        ids.add(run.replay_id)
    replays = ledger.replays.named(ids)
    return index_html(found, replays, index_page(config).parent, datetime.now(UTC))


def index_html(
    found: Sequence[GateRun],
    replays: Mapping[str, Replay],
    folder: Location,
    now: datetime,
) -> str:
    """Returns the page for the given runs, newest first. `replays` has those that are known."""
    by_output: dict[str, list[GateRun]] = {}
    for run in found:
        by_output.setdefault(data_name(run.application, run.output), []).append(run)
    outputs = []
    failing = []
    for name, entries in sorted(by_output.items()):
        lines = run_lines(entries, replays)
        state = state_of(lines)
        outputs.append((state, name, lines))
        if state == "failed":
            failing.append(name)
    outputs.sort(key=lambda output: output[0] == "passed")
    return draw(
        "index.html",
        outputs=outputs,
        failing=failing,
        link=lambda run: (
            os.path.relpath(run.docs, folder.uri) if location(run.docs).is_file() else ""
        ),
        strength=_strength,
        now=now,
        shown_runs=SHOWN_RUNS,
        history_runs=HISTORY_RUNS,
    )


def run_lines(runs: Sequence[GateRun], replays: Mapping[str, Replay]) -> list[RunLine]:
    """Returns the runs of an output, the newest data first. `runs` has the newest check first."""
    lines = []
    judged: list[WindowRange] = []
    for index, run in enumerate(runs):
        row = replays.get(run.replay_id)
        windows = WindowRange(run.first, run.last)
        state = row.state.value if row else ""
        parts = []
        if state != ReplayState.ABANDONED and not (row and row.plan.get("candidate")):
            parts = without(windows, judged)
        judged += parts
        newest = max(runs[index:], key=lambda other: other.last)
        lines.append(
            RunLine(
                run,
                windows,
                row.grid if row else None,
                state,
                parts,
                is_older=run.last < newest.last,
            )
        )
    return sorted(lines, key=_newest_data, reverse=True)


def _newest_data(line: RunLine) -> tuple[int, datetime]:
    """Returns the newest window for which a run has the newest verdict, and the time of the run."""
    newest = line.parts[-1].last if line.parts else line.run.last
    return newest, line.run.checked_at


def state_of(lines: Sequence[RunLine]) -> str:
    """Returns the newest verdict on the newest data; empty if no verdict matters any more."""
    return next((line.run.verdict for line in lines if line.parts), "")


def _strength(lines: Sequence[RunLine]) -> str:
    """Returns the newest result of testing an output's suite with planted damages, as text; empty
    if there is none.
    """
    runs = sorted((line.run for line in lines), key=lambda run: run.checked_at, reverse=True)
    files = [location(run.docs).parent / f"{run.output}.strength.json" for run in runs]
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
